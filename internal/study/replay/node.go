package replay

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// node is a node: the tasks of its ranks, the workers that bring samples (pool.Pool), and its cache
// (cache.Cache).
type node struct {
	c      *cluster
	number int
	spec   *Node
	ranks  []*rank
	epoch  int // the last one that a rank began
	limits *InForce
	// staging is the MB of a rank's staging buffer.
	staging float64

	tasks   heap[task]
	seq     int
	workers int // that have a task or fill
	away    int // of these, those in whose place others may work
	buffer  int // bytes that a worker keeps for its next sample
	fills   []*fill
	turn    int
	filling int
	// unfilled is how many samples fills have not brought, or left to the batch that needs them.
	unfilled int
	// dispatching is set while the next worker is about to be given something.
	dispatching bool

	// in holds, for each sample, the class that is to hold it, from 1, and whether it does: see
	// there and copied. 0: none.
	in      []uint8
	flights map[int32]*flight
	gate    gate
	threads servers
	// classes are the devices of those that are not in memory, files their meters, and hung how many
	// reads of each were given up and have not ended.
	classes []queue
	files   []meter.Meter
	hung    []int
	writers []writer
	sent    queue // to other nodes
	got     queue // from other nodes

	source meter.Meter
	remote meter.Meter // of all peers
	peers  []peer      // by number
	// routed are the bytes of reads for which a tier was chosen, and explored those of them that were
	// read from the source only to renew its estimates (cache.explored).
	routed, explored int64
}

// fill brings samples of a class ahead of time (pool.Fill).
type fill struct {
	ids []int32
}

// peer is what a node has seen of another one (breaker.circuit).
type peer struct {
	routing.Circuit
	meter meter.Meter
}

const (
	// there is set in node.in if the class holds the sample, and copied if a copy of it waits to be
	// written there.
	there  = 0x80
	copied = 0x40
)

func newNode(c *cluster, number int) *node {
	bytes := int64(0)
	n := &node{
		c: c, number: number, spec: &c.job.Nodes[number], epoch: -1,
		in: make([]uint8, len(c.job.Sizes)), flights: map[int32]*flight{},
		sent: queue{perMB: 1 / c.job.Link}, got: queue{perMB: 1 / c.job.Link},
		peers:   make([]peer, len(c.job.Nodes)),
		classes: make([]queue, len(c.job.Nodes[number].Classes)),
		files:   make([]meter.Meter, len(c.job.Nodes[number].Classes)),
		hung:    make([]int, len(c.job.Nodes[number].Classes)),
	}
	for _, size := range c.job.Sizes {
		bytes += size
	}
	n.buffer = routing.Buffer(bytes, len(c.job.Sizes))
	n.gate.limit = int(n.spec.Streams[0].To)
	if n.transforms() {
		n.threads.open(int(n.spec.Threads[0].To))
	}
	n.staging = n.spec.Staging[0].To
	for j, ids := range c.job.Plan.Nodes[number].Classes {
		for _, k := range ids {
			n.in[k] = uint8(j + 1)
		}
		if !c.job.Plan.OnRead {
			n.fills = append(n.fills, &fill{ids: ids})
			n.unfilled += len(ids)
		}
	}
	known := &c.job.Known
	n.source.Know(knownOr(known.Source, model.GuessedSource))
	for i := range n.peers {
		n.peers[i].meter.Know(knownOr(known.Network, model.GuessedPeer))
	}
	for j, class := range n.spec.Classes {
		for k := range n.in {
			if class.KeepAll && n.in[k] == 0 {
				n.in[k] = uint8(j + 1)
			}
		}
		if !class.Memory {
			guess := model.GuessedClass
			if j < len(known.Classes) {
				guess = knownOr(known.Classes[j].Read, guess)
			}
			n.files[j].Know(guess)
		}
		n.writers = append(n.writers, writer{rate: class.Write})
		for _, k := range class.Held {
			if n.in[k]&there == 0 {
				n.in[k] = uint8(j+1) | there
			}
		}
	}
	return n
}

func knownOr(k, guess model.Known) model.Known {
	if k.Origin == "" {
		return guess
	}
	return k
}

// enter puts the limits of an epoch in force, when the first rank begins it.
func (n *node) enter(epoch int) {
	if epoch <= n.epoch {
		return
	}
	n.epoch = epoch
	n.limits = &n.spec.InForce[min(epoch, len(n.spec.InForce)-1)]
	for j, class := range n.spec.Classes {
		if !class.Memory {
			n.classes[j].perMB = 1 / class.Rate
			if j < len(n.limits.Read) && n.limits.Read[j] > 0 {
				n.classes[j].perMB = 1 / n.limits.Read[j]
			}
		}
	}
	n.dispatch()
}

// admit changes the number of reads from the source.
func (n *node) admit(limit int) {
	n.gate.limit = limit
	n.gate.admit()
	n.dispatch()
}

// grow changes the size of the staging buffers.
func (n *node) grow(mb float64) {
	n.staging = mb
	for _, r := range n.ranks {
		r.layOut()
	}
}

