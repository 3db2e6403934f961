// Package runner applies a job's transforms to its samples, on as many threads as pay off.
//
// It owns the workers of a transform.Program. A goroutine that has a sample to transform calls
// Apply, which waits until it is let in (gate), with a worker. It starts no goroutine. What comes
// out does not depend on the number of threads; only time does (tuner).
//
// A sample takes one lock twice, the gate's: to be let in with a worker, and to leave with both
// given back; or, where it has to wait, to join the line and to give its item back. Both are
// needed, because the number of threads is bounded.
package runner

import (
	"time"

	"github.com/hdmlp/hdmlp/internal/stats"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// Options say how a job's samples are transformed.
type Options struct {
	Seed uint64 // of the job: random parameters are drawn from it
	// Threads is how many samples are transformed at the same time; 0: as many as pay off, Most at
	// the most.
	Threads int
	Most    int // processors that the process may use, at least 1
	// Memory is how many bytes all threads may take together, beside what they read and what they
	// make; 0: any number.
	Memory int64
}

// keptMemory is how many bytes of buffers a worker may keep from one sample to the next: enough for
// images of some 10 million pixels. Larger ones are given back, so that a few giants do not hold
// memory for good.
const keptMemory = 64 << 20

// Runner transforms the samples of a job. It is safe for concurrent use.
type Runner struct {
	program *transform.Program
	names   []string
	size    int
	seed    uint64
	gate    *gate
	budget  *budget // nil: memory has no limit
}

// New returns a runner; Close frees its workers.
func New(p *transform.Program, o Options) *Runner {
	names := p.Names()
	var b *budget
	if o.Memory > 0 {
		threads := o.Threads
		if threads == 0 {
			threads = o.Most
		}
		b = newBudget(o.Memory, threads)
	}
	g := newGate(o, time.Now)
	g.workers.spent = make([]time.Duration, len(names))
	return &Runner{
		program: p,
		names:   names,
		size:    p.Output().Bytes(),
		seed:    o.Seed,
		gate:    g,
		budget:  b,
	}
}

// Size is how many bytes every sample becomes; 0: that differs.
func (p *Runner) Size() int { return p.size }

// Expected is about how many bytes a sample becomes that has so many now.
func (p *Runner) Expected(bytes int64) int64 { return int64(p.program.Expected(float64(bytes))) }

// Steps are the names of the transforms, in order.
func (p *Runner) Steps() []string { return p.names }

// work is a sample to transform, for the goroutine that waits for it.
type work struct {
	room  transform.Room
	src   []byte
	key   transform.Key
	spent []time.Duration
	err   error // what came of it
}

// Apply makes of a sample's bytes what the process gets, where room says, which is asked once its
// size is known: several times, and for several sizes, where it turns out that it takes more memory
// or has to be delivered encoded. It waits for its turn; then it adds what each transform took to
// spent, which has an entry per transform, and to each a share of the wait, in proportion: what it
// waited for are other samples' transforms. draw is the sample's ID, or where an epoch has a sample
// more than once another number for each; the same sample of the same epoch always becomes the same
// by it. An error says what in src no transform can work with.
func (p *Runner) Apply(room func(size int) ([]byte, error), src []byte, epoch, draw int,
	spent []time.Duration,
) error {
	it, inside := p.gate.enter(work{
		room: room, src: src, key: transform.Key{Seed: p.seed, Epoch: epoch, Sample: draw},
		spent: spent,
	})
	if inside {
		return p.turn(it)
	}
	err := it.err
	p.gate.forget(it)
	return err
}

// turn does the caller's own item, and others' while it may. It returns what came of its own.
func (p *Runner) turn(own *item) (err error) {
	began := time.Now()
	w := own.worker
	if w == nil {
		w = p.newWorker()
	}
	// of those done for others, which wait until the end of the turn to be told
	var first, last *item
	for it := own; it != nil; it = p.gate.next(began, own, w) {
		w.apply(p.budget, it)
		switch {
		case it == own:
			err = own.err
		case first == nil:
			first, last = it, it
		default:
			last.after, last = it, it
		}
	}
	for it := first; it != nil; {
		after := it.after
		it.turn <- false // has room for it; the item is the other's from now on
		it = after
	}
	return err
}

// worker is a transform.Worker, and what it did since it came to its present owner.
type worker struct {
	*transform.Worker
	spent []time.Duration // by transform
	did   int
}

func (p *Runner) newWorker() *worker {
	w := p.program.Worker()
	p.budget.limit(w)
	return &worker{Worker: w, spent: make([]time.Duration, len(p.names))}
}

func (w *worker) apply(b *budget, it *item) {
	waited := time.Since(it.came)
	took := append(make([]time.Duration, 0, 16), w.Times()...)
	it.err = b.apply(w.Worker, it)
	for i, t := range w.Times() {
		took[i] = t - took[i]
		w.spent[i] += took[i]
	}
	share(it.spent, took, waited)
	w.did++
}

// share adds to spent what each transform took, and of the time waited as much in proportion; all
// of it to the first where none took any.
func share(spent, took []time.Duration, waited time.Duration) {
	var all time.Duration
	for _, t := range took {
		all += t
	}
	if all == 0 {
		spent[0] += waited
		return
	}
	for i, t := range took {
		spent[i] += t + time.Duration(float64(waited)*float64(t)/float64(all))
	}
}

// workers are those that no goroutine uses, and what all have done. The gate's mutex guards them.
type workers struct {
	spare   []*worker
	closed  bool
	samples int64
	spent   []time.Duration // by transform
}

// take returns a worker; nil: there is none, and one has to be made.
func (s *workers) take() *worker {
	n := len(s.spare)
	if n == 0 {
		return nil
	}
	w := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return w
}

// put takes a worker back, and counts what it did.
func (s *workers) put(w *worker) {
	s.samples += int64(w.did)
	for i, t := range w.spent {
		s.spent[i] += t
	}
	clear(w.spent)
	w.did = 0
	if s.closed || w.Memory() > keptMemory {
		w.Close()
		return
	}
	s.spare = append(s.spare, w)
}

// Close frees the workers. Those that are at work are freed when they are done.
func (p *Runner) Close() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	s := &p.gate.workers
	s.closed = true
	for _, w := range s.spare {
		w.Close()
	}
	s.spare = nil
}

// Report says what transforming has taken so far.
func (p *Runner) Report() *stats.Preprocessing {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	s := &p.gate.workers
	r := &stats.Preprocessing{Samples: s.samples, Threads: p.gate.open}
	for i, name := range p.names {
		r.Transforms = append(r.Transforms,
			stats.Transform{Name: name, Seconds: s.spent[i].Seconds()})
	}
	return r
}
