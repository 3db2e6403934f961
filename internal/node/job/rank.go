package job

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

// Rank is one training process of a job, with its own stream of batches.
type Rank struct {
	job    *Job
	rank   int
	buffer *staging.Buffer
	stager *stage.Stager
	ledger *stage.Ledger
	// through receives a token when the process has taken the last batch of the stream, or of an
	// epoch that was supplied.
	through chan struct{}
	// begun is the first batch of the current Run, and taken the last batch of it that the process
	// took, in steps counted over all epochs; negative: none.
	begun, taken atomic.Int64
	// news receives a token when taken has reached the end of a supplied epoch, or another epoch
	// was supplied.
	news chan struct{}
	once sync.Once // guards Close
	// unwatch ends the watch of segments that are given back.
	unwatch func()
	// drop notifies the process of a segment that no later batch names; see OnDrop. It may be nil.
	drop  atomic.Pointer[func(number uint32, gone func())]
	group Member // set before the first Run, under job.mu; nil: the job is in no group
	// reported is set when the process has reported a sample, and will ask again for the batch with
	// it.
	reported atomic.Bool
	warned   warned
}

// Join adds a rank to the job. If verify is set, every sample's bytes are compared with the source.
func (j *Job) Join(rank int, verify bool) (*Rank, error) {
	size, warning := BufferSize(j.p.Order, rank, j.config.Staging, j.config.Samples)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ranks[rank] != nil {
		return nil, &failure.Error{
			Kind: failure.Busy,
			Message: fmt.Sprintf("rank %d of job %s is in use by another process: give every "+
				"process its own rank, or the loader its own name",
				rank, request.Name(j.config.Request.Job)),
		}
	}
	most := j.mostBuffer(rank, size)
	newBuffer := staging.New
	if j.config.Produces {
		newBuffer = staging.NewWindow
	}
	buffer, err := newBuffer(size, most)
	if err != nil {
		return nil, fmt.Errorf("staging buffer of rank %d: %w", rank, err)
	}
	if warning != "" {
		j.warn(warning)
	}
	r := &Rank{
		job: j, rank: rank, buffer: buffer, through: make(chan struct{}, 1),
		news:   make(chan struct{}, 1),
		ledger: stage.NewLedger(j.p.Cache, stage.Steps(j.p.Outputs)),
	}
	r.ledger.Notes(j.series.add)
	if j.config.Produces {
		r.ledger.ForGroup()
	}
	among, ranks := j.p.Order.Rank()
	o := stage.Options{
		Stream: j.p.Order.Stream(), Epoch: j.p.Order.Epoch, Rank: rank,
		Among: among, Ranks: ranks,
		Cache: j.p.Cache, Peers: j.p.Peers, Buffer: buffer, Ahead: j.prefetch(),
		First: j.firstBatches(rank),
		Lazy:  !j.planner.Prefetches(), Gate: j.planner.Gate(),
		Unusable: j.p.Unusable, Ledger: r.ledger, Verify: verify,
		Outputs: j.p.Outputs, TakesForms: j.config.TakesForms,
	}
	o.Demand, o.CacheFirst = j.planner.Demand(), j.planner.CacheFirst
	if w := j.planner.Window(); w != nil {
		o.Workers, o.First = w.Workers, o.Ahead
	} else if !j.config.FixedPrefetch {
		o.MostAhead = max(mostAhead, o.Ahead)
	}
	if most > size {
		o.Grow = j.grow
	}
	if j.p.Order.Given() {
		o.Await = r.await
	}
	r.stager = stage.New(o)
	if more := buffer.Limit() - j.left[rank]; more != 0 {
		j.buffers.add(more)
	}
	r.unwatch = j.p.Cache.Watch(r)
	j.ranks[rank] = r
	j.p.Memory.Staged(rank, buffer)
	j.ledgers[rank] = r.ledger
	j.book.Join(rank)
	return r, nil
}

// prefetch returns how many batches of a rank are staged and not yet taken, at first or, if the
// policy limits that, at most.
func (j *Job) prefetch() int {
	w := j.planner.Window()
	switch {
	case w == nil:
		return j.config.Prefetch
	case j.config.FixedPrefetch:
		return min(j.config.Prefetch, w.Batches())
	}
	return w.Batches()
}

// Number returns the rank's number in its job.
func (r *Rank) Number() int { return r.rank }

// Opened describes a job to a process that opens it.
type Opened struct {
	Samples     int
	Classes     []string
	ClassSizes  []int // samples of each class
	Bytes       int64
	Fingerprint string
	Seed        uint64
	Epoch       int // in which the rank is to begin: 0, or that of the group which it joins
	Steps       int
	RankSamples int
	// Positions is the length of an epoch before padding or truncation: the number of samples in
	// the dataset, the subset, or a supplied epoch.
	Positions int
	// PrefetchBatches is the most batches that are staged and not yet taken.
	PrefetchBatches int
	// Order describes the order that the policy draws of its own; "": it reads what was asked for.
	Order    string
	Warnings []string
	Outputs  []Output // what is delivered of each sample: at least one
}

