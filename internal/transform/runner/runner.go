// Package runner applies a job's transforms to its samples, on a number of threads that it tunes.
//
// It owns the workers of a transform.Program. A goroutine with a sample to transform calls Apply,
// which waits for admission (gate) and a worker. The package starts no goroutines. Results do not
// depend on the number of threads, which affects only speed (tuner).
//
// A sample acquires one lock, the gate's, twice: to enter with a worker and to leave; or, if it has
// to wait, to join the line and to return its item. Both are needed because the number of threads
// is bounded.
package runner

import (
	"errors"
	"iter"
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// Options configure a Runner.
type Options struct {
	Seed uint64 // of the job; random parameters are drawn from it
	// Threads is how many samples are transformed at the same time; 0: tuned at run time, at most
	// Most.
	Threads int
	Most    int // number of CPUs available to the process, at least 1
	// Memory is how many bytes all threads together may use in addition to their input and output;
	// 0: no limit.
	Memory int64
	// Refuse makes errors of images that would be left to the receiver (Left).
	Refuse bool
}

// keptMemory is how many bytes of buffers a worker may keep between samples: enough for images of
// about 10 million pixels. Larger buffers are freed, so that a few huge images do not hold memory
// permanently.
const keptMemory = 64 << 20

// Runner transforms the samples of a job. It is safe for concurrent use.
type Runner struct {
	program *transform.Program
	names   []string
	size    int
	seed    uint64
	gate    *gate
	budget  *budget // nil: memory has no limit
	most    int     // as many threads as there may be, if their number is fixed
	refuse  bool
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
		most:    o.Most,
		refuse:  o.Refuse,
	}
}

// Size returns the size in bytes of every sample's result; 0 if sizes differ.
func (p *Runner) Size() int { return p.size }

// Expected estimates the size of the result of a sample that has the given number of bytes.
func (p *Runner) Expected(bytes int64) int64 { return int64(p.program.Expected(float64(bytes))) }

// Steps returns the names of the transforms, in order.
func (p *Runner) Steps() []string { return p.names }

// work is a sample to transform and its result.
type work struct {
	alloc transform.Alloc
	src   []byte
	key   transform.Key
	whole bool
	spent []time.Duration
	err   error // result
}

// Apply transforms a sample and writes the result to memory that alloc returns. It calls alloc when
// the size is known, and again, with possibly another size, if the sample needs more memory or has
// to be delivered encoded. Apply waits for admission. It adds the time of each transform to spent,
// which has an entry per transform, and distributes the time waited in proportion, because it
// waited for transforms of other samples. draw is the sample's ID or, if an epoch has a sample
// several times, a different number for each occurrence; epoch and draw determine all random
// parameters. whole makes damage anywhere in src an error, whatever is decoded of it. The error
// says why src cannot be transformed.
func (p *Runner) Apply(alloc func(size int) ([]byte, error), src []byte, epoch, draw int,
	whole bool, spent []time.Duration,
) error {
	it, inside := p.gate.enter(work{
		alloc: alloc, src: src, key: transform.Key{Seed: p.seed, Epoch: epoch, Sample: draw},
		whole: whole, spent: spent,
	})
	if inside {
		return p.turn(it)
	}
	err := it.err
	p.gate.forget(it)
	return err
}

// Left reports whether an error of Apply means that the receiver is to transform the sample.
func (p *Runner) Left(err error) bool {
	var left *transform.LeftError
	return !p.refuse && errors.As(err, &left)
}

// Takes estimates how long it takes to transform so many samples on all threads, in seconds; 0 if
// no sample has waited for admission for some time, so that more could be transformed. It takes one
// lock.
func (p *Runner) Takes(samples int) float64 { return p.gate.takes(samples) }

// turn does the caller's own item, and then those of others for up to turnTime. It returns the
// error of its own.
func (p *Runner) turn(own *item) (err error) {
	began := time.Now()
	w := own.worker
	if w == nil {
		w = p.newWorker()
	}
	// items done for others, whose goroutines are notified at the end of the turn
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
		it.turn <- false // buffered, never blocks; from now on the other goroutine owns the item
		it = after
	}
	return err
}

// worker is a transform.Worker and its unreported work.
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

// share adds to spent the time that each transform took and a proportional part of the time waited,
// or all of waited to the first transform if none took any time.
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

// workers holds the idle workers and the totals of all. The gate's mutex guards it.
type workers struct {
	spare   []*worker
	closed  bool
	samples int64
	spent   []time.Duration // by transform
}

// take returns an idle worker, or nil if the caller has to make one.
func (s *workers) take() *worker {
	n := len(s.spare)
	if n == 0 {
		return nil
	}
	w := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return w
}

// put takes back a worker and adds its work to the totals.
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

// Close frees the workers. Workers in use are freed when they are returned.
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

// ThreadChanges returns how many threads might transform samples since the runner was made, with
// the times of changes; none if their number is fixed.
func (p *Runner) ThreadChanges() iter.Seq2[time.Time, int] {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.gate.opened.All()
}

// Report returns the statistics of transforming so far.
func (p *Runner) Report() *report.Preprocessing {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	s := &p.gate.workers
	r := &report.Preprocessing{Samples: s.samples, Threads: p.gate.open}
	if t := p.gate.tuner; t != nil {
		r.Threads = t.Kept()
	} else {
		r.Most = p.most
	}
	for i, name := range p.names {
		r.Transforms = append(r.Transforms,
			report.Transform{Name: name, Seconds: s.spent[i].Seconds()})
	}
	return r
}
