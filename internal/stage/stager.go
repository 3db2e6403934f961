// Package prefetch is the engine: it runs a plan for real. It fills the storage
// classes ahead of time, and fills each rank's staging buffer with the
// coming batches, in exactly the order of its access stream, each sample from the
// fastest place that has it (thesis 3.2.2, 4.3.8).
//
//   - Cache finds and keeps samples: one per dataset, shared by ranks and jobs.
//   - Stager turns one rank's access stream into batches that lie in shared memory.
//   - Ledger counts where samples came from and what next() waited for.
//
// What is delivered is a pure function of the stream: cache contents, timing and
// failures change when a batch is ready, never what is in it.
//
// # Who runs where
//
// A Cache owns its workers (pool), which do every read that may block, and a
// watchdog that gives up reads which hang (watch.go). A Stager's Run owns two goroutines: the walker walks the stream, takes room in
// the staging buffer and queues what has to be read; Run's own goroutine hands
// finished batches on in order. Samples that already lie in shared memory cost
// no task: the walker just notes where they are.
package prefetch

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/staging"
)

// ClassSegment is the segment number under which a batch names the shared memory
// of class j, counted from 0 as in CacheOptions.Classes. Numbers below it are the
// staging buffer's.
func ClassSegment(j int) uint32 { return 1<<31 + uint32(j) }

// Batch is one batch as the training process gets it: where in shared memory
// each sample lies. The columns have one entry per sample.
type Batch struct {
	Epoch, Step int
	Audit       uint64 // sum of access.Mix over the batch
	Labels      []int64
	Offsets     []uint64 // within the segment
	Lengths     []uint64 // bytes
	IDs         []uint32
	Segments    []uint32 // of the staging buffer, or ClassSegment
	Slots       []uint32 // of the staging buffer, which the process gives back
	Extras      []staging.Extra
}

// batch is a Batch in the making.
type batch struct {
	Batch
	stager *Stager
	view   *access.Epoch
	ctx    context.Context
	order  int64

	room    [][]byte // per sample, its part of the staging buffer; nil: in place
	occurs  []int32  // per sample, how often the epoch has it beside (access.Epoch.Occurrence), where samples are preprocessed; nil: never
	reads   []read
	skipped []bool  // nil: none
	wants   []int64 // where results differ in size, per sample: how many bytes it lacked (ragged.go)

	left atomic.Int32  // samples that are not there yet
	done chan struct{} // closed when left gets to 0
	// hung are the reads that were given up and may still write to the batch's
	// room: it must not be used again before they end (watch.go).
	hung sync.WaitGroup

	mu      sync.Mutex // guards what several workers may set
	err     error
	failed  int // the sample that err is about
	extraID []uint32
	// missing is the set hash of the samples that were left out, less that of
	// those that stand in.
	missing uint64
	extras  []staging.Extra
	slab    slab  // where results differ in size: room for them
	parked  []int // samples that have none

	roomWait time.Duration // the walker waited so long for room in the buffer
	planned  time.Time
	ready    time.Time // set before done is closed
	last     Place     // where the last sample came from
	fetched  bool      // something had to be read
	slow     bool      // for the last sample, preprocessing took longer than fetching

	spent []time.Duration // by preprocessing, per step
}

// read is where a sample of a batch came from.
type read struct {
	place Place
	bytes int64 // of the sample as it was read
}

// Preprocessor makes of a sample's bytes what the process gets. Its methods are called by many goroutines at a time.
type Preprocessor interface {
	// Size is how many bytes every sample becomes; 0: that differs.
	Size() int
	// Expected is about how many bytes a sample becomes that has so many now.
	Expected(bytes int64) int64
	// Steps are the names of what is done, in order.
	Steps() []string
	// Apply makes of a sample's bytes what the process gets of it in the epoch, where room says, and adds the time of each
	// step to spent. An error of room comes back, wrapped. draw is the sample's ID, and 2^32 more for each time that the epoch has it
	// beside: what is random in it differs then. Whatever else fails would fail again.
	Apply(room func(size int) ([]byte, error), src []byte, epoch, draw int, spent []time.Duration) error
}

