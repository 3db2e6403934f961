package analysis

import (
	"fmt"
	"slices"
)

// alike is how much a rate of a node may differ from the mean of all, as a share, before it is
// noted that nodes differ.
const alike = 0.2

// OfNodes returns what was measured of a job whose nodes were each measured for itself, by number.
// Each must say the dataset, the ranks and the nodes of the whole job. Rates are the means over the
// nodes, so that all of them together do that times their number; reads of the source alone and by
// the number of nodes are those of the first node that has them. There must be a node.
func OfNodes(all []*Measured) *Measured {
	m := *all[0]
	m.Notes = nil
	of := func(name string, rate func(*Measured) *Rate) *Rate {
		var rates []*Rate
		for _, node := range all {
			rates = append(rates, rate(node))
		}
		if slices.Contains(rates, nil) {
			return nil
		}
		mean := mean(rates)
		for k, r := range rates {
			if r.Median < (1-alike)*mean.Median || r.Median > (1+alike)*mean.Median {
				m.Notes = append(m.Notes, Note{About: name, Text: fmt.Sprintf(
					"nodes differ, and are taken to be equal: %.4g samples/s on node %d, %.4g on average",
					r.Median, k, mean.Median)})
			}
		}
		return mean
	}
	m.Training = of("training", func(n *Measured) *Rate { return n.Training })
	m.Device = of("device", func(n *Measured) *Rate { return n.Device })
	m.Memory = of("memory", func(n *Measured) *Rate { return n.Memory })
	m.Directory = of("directory", func(n *Measured) *Rate { return n.Directory })
	m.Peers = of("peers", func(n *Measured) *Rate { return n.Peers })
	m.AsIs = of("as_is", func(n *Measured) *Rate { return n.AsIs })
	points := func(of func(*Measured) []Point) (common []Point) {
		for _, p := range of(all[0]) {
			var rates []*Rate
			for _, node := range all {
				if i := slices.IndexFunc(of(node), func(q Point) bool { return q.N == p.N }); i >= 0 {
					rates = append(rates, &of(node)[i].Rate)
				}
			}
			if len(rates) == len(all) {
				common = append(common, Point{N: p.N, Rate: *mean(rates)})
			}
		}
		return common
	}
	m.Preparation = points(func(n *Measured) []Point { return n.Preparation })
	m.Switched = points(func(n *Measured) []Point { return n.Switched })
	m.Waited, m.Computed = 0, 0
	for _, node := range all {
		m.First = m.First || node.First
		m.Waited += node.Waited / float64(len(all))
		m.Computed += node.Computed / float64(len(all))
		m.Cores, m.Room = min(m.Cores, node.Cores), min(m.Room, node.Room)
		m.Loader.CacheMB = min(m.Loader.CacheMB, node.Loader.CacheMB)
		m.Loader.DirectoryMB = min(m.Loader.DirectoryMB, node.Loader.DirectoryMB)
		if len(m.Source) == 0 {
			m.Source, m.SourceWork = node.Source, node.SourceWork
		}
		if len(m.Sources) == 0 {
			m.Sources = node.Sources
		}
	}
	m.notes(all)
	return &m
}

// notes adds the notes of nodes. Those that not all nodes have name the first one that has it.
func (m *Measured) notes(all []*Measured) {
	seen := map[Note]bool{}
	for k, node := range all {
		for _, n := range node.Notes {
			if seen[n] {
				continue
			}
			seen[n] = true
			common := !slices.ContainsFunc(all, func(other *Measured) bool {
				return !slices.Contains(other.Notes, n)
			})
			if !common {
				n.Text = fmt.Sprintf("node %d: %s", k, n.Text)
			}
			m.Notes = append(m.Notes, n)
		}
	}
}

// mean returns the mean of rates, and of the ends of their intervals: nodes that average gradients
// are slow at the same time.
func mean(rates []*Rate) *Rate {
	m, n := new(Rate), float64(len(rates))
	for _, r := range rates {
		m.Median += r.Median / n
		m.Low += r.Low / n
		m.High += r.High / n
		m.Few = m.Few || r.Few
	}
	m.Low, m.High = min(m.Low, m.Median), max(m.High, m.Median) // whatever sums are rounded to
	return m
}
