package model

import (
	"cmp"
	"slices"
)

// Merge returns what all nodes of a job plan with, from what is known on each of them: of each
// number the median over the nodes whose origin is the most certain, so that one node that measured
// badly does not decide among several that measured. It is a pure function, and does not depend on
// the order of nodes, so nodes that have the same reports agree. size is the mean size of a sample,
// in MB.
func Merge(nodes []Node, size float64) Node {
	of := func(get func(*Node) Value) Value {
		return median(nodes, func(n *Node) (Value, Origin, bool) {
			v := get(n)
			return v, v.Origin, v.Number > 0
		}, func(a, b Value) int { return cmp.Compare(a.Number, b.Number) })
	}
	m := Node{
		Compute:       of(func(n *Node) Value { return n.Compute }),
		Preprocess:    of(func(n *Node) Value { return n.Preprocess }),
		SourceNetwork: of(func(n *Node) Value { return n.SourceNetwork }),
		Network:       knownTier(nodes, size, func(n *Node) *Known { return &n.Network }),
		Source:        knownTier(nodes, size, func(n *Node) *Known { return &n.Source }),
		Streams: median(nodes, func(n *Node) (int, Origin, bool) {
			return n.Streams, Measured, n.Streams > 0
		}, cmp.Compare[int]),
	}
	m.mergeSources(nodes)
	most := 0
	for i := range nodes {
		most = max(most, len(nodes[i].Classes))
	}
	for j := range most {
		class := func(get func(*NodeClass) *Known) Known {
			return knownTier(nodes, size, func(n *Node) *Known {
				if j >= len(n.Classes) {
					return nil
				}
				return get(&n.Classes[j])
			})
		}
		c := NodeClass{
			Read:  class(func(c *NodeClass) *Known { return &c.Read }),
			Write: class(func(c *NodeClass) *Known { return &c.Write }),
			Stores: median(nodes, func(n *Node) (int, Origin, bool) {
				if j >= len(n.Classes) {
					return 0, "", false
				}
				return n.Classes[j].Stores, Measured, true
			}, cmp.Compare[int]),
		}
		for i := range nodes {
			if j < len(nodes[i].Classes) {
				c.Name = max(c.Name, nodes[i].Classes[j].Name)
				c.Path = max(c.Path, nodes[i].Classes[j].Path)
			}
		}
		m.Classes = append(m.Classes, c)
	}
	return m
}

// mergeSources merges t(gamma), for each number of nodes.
func (m *Node) mergeSources(nodes []Node) {
	best := len(origins)
	for i := range nodes {
		if len(nodes[i].Sources) > 0 {
			best = min(best, nodes[i].SourcesOrigin.certainty())
		}
	}
	rates := map[int][]float64{}
	for i := range nodes {
		if n := &nodes[i]; len(n.Sources) > 0 && n.SourcesOrigin.certainty() == best {
			m.SourcesOrigin = n.SourcesOrigin
			for _, p := range n.Sources {
				rates[p.Clients] = append(rates[p.Clients], p.MBps)
			}
		}
	}
	middle := map[int]float64{}
	for clients, all := range rates {
		slices.Sort(all)
		middle[clients] = all[(len(all)-1)/2]
	}
	if len(middle) > 0 {
		m.Sources = NewCurve(middle)
	}
}

// knownTier returns the median of what nodes know of a tier, by how long a read takes.
func knownTier(nodes []Node, size float64, get func(*Node) *Known) Known {
	return median(nodes, func(n *Node) (Known, Origin, bool) {
		k := get(n)
		if k == nil {
			return Known{}, "", false
		}
		return *k, k.Origin, true
	}, func(a, b Known) int {
		x, more := a.one(size)
		y, less := b.one(size)
		return cmp.Or(cmp.Compare(x+more, y+less), cmp.Compare(a.Latency, b.Latency),
			cmp.Compare(a.PerMB, b.PerMB), cmp.Compare(a.Queued, b.Queued))
	})
}

// median returns the median of the most certain values, the lower one of two; the zero value if
// there are none.
func median[T any](nodes []Node, get func(*Node) (T, Origin, bool), compare func(a, b T) int) T {
	var all []T
	best := len(origins) + 1
	for i := range nodes {
		v, origin, ok := get(&nodes[i])
		if !ok || origin.certainty() > best {
			continue
		}
		if origin.certainty() < best {
			all, best = all[:0], origin.certainty()
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		var none T
		return none
	}
	slices.SortFunc(all, compare)
	return all[(len(all)-1)/2]
}