// fetch brings sample i. It runs on a worker.
func (b *batch) fetch(w *worker, i int) {
	err := b.ctx.Err()
	if err == nil {
		err = b.stager.faults.known(int(b.IDs[i]))
	}
	if err == nil {
		err = b.bring(w, i, int(b.IDs[i]))
	}
	if err != nil && err != errParked && !w.lost && b.ctx.Err() == nil {
		err = b.stager.faults.decide(w, b, i, err)
	}
	if w.lost {
		b.hung.Done() // the watchdog has said for it that it failed
		return
	}
	if err != nil && err != errParked {
		b.fail(i, err)
	}
	b.arrived()
}

// fail notes that the batch can not be delivered, because of sample i. The first one by place counts, not by
// time: it is the same in every run.
func (b *batch) fail(i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || i < b.failed {
		b.err, b.failed = err, i
	}
}

// arrived counts one sample; the last one closes done.
func (b *batch) arrived() {
	if b.left.Add(-1) == 0 {
		b.ready = time.Now()
		b.trim()
		if len(b.parked) == 0 {
			b.stager.staged.Add(1)
		}
		close(b.done)
	}
}

// bring fetches the sample id for place i of the batch and notes where it lies.
func (b *batch) bring(w *worker, i, id int) error {
	if p := b.stager.o.Preprocessor; p != nil {
		return b.preprocess(p, w, i, id)
	}
	c := b.stager.o.Cache
	if c.destined(id) {
		at, out, err := c.fetchInPlace(b.ctx, w, id)
		if err == nil && b.stager.o.Verify {
			if data, ok := c.classes[at.class].inPlace.View(id); ok {
				err = c.verify(b.ctx, w, id, data, out.place)
			} else {
				err = errNoRoom // it was dropped meanwhile
			}
		}
		if err == nil {
			b.setInPlace(i, id, at)
			b.note(i, out)
			return nil
		}
		if !errors.Is(err, errNoRoom) {
			return err
		}
	}
	size := c.index.Size(id)
	dst := b.room[i]
	if int64(cap(dst)) < size {
		slot, extra, err := b.stager.o.Buffer.AllocExtra(size)
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.extraID = append(b.extraID, slot.ID)
		b.extras = append(b.extras, *extra)
		b.mu.Unlock()
		dst = slot.Data
		b.Segments[i], b.Offsets[i] = slot.Segment, 0
	}
	dst = dst[:size]
	out, err := c.fetchInto(b.ctx, w, id, dst)
	if err != nil {
		return err
	}
	b.set(i, id)
	b.note(i, out)
	if b.stager.o.Verify {
		return c.verify(b.ctx, w, id, dst, out.place)
	}
	return nil
}

// preprocess is bring where samples become something else on the way.
func (b *batch) preprocess(p Preprocessor, w *worker, i, id int) error {
	c := b.stager.o.Cache
	begun := time.Now()
	src, out, err := c.fetchView(b.ctx, w, id)
	if err != nil || w.lost {
		return err
	}
	b.set(i, id)
	b.note(i, out)
	if b.stager.o.Verify {
		if err := c.verify(b.ctx, w, id, src, out.place); err != nil {
			return err
		}
	}
	fetched := time.Now()
	var times [16]time.Duration
	spent := times[:min(len(p.Steps()), len(times))]
	if n := len(p.Steps()); n > len(times) {
		spent = make([]time.Duration, n)
	}
	draw := id
	if b.occurs != nil {
		draw |= int(b.occurs[i]) << 32
	}
	room := func(size int) ([]byte, error) { return b.place(i, size) }
	if err := p.Apply(room, src, b.Epoch, draw, spent); errors.Is(err, errParked) {
		return errParked
	} else if err != nil {
		return &dataset.SampleError{ID: id, Path: c.path(id), Kind: dataset.ErrContent, Err: err}
	}
	b.Lengths[i] = uint64(len(b.room[i]))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = time.Since(fetched) > fetched.Sub(begun)
	for step, t := range spent {
		b.spent[step] += t
	}
	return nil
}

func (b *batch) note(i int, out outcome) {
	b.reads[i] = read{out.place, int64(b.Lengths[i])}
	b.mu.Lock()
	b.last, b.fetched = out.place, true
	b.mu.Unlock()
	if out.source {
		b.stager.o.Ledger.Source(b.Epoch, int64(b.Lengths[i]))
	}
}

