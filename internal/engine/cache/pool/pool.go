// Package pool runs reads on a number of goroutines, those that batches wait for first.
package pool

import (
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/wait"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// Pool runs reads on a number of goroutines. Tasks, which batches
// wait for, run first, in the order in which the whole job needs their samples. The remaining
// workers fill storage classes ahead of time. A quarter of the workers never fills, so that a batch
// that is needed soon does not wait for a series of slow reads that are not.
type Pool struct {
	workers sync.WaitGroup

	mu      sync.Mutex // guards the following, except most and keep
	changed *sync.Cond // signals new tasks, new fills, and closed
	tasks   taskHeap
	seq     int64
	fills   []*Fill
	turn    int      // index of the fill that was served last
	holds   int      // Holds that were not released: while there are some, no fill goes on
	filling int      // number of workers that fill
	working int      // number of workers that run tasks
	idle    int      // number of workers that wait for work
	alive   int      // number of workers, without those whose reads were given up
	away    int      // number of those that wait for another node
	limit   int      // how many others there may be
	left    []Worker // buffers of workers that have ended
	closed  bool

	most int // the largest limit
	keep int // bytes of a buffer that a worker keeps for its next task
}

// Task is a sample to bring for a consumer. Order is the global step that needs it; the task with
// the lowest Order runs first.
type Task struct {
	Order    int64
	Consumer Consumer
	Index    int // of the sample in the consumer
	seq      int64
}

// Consumer is what workers fetch samples for, such as a batch.
type Consumer interface {
	// Bring fetches the consumer's sample i on a worker, with the consumer's Request. It reports
	// whether a fetch returned ErrAbandoned: the worker then ends, because another one has replaced
	// it.
	Bring(w *Worker, i int) (abandoned bool)
	// GivenUp reports that a read for the consumer hangs and was given up, and the error that it
	// fails with. The read's buffer may be written to until that Bring reports that it was
	// abandoned.
	GivenUp(err error)
}

// Fill is a list of samples to bring into their classes ahead of time.
type Fill struct {
	ids []int32 // the remaining samples, in order
	how Filling
}

// Filling is how samples are brought into a class ahead of time.
type Filling struct {
	// Run brings a sample, and reports whether the fetch was abandoned.
	Run func(w *Worker, id int) (abandoned bool)
	// Ready reports whether the next sample can be brought without waiting for its class; if so, Run
	// follows for it. nil: it always can. While it cannot, no worker waits for that: Continue must be
	// called when it can. It is called with the pool's lock held.
	Ready func(id int) bool
}

// may reports whether another worker may bring the next sample. If so, it must.
func (f *Fill) may() bool { return f.how.Ready == nil || f.how.Ready(int(f.ids[0])) }

// Worker holds the buffers that a goroutine reuses from one fetch to the next.
type Worker struct {
	Buffer []byte // for the sample
	Again  []byte // for a second read of it
}

// Trim drops buffers of more than keep bytes: what a single large sample needed does not remain
// with every worker that ever read it.
func (w *Worker) Trim(keep int) {
	for _, b := range []*[]byte{&w.Buffer, &w.Again} {
		if cap(*b) > keep {
			*b = nil
		}
	}
}

// New returns a pool of this many workers, of which Resize may make at most most, and which keep
// buffers of at most keep bytes from one task to the next. Close ends them.
func New(workers, most, keep int) *Pool {
	p := &Pool{limit: workers, most: most, keep: keep}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// Resize sets how many workers there may be.
func (p *Pool) Resize(workers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = workers
	p.hire(len(p.tasks))
}

// hire starts workers for this many tasks or fills, as far as there may be more. p.mu must be held.
func (p *Pool) hire(work int) {
	for n := min(work-p.idle, p.room()-p.alive); n > 0; n-- {
		p.alive++
		p.workers.Go(p.work)
	}
}

const (
	// mostLeft is of how many workers that have ended the buffers are kept for the next ones, if they
	// have at most leftBytes each.
	mostLeft, leftBytes = 8, 1 << 20
)

// room returns how many workers there may be. p.mu must be held.
func (p *Pool) room() int {
	return p.limit + routing.Away(p.away, p.keep)
}

// Away has another worker work in the place of the caller, which waits for another node, until it
// calls back.
func (p *Pool) Away() (back func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away++
	p.hire(len(p.tasks))
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.away--
	}
}

// Most returns how many workers there may be at most.
func (p *Pool) Most() int { return p.most }

// Filling returns how many workers fill now.
func (p *Pool) Filling() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filling
}

// maxFilling returns how many workers may fill. p.mu must be held.
func (p *Pool) maxFilling() int { return routing.Fillers(p.limit) }

