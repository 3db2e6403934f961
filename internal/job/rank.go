package job

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/stage"
	"github.com/hdmlp/hdmlp/internal/staging"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Rank is one training process of a job: a stream of batches of its own.
type Rank struct {
	job    *Job
	rank   int
	buffer *staging.Buffer
	stager *stage.Stager
	ledger *stage.Ledger
	// through has a token when the process has come to the last batch of the stream, or of an epoch that was given.
	through chan struct{}
	// begun is the batch that the Run began with, and taken the one of it that the process took last, counted through all epochs;
	// negative: none.
	begun, taken atomic.Int64
	news         chan struct{} // has a token when taken has come to the end of an epoch that was given, or another one was given
	once         sync.Once
	reported     atomic.Bool // the process has reported a sample, and asks for the batch that has it again
	forget       func()      // forgets its process's view of the dataset; nil: there is none
}

const (
	smallestBuffer = 32 << 20 // bytes of staging buffer, unless four batches need more
	batchesStaged  = 4
	mostRagged     = 512 << 20 // bytes of staging buffer where samples become images of different sizes, unless two batches need more
)

// join makes the rank.
func (j *Job) join(rank int, verify bool) (*Rank, error) {
	size, warning := j.bufferSize(rank)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ranks[rank] != nil {
		return nil, &failure.Error{
			Kind:    failure.Busy,
			Message: fmt.Sprintf("rank %d of job %s is taken by another process: give every process a rank of its own, or the loader a name of its own", rank, printable.Name(j.message.Job)),
		}
	}
	buffer, err := staging.New(size)
	if err != nil {
		return nil, fmt.Errorf("staging buffer of rank %d: %w", rank, err)
	}
	if warning != "" {
		j.warnings = append(j.warnings, warning)
	}
	r := &Rank{job: j, rank: rank, buffer: buffer, through: make(chan struct{}, 1), news: make(chan struct{}, 1), ledger: stage.NewLedger(j.cache, j.steps())}
	o := stage.Options{
		Stream: j.stream, Epoch: j.epoch, Rank: rank,
		Cache: j.cache, Buffer: buffer, Ahead: j.cfg.PrefetchBatches, First: j.firstBatches(rank), Lazy: !j.planner.Prefetches(), May: j.planner.Gate(),
		Faults: j.faults, Ledger: r.ledger, Verify: verify,
	}
	if j.stream.Spec().Shuffle == access.Given {
		o.Await = r.await
	}
	if j.others != nil {
		o.Peers = j.others.peers
	}
	if j.preprocessor != nil {
		o.Preprocessor = j.preprocessor
	}
	r.stager = stage.New(o)
	j.ranks[rank] = r
	j.node.claims.staged(j, rank, buffer)
	j.ledgers[rank] = r.ledger
	j.book.Join(rank)
	return r, nil
}

// firstBatches is how many batches are staged before the process has taken one: two, or as many as keep the reading threads
// busy.
func (j *Job) firstBatches(rank int) int {
	batch := max(j.stream.RankSamples(rank)/j.stream.Steps(), 1)
	return max(2, (2*j.cfg.SourceThreads+batch-1)/batch)
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
	Positions   int // that an epoch has before it is padded or cut: samples of the dataset, of the subset, of an epoch that is given
	// PrefetchBatches is how many batches are staged that the process has not taken, at most.
	PrefetchBatches int
	Warnings        []string
	Output          *Output // what every sample becomes; nil: it stays as it is
}

// Output says what transforms make of every sample: an array.
type Output struct {
	// Shape is the array's. Where height and width, the first two, are 0, they differ, and stand before each sample's own levels.
	Shape []int
	// Type is the elements': uint8, float16, bfloat16 or float32.
	Type string
}

// Opened describes the job to its process.
func (r *Rank) Opened() Opened {
	j := r.job
	index := j.dataset.Index()
	j.mu.Lock()
	defer j.mu.Unlock()
	return Opened{
		Samples: index.Len(), Classes: index.Classes(), ClassSizes: index.ClassSizes(), Bytes: index.Bytes(),
		Fingerprint: hex.EncodeToString(j.version[:]),
		Seed:        j.seed,
		Steps:       j.stream.Steps(), RankSamples: j.stream.RankSamples(r.rank),
		Positions:       j.need.positions,
		PrefetchBatches: j.cfg.PrefetchBatches,
		Warnings:        printableTexts(j.warnings), Output: j.output,
	}
}

// printableTexts are the texts in a form that can be shown; never nil.
func printableTexts(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = printable.Text(t)
	}
	return out
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
	for i, c := range r.job.dataset.Classes() {
		if in, ok := c.Store.(storageclass.InPlace); ok {
			f, n := in.Segment()
			out = append(out, Segment{Number: stage.ClassSegment(i), File: f, Size: n})
		}
	}
	return out
}