func (b *batch) setInPlace(i, id int, at located) {
	b.Segments[i], b.Offsets[i] = ClassSegment(at.class), uint64(at.offset)
	b.set(i, id)
}

func (b *batch) set(i, id int) {
	index := b.stager.o.Cache.index
	b.IDs[i], b.Labels[i], b.Lengths[i] = uint32(id), int64(index.Label(id)), uint64(index.Size(id))
}

// compact takes skipped samples out of the columns. What lies sample by sample, as one tensor, stays so.
func (b *batch) compact() {
	if b.skipped == nil {
		return
	}
	n := 0
	for i, skip := range b.skipped {
		if skip {
			continue
		}
		if !b.stager.inOnePiece() {
			b.Offsets[n] = b.Offsets[i]
		} else if n < i {
			copy(b.room[n], b.room[i])
		}
		b.Labels[n], b.Lengths[n] = b.Labels[i], b.Lengths[i]
		b.IDs[n], b.Segments[n], b.reads[n] = b.IDs[i], b.Segments[i], b.reads[i]
		n++
	}
	b.Labels, b.Offsets, b.Lengths = b.Labels[:n], b.Offsets[:n], b.Lengths[:n]
	b.IDs, b.Segments, b.reads = b.IDs[:n], b.Segments[:n], b.reads[:n]
}

// StagerOptions say what a Stager delivers, and from where.
type StagerOptions struct {
	Stream *access.Stream
	Epoch  func(e int) *access.Epoch // the stream's epochs; may keep some ready. nil: it is not given, and the Run ends before it
	Rank   int
	Cache  *Cache
	Peers  Peers // the other nodes of the rank's job; nil: there are none
	Buffer *staging.Buffer
	Ahead  int // batches staged that the process has not taken, at the most: those that it was sent count as well
	// First is how many batches are staged before the process has taken any; two more with each that it takes, until that is Ahead.
	// So at the start of a job what is needed at once does not wait for what is not, here and where the source is shared. 0: Ahead.
	First int
	// Await, if not nil, is asked before each epoch, and may wait until ctx ends.
	Await func(ctx context.Context, epoch int) error
	// May, if not nil, is asked before each batch is staged, and may wait until ctx ends.
	May    func(ctx context.Context, epoch, step int) error
	Verify bool // compare the bytes of every sample with the source's, wherever they were taken from
	Lazy   bool // stage a batch only once the process asks for it: policy naive
	Faults *Faults
	Ledger *Ledger
	// Preprocessor, if not nil, makes what is delivered of the samples, in the staging buffer. A batch's results lie one after the other
	// if all have the same size.
	Preprocessor Preprocessor
}

// Stager stages one rank's batches.
type Stager struct {
	o      StagerOptions
	faults *Faults
	demand chan struct{} // Lazy: one token per batch asked for
	reap   sync.WaitGroup

	mu          sync.Mutex
	outstanding int // batches planned and not yet handed on
	// Of the Run: the step that it began with, counted through all epochs, and how many batches were laid out,
	// emitted, and taken by the process.
	begin, laidOut, emitted, taken int
	waiting                        bool // the process is blocked, and has got nothing since
	lacking                        bool // the next batch waits for room

	sizes sizes // of results, where they differ

	moved  chan struct{} // has a token after taken has changed
	staged atomic.Int64
}

