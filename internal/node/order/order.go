// Package order implements the order in which a job reads its samples: the access stream, what it
// needs of the dataset, and the orders of epochs that processes give, either whole or, over several
// nodes, in parts that are exchanged in turns (Turns).
//
// All methods of Order and Turns are safe for concurrent use.
package order

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

// minHeld is how many given epochs may be known at a time, unless more come with OPEN: the current
// one, the next one, and some that a process has gone back from, or gives before it jumps ahead.
const minHeld = 4

// keptEpochs is how many epochs' permutations a job keeps: usually ranks and their prefetching are
// at most that far apart.
const keptEpochs = 3

// Order is the order of a job.
type Order struct {
	stream *access.Stream
	index  *source.Index
	said   *request.Order // what the ranks said of the order, without lists
	held   int            // how many given epochs may be known at a time
	turns  *Turns         // nil: ranks give no parts
	need   *need
	// configured are the nodes' capacities that a policy's order is made from; nil: it has none.
	configured []plan.Node

	epochs struct { // separate lock: drawing an epoch takes long
		sync.Mutex
		kept []*access.Epoch // guarded by Mutex; the epochs that ranks are in, newest last
	}
}

// New returns the order of a job, made from what its ranks asked for and said, and the agreed seed.
// If turns is not nil, it must be open, and said must include the result of turn 0.
func New(m *request.Open, said *request.Order, seed uint64, index *source.Index,
	turns *Turns,
) (*Order, error) {
	stream, err := newStream(m, said, seed, index.Len(), turns != nil)
	if err != nil {
		return nil, err
	}
	if largest := min(stream.Spec().GlobalBatch, stream.Delivered()); largest > request.MaxBatch {
		return nil,
			failure.Input("the global batch of %d samples (%d ranks) is larger than the limit "+
				"of %d: reduce batch_size",
				largest, m.WorldSize, request.MaxBatch)
	}
	return &Order{
		stream: stream, index: index, said: said.Brief(), held: max(minHeld, len(said.Epochs)),
		turns: turns, need: needOf(said, index, stream),
	}, nil
}

// newStream returns the access stream for a dataset with this number of samples.
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
			Subset: said.Subset, Mixture: m.Stream.Mix,
		})
	}
	var nothing *access.NothingError
	switch {
	case errors.As(err, &nothing):
		return nil, nothingLeft(nothing)
	case err != nil:
		return nil, failure.Input("%v", err)
	}
	return stream, nil
}

// nothingLeft returns the failure for an order of which drop_last leaves nothing, in the words of
// the loader's arguments.
func nothingLeft(e *access.NothingError) error {
	const what = "with drop_last nothing would be delivered: "
	if e.Positions == 0 {
		return failure.Input(what+"there are fewer samples than the %d ranks; start fewer ranks, "+
			"or leave drop_last out", e.Spec.WorldSize)
	}
	return failure.Input(what+"a step takes %d samples (the batches of all ranks), more than the %d "+
		"of an epoch; make the batches smaller, or leave drop_last out", e.Spec.GlobalBatch,
		e.Positions)
}

// Opened records that the job is open: from now on ranks' further parts are exchanged, and news is
// called when an epoch becomes known.
func (o *Order) Opened(news func()) {
	if o.turns != nil {
		o.turns.opened(o.stream, o.said.First, news)
	}
}

// Stream returns the job's access stream.
func (o *Order) Stream() *access.Stream { return o.stream }

// Index returns the index of the dataset.
func (o *Order) Index() *source.Index { return o.index }

// First returns the job's first epoch.
func (o *Order) First() int { return o.said.First }

// Said returns what ranks that join must say as well.
func (o *Order) Said() *request.Order { return o.said }

// Turns reports whether ranks give parts of epochs.
func (o *Order) Turns() bool { return o.turns != nil }

// Given reports whether processes give the orders of epochs.
func (o *Order) Given() bool { return o.stream.Spec().Shuffle == access.Given }

// Rank returns the rank of the job's process among those that give orders and have jobs of their
// own, and their number; 0 and 1 if there are no others.
func (o *Order) Rank() (rank, ranks int) { return o.said.Rank, max(o.said.Ranks, 1) }

// Epoch returns a view of an epoch. Ranks share the views of the last few epochs. It returns nil if
// the processes give orders, and that epoch's is not known yet or no longer.
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

// Check returns an error if a rank cannot begin at this step of the epoch. planned is set if there
// is a plan: epochs after the last one may be read then.
func (o *Order) Check(rank, epoch, step int, planned bool) error {
	spec := o.stream.Spec()
	if spec.Epochs > 0 && epoch >= spec.Epochs && !planned {
		return failure.Input("epoch %d out of range: the job has %d epochs, counted from 0, and "+
			"is not planned yet",
			epoch, spec.Epochs)
	}
	if spec.Mixture != nil && epoch > access.MaxMixedEpoch {
		return failure.Input("epoch %d out of range: a mix of datasets has epochs 0 to %d", epoch,
			access.MaxMixedEpoch)
	}
	if epoch >= 0 && !o.stream.Given(epoch) && (o.turns == nil || !o.turns.expects(rank, epoch)) {
		return failure.Input("epoch %d was not given, or is over: give its order first", epoch)
	}
	if step > o.stream.Steps() {
		return failure.Input("step %d out of range: an epoch has %d steps, counted from 0",
			step, o.stream.Steps())
	}
	return nil
}

// Await waits until an epoch of which ranks give parts is known, or never will be.
func (o *Order) Await(ctx context.Context, epoch int) error { return o.turns.Await(ctx, epoch) }