// Check tells whether the job has the step of the epoch.
func (r *Rank) Check(epoch, step int) error {
	spec := r.job.stream.Spec()
	if spec.Epochs > 0 && epoch >= spec.Epochs && r.job.planner.Plan() == nil {
		return failure.Input("epoch %d is behind the job's last: it has %d epochs, counted from 0, and is not planned yet", epoch, spec.Epochs)
	}
	if p := r.job.parts; epoch >= 0 && !r.job.stream.Given(epoch) && (p == nil || !p.expects(r.rank, epoch)) {
		return failure.Input("epoch %d was not given, or is over: give its order first", epoch)
	}
	if step > r.job.stream.Steps() {
		return failure.Input("step %d is behind the epoch's last: it has %d steps, counted from 0", step, r.job.stream.Steps())
	}
	return nil
}

// Run stages batches from (epoch, step) on; see stage.Stager.Run. It returns nil when the process has come to the last one. It ends with the job's error if that fails, and before the batch at which
// another rank's Run ended with an error, on whatever node, with that error.
func (r *Rank) Run(ctx context.Context, epoch, step int, emit func(*stage.Batch) error) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-r.through:
	default:
	}
	r.begun.Store(int64(epoch*r.job.stream.Steps() + step))
	r.taken.Store(-1)
	run := r.job.stops.Begin(r.rank, epoch*r.job.stream.Steps()+step, cancel, r.buffer.End)
	err := r.stage(within, epoch, step, func(b *stage.Batch) error {
		return run.Hand(func() error { return emit(b) })
	})
	for last, any := run.Last(); err == nil && any && r.taken.Load() < int64(last); { // what the process has not come to may still end before
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
	defer context.AfterFunc(j.life, cancel)()
	if err := j.planner.Begin(epoch, step); err != nil {
		return err
	}
	err := r.stager.Run(ctx, epoch, step, emit)
	if failed := j.failure(); failed != nil && errors.Is(err, context.Canceled) {
		return failed
	}
	return err
}

// Unusable notes that the process cannot decode a sample: for all ranks and epochs it is one that cannot be read, and the policy for these
// decides. The process asks for the batch again, with a Run that begins there, and goes on; or ends, with the sample's error, as all ranks do.
func (r *Rank) Unusable(sample int, reason string) (policy string, err error) {
	index := r.job.dataset.Index()
	if sample < 0 || sample >= index.Len() {
		return "", failure.Input("sample %d is not one of the dataset's, 0 to %d", sample, index.Len()-1)
	}
	r.reported.Store(true)
	return string(r.job.faults.Report(r.job.cache, sample, reason)), nil
}

// Wait says that the process is blocked in next().
func (r *Rank) Wait() { r.stager.Wait() }

// Return takes a slot of the staging buffer back; retired is the segment that
// ended with it, 0 for none.
func (r *Rank) Return(slot uint32) (retired uint32, err error) { return r.buffer.Return(slot) }

// Yielded notes that a batch was handed to the training loop. hash is the set hash of what was handed over in the epoch so far.
func (r *Rank) Yielded(epoch, step int, stall stage.Stall, hash uint64) {
	if !r.ledger.Yielded(epoch, step, stall) {
		return // it was not sent since the last Run
	}
	r.stager.Taken(epoch, step)
	r.job.planner.Feeds(r.rank)
	spec := r.job.stream.Spec()
	if r.job.epochNow.Load() != int64(epoch) {
		r.job.goesOn(epoch, 0)
	}
	r.taken.Store(int64(epoch*r.job.stream.Steps() + step))
	if step == r.job.stream.Steps()-1 {
		if epoch == spec.Epochs-1 || spec.Shuffle == access.Given {
			notify(r.through)
			notify(r.news)
		}
		samples, missing := r.ledger.Delivered(epoch)
		r.job.book.Finish(r.rank, epoch, audit.Delivered{Hash: hash, Samples: samples, Missing: missing})
	}
}

// await waits until an epoch is given, or the process has taken the last batch before it: then the Run ends there. An epoch of which the process has
// given its part, and with which it has begun the Run, comes when the other ranks have given theirs.
func (r *Rank) await(ctx context.Context, epoch int) error {
	last := int64(epoch*r.job.stream.Steps() - 1)
	if p, begun := r.job.parts, r.begun.Load(); p != nil && begun > last {
		if err := p.await(ctx, epoch); err != nil {
			return err
		}
		r.job.goesOn(epoch, int(begun-last)-1)
	}
	for !r.job.stream.Given(epoch) && r.begun.Load() <= last && r.taken.Load() < last {
		select {
		case <-r.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// notify leaves a token for the one who waits.
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
		j.stops.Leave(r.rank)
		if r.forget != nil {
			r.forget()
		}
		j.mu.Lock()
		delete(j.ranks, r.rank)
		j.book.Leave(r.rank)
		j.mu.Unlock()
		j.node.claims.staged(j, r.rank, nil)
		r.stager.Close()
		if j.parts != nil {
			j.parts.leave(r.rank)
		}
		j.release()
	})
}