// Output is what is delivered of a field: arrays, or its bytes.
type Output struct {
	Field string // "": a dataset whose samples have no named fields
	// Shape is the shape of the array. If height and width, the first two, are 0, they vary, and
	// are stored before each sample's pixels. nil: the field is delivered as it is.
	Shape []int
	// Type is the element type: uint8, float16, bfloat16 or float32.
	Type string
	// View is which of the views of the field it is, from 0 on; nil: it is no view.
	View *int
	// ChannelsLast means that Shape is channels, height, width, and that channels are last in
	// memory.
	ChannelsLast bool
	// Sized means that the height and the width, which are 0 in Shape, precede each sample's
	// elements.
	Sized bool
}

// Opened returns the description of the job for its process.
func (r *Rank) Opened() Opened {
	j := r.job
	index := j.p.Order.Index()
	j.mu.Lock()
	defer j.mu.Unlock()
	return Opened{
		Samples: index.Len(), Classes: index.Classes(), ClassSizes: index.ClassSizes(),
		Bytes:           index.Bytes(),
		Fingerprint:     hex.EncodeToString(j.config.Version[:]),
		Seed:            j.config.Seed,
		Steps:           j.p.Order.Stream().Steps(),
		RankSamples:     j.p.Order.Stream().RankSamples(r.rank),
		Positions:       j.p.Order.Positions(),
		PrefetchBatches: j.prefetch(), Order: j.p.Order.Reordered(),
		Warnings: slices.Clone(j.warnings), Outputs: j.config.Outputs,
	}
}

// Segment is a shared-memory segment that batches may lie in.
type Segment struct {
	Number   uint32
	File     *os.File
	Size     int64
	Writable bool
	Returns  bool // a page after it is the return ring, in which the process may release slots
}

// Segments returns the segments that exist from the start: the staging buffer. Batches announce
// others, and name those of storage classes (Segment).
func (r *Rank) Segments() []Segment {
	file, size := r.buffer.Ring()
	out := []Segment{{
		Number:   0,
		File:     file,
		Size:     size,
		Writable: true,
		Returns:  r.buffer.HasReturnRing(),
	}}
	return out
}

// Segment returns the segment of a storage class that a batch names. The batch must not have been
// emitted yet.
func (r *Rank) Segment(number uint32) (s Segment, ok bool) {
	at, ok := stage.OfClass(number)
	if !ok {
		return s, false
	}
	s.Number = number
	s.File, s.Size, ok = r.job.p.Cache.Segment(at)
	return s, ok
}

// OnDrop has drop called for each segment of a storage class that is given back, after the last
// batch that names it was emitted. drop must not block; it calls gone once when the process does
// not map the segment any more.
func (r *Rank) OnDrop(drop func(number uint32, gone func())) { r.drop.Store(&drop) }

// Vacate implements store.Watcher.
func (r *Rank) Vacate(class int, segment uint32, _ []int32, settled, gone func()) {
	end := func() {
		settled()
		if drop := r.drop.Load(); drop != nil {
			(*drop)(stage.ClassSegment(cache.Segment{Class: class, Number: segment}), gone)
		} else {
			gone()
		}
	}
	if len(r.job.p.Outputs) > 0 { // no batch names segments of classes
		end()
		return
	}
	r.stager.Barrier(end)
}

// Refill implements store.Watcher.
func (r *Rank) Refill() {}

// Delay implements store.Watcher.
func (r *Rank) Delay() time.Duration {
	if len(r.job.p.Outputs) > 0 {
		return 0
	}
	return r.stager.Delay()
}

// Check returns an error if the rank cannot begin at this step of the epoch.
func (r *Rank) Check(epoch, step int) error {
	return r.job.p.Order.Check(r.rank, epoch, step, r.job.planner.Plan() != nil)
}

// Give adds the order of an epoch, or this rank's part of it, from a file. The file remains the
// caller's.
func (r *Rank) Give(m request.Give, file *os.File) error {
	apart, err := r.job.p.Order.Give(r.rank, m, file, r.job.p.Admit)
	if apart {
		r.job.book.Leave(r.rank) // it does not finish epochs any more
	}
	if err == nil && !r.job.p.Order.Turns() {
		notify(r.news)
	}
	return err
}