// Unused reports whether more samples could be read at the same time than there are tasks for.
func (p *Pool) Unused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tasks) < p.idle+p.room()-p.alive
}

// Replace starts a worker in place of one whose read hangs, which no longer takes tasks. filled
// reports whether it was filling.
func (p *Pool) Replace(filled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if filled {
		p.filling--
	} else {
		p.working--
	}
	p.workers.Go(p.work)
}

// Submit queues tasks.
func (p *Pool) Submit(tasks []Task) {
	p.mu.Lock()
	for _, t := range tasks {
		p.seq++
		t.seq = p.seq
		p.tasks.push(t)
	}
	p.hire(len(p.tasks))
	p.mu.Unlock()
	if len(tasks) == 1 {
		p.changed.Signal()
	} else {
		p.changed.Broadcast()
	}
}

// AddFill starts to bring samples into a class; RemoveFills ends that without waiting for reads in
// progress.
func (p *Pool) AddFill(ids []int32, how Filling) *Fill {
	f := &Fill{ids: ids, how: how}
	p.mu.Lock()
	p.fills = append(p.fills, f)
	p.hire(p.maxFilling())
	p.mu.Unlock()
	p.changed.Broadcast()
	return f
}

// Hold has fills begin no reads until release is called, or the time is over.
func (p *Pool) Hold(most time.Duration) (release func()) {
	p.mu.Lock()
	p.holds++
	p.mu.Unlock()
	var once sync.Once
	let := func() {
		once.Do(func() {
			p.mu.Lock()
			p.holds--
			p.mu.Unlock()
			p.changed.Broadcast()
		})
	}
	timer := time.AfterFunc(most, let)
	return func() {
		timer.Stop()
		let()
	}
}

// Continue continues fills whose classes can take samples again.
func (p *Pool) Continue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fills) > 0 && p.idle > 0 {
		p.changed.Broadcast()
	}
}

// RemoveFills ends fills.
func (p *Pool) RemoveFills(fills ...*Fill) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range fills {
		if f != nil {
			f.ids = nil // nextFill removes it
		}
	}
}

// work runs one worker.
func (p *Pool) work() {
	var w Worker
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.left); n > 0 {
		w, p.left = p.left[n-1], p.left[:n-1]
	}
	for {
		abandoned := false
		switch {
		case p.alive > p.room() && !p.closed:
			p.alive--
			if len(p.left) < mostLeft && cap(w.Buffer)+cap(w.Again) <= leftBytes {
				p.left = append(p.left, w)
			}
			p.changed.Signal() // it may have been woken for work that another one must do now
			return
		case len(p.tasks) > 0:
			t := p.tasks.pop()
			p.working++
			p.mu.Unlock()
			abandoned = t.Consumer.Bring(&w, t.Index)
			w.Trim(p.keep)
			p.mu.Lock()
			if !abandoned { // else replace has already decremented working
				p.working--
			}
		case p.closed:
			return
		default:
			if f := p.nextFill(); f != nil {
				abandoned = p.fillOne(&w, f)
				break
			}
			p.idle++
			p.changed.Wait()
			p.idle--
		}
		if abandoned {
			return // replace has started another worker
		}
	}
}

// nextFill returns the fill that a worker should continue, round-robin; nil: none. p.mu must be
// held.
func (p *Pool) nextFill() *Fill {
	if p.holds > 0 || p.filling >= p.maxFilling() {
		return nil
	}
	p.fills = slices.DeleteFunc(p.fills, func(f *Fill) bool { return len(f.ids) == 0 })
	for range p.fills {
		p.turn = (p.turn + 1) % len(p.fills)
		f := p.fills[p.turn]
		if f.may() {
			return f
		}
	}
	return nil
}

// fillOne brings the next sample of a fill. p.mu must be held.
func (p *Pool) fillOne(w *Worker, f *Fill) (abandoned bool) {
	id := f.ids[0]
	f.ids = f.ids[1:]
	p.filling++
	p.mu.Unlock()
	abandoned = f.how.Run(w, int(id))
	w.Trim(p.keep)
	p.mu.Lock()
	if len(p.fills) > 0 {
		p.changed.Signal()
	}
	if !abandoned { // else replace has already decremented filling
		p.filling--
	}
	return abandoned
}

// Close ends the workers once the queue is empty. It waits for them for `most` time, because a read
// that hangs in the kernel cannot be interrupted, and reports whether all have ended.
func (p *Pool) Close(most time.Duration) bool {
	p.mu.Lock()
	p.closed = true
	p.fills = nil
	p.mu.Unlock()
	p.changed.Broadcast()
	return wait.Within(most, p.workers.Wait)
}

// Wait waits, after Close, until all workers have ended: forever, if a read hangs forever.
func (p *Pool) Wait() { p.workers.Wait() }
