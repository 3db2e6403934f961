// Package stage assembles the batches of a rank's access stream: it prefetches upcoming batches
// into the rank's staging buffer, in exactly the stream's order, and describes each to the process
// once it is complete (thesis 4.3.8).
//
//   - Stager turns one rank's stream into batches in shared memory.
//   - Ledger counts where samples came from and what next() waited for.
//
// Each file uses only those before it: ledger, stage (input and output), ragged (memory for results
// of different sizes), barrier (segments that are given back), batch (one batch, from its layout
// until it is sent), fetch (one sample of it), layout, stager (how far it has read, and the memory
// that it keeps), walk (the stream's next batch), run (batches in order).
//
// What is delivered is a pure function of the stream: cache contents, timing and failures affect
// when a batch is ready, never what is in it.
//
// # Goroutines
//
// A Stager's Run owns two goroutines: the walker schedules the stream's batches, reserves memory in
// the staging buffer and queues reads; Run's own goroutine emits finished batches in order. The
// cache's workers fetch. Samples that are already in shared memory need no task: the walker only
// records where they are.
//
// unusable.go records the samples of a job that cannot be read or decoded, and what it does about
// them.
package stage

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Batch describes one batch to the training process: where in shared memory each sample is. Labels,
// IDs and occurrences have one entry per sample; offsets, lengths and segments have one per output
// and sample: those of the first output for all samples, then those of the second, and so on.
type Batch struct {
	Epoch, Step int
	Audit       uint64   // sum of access.Mix over the batch
	Labels      []int64  // numbers of classes; if samples have none, IDs
	Offsets     []uint64 // within the segment
	Lengths     []uint64 // bytes; NoField: the sample does not have the field
	IDs         []uint32
	Occurrences []uint32 // how often the epoch has the sample before, without what padding repeats
	Segments    []uint32 // in the staging buffer, or ClassSegment
	Slots       []uint32 // of the staging buffer; the process returns them
	Extras      []staging.Extra
	Left        []Left // in the order of their positions

	made delivery // how it was staged
}

// Outputs returns how many outputs the columns have, of a batch that is not empty.
func (b *Batch) Outputs() int { return len(b.Offsets) / max(len(b.IDs), 1) }

// MaxLeft is the most samples of a batch that may be left to the process: its frame has room for no
// more.
const MaxLeft = 100_000

// NoField is the length of a field that a sample does not have.
const NoField = math.MaxUint64

// Left is a sample that the process is to transform itself: where its bytes are. The place of its
// result in the batch is reserved, and not written.
type Left struct {
	Position, Segment uint32 // the position counts through the outputs, as Batch.Offsets does
	Offset, Length    uint64
	Usual             bool // a file like others, of which only what is drawn is uncertain
}

// Unusable records the samples that a job cannot use.
type Unusable = Samples

// NewUnusable returns an empty record. policy is what is done about such samples: on_error.
func NewUnusable(policy string) *Unusable { return newUnusable(Policy(policy)) }

// Preprocessor transforms samples into what is delivered. Its methods must be safe for concurrent
// use.
type Preprocessor interface {
	// Size returns the size in bytes of a result of every sample, by the result's number; 0: it
	// varies, and is the only one.
	Size(view int) int
	// Expected estimates the size of the results for a sample of the given size.
	Expected(bytes int64) int64
	// Steps returns the names of the steps, in order.
	Steps() []string
	// Apply transforms a sample's bytes, those of each field that is an input, for an epoch; kind, if
	// not 0, is the form that those of one input are in, the only one whose forms it takes. It writes
	// each result into a buffer from alloc, and adds the time of each step to spent. An error of
	// alloc is returned, wrapped. What is random follows from the epoch, the sample's ID, and how
	// often the epoch has the sample before. whole makes damage an error also in parts of the bytes
	// that the result does not depend on. Any other error is permanent.
	Apply(alloc func(view, size int) ([]byte, error), srcs [][]byte, kind uint8,
		epoch, id, occurrence int, whole bool, spent []time.Duration) error
	// Left reports whether an error of Apply means that the process is to transform the sample, and
	// whether it is a file like others, of which only what is drawn is uncertain. That depends only
	// on the sample's bytes, the epoch, and the sample's ID and occurrence.
	Left(err error) (left, usual bool)
	// Takes estimates how long it takes to transform so many samples, in seconds; 0 if threads are
	// idle, so that more could be transformed.
	Takes(samples int) float64
	// Report describes what was transformed so far.
	Report() *report.Preprocessing
	// ThreadChanges returns how many threads might transform samples since the first, with the times
	// of changes; none if their number is fixed.
	ThreadChanges() iter.Seq2[time.Time, int]
}

