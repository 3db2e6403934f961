package simulate

import (
	"math"
	"math/bits"

	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// inf is a time that is not known yet.
var inf = math.Inf(1)

// rank is the state of a job's training on one node: a queue of positions of its access stream,
// from those still in the staging buffer to those of the batch that threads take from. Invariant:
// free <= head <= next <= loaded.
//
//	[free, head)  consumed, their capacity not yet taken by a later read
//	[head, next)  taken, not consumed
//	[next, ...)   loaded, not taken
type rank struct {
	job *training
	on  int // its node

	line             []position // ring; its length is a power of two
	free, head, next int
	loaded           int     // end of what is loaded
	ids              []int32 // of the batch that threads take from; ids[len-(loaded-next)] is next
	step             int     // batches loaded, over all epochs
	epoch            *epoch

	used  float64 // MB of [free, next)
	taken float64 // MB of all positions before next
	done  float64 // MB of all positions before head
	room  float64 // when there was, or will be, capacity for next
	start float64 // when next is taken; inf if that depends on a later event

	streams int   // reads whose end depends on the source
	waits   waits // for a stream
	// The last reads of copies, as many as there may be at a time: when each is in the staging
	// buffer. Its length is a power of two; copied is the number of all.
	copies []float64
	copied int
	cpu    processor

	busy    float64 // when training has processed everything before head
	left    int     // samples of the batch that are not consumed
	load    float64 // MB of the batch that are consumed
	waiting bool    // for the other ranks, at the end of a batch

	// cache decides which samples are in class 1 of the node if no plan does, for the ranks of all
	// jobs; cached is the copy that stands for them. nil: the plan does.
	cache  simulated.Cache
	cached uint32

	soon []alarm // other pending events; few
	fill []filler
}

// position is a sample in a node's queue.
type position struct {
	size float64
	at   float64 // when it is in the staging buffer, inf if unknown; once consumed, when that was
	// MB of the positions before it, once it was taken
	before float64
	// Its copies are copies.list[from:to].
	from, to uint32
}

// alarm is a pending event of a node: a sample is to be read at the given time.
type alarm struct {
	time float64
	// demandRead: training asks for position head; fillRead and below: a thread reads the next
	// sample for a class
	what int32
	copy int32 // that a class then has; -1: none, or the read from the source has brought it
}

// filler is the work of the threads that fill a class.
type filler struct {
	ids  []int32
	rate float64 // MB/s that one thread writes
	idle int     // threads that have found nothing to read
}

// waits holds positions, in ascending order.
type waits struct {
	ring[int]
	mb float64 // of all
}

// sourceStreams is how many reads of a node that depend on the source are in flight at a time.
// Reads that follow choose their tier later, when it is known which copies are there. They are
// enough to keep the source busy, whatever its latency, which is not part of a transfer; the engine
// finds this number while it runs. A plan's Window sets another number.
const sourceStreams = 16

// copyStreams returns how many reads of copies, on this and other nodes, a node has between fetch
// and staging buffer at a time, as a power of two. They are enough to keep classes, network and p_0
// threads busy. More would only wait there, before reads that are needed sooner: those of other
// nodes, and those from the source.
func copyStreams(threads int) int { return max(64, 4<<bits.Len(uint(threads-1))) }

// slot returns the entry of the next read of a copy in copies.
func (n *rank) slot() *float64 { return &n.copies[n.copied&(len(n.copies)-1)] }

func (n *rank) pos(i int) *position { return &n.line[i&(len(n.line)-1)] }

// reserve grows the ring for `more` loaded positions, at time now.
func (n *rank) reserve(more int, now float64) {
	if n.loaded+more-n.free <= len(n.line) {
		return
	}
	for n.free < n.head && n.pos(n.free).at <= now {
		n.used -= n.pos(n.free).size
		n.free++
	}
	size := max(64, len(n.line))
	for n.loaded+more-n.free > size {
		size *= 2
	}
	if size == len(n.line) {
		return
	}
	line := make([]position, size)
	for i := n.free; i < n.loaded; i++ {
		line[i&(size-1)] = *n.pos(i)
	}
	n.line = line
}

// alarmAt returns when the first alarm is due.
func (n *rank) alarmAt() float64 {
	t := inf
	for i := range n.soon {
		t = min(t, n.soon[i].time)
	}
	return t
}

// load loads the node's next batches until there is a sample to take. It returns false at the end
// of training.
//
// Samples come in random order, so with millions of them each access misses all CPU caches. Loading
// a batch at a time lets its misses overlap; for that reason a position records where its sample's
// copies are.
func (m *simulation) load(i int, n *rank) bool {
	for n.loaded == n.next {
		if n.step == m.steps*m.epochs {
			return false
		}
		e, step := n.step/m.steps, n.step%m.steps
		if step == 0 {
			n.epoch = n.job.enter(e)
		}
		n.ids = n.epoch.order.Batch(n.ids[:0], n.on, step)
		n.reserve(len(n.ids), m.now)
		mask := len(n.line) - 1
		for p, k := range n.ids {
			from, to := m.copies.of(k)
			if n.cache != nil && n.cache.Read(k) {
				from, to = n.cached, n.cached+1
			}
			n.line[(n.loaded+p)&mask] = position{m.sizes[k], inf, 0, from, to}
		}
		if e < m.measure.Epochs() && n.job.first {
			m.measure.Add(e, step, n.on, n.ids)
		}
		if m.drops != nil {
			m.loadsReads(n.on, n.loaded, n.ids)
		}
		n.loaded += len(n.ids)
		n.step++
	}
	return true
}

// schedule computes when the next position is taken, and sets the node's clock.
func (m *simulation) schedule(i int, n *rank) {
	m.admit(i, n)
	m.setClock(i, n)
}

// admit computes when the next position is taken: one that waits for a stream, if there is one, or
// else the first that has not been taken, once there is capacity for it. Capacity is
// charged from then on, and freed when a sample is consumed (thesis 3.2.2: dropped at once). A
// sample larger than the whole buffer is admitted when the buffer is empty, so that training cannot
// block forever.
//
// Once the buffer is full, a part of it (m.part) must be free, so that many small samples are taken
// together.
func (m *simulation) admit(i int, n *rank) {
	n.start = inf
	if !m.plan.Prefetch { // when asked
		if n.head == n.next && !n.waiting && m.training && m.load(i, n) {
			n.start = max(m.now, n.busy)
		}
		return
	}
	if n.streams < m.streams && !n.waits.empty() {
		n.start = *n.slot()
		return
	}
	if !m.training || n.next == n.loaded && (m.ahead(n) || !m.load(i, n)) {
		return
	}
	if n.free == n.next {
		n.used = 0
	}
	need := n.pos(n.next).size
	if n.used+need > m.buffer {
		need = max(need, m.part)
		for n.used+need > m.buffer && n.free < n.next {
			if n.free == n.head {
				return
			}
			p := n.pos(n.free)
			n.used -= p.size
			n.room = p.at
			n.free++
		}
	}
	n.start = max(n.room, *n.slot())
}

// ahead reports whether as many batches are loaded, and not trained on, as the plan's window
// allows.
func (m *simulation) ahead(n *rank) bool {
	return m.plan.Window != nil && n.step-n.job.step >= m.plan.Window.Batches()
}

func (m *simulation) setClock(i int, n *rank) {
	t := n.start
	if len(n.soon) > 0 {
		t = min(t, n.alarmAt())
	}
	if m.drops != nil {
		t = min(t, m.dropAt(i))
	}
	m.clock.set(i, t)
}

// consume advances training as far as possible (thesis equation 3.2), up to the end of the batch: a
// sample is consumed once it is in the staging buffer and the computation on the one before has
// ended.
func (m *simulation) consume(i int, n *rank) {
	if n.waiting {
		return
	}
	mask := len(n.line) - 1
	for n.head < n.next {
		p := &n.line[n.head&mask]
		if p.at == inf {
			return
		}
		if p.at < 0 { // read on demand, now
			p.at = inf
			n.soon = append(n.soon, alarm{max(m.now, n.busy), demandRead, -1})
			return
		}
		p.at = max(p.at, n.busy)
		n.busy = p.at + p.size*m.perMB
		n.load += p.size
		n.done += p.size
		if m.drops != nil {
			m.consumes(n.on, n.head, p.at)
		}
		n.head++
		if n.left--; n.left == 0 {
			m.arrive(n)
			return
		}
	}
}
