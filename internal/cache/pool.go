package prefetch

import (
	"container/heap"
	"sync"
	"time"
)

// pool runs reads on a fixed number of goroutines. Tasks of the staging buffers
// come first, in the order in which the whole job will need their samples; what
// is left of the workers fills storage classes ahead of time. A quarter of them
// is kept from filling, so that a batch that is needed soon never
// waits behind a row of slow reads that are not.
type pool struct {
	workers sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	tasks   taskHeap
	seq     int64
	fills   []*fill
	turn    int // the fill whose turn it is
	filling int
	closed  bool

	threads, maxFilling int
}

// task is one sample to bring for a batch. order is the global step that needs it.
type task struct {
	order, seq int64
	batch      *batch
	index      int // of the sample in the batch
}

// fill is a list of samples to bring into their classes ahead of time.
type fill struct {
	ids []int32 // what is left, in order
	run func(w *worker, id int)
}

// worker is one of the pool's goroutines; its fields are its own.
type worker struct {
	batch *batch // whose sample it brings; nil: it fills a class
	peers Peers  // that it may ask; nil: none
	lost  bool   // it hung, was given up, and another has taken its place

	guest bool // it reads for another node, and is none of the pool's

	scratch []byte // of fetchView
	again   []byte // of verify
}

func newPool(threads int) *pool {
	p := &pool{threads: threads, maxFilling: max(threads*3/4, 1)}
	p.changed = sync.NewCond(&p.mu)
	for range threads {
		p.workers.Go(p.work)
	}
	return p
}

// replace starts a worker in place of one that hangs in a read. That one counts as
// a worker until it ends, but takes part in nothing any more.
func (p *pool) replace(filled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if filled {
		p.filling--
	}
	p.workers.Go(p.work)
}

// submit queues tasks.
func (p *pool) submit(tasks []task) {
	p.mu.Lock()
	for _, t := range tasks {
		p.seq++
		t.seq = p.seq
		heap.Push(&p.tasks, t)
	}
	p.mu.Unlock()
	if len(tasks) == 1 {
		p.changed.Signal()
	} else {
		p.changed.Broadcast()
	}
}

// addFill starts filling; removeFill ends it, without waiting for reads under way.
func (p *pool) addFill(ids []int32, run func(w *worker, id int)) *fill {
	f := &fill{ids: ids, run: run}
	p.mu.Lock()
	p.fills = append(p.fills, f)
	p.mu.Unlock()
	p.changed.Broadcast()
	return f
}

func (p *pool) removeFill(f *fill) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.ids = nil
	p.forget(f)
}

// forget takes a fill off the list. p.mu is held.
func (p *pool) forget(f *fill) {
	for i, g := range p.fills {
		if g == f {
			p.fills = append(p.fills[:i], p.fills[i+1:]...)
			return
		}
	}
}

// work is one worker.
func (p *pool) work() {
	var w worker
	p.mu.Lock()
	defer p.mu.Unlock()
	for !w.lost {
		switch {
		case len(p.tasks) > 0:
			t := heap.Pop(&p.tasks).(task)
			p.mu.Unlock()
			w.batch, w.peers = t.batch, t.batch.stager.o.Peers
			t.batch.fetch(&w, t.index)
			w.batch, w.peers = nil, nil
			p.mu.Lock()
		case p.closed:
			return
		case len(p.fills) > 0 && p.filling < p.maxFilling:
			p.fillOne(&w)
		default:
			p.changed.Wait()
		}
	}
}

// fillOne brings the next sample of the fill whose turn it is. p.mu is held.
func (p *pool) fillOne(w *worker) {
	p.turn = (p.turn + 1) % len(p.fills)
	f := p.fills[p.turn]
	if len(f.ids) == 0 {
		p.forget(f)
		return
	}
	id := f.ids[0]
	f.ids = f.ids[1:]
	p.filling++
	p.mu.Unlock()
	f.run(w, int(id))
	p.mu.Lock()
	if w.lost {
		return
	}
	p.filling--
	if len(p.fills) > 0 {
		p.changed.Signal()
	}
}

// close ends the workers once the queue is empty, and waits for them at most
// the given time, because a read that hangs in the kernel can not be interrupted. It
// tells whether all have ended.
func (p *pool) close(patience time.Duration) bool {
	p.mu.Lock()
	p.closed = true
	p.fills = nil
	p.mu.Unlock()
	p.changed.Broadcast()
	done := make(chan struct{})
	go func() {
		p.workers.Wait()
		close(done)
	}()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-done:
		return true
	case <-timeout.C:
		return false
	}
}

// taskHeap orders tasks by the step that needs them, then by arrival.
type taskHeap []task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	if h[i].order != h[j].order {
		return h[i].order < h[j].order
	}
	return h[i].seq < h[j].seq
}
func (h taskHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *taskHeap) Push(x any)   { *h = append(*h, x.(task)) }
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	*h = old[:len(old)-1]
	return t
}