// Run stages batches from (epoch, step) on; see stage.Stager.Run. It returns nil when the process
// has taken the last one. If the job fails, it returns the job's error; if another rank's Run, on
// any node, ended with an error, it returns that error before the same batch.
func (r *Rank) Run(ctx context.Context, epoch, step int, emit func(*stage.Batch) error) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-r.through:
	default:
	}
	r.begun.Store(int64(epoch*r.job.p.Order.Stream().Steps() + step))
	r.taken.Store(-1)
	run := r.job.p.Stops.Begin(r.rank, epoch*r.job.p.Order.Stream().Steps()+step, cancel,
		r.buffer.End)
	err := r.stage(within, epoch, step, func(b *stage.Batch) error {
		return run.Deliver(func() error { return emit(b) })
	})
	// Batches that the process has not taken may still be cut off by another rank's stop.
	for last, any := run.Last(); err == nil && any && r.taken.Load() < int64(last); {
		select {
		case <-r.through:
		case <-within.Done():
			err = within.Err()
		}
	}
	return run.End(err, ctx.Err() != nil)
}

// stage is Run without regard to other ranks.
func (r *Rank) stage(ctx context.Context, epoch, step int, emit func(*stage.Batch) error) error {
	j := r.job
	if err := j.failure(); err != nil {
		return err
	}
	if !r.reported.Swap(false) || !r.ledger.GoOn(epoch, step) {
		j.book.Begin(r.rank, epoch, step)
	}
	j.goesOn(epoch, step)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(j.p.Life, cancel)()
	if err := j.planner.Begin(epoch, step); err != nil {
		return err
	}
	err := r.stream(ctx, epoch, step, emit)
	if failed := j.failure(); failed != nil && errors.Is(err, context.Canceled) {
		return failed
	}
	return err
}

// Unusable records that the process cannot decode a sample, which from now on counts as unreadable
// for all ranks and epochs. It returns the policy for such samples. The process then asks again for
// the batch, with a Run that begins there, and goes on; or it ends with the sample's error, as all
// ranks do.
func (r *Rank) Unusable(sample int, reason string) (policy string, err error) {
	index := r.job.p.Order.Index()
	if sample < 0 || sample >= index.Len() {
		return "", failure.Input("sample %d out of range: the dataset has samples 0 to %d", sample,
			index.Len()-1)
	}
	r.reported.Store(true)
	return string(r.job.p.Unusable.Report(sample, r.job.p.Cache.Path(sample), reason)), nil
}

// Yielded records that the training loop has received a batch. hash is the set hash of what it has
// received in the epoch so far.
func (r *Rank) Yielded(epoch, step int, stall stage.Stall, hash uint64) {
	if !r.ledger.Yielded(epoch, step, stall) {
		return // the batch belongs to an earlier Run
	}
	r.stager.Taken(epoch, step, stall)
	if r.group != nil {
		r.group.Yielded(epoch, step, stall)
	}
	r.job.planner.Feeds(r.rank)
	stream := r.job.p.Order.Stream()
	if r.job.epochNow.Load() != int64(epoch) {
		r.job.goesOn(epoch, 0)
	}
	at := epoch*r.job.p.Order.Stream().Steps() + step
	r.taken.Store(int64(at))
	r.job.p.Stops.Took(r.rank, at)
	if step == r.job.p.Order.Stream().Steps()-1 {
		if epoch == stream.Spec().Epochs-1 || r.job.p.Order.Given() {
			notify(r.through)
			notify(r.news)
		}
		samples, missing := r.ledger.Delivered(epoch)
		r.job.book.Finish(r.rank, epoch,
			audit.Delivered{Hash: hash, Samples: samples, Missing: missing})
	}
}

// Raised records that the error of the last Run has been raised in the training loop.
func (r *Rank) Raised() { r.job.p.Stops.Raised(r.rank) }

// await waits until the order of an epoch is known, or the process has taken the last batch before
// that epoch, where the Run then ends. If the process has supplied its part of the epoch, and begun
// the Run with it, await waits until the other ranks have supplied theirs.
func (r *Rank) await(ctx context.Context, epoch int) error {
	o := r.job.p.Order
	last := int64(epoch*o.Stream().Steps() - 1)
	if begun := r.begun.Load(); o.Turns() && begun > last {
		if err := o.Await(ctx, epoch); err != nil {
			return err
		}
		r.job.goesOn(epoch, int(begun-last)-1)
	}
	for !o.Stream().Given(epoch) && r.begun.Load() <= last && r.taken.Load() < last {
		select {
		case <-r.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// notify leaves a token for the goroutine that waits on c.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close makes the rank leave the job. Run must have returned.
func (r *Rank) Close() {
	r.once.Do(func() {
		j := r.job
		r.unwatch()
		j.p.Stops.Leave(r.rank)
		j.mu.Lock()
		j.pace()
		delete(j.ranks, r.rank)
		j.left[r.rank] = r.buffer.Limit()
		j.book.Leave(r.rank)
		j.mu.Unlock()
		j.p.Memory.Staged(r.rank, nil)
		if r.group != nil {
			r.group.Close()
		}
		r.stager.Close()
	})
}