// first returns how many batches a rank stages before it has taken one (job.Rank).
func (n *node) first(r *rank) int {
	stream := n.c.job.Stream
	batch := max(stream.RankSamples(r.number)/n.c.steps, 1)
	return max(2, (2*int(n.spec.Streams[0].To)+batch-1)/batch)
}

// class returns the class that is to hold a sample, and whether it does; nil: none.
func (n *node) class(k int32) (class *Class, number int, holds bool) {
	in := n.in[k]
	if in == 0 {
		return nil, 0, false
	}
	number = int(in &^ (there | copied))
	return &n.spec.Classes[number-1], number, in&there != 0
}

// inBuffer returns how many MB of the staging buffer a batch takes.
func (n *node) inBuffer(ids []int32) (mb float64) {
	for _, k := range ids {
		switch class, _, _ := n.class(k); {
		case n.transforms() && n.spec.Result > 0:
			mb += n.spec.Result
		case n.transforms() || class == nil || !class.Memory:
			mb += n.mb(k)
		}
	}
	return mb
}

// transforms reports whether samples are transformed.
func (n *node) transforms() bool { return len(n.spec.Threads) > 0 }

func (n *node) mb(k int32) float64 { return float64(n.c.job.Sizes[k]) / perMega }

// task is a sample that a batch lacks.
type task struct {
	batch  *batch
	sample int32
	seq    int
}

// before sorts tasks by the step that needs the sample, then by arrival.
func (t task) before(o task) bool {
	if t.batch.step != o.batch.step {
		return t.batch.step < o.batch.step
	}
	return t.seq < o.seq
}

// bringAll queues the samples of a batch that are not in memory: at once, or when it is their turn
// (window.go).
func (n *node) bringAll(b *batch, ids []int32) {
	for _, k := range ids {
		if class, _, holds := n.class(k); holds && class.Memory && !n.transforms() {
			b.arrived[class.Name] += n.mb(k)
			continue
		}
		b.left++
		n.seq++
		n.submit(task{b, k, n.seq})
	}
	b.line()
}

// dispatch gives workers tasks, and what fills classes if there are none: one after another, as all
// nodes do at the same time. Otherwise the first node would be ahead of the others at the source by
// as many reads as it has workers, and remain so.
func (n *node) dispatch() {
	if !n.dispatching {
		n.dispatching = true
		n.c.events.after(0, n.dispatchOne)
	}
}

func (n *node) dispatchOne() {
	n.dispatching = false
	most := n.gate.limit + routing.ExtraWorkers
	switch {
	case n.workers >= most+routing.Away(n.away, n.buffer):
		return
	case len(n.tasks) > 0:
		n.workers++
		n.bring(n.tasks.pop())
	case n.filling < routing.Fillers(most) && n.fillOne():
	default:
		return
	}
	n.dispatch()
}

// bring brings the sample of a task, and transforms it.
func (n *node) bring(t task) {
	due := func() float64 { return t.batch.rank.due(t.batch.step) }
	r := request{peers: true, urgent: true, due: due, cacheFirst: n.c.job.Plan.CacheFirst}
	keeps := n.keeps(t.sample)
	n.fetch(t.sample, r, func(got sample) {
		done := func() {
			b := t.batch
			b.arrived[got.tier] += n.mb(t.sample)
			b.next()
			if b.left--; b.left == 0 {
				b.ended()
				b.rank.take()
			}
			n.workers--
			n.dispatch()
		}
		if !n.transforms() {
			done()
			return
		}
		n.threads.run(func() {
			perMB := n.limits.transformMB(n.form(got.tier, keeps))
			n.c.events.after(n.mb(t.sample)*perMB, func() {
				n.threads.release()
				done()
			})
		})
	})
}

// due returns when the process needs a batch, in seconds from now.
func (r *rank) due(step int) float64 { return r.pace.Due(r.c.events.time(), step-r.taken) }

// fillOne brings the next sample of the next class that is filled. It reports whether there is one.
func (n *node) fillOne() bool {
	f := n.nextFill()
	if f == nil {
		return false
	}
	k := f.ids[0]
	f.ids = f.ids[1:]
	if n.in[k]&(there|copied) != 0 {
		n.unreserve(k)
		n.fillLess()
		return true
	}
	n.workers++
	n.filling++
	n.fetch(k, request{peers: true}, func(sample) {
		n.unreserve(k)
		n.workers--
		n.filling--
		n.fillLess()
		n.dispatch()
	})
	return true
}

// fillLess records that a fill has brought a sample, or that its class holds it.
func (n *node) fillLess() {
	if n.unfilled--; n.unfilled == 0 {
		n.c.filled()
	}
}

// nextFill returns the fill that a worker should continue; nil: none.
func (n *node) nextFill() *fill {
	n.fills = slices.DeleteFunc(n.fills, func(f *fill) bool { return len(f.ids) == 0 })
	for range n.fills {
		n.turn = (n.turn + 1) % len(n.fills)
		if f := n.fills[n.turn]; n.reserve(f.ids[0]) {
			return f
		}
	}
	return nil
}
