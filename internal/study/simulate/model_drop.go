package simulate

import "context"

// drops is the state of a run whose policy drops copies after their last read (simulated.Run.Drop).
//
// A copy that training has read for the last time leaves its class when the sample is consumed, and
// the samples that follow in the policy's order fill the space, as far as the node has yet to load
// reads of them. They are copies as well, of class 0 and gone until there is space for them.
type drops struct {
	left    []int32 // per copy: reads of it, by its node, that are not loaded yet
	leaving []bool  // per copy: it was read for the last time while it was coming
	nodes   []nodeDrops
}

type nodeDrops struct {
	next  []int32   // samples that fill space, in order
	room  []float64 // MB free, per class
	lasts ring[lastRead]
	due   ring[lastRead] // those that are consumed, by time
}

// lastRead is a read of a copy after which none follows.
type lastRead struct {
	at   int     // its position in the node's stream
	time float64 // when it is consumed
	copy int32
	k    int32
}

// newDrops returns the state at the start. The run's copies include what may fill space. Once ctx
// is done, the state is of no use.
func newDrops(ctx context.Context, m *simulation, next [][]int32) *drops {
	d := &drops{
		left: make([]int32, len(m.copies.list)), leaving: make([]bool, len(m.copies.list)),
		nodes: make([]nodeDrops, m.job.Nodes),
	}
	for i := range d.nodes {
		n := &d.nodes[i]
		n.next = next[i]
		n.room = make([]float64, m.classes)
		for j, ids := range m.plan.Nodes[i].Classes {
			n.room[j+1] = m.job.Env.Classes[j+1].Capacity
			for _, k := range ids {
				n.room[j+1] -= m.sizes[k]
			}
		}
	}
	var ids []int32
	for e := 0; e < m.epochs && ctx.Err() == nil; e++ {
		order := m.jobs[0].stream.Epoch(e)
		for step := range m.steps {
			for i := range d.nodes {
				ids = order.Batch(ids[:0], i, step)
				for _, k := range ids {
					if c := m.ownCopy(i, k); c >= 0 {
						d.left[c]++
					}
				}
			}
		}
	}
	return d
}

// ownCopy returns the node's copy of the sample, of any state, or -1.
func (m *simulation) ownCopy(node int, k int32) int32 {
	if m.copies.first == nil {
		return -1
	}
	return m.copies.on(node, k)
}

// loadsReads notes the last reads among the samples that the node has loaded from position at on.
func (m *simulation) loadsReads(node, at int, ids []int32) {
	d := m.drops
	for p, k := range ids {
		c := m.ownCopy(node, k)
		if c < 0 {
			continue
		}
		if d.left[c]--; d.left[c] == 0 {
			*d.nodes[node].lasts.add() = lastRead{at: at + p, copy: c, k: k}
		}
	}
}

// consumes notes that the node consumes the position at a time.
func (m *simulation) consumes(node, at int, time float64) {
	n := &m.drops.nodes[node]
	if !n.lasts.empty() && n.lasts.head().at == at {
		last := *n.lasts.pop()
		last.time = time
		*n.due.add() = last
	}
}

// dropAt returns when the node drops its next copy; inf if that is not known.
func (m *simulation) dropAt(node int) float64 {
	if m.drops == nil || m.drops.nodes[node].due.empty() {
		return inf
	}
	return m.drops.nodes[node].due.head().time
}

// drop drops the copy that is due, and lets others fill the space.
func (m *simulation) drop(i int, n *rank) {
	last := *m.drops.nodes[i].due.pop()
	switch m.copies.list[last.copy].state {
	case coming:
		m.drops.leaving[last.copy] = true
	case planned, there:
		m.vacate(last.copy, m.sizes[last.k])
	}
	m.refill(i, n)
	m.setClock(i, n)
}

// vacate removes a copy of this many MB from its class.
func (m *simulation) vacate(c int32, size float64) {
	cp := &m.copies.list[c]
	cp.state = gone
	m.drops.nodes[cp.node].room[cp.class] += size
}

// arrives removes a copy that has come too late to be read.
func (m *simulation) arrives(c int32, size float64) {
	if m.drops.leaving[c] {
		m.vacate(c, size)
	}
}

// refill gives free space of the node's classes, fastest first, to the samples that follow, and has
// threads read them.
func (m *simulation) refill(i int, n *rank) {
	d := &m.drops.nodes[i]
	for j := 1; j < m.classes; j++ {
		fl := &n.fill[j-1]
		for len(d.next) > 0 {
			k := d.next[0]
			c := m.copies.on(i, k)
			if m.drops.left[c] > 0 {
				if m.sizes[k] > d.room[j] {
					break
				}
				d.room[j] -= m.sizes[k]
				cp := &m.copies.list[c]
				cp.class, cp.state = uint8(j), planned
				fl.ids = append(fl.ids, k)
			}
			d.next = d.next[1:]
		}
		for idle := fl.idle; idle > 0 && len(fl.ids) > 0; idle-- {
			fl.idle--
			m.fillNext(i, n, fillRead-int32(j-1))
		}
	}
}
