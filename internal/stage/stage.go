// Package stage makes batches of a rank's access stream: it fills the rank's staging buffer with
// the coming ones, in exactly the stream's order, and describes each to the process once it is
// there (thesis 4.3.8).
//
//   - Stager turns one rank's stream into batches that lie in shared memory.
//   - Ledger counts where samples came from and what next() waited for.
//
// The files, each of which uses those before it only: ledger, stage (what goes in and comes out),
// ragged (room for results of different sizes), batch (one batch, from its layout until it is
// sent), fetch (one sample of it), layout, stager (how far the process is, and the room that it
// keeps), walk (the stream's next batch), run (batches in order).
//
// What is delivered is a pure function of the stream: cache contents, timing and failures change
// when a batch is ready, never what is in it.
//
// # Who runs where
//
// A Stager's Run owns two goroutines: the walker walks the stream, takes room in the staging buffer
// and queues what has to be read; Run's own goroutine sends finished batches in order. The cache's
// workers fetch. Samples that already lie in shared memory cost no task: the walker just notes
// where they are.
package stage

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/staging"
)

// ClassSegment is the segment number under which a batch names the shared memory of class j,
// counted from 0 as in cache.Options.Classes. Numbers below it are the staging buffer's.
func ClassSegment(j int) uint32 { return 1<<31 + uint32(j) }

// Batch is one batch as the training process gets it: where in shared memory each sample lies. The
// columns have one entry per sample.
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

// Preprocessor makes of a sample's bytes what the process gets. Its methods are called by many
// goroutines at a time.
type Preprocessor interface {
	// Size is how many bytes every sample becomes; 0: that differs.
	Size() int
	// Expected is about how many bytes a sample becomes that has so many now.
	Expected(bytes int64) int64
	// Steps are the names of what is done, in order.
	Steps() []string
	// Apply makes of a sample's bytes what the process gets of it in the epoch, where room says,
	// and adds the time of each step to spent. An error of room comes back, wrapped. draw is the
	// sample's ID, and 2^32 more for each time that the epoch has it besides: what is random in it
	// differs then. Whatever else fails would fail again.
	Apply(room func(size int) ([]byte, error), src []byte, epoch, draw int,
		spent []time.Duration) error
}

// Options say what a Stager delivers, and from where.
type Options struct {
	Stream *access.Stream
	// Epoch returns the stream's epochs; it may keep some ready. nil: that one is not given, and
	// the Run ends before it.
	Epoch  func(e int) *access.Epoch
	Rank   int
	Cache  *cache.Cache
	Peers  cache.Peers // the other nodes of the rank's job; nil: there are none
	Buffer *staging.Buffer
	// batches staged that the process has not taken, at most: those that it was sent count as well
	Ahead int
	// First is how many batches are staged before the process has taken any; two more with each
	// that it takes, until that is Ahead. So at the start of a job what is needed at once does not
	// wait for what is not, here and where the source is shared. 0: Ahead.
	First int
	// Await, if not nil, is asked before each epoch, and may wait until ctx ends.
	Await func(ctx context.Context, epoch int) error
	// May, if not nil, is asked before each batch is staged, and may wait until ctx ends.
	May func(ctx context.Context, epoch, step int) error
	// compare the bytes of every sample with the source's, wherever they were taken from
	Verify bool
	Lazy   bool // stage a batch only once the process asks for it: policy naive
	Faults *cache.Faults
	Ledger *Ledger
	// Preprocessor, if not nil, makes what is delivered of the samples, in the staging buffer. A
	// batch's results lie one after the other if all have the same size.
	Preprocessor Preprocessor
}

// inOnePiece reports whether the samples of a batch lie one after the other, as one tensor.
func (o *Options) inOnePiece() bool { return o.Preprocessor != nil && o.Preprocessor.Size() > 0 }

// ragged reports whether results differ in size.
func (o *Options) ragged() bool { return o.Preprocessor != nil && o.Preprocessor.Size() == 0 }
