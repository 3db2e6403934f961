package simulate

import (
	"cmp"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// copies holds the planned copies of each sample and their states: sample k's copies are
// list[first[k]:first[k+1]], the owner's first, then by node.
type copies struct {
	first []uint32 // nil: no copies at all
	list  []sampleCopy

	touched copyState // written only so that the compiler keeps the load in of
}

type sampleCopy struct {
	node  uint16
	class uint8
	state copyState
}

type copyState uint8

const (
	planned copyState = iota
	coming            // being read from the source
	there
	gone // dropped, or not placed yet
)

// newCopies returns the copies of a plan, and for each node those of further samples, which are
// gone.
func newCopies(p *plan.Plan, samples int, further [][]int32) copies {
	var c copies
	total := 0
	for _, ids := range further {
		total += len(ids)
	}
	for _, n := range p.Nodes {
		for _, ids := range n.Classes {
			total += len(ids)
		}
	}
	if total == 0 {
		return c
	}
	c.first, c.list = make([]uint32, samples+1), make([]sampleCopy, total)
	for _, n := range p.Nodes {
		for _, ids := range n.Classes {
			for _, k := range ids {
				c.first[k+1]++
			}
		}
	}
	for _, ids := range further {
		for _, k := range ids {
			c.first[k+1]++
		}
	}
	for k := range samples {
		c.first[k+1] += c.first[k]
	}
	next := slices.Clone(c.first[:samples])
	for i, n := range p.Nodes {
		for j, ids := range n.Classes {
			for _, k := range ids {
				c.list[next[k]] = sampleCopy{node: uint16(i), class: uint8(j + 1)}
				next[k]++
			}
		}
	}
	for i, ids := range further {
		for _, k := range ids {
			c.list[next[k]] = sampleCopy{node: uint16(i), state: gone}
			next[k]++
		}
	}
	for k := range samples {
		of := c.list[c.first[k]:c.first[k+1]]
		if len(of) > 1 {
			owner := p.OwnerOf(k)
			slices.SortStableFunc(of, func(a, b sampleCopy) int {
				if (int(a.node) == owner) != (int(b.node) == owner) {
					if int(a.node) == owner {
						return -1
					}
					return 1
				}
				return cmp.Compare(a.node, b.node)
			})
		}
	}
	return c
}

// of returns the range of k's copies in the list, and makes the CPU load the first into its caches.
func (c *copies) of(k int32) (from, to uint32) {
	if c.first == nil {
		return 0, 0
	}
	from, to = c.first[k], c.first[k+1]
	if from < to {
		c.touched ^= c.list[from].state
	}
	return from, to
}

// keep adds a copy that is in class 1 of the node, and stands for any sample that its cache has. It
// returns the copy's place in the list.
func (c *copies) keep(node int) uint32 {
	c.list = append(c.list, sampleCopy{node: uint16(node), class: 1, state: there})
	return uint32(len(c.list) - 1)
}

// on returns the copy of k that is planned on the node, or -1.
func (c *copies) on(node int, k int32) int32 {
	for i := c.first[k]; i < c.first[k+1]; i++ {
		if int(c.list[i].node) == node {
			return int32(i)
		}
	}
	return -1
}

// classReads holds the reads in progress from one class of one node, which end in the order in
// which they begin. With p of them, the class delivers r_j(p) (thesis equations 3.6 and 3.7), up to
// the p at which that is highest: streams beyond are not opened, and their reads wait.
type classReads struct {
	done float64       // when all have ended
	ends ring[float64] // of each; unused if r_j is constant
}

// end returns when a read of size MB would end that began at time now.
func (r *classReads) end(now, size float64, rates *rates) float64 {
	return max(r.done, now) + size*rates.slow[r.others(now, rates)]
}

// others returns how many reads are in progress, or the most of which the rate is tabled.
func (r *classReads) others(now float64, rates *rates) int {
	if len(rates.slow) == 1 {
		return 0
	}
	for !r.ends.empty() && *r.ends.head() <= now {
		r.ends.first++
	}
	return min(r.ends.len(), len(rates.slow)-1)
}

// read adds a read that ends at this time, as end returned it.
func (r *classReads) read(end float64, rates *rates) {
	r.done = end
	if len(rates.slow) > 1 {
		*r.ends.add() = end
	}
}

// rates are those of a class: slow[p-1] is 1/r_j(p), for the seconds per MB of p reads, up to the p
// of the highest rate.
type rates struct{ slow []float64 }

func newRates(curve model.Curve) rates {
	best := 1
	for _, p := range curve {
		if p.MBps > curve.At(float64(best)) {
			best = p.Clients
		}
	}
	r := rates{slow: make([]float64, min(best, tabled))}
	for p := range r.slow {
		r.slow[p] = 1 / curve.At(float64(p+1))
	}
	r.slow[len(r.slow)-1] = 1 / curve.At(float64(best))
	return r
}

// tabled is the largest number of reads for which the rates of a class are tabled.
const tabled = 1024
