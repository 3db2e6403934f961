// Package runner applies a job's transforms to its samples, on a number of threads that it tunes.
//
// It owns the workers of a transform.Program, or of one for each of the fields that are
// transformed, which share the threads. A goroutine with a sample to transform calls Apply,
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
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
	"github.com/hdmlp/hdmlp/internal/transform/left"
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
	fields []*Field
	names  []string // of all steps
	gate   *gate
	budget *budget // nil: memory has no limit
	most   int     // as many threads as there may be, if their number is fixed
	refuse bool
}

// Field transforms one field of samples, or several jointly. It is safe for concurrent use.
type Field struct {
	*Runner
	number  int
	program *transform.Program
	names   []string
	first   int   // the number of its first step among all
	sizes   []int // of the results
	seed    uint64
}

// Part is a field that is transformed.
type Part struct {
	Name    string // "" if it is the only one
	Program *transform.Program
}

// New returns a runner for a sample's fields, at least one; Close frees its workers.
func New(parts []Part, o Options) *Runner {
	r := &Runner{most: o.Most, refuse: o.Refuse}
	for i, p := range parts {
		names := slices.Clone(p.Program.Names())
		if p.Name != "" {
			for k := range names {
				names[k] = p.Name + ": " + names[k]
			}
		}
		f := &Field{
			Runner: r, number: i, program: p.Program, names: names, first: len(r.names),
			seed: o.Seed,
		}
		for _, out := range p.Program.Outputs() {
			f.sizes = append(f.sizes, out.Bytes())
		}
		r.fields = append(r.fields, f)
		r.names = append(r.names, names...)
	}
	var b *budget
	if o.Memory > 0 {
		threads := o.Threads
		if threads == 0 {
			threads = o.Most
		}
		b = newBudget(o.Memory, threads, len(parts))
	}
	r.budget, r.gate = b, newGate(o, time.Now)
	r.gate.workers.spent = make([]time.Duration, len(r.names))
	return r
}

// Fields returns the fields, in the order of New.
func (p *Runner) Fields() []*Field { return p.fields }

// Size returns the size in bytes of a result of every sample, by its number among its views; 0 if
// sizes differ.
func (f *Field) Size(view int) int { return f.sizes[view] }

// Expected estimates the size of all results of a sample that has the given number of bytes.
func (f *Field) Expected(bytes int64) int64 { return int64(f.program.Expected(float64(bytes))) }

// Steps returns the names of the field's transforms, in order.
func (f *Field) Steps() []string { return f.names }

// work is a sample to transform and its result.
type work struct {
	field int
	alloc transform.Alloc
	srcs  [][]byte // of its fields that the program takes
	kind  forms.Kind
	key   transform.Key
	whole bool
	spent []time.Duration
	err   error // result
}

// Apply transforms a sample and writes each result to memory that alloc returns. It calls alloc
// when the size is known, and again, with possibly another size, if the sample needs more memory or
// has to be delivered encoded. Apply waits for admission. It adds the time of each transform to
// spent, which has an entry per transform of the field, and distributes the time waited in
// proportion, because it waited for transforms of other samples. id is the sample's ID, and
// occurrence how often the epoch has it before; with the epoch they determine all random
// parameters. kind is the form of the only field's bytes (forms.Kind), if the program takes forms.
// whole makes damage anywhere in srcs an error, whatever is decoded of them. The error says why
// they cannot be transformed.
func (f *Field) Apply(alloc func(view, size int) ([]byte, error), srcs [][]byte, kind uint8,
	epoch, id, occurrence int, whole bool, spent []time.Duration,
) error {
	it, inside := f.gate.enter(work{
		field: f.number, alloc: alloc, srcs: srcs, kind: forms.Kind(kind),
		key: transform.Key{
			Seed: f.seed, Epoch: epoch, Sample: id, Occurrence: occurrence,
		},
		whole: whole, spent: spent,
	})
	if inside {
		return f.turn(it)
	}
	err := it.err
	f.gate.forget(it)
	return err
}

// Left reports whether an error of Apply means that the receiver is to transform the sample, and
// whether it is a file like others, of which only what is drawn is uncertain.
func (p *Runner) Left(err error) (is, usual bool) {
	var e *left.Error
	if p.refuse || !errors.As(err, &e) {
		return false, false
	}
	return true, e.Usual()
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
		w.apply(p, it)
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

// worker is a transform.Worker for each field, made when it is needed, and their unreported work.
type worker struct {
	fields []*transform.Worker
	spent  []time.Duration // by transform
	did    int             // samples of the first field
	formed formed
}

// formed is what was made of forms: samples of the first field, and the time of all fields.
type formed struct {
	samples int64
	spent   time.Duration
}

func (p *Runner) newWorker() *worker {
	return &worker{
		fields: make([]*transform.Worker, len(p.fields)),
		spent:  make([]time.Duration, len(p.names)),
	}
}

func (w *worker) apply(p *Runner, it *item) {
	waited := time.Since(it.came)
	f, of := p.fields[it.field], w.fields[it.field]
	if of == nil {
		of = f.program.Worker()
		p.budget.limit(of)
		w.fields[it.field] = of
	}
	took := append(make([]time.Duration, 0, 16), of.Times()...)
	it.err = p.budget.apply(of, it)
	all := time.Duration(0)
	for i, t := range of.Times() {
		took[i] = t - took[i]
		w.spent[f.first+i] += took[i]
		all += took[i]
	}
	if it.kind != forms.AsRead && it.err == nil {
		w.formed.spent += all
		if it.field == 0 {
			w.formed.samples++
		}
	}
	share(it.spent, took, waited)
	if it.field == 0 {
		w.did++
	}
}

// memory returns how many bytes of buffers the worker keeps.
func (w *worker) memory() (n int) {
	for _, of := range w.fields {
		if of != nil {
			n += of.Memory()
		}
	}
	return n
}

func (w *worker) close() {
	for _, of := range w.fields {
		if of != nil {
			of.Close()
		}
	}
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
	formed  formed
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
	s.formed.samples += w.formed.samples
	s.formed.spent += w.formed.spent
	clear(w.spent)
	w.did, w.formed = 0, formed{}
	if s.closed || w.memory() > keptMemory {
		w.close()
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
		w.close()
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
	if s.formed.samples > 0 {
		r.OfForms = report.OfForms{
			FormSamples: s.formed.samples, FormSeconds: s.formed.spent.Seconds(),
		}
	}
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
