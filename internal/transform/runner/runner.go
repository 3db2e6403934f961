// Package runner applies a job's transforms to its samples, on as many threads as pay off.
//
// It owns the workers of a transform.Program: who has a sample to transform, on whatever goroutine, comes to Apply, which
// waits for a thread to be free (gate), takes a worker and gives it back. It starts no
// goroutine. What comes out does not depend on the number of threads; only time does (tuner).
package runner

import (
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/stats"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// Options say how a job's samples are transformed.
type Options struct {
	Seed uint64 // of the job: random parameters are drawn from it
	// Threads is how many samples are transformed at the same time; 0: as many as pay off, Most at the most.
	Threads int
	Most    int // processors that the process may use, at least 1
	// Memory is how many bytes all threads may take together, beside what they read and what they make; 0: any number.
	Memory int64
}

// keptMemory is how many bytes of buffers a worker may keep from one sample to the next: enough for images of
// some 10 million pixels. Larger ones are given back, so that a few giants do not hold memory for good.
const keptMemory = 64 << 20

// Runner transforms the samples of a job. It is safe for concurrent use.
type Runner struct {
	program *transform.Program
	names   []string
	size    int
	seed    uint64
	gate    *gate
	budget  *budget // nil: memory has no limit

	mu      sync.Mutex // guards the following
	spare   []*hand
	closed  bool
	samples int64
	spent   []time.Duration // by transform
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
	return &Runner{
		budget: b, program: p, names: names, size: p.Output().Bytes(), seed: o.Seed,
		gate: newGate(o, time.Now), spent: make([]time.Duration, len(names)),
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

// Apply makes of a sample's bytes what the process gets, where room says, which is asked once its size is known: several times, and for several
// sizes, where it turns out that it takes more memory or has to be delivered encoded. It waits for its turn; then
// it adds what each transform took to spent, which has an entry per transform, and to each a share of the wait, in proportion: what
// it waited for are other samples' transforms. draw is the sample's ID, or where an epoch has a sample more than once another number for
// each; the same sample of the same epoch always becomes the same by it. An error says what in src no transform can work with.
func (p *Runner) Apply(room func(size int) ([]byte, error), src []byte, epoch, draw int, spent []time.Duration) error {
	it, inside := p.gate.enter(work{
		room: room, src: src, key: transform.Key{Seed: p.seed, Epoch: epoch, Sample: draw}, spent: spent,
	})
	if inside {
		p.turn(it)
	}
	err := it.err
	p.gate.forget(it)
	return err
}

// turn does the caller's own item, and others' while it may.
func (p *Runner) turn(own *item) {
	began := time.Now()
	h := p.take()
	for it := own; it != nil; it = p.gate.next(began) {
		h.apply(p.budget, it)
		if it != own {
			h.others = append(h.others, it)
		}
	}
	p.put(h)
}

// hand is a worker, with what it did since it was taken.
type hand struct {
	*transform.Worker
	spent  []time.Duration // by transform
	did    int
	others []*item // that others wait for
}

func (h *hand) apply(b *budget, it *item) {
	waited := time.Since(it.came)
	took := append(make([]time.Duration, 0, 16), h.Times()...)
	it.err = b.apply(h.Worker, it)
	for i, t := range h.Times() {
		took[i] = t - took[i]
		h.spent[i] += took[i]
	}
	share(it.spent, took, waited)
	h.did++
}

// share adds to spent what each transform took, and of the time waited as much in proportion; all of it to the first where none took any.
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

// take takes a worker that nobody uses, or makes one.
func (p *Runner) take() *hand {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.spare); n > 0 {
		h := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return h
	}
	w := p.program.Worker()
	p.budget.limit(w)
	return &hand{Worker: w, spent: make([]time.Duration, len(p.names))}
}

// put gives the worker back, counts what it did, and tells those who wait for it.
func (p *Runner) put(h *hand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples += int64(h.did)
	for i, t := range h.spent {
		p.spent[i] += t
	}
	for _, it := range h.others {
		it.turn <- false // has room for it
	}
	clear(h.spent)
	h.did, h.others = 0, h.others[:0]
	if p.closed || h.Memory() > keptMemory {
		h.Close()
		return
	}
	p.spare = append(p.spare, h)
}

// Close frees the workers. Those that are at work are freed when they are done.
func (p *Runner) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, h := range p.spare {
		h.Close()
	}
	p.spare = nil
}

// Report tells what transforming has taken so far.
func (p *Runner) Report() *stats.Preprocessing {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &stats.Preprocessing{Samples: p.samples, Threads: p.gate.limit()}
	for i, name := range p.names {
		r.Transforms = append(r.Transforms, stats.Transform{Name: name, Seconds: p.spent[i].Seconds()})
	}
	return r
}