// NewStager returns a stager; it owns the buffer from now on.
func NewStager(o StagerOptions) *Stager {
	if o.First == 0 {
		o.First = o.Ahead
	}
	return &Stager{o: o, faults: o.Faults, demand: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
}

// Run stages the batches from (epoch, step) on and calls emit with each, in
// order. It returns nil after the stream's last batch, or that of the last epoch that is given, or the first error: of
// emit, of ctx, or a sample's that the job's policy does not forgive. Run may be
// called again, once it has returned. A batch belongs to emit; what was staged
// and not emitted is given back to the buffer.
func (s *Stager) Run(ctx context.Context, epoch, step int, emit func(*Batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	queue := make(chan *batch, s.o.Ahead)
	s.o.Ledger.restart(epoch)
	s.mu.Lock()
	s.begin, s.laidOut, s.emitted, s.taken = epoch*s.o.Stream.Steps()+step, 0, 0, 0
	s.mu.Unlock()

	var walker sync.WaitGroup
	var planErr error
	walker.Go(func() {
		defer close(queue)
		planErr = s.plan(ctx, epoch, step, queue)
	})
	err := s.publish(ctx, queue, emit)
	cancel()
	for b := range queue {
		s.discard(b)
	}
	walker.Wait()
	// Reset at the end: the process may wait before the next Run has begun.
	s.settle(-1)
	select {
	case <-s.demand:
	default:
	}
	if err == nil {
		err = planErr
	}
	return err
}

// publish hands batches on, in order.
func (s *Stager) publish(ctx context.Context, queue <-chan *batch, emit func(*Batch) error) error {
	for b := range queue {
		if err := s.complete(ctx, b); err != nil {
			s.discard(b)
			return err
		}
		b.compact()
		b.Slots, b.extraID = append(b.Slots, b.extraID...), nil
		b.Extras = append(b.Extras, b.extras...)
		s.o.Buffer.Hand(b.Slots)
		s.o.Ledger.emitted(b)
		// Before emit: once the process has the batch it may wait for the next
		// one, and that must not be undone.
		s.settle(1)
		if err := emit(&b.Batch); err != nil {
			s.discard(b)
			return err
		}
	}
	return nil
}

// settle takes n batches, or all if n is negative and the process gets no more, off the count of those on
// their way, and with them whatever the process has waited for so far.
func (s *Stager) settle(n int) {
	s.mu.Lock()
	if n < 0 {
		n = s.outstanding
		s.taken = s.emitted + n
	}
	s.outstanding -= n
	s.emitted += n
	s.waiting = false
	s.o.Buffer.Urge(false)
	s.mu.Unlock()
}

// discard gives a batch's room back, once no read writes to it any more.
func (s *Stager) discard(b *batch) {
	s.reap.Go(func() {
		<-b.done
		b.hung.Wait()
		for _, id := range slices.Concat(b.Slots, b.extraID) {
			_, _ = s.o.Buffer.Free(id)
		}
	})
}

// Wait says that the process is blocked in next(); Taken was called for all that it has taken.
func (s *Stager) Wait() {
	if s.o.Lazy {
		select {
		case s.demand <- struct{}{}:
		default:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
	s.urge()
}

// urge has the buffer make room where the process waits for it: no batch is on its way, or the next one lacks room. s.mu is held.
func (s *Stager) urge() {
	switch starved := s.waiting && s.taken == s.emitted; {
	case starved && s.lacking:
		s.o.Buffer.UrgeFirst()
	case starved && s.outstanding == 0:
		s.o.Buffer.Urge(true)
	case s.waiting:
		s.o.Buffer.Look() // a batch is on its way to the process
	}
}

// Taken says that the process has taken the batches up to this one.
func (s *Stager) Taken(epoch, step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(min(epoch*s.o.Stream.Steps()+step+1-s.begin, s.emitted))
}

// take notes that the process has taken n batches of the Run. s.mu is held.
func (s *Stager) take(n int) {
	if n <= s.taken {
		return
	}
	s.taken = n
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// hold waits until the process has taken enough batches for another one, and counts that as laid out.
func (s *Stager) hold(ctx context.Context) error {
	for {
		s.mu.Lock()
		full := s.laidOut-s.taken >= min(s.o.First+2*s.taken, s.o.Ahead)
		if !full {
			s.laidOut++
		}
		s.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-s.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close gives the staging buffer back once the last read into it has ended. Run
// must have returned.
func (s *Stager) Close() {
	// A read that hangs in the kernel may still write to the buffer: then it is
	// never unmapped, rather than something else being overwritten.
	go func() {
		s.reap.Wait()
		s.o.Buffer.Close()
	}()
}

// Staged is how many batches have been read so far.
func (s *Stager) Staged() int { return int(s.staged.Load()) }

// plan walks the stream.
func (s *Stager) plan(ctx context.Context, epoch, step int, queue chan<- *batch) error {
	spec := s.o.Stream.Spec()
	steps := s.o.Stream.Steps()
	last := spec.Epochs
	if epoch >= last { // the process goes on behind what was planned, or there is no end
		last = math.MaxInt
	}
	for e := epoch; e < last; e++ {
		if s.o.Await != nil {
			if err := s.o.Await(ctx, e); err != nil {
				return err
			}
		}
		view := s.o.Epoch(e)
		if view == nil {
			return nil
		}
		for t := step; t < steps; t++ {
			if s.o.Lazy {
				select {
				case <-s.demand:
				case <-ctx.Done():
					return ctx.Err()
				}
			} else if err := s.hold(ctx); err != nil {
				return err
			}
			if s.o.May != nil {
				if err := s.o.May(ctx, e, t); err != nil {
					return err
				}
			}
			b, tasks, err := s.prepare(ctx, view, t)
			if err != nil {
				return err
			}
			s.mu.Lock()
			s.outstanding++
			s.mu.Unlock()
			// The tasks first: a full queue must not keep them from starting.
			if len(tasks) > 0 {
				s.o.Cache.pool.submit(tasks)
			}
			select {
			case queue <- b:
			case <-ctx.Done():
				s.discard(b)
				return ctx.Err()
			}
		}
		step = 0
	}
	return nil
}

// prepare lays a batch out: finds the samples that can be handed over where they
// lie, takes room for the others, and lists what has to be read.
func (s *Stager) prepare(ctx context.Context, view *access.Epoch, step int) (*batch, []task, error) {
	ids := view.Batch(nil, s.o.Rank, step)
	n := len(ids)
	numbers := make([]uint64, 2*n)
	words := make([]uint32, 2*n)
	b := &batch{
		Batch: Batch{
			Epoch: view.Number(), Step: step,
			Labels:  make([]int64, n),
			Offsets: numbers[:n:n], Lengths: numbers[n:],
			IDs: words[:n:n], Segments: words[n:],
		},
		stager: s,
		view:   view,
		ctx:    ctx,
		order:  int64(view.Number())*int64(s.o.Stream.Steps()) + int64(step),
		reads:  make([]read, n),
		room:   make([][]byte, n),
		done:   make(chan struct{}),
	}
	if s.o.Preprocessor != nil {
		b.spent = make([]time.Duration, len(s.o.Preprocessor.Steps()))
		b.occurs = view.Occurrence(s.o.Rank, step)
	}
	for i, k := range ids {
		b.Audit += access.Mix(b.Epoch, int(k))
		b.IDs[i] = uint32(k)
	}
	tasks, err := s.layOut(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	b.planned = time.Now()
	b.left.Store(int32(len(tasks)) + 1)
	b.arrived()
	return b, tasks, nil
}

// layOut takes room for a batch's samples, and lists what has to be read.
func (s *Stager) layOut(ctx context.Context, b *batch) (tasks []task, err error) {
	if s.ragged() {
		return s.layOutRagged(ctx, b)
	}
	c := s.o.Cache
	room := make([]int64, len(b.IDs)) // bytes of each sample in the staging buffer
	var need int64
	for i, k := range b.IDs {
		id := int(k)
		if s.o.Preprocessor != nil {
			room[i] = int64(s.o.Preprocessor.Size())
		} else {
			// A sample that was left out once stays out, though it may be there now.
			if at, ok := c.locate(id); ok && !s.o.Verify && s.faults.known(id) == nil {
				b.setInPlace(i, id, at)
				b.reads[i] = read{FirstClass + Place(at.class), int64(b.Lengths[i])}
				continue
			}
			if !c.destined(id) {
				room[i] = c.index.Size(id)
			}
		}
		tasks = append(tasks, task{order: b.order, batch: b, index: i})
		if room[i] > 0 {
			b.Offsets[i] = uint64(need)
			if need += room[i]; s.o.Preprocessor == nil {
				need = (need + 7) &^ 7
			}
		}
	}
	if need == 0 {
		return tasks, nil
	}
	start := time.Now()
	slot, extra, err := s.o.Buffer.Alloc(ctx, need)
	if err != nil {
		return nil, err
	}
	b.roomWait = time.Since(start)
	b.Slots = append(b.Slots, slot.ID)
	if extra != nil {
		b.Extras = append(b.Extras, *extra)
	}
	for i, size := range room {
		if size > 0 {
			off := int64(b.Offsets[i])
			b.room[i] = slot.Data[off : off+size : off+size]
			b.Offsets[i] += uint64(slot.Offset)
			b.Segments[i] = slot.Segment
		}
	}
	return tasks, nil
}
