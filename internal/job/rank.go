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

	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/stage"
	"github.com/hdmlp/hdmlp/internal/staging"
)

// Rank is one training process of a job: a stream of batches of its own.
type Rank struct {
	job    *Job
	rank   int
	buffer *staging.Buffer
	stager *stage.Stager
	ledger *stage.Ledger
	// through has a token when the process has come to the last batch of the stream, or of an epoch
	// that was given.
	through chan struct{}
	// begun is the batch that the Run began with, and taken the one of it that the process took
	// last, counted through all epochs; negative: none.
	begun, taken atomic.Int64
	// has a token when taken has come to the end of an epoch that was given, or another one was
	// given
	news chan struct{}
	once sync.Once
	// the process has reported a sample, and asks for the batch that has it again
	reported atomic.Bool
}

// Join makes a rank. verify: the bytes of every sample are compared with the source's.
func (j *Job) Join(rank int, verify bool) (*Rank, error) {
	size, warning := BufferSize(j.p.Order, rank, j.config.Staging, j.config.Samples)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ranks[rank] != nil {
		return nil, &failure.Error{
			Kind: failure.Busy,
			Message: fmt.Sprintf("rank %d of job %s is taken by another process: give every "+
				"process a rank of its own, or the loader a name of its own",
				rank, request.Name(j.config.Request.Job)),
		}
	}
	buffer, err := staging.New(size)
	if err != nil {
		return nil, fmt.Errorf("staging buffer of rank %d: %w", rank, err)
	}
	if warning != "" {
		j.warnings = append(j.warnings, warning)
	}
	var steps []string
	if j.p.Preprocessor != nil {
		steps = j.p.Preprocessor.Steps()
	}
	r := &Rank{
		job: j, rank: rank, buffer: buffer, through: make(chan struct{}, 1),
		news:   make(chan struct{}, 1),
		ledger: stage.NewLedger(j.p.Cache, steps),
	}
	o := stage.Options{
		Stream: j.p.Order.Stream(), Epoch: j.p.Order.Epoch, Rank: rank,
		Cache: j.p.Cache, Peers: j.p.Peers, Buffer: buffer, Ahead: j.config.Prefetch,
		First: j.firstBatches(rank),
		Lazy:  !j.planner.Prefetches(), May: j.planner.Gate(),
		Faults: j.faults, Ledger: r.ledger, Verify: verify,
	}
	if j.p.Order.Given() {
		o.Await = r.await
	}
	if j.p.Preprocessor != nil {
		o.Preprocessor = j.p.Preprocessor
	}
	r.stager = stage.New(o)
	j.ranks[rank] = r
	j.p.Memory.Staged(rank, buffer)
	j.ledgers[rank] = r.ledger
	j.book.Join(rank)
	return r, nil
}

// Number is the rank's number in its job.
func (r *Rank) Number() int { return r.rank }

// firstBatches is how many batches are staged before the process has taken one: two, or as many as
// keep the reading threads busy.
func (j *Job) firstBatches(rank int) int {
	batch := max(j.p.Order.Stream().RankSamples(rank)/j.p.Order.Stream().Steps(), 1)
	return max(2, (2*j.config.Threads+batch-1)/batch)
}

// Opened is what a process is told of the job that it has opened.
type Opened struct {
	Samples     int
	Classes     []string
	ClassSizes  []int // samples of each class
	Bytes       int64
	Fingerprint string
	Seed        uint64
	Steps       int
	RankSamples int
	// that an epoch has before it is padded or cut: samples of the dataset, of the subset, of an
	// epoch that is given
	Positions int
	// PrefetchBatches is how many batches are staged that the process has not taken, at most.
	PrefetchBatches int
	Warnings        []string
	Output          *Output // what every sample becomes; nil: it stays as it is
}

// Output says what transforms make of every sample: an array.
type Output struct {
	// Shape is the array's. Where height and width, the first two, are 0, they differ, and stand
	// before each sample's own levels.
	Shape []int
	// Type is the elements': uint8, float16, bfloat16 or float32.
	Type string
}

// Opened describes the job to its process.
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
		PrefetchBatches: j.config.Prefetch,
		Warnings:        slices.Clone(j.warnings), Output: j.config.Output,
	}
}

