package simulate

import (
	"cmp"
	"slices"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/placement"
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
)

func newCopies(p *placement.Plan, samples int) copies {
	var c copies
	total := 0
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

// hold marks the copies of samples that the nodes' classes hold at the start.
func (c *copies) hold(nodes []placement.Node) {
	if c.first == nil {
		return
	}
	for i, n := range nodes {
		for j, held := range n.Held {
			for _, k := range held {
				at := c.on(i, k)
				if at >= 0 && int(c.list[at].class) == j+1 {
					c.list[at].state = there
				}
			}
		}
		for _, k := range n.Kept {
			if at := c.on(i, k); at >= 0 {
				c.list[at].state = there
			}
		}
	}
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

// on returns the copy of k that is planned on the node, or -1.
func (c *copies) on(node int, k int32) int32 {
	for i := c.first[k]; i < c.first[k+1]; i++ {
		if int(c.list[i].node) == node {
			return int32(i)
		}
	}
	return -1
}

// classReads holds the end times of the reads in progress from one class of one node. A new read
// shares the class with these (thesis equations 3.6 and 3.7: r_j(p)/p with p reading threads).
//
// A read keeps the rate of its begin, so that reads that begin while others pause could together
// get more than the class gives; done prevents that.
type classReads struct {
	ends []float64
	done float64 // when the class, at its best rate, has read all that was requested of it
}

// read adds a read of size MB that begins at time now and by itself ends at time end, and returns
// when it ends. best is the class's best rate.
func (r *classReads) read(now, end, size, best float64) float64 {
	r.done = max(r.done, now) + size/best
	end = max(end, r.done)
	r.ends = append(r.ends, end)
	return end
}

// threads returns the number of threads that read at time now, plus one.
func (r *classReads) threads(now float64) int {
	for i := 0; i < len(r.ends); {
		if r.ends[i] <= now {
			last := len(r.ends) - 1
			r.ends[i] = r.ends[last]
			r.ends = r.ends[:last]
			continue
		}
		i++
	}
	return len(r.ends) + 1
}

// tabled is the largest number of threads for which the rates of a class are tabled.
const tabled = 64

// rates holds r_j(p)/p of a class for p = 0..tabled; the entry for 0 equals that for 1.
type rates struct {
	curve perfmodel.Curve
	best  float64 // the highest r_j(p) of the threads that there are
	table [tabled + 1]float64
}

func newRates(curve perfmodel.Curve, threads int) rates {
	r := rates{curve: curve}
	r.best, _ = curve.Best(threads)
	for p := range r.table {
		r.table[p] = curve.At(float64(max(1, p))) / float64(max(1, p))
	}
	return r
}

func (r *rates) at(threads int) float64 {
	if threads <= tabled {
		return r.table[threads]
	}
	return r.curve.At(float64(threads)) / float64(threads)
}
