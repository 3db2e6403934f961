package daemon

import (
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node"
)

// run is one generation: a run of Rank.Run.
type run struct {
	generation uint64
	cancel     context.CancelFunc
	done       chan struct{}
}

// iterate starts a generation, after stopping the previous one.
func (x *conn) iterate(ctx context.Context, p []byte) error {
	m, err := protocol.DecodeIterate(p)
	if err != nil {
		return err
	}
	rank := x.rank.Load()
	if rank == nil {
		return fmt.Errorf("%w: ITERATE before a job is open", protocol.ErrProtocol)
	}
	x.stopStage()
	epoch, step := int(m.Epoch), int(m.Step)
	if err := rank.Check(epoch, step); err != nil {
		e := errorMessage(err)
		e.Generation = m.Generation
		_ = x.sendJSON(protocol.Error, e)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &run{generation: m.Generation, cancel: cancel, done: make(chan struct{})}
	x.stage = s
	go func() { // owned by x: stopStage waits for it
		defer close(s.done)
		defer cancel()
		err := rank.Run(ctx, epoch, step, func(b *stage.Batch) error {
			x.warn(rank.Warnings(false))
			return x.sendBatch(s.generation, b)
		})
		x.warn(rank.Warnings(true))
		switch {
		case ctx.Err() != nil:
		case err == nil:
			_ = x.send(protocol.AppendEnd(nil, s.generation))
		default:
			e := errorMessage(err)
			e.Generation = s.generation
			_ = x.sendJSON(protocol.Error, e)
		}
	}()
	return nil
}

func (x *conn) stopStage() {
	if x.stage != nil {
		x.stage.cancel()
		<-x.stage.done
		x.stage = nil
	}
}

// ofStage calls tell if the frame with payload p is about the generation under way.
func (x *conn) ofStage(p []byte, tell func(*node.Rank)) error {
	generation, err := protocol.DecodeGeneration(p)
	if err == nil && x.stage != nil && x.stage.generation == generation {
		tell(x.rank.Load())
	}
	return err
}

// ack returns slots to the staging buffer and records a batch as yielded.
func (x *conn) ack(p []byte, slots *[]uint32) error {
	m, err := protocol.DecodeAck(p, (*slots)[:0])
	if err != nil {
		return err
	}
	*slots = m.Slots
	rank := x.rank.Load()
	if rank == nil {
		return fmt.Errorf("%w: ACK before a job is open", protocol.ErrProtocol)
	}
	for _, slot := range m.Slots {
		retired, err := rank.Return(slot)
		if err != nil {
			return fmt.Errorf("%w: %v", protocol.ErrProtocol, err)
		}
		if retired != 0 {
			// Not in this goroutine: the stage may be blocked in a write until the process reads,
			// and the process until this goroutine reads.
			x.tasks.Go(func() { _ = x.send(protocol.AppendDrop(nil, retired)) })
		}
	}
	if m.Epoch != protocol.NoBatch && x.stage != nil && m.Generation == x.stage.generation {
		rank.Yielded(int(m.Epoch), int(m.Step), stall(&m), m.Audit)
	}
	return nil
}