// Options are the options of a Stager.
type Options struct {
	Stream *access.Stream
	// Epoch returns the stream's epochs, and may cache some; nil: the epoch's order is not given,
	// and the Run ends before it.
	Epoch func(e int) *access.Epoch
	Rank  int
	// Among is the rank among Ranks with streams of their own, which count a sample's occurrences
	// together: occurrence k of rank r is k*Ranks + r. 0: there are no others.
	Among, Ranks int
	Cache        *cache.Cache
	Peers        cache.Peers // the other nodes of the rank's job; nil: none
	Buffer       *staging.Buffer
	// Ahead is the most batches staged and not yet taken by the process, including those sent to
	// it.
	Ahead int
	// MostAhead is up to what Ahead grows, while the process waits although more samples could be
	// read, and transformed, at the same time; 0: it does not grow.
	MostAhead int
	// Grow, if not nil, is called when the buffer should grow for the same reason, with the number
	// of bytes, and reports whether there is memory for them.
	Grow func(bytes int64) bool
	// First is how many batches are staged before the process has taken any; the limit grows by two
	// with each batch that it takes, up to Ahead. So at the start of a job, what is needed at once
	// does not wait for what is not, on this node and at a shared source. 0: Ahead.
	First int
	// Await, if not nil, is called before each epoch. It may block until ctx ends.
	Await func(ctx context.Context, epoch int) error
	// Gate, if not nil, is called before each batch is staged. It may block until ctx ends.
	Gate func(ctx context.Context, epoch, step int) error
	// Verify compares the bytes of every sample with the source's, whatever tier they come from.
	Verify bool
	// TakesForms is set if samples may come in another form than as read. Without Verify.
	TakesForms bool
	Lazy       bool // stage a batch only when the process asks for it: policy naive
	// Demand, if not nil, reports whether a sample is read only when the process asks for its batch.
	Demand func(id int) bool
	// Workers, if not 0, has samples brought as by so many of torch's workers: each brings every
	// Workers-th batch, one sample after the other.
	Workers int
	// CacheFirst, if not nil, reports whether samples that a class or another node has are not read
	// from the source.
	CacheFirst func() bool
	Unusable   *Unusable
	Ledger     *Ledger
	// Outputs are what is delivered of each sample, if anything of it is transformed: then all of
	// them are written into the staging buffer. nil: all its fields, as they are.
	Outputs []Output
}

// Output is a field of samples as it is delivered, or one of several views of it.
type Output struct {
	Field int // its number in the index
	// View is the result's number among those that Preprocessor makes of the field, or of Inputs.
	// They follow one another, from 0 on.
	View int
	// Inputs are the fields of which Preprocessor makes a result each, in their order; nil: it is
	// for Field alone.
	Inputs []int
	// Forms says, by Inputs, or of Field alone, whether Preprocessor takes forms of it: of one at
	// most. Of the forms of others the file is used that lies in them. nil: it takes none.
	Forms []bool
	// Preprocessor transforms the field. The results of a batch form one tensor if all have the same
	// size. Those of a job share Takes, Report and ThreadChanges. nil: the field is copied.
	Preprocessor Preprocessor
}

// size returns the size of every result in bytes; 0: it varies.
func (o *Output) size() int {
	if o.Preprocessor == nil {
		return 0
	}
	return o.Preprocessor.Size(o.View)
}

// steps returns the number of the output's steps, which the first view has.
func (o *Output) steps() int {
	if o.Preprocessor == nil || o.View > 0 {
		return 0
	}
	return len(o.Preprocessor.Steps())
}

// Preprocesses returns a preprocessor of the outputs; nil: there is none.
func Preprocesses(outputs []Output) Preprocessor {
	for _, o := range outputs {
		if o.Preprocessor != nil {
			return o.Preprocessor
		}
	}
	return nil
}

// Steps returns the names of the steps of all outputs.
func Steps(outputs []Output) (names []string) {
	for _, o := range outputs {
		if o.Preprocessor != nil && o.View == 0 {
			names = append(names, o.Preprocessor.Steps()...)
		}
	}
	return names
}

// Own is what a member of a group of jobs does for itself (package engine/share/feed).
type Own interface {
	// Stage stages and delivers batches from a step of an epoch on, as Stager.Continue. blocked is
	// set if the process waits for the first one. next is called before each batch is delivered;
	// its error ends the call.
	Stage(ctx context.Context, epoch, step int, blocked bool,
		next func(epoch, step int) error) error
	// Deliver delivers a batch that lies in the group's window.
	Deliver(b *Batch) error
}

// outputs returns how many places in memory a batch has for each sample while it is staged: those
// of its outputs, or that of the sample.
func (o *Options) outputs() int { return max(len(o.Outputs), 1) }

// align returns the multiple at which what varies in size begins in memory.
func (o *Options) align() int64 {
	if o.Cache.Index().Fields() != nil {
		return source.Align
	}
	return 8
}