// Segment is shared memory that batches may lie in.
type Segment struct {
	Number   uint32
	File     *os.File
	Size     int64
	Writable bool
	Returns  bool // behind it is a page in which the process may note slots that it gives back
}

// Segments lists the segments that exist from the start; a batch announces others.
func (r *Rank) Segments() []Segment {
	file, size := r.buffer.Ring()
	out := []Segment{{Number: 0, File: file, Size: size, Writable: true, Returns: r.buffer.Notes()}}
	r.job.p.Dataset.Segments(func(class int, file *os.File, size int64) {
		out = append(out, Segment{Number: stage.ClassSegment(class), File: file, Size: size})
	})
	return out
}

// Check refuses a step of an epoch that the rank cannot begin with.
func (r *Rank) Check(epoch, step int) error {
	return r.job.p.Order.Check(r.rank, epoch, step, r.job.planner.Plan() != nil)
}

// Give adds the order of an epoch, or this rank's part of it, which lies in the file; the file
// stays the caller's.
func (r *Rank) Give(m request.Give, file *os.File) error {
	apart, err := r.job.p.Order.Give(r.rank, m, file, r.job.p.Admit)
	if apart {
		r.job.book.Leave(r.rank) // it is through with no epoch any more
	}
	if err == nil && !r.job.p.Order.Turns() {
		notify(r.news)
	}
	return err
}

// Run stages batches from (epoch, step) on; see stage.Stager.Run. It returns nil when the process
// has come to the last one. It ends with the job's error if that fails, and before the batch at
// which another rank's Run ended with an error, on whatever node, with that error.
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
		return run.Hand(func() error { return emit(b) })
	})
	// what the process has not come to may still end before
	for last, any := run.Last(); err == nil && any && r.taken.Load() < int64(last); {
		select {
		case <-r.through:
		case <-within.Done():
			err = within.Err()
		}
	}
	return run.End(err, ctx.Err() != nil)
}

// stage is Run, whatever other ranks do.
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
	err := r.stager.Run(ctx, epoch, step, emit)
	if failed := j.failure(); failed != nil && errors.Is(err, context.Canceled) {
		return failed
	}
	return err
}

// Unusable notes that the process cannot decode a sample: for all ranks and epochs it is one that
// cannot be read, and the policy for these decides. The process asks for the batch again, with a
// Run that begins there, and goes on; or ends, with the sample's error, as all ranks do.
func (r *Rank) Unusable(sample int, reason string) (policy string, err error) {
	index := r.job.p.Order.Index()
	if sample < 0 || sample >= index.Len() {
		return "",
			failure.Input("sample %d is not one of the dataset's, 0 to %d", sample, index.Len()-1)
	}
	r.reported.Store(true)
	return string(r.job.faults.Report(r.job.p.Cache, sample, reason)), nil
}

// Wait says that the process is blocked in next().
func (r *Rank) Wait() { r.stager.Wait() }

// Return takes a slot of the staging buffer back; retired is the segment that
// ended with it, 0 for none.
func (r *Rank) Return(slot uint32) (retired uint32, err error) { return r.buffer.Return(slot) }

// Yielded notes that a batch was handed to the training loop. hash is the set hash of what was
// handed over in the epoch so far.
func (r *Rank) Yielded(epoch, step int, stall stage.Stall, hash uint64) {
	if !r.ledger.Yielded(epoch, step, stall) {
		return // it was not sent since the last Run
	}
	r.stager.Taken(epoch, step)
	r.job.planner.Feeds(r.rank)
	stream := r.job.p.Order.Stream()
	if r.job.epochNow.Load() != int64(epoch) {
		r.job.goesOn(epoch, 0)
	}
	r.taken.Store(int64(epoch*r.job.p.Order.Stream().Steps() + step))
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

// await waits until an epoch is given, or the process has taken the last batch before it: then the
// Run ends there. An epoch of which the process has given its part, and with which it has begun the
// Run, comes when the other ranks have given theirs.
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

// notify leaves a token for the goroutine that waits.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close leaves the job. Run must have returned.
func (r *Rank) Close() {
	r.once.Do(func() {
		j := r.job
		j.p.Stops.Leave(r.rank)
		j.mu.Lock()
		delete(j.ranks, r.rank)
		j.book.Leave(r.rank)
		j.mu.Unlock()
		j.p.Memory.Staged(r.rank, nil)
		r.stager.Close()
	})
}
