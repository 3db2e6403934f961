// Package order is the order in which a job reads: its access stream, what that needs of the
// dataset, and the epochs that processes give, each alone or, over several nodes, a part each in
// turns (Turns).
//
// All methods of Order and Turns are safe for concurrent use.
package order

import (
	"context"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/request"
)

// leastHeld is how many epochs may have been given and not be over, unless more come with OPEN: the
// one that runs, the next one, and some that a process has gone back from, or gives ahead of its
// jump.
const leastHeld = 4

// keptEpochs is how many epochs' permutations a job keeps: ranks and the staging buffers' reading
// ahead are at most that far apart, as a rule.
const keptEpochs = 3

// Order is the order of a job.
type Order struct {
	stream *access.Stream
	index  *dataset.Index
	said   *request.Order // what the ranks said of it, without lists
	held   int            // how many epochs that are given may be known at a time
	turns  *Turns         // nil: ranks give no parts
	need   *need

	epochs struct { // has a lock of its own: to draw an epoch takes long
		sync.Mutex
		kept []*access.Epoch // those that ranks are in, newest last
	}
}

// New makes the order of a job: of what its ranks asked for, what they said beside, and the seed
// that was agreed on. With turns, which were opened, said has what came of turn 0.
func New(m *request.Open, said *request.Order, seed uint64, index *dataset.Index,
	turns *Turns,
) (*Order, error) {
	stream, err := newStream(m, said, seed, index.Len(), turns != nil)
	if err != nil {
		return nil, err
	}
	if largest := min(stream.Spec().GlobalBatch, stream.Delivered()); largest > request.MaxBatch {
		return nil, failure.Input("the global batch of %d samples (%d ranks) is larger than %d, "+
			"the most that a batch may have: make batch_size smaller",
			largest, m.WorldSize, request.MaxBatch)
	}
	return &Order{
		stream: stream, index: index, said: said.Brief(), held: max(leastHeld, len(said.Epochs)),
		turns: turns, need: needOf(said, index),
	}, nil
}

// newStream makes the access stream of a dataset of so many samples.
func newStream(m *request.Open, said *request.Order, seed uint64, samples int,
	turns bool,
) (stream *access.Stream, err error) {
	switch {
	case turns:
		if stream, err = access.NewGivenShared(samples, m.WorldSize, said.Part.Batch,
			said.Part.Entries, 0); err == nil {
			err = stream.Give(said.First, said.Epochs[0])
		}
	case said.Batches != nil:
		stream, err = access.NewGiven(samples, said.Batches, m.Stream.Epochs)
		if given := m.Stream.Given; err == nil && stream.Delivered() != given.Entries {
			return nil, failure.Input("stream.given.entries = %d: its batches have %d samples",
				given.Entries, stream.Delivered())
		}
		for i, ids := range said.Epochs {
			if err == nil {
				err = stream.Give(said.First+i, ids)
			}
		}
	default:
		stream, err = access.New(access.Spec{
			Samples: samples, Seed: seed, Epochs: m.Stream.Epochs,
			WorldSize: m.WorldSize, GlobalBatch: m.Stream.GlobalBatch, DropLast: m.Stream.DropLast,
			Shuffle: access.Shuffle(m.Stream.Shuffle), Scheme: access.Scheme(m.Stream.Scheme),
			Tail:   access.Tail(m.Stream.Tail),
			Subset: said.Subset,
		})
	}
	if err != nil {
		return nil, failure.Input("%v", err)
	}
	return stream, nil
}

// Opened notes that the job is open: from now on ranks' further parts of epochs are exchanged, and
// news is called when an epoch is known.
func (o *Order) Opened(news func()) {
	if o.turns != nil {
		o.turns.opened(o.stream, o.said.First, news)
	}
}

// Stream is the job's access stream.
func (o *Order) Stream() *access.Stream { return o.stream }

// Index is the index of the dataset that it is over.
func (o *Order) Index() *dataset.Index { return o.index }

// First is the epoch that the job begins with.
func (o *Order) First() int { return o.said.First }

// Said is what ranks that join must say as well.
func (o *Order) Said() *request.Order { return o.said }

// Turns reports whether ranks give their parts of epochs.
func (o *Order) Turns() bool { return o.turns != nil }

// Given reports whether processes give the epochs' orders.
func (o *Order) Given() bool { return o.stream.Spec().Shuffle == access.Given }

// Epoch returns a view of an epoch; the last few are kept, because ranks share them. nil: the
// process is to give it, and has not, or it is over.
func (o *Order) Epoch(e int) *access.Epoch {
	if o.Given() {
		return o.stream.Epoch(e)
	}
	o.epochs.Lock()
	defer o.epochs.Unlock()
	for _, v := range o.epochs.kept {
		if v.Number() == e {
			return v
		}
	}
	v := o.stream.Epoch(e)
	o.epochs.kept = append(o.epochs.kept, v)
	if len(o.epochs.kept) > keptEpochs {
		o.epochs.kept = slices.Delete(o.epochs.kept, 0, 1)
	}
	return v
}

// Check refuses a step of an epoch that a rank cannot begin with. planned: epochs after the last
// may be read.
func (o *Order) Check(rank, epoch, step int, planned bool) error {
	spec := o.stream.Spec()
	if spec.Epochs > 0 && epoch >= spec.Epochs && !planned {
		return failure.Input("epoch %d is behind the job's last: it has %d epochs, counted "+
			"from 0, and is "+
			"not planned yet",
			epoch, spec.Epochs)
	}
	if epoch >= 0 && !o.stream.Given(epoch) && (o.turns == nil || !o.turns.expects(rank, epoch)) {
		return failure.Input("epoch %d was not given, or is over: give its order first", epoch)
	}
	if step > o.stream.Steps() {
		return failure.Input("step %d is behind the epoch's last: it has %d steps, counted from 0",
			step, o.stream.Steps())
	}
	return nil
}

// Await waits until an epoch is known, or will not be: ranks give their parts of it.
func (o *Order) Await(ctx context.Context, epoch int) error { return o.turns.Await(ctx, epoch) }
