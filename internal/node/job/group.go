package job

import (
	"context"
	"math"
	"os"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Member is a rank's part in a group of jobs that are given the same prepared batches (package
// share/feed).
type Member interface {
	// Run delivers the batches from one until before another, given by their steps over all epochs.
	Run(ctx context.Context, begin, end int, own stage.Own) error
	// Wait records that the process is blocked in next(). It returns false if that concerns only
	// the rank's own stager.
	Wait() (attached bool)
	// Yielded records that the process has taken all batches up to this one.
	Yielded(epoch, step int, stall stage.Stall)
	// Return releases a slot of the group's window. retired is the segment that the process needs no
	// more, or 0.
	Return(slot uint32) (retired uint32, err error)
	// Report returns the rank's place in the group.
	Report() report.Group
	// Keep has Close leave what the process holds as it is.
	Keep()
	// Close leaves the group.
	Close()
}

// SetGroup makes the rank a member of a group, and leave it when it is closed. It must be called
// before Run.
func (r *Rank) SetGroup(m Member) {
	r.job.mu.Lock() // reports may be made already
	defer r.job.mu.Unlock()
	r.group = m
}

// stream stages batches from (epoch, step) on, as stage.Stager.Run, or has the group deliver them.
func (r *Rank) stream(ctx context.Context, epoch, step int, emit func(*stage.Batch) error) error {
	if r.group == nil {
		return r.stager.Run(ctx, epoch, step, emit)
	}
	r.ledger.Restart(epoch)
	s := r.job.p.Order.Stream()
	last := s.Spec().Epochs
	if epoch >= last { // the process goes on past the planned epochs, or the stream has no end
		last = math.MaxInt / s.Steps()
	}
	return r.group.Run(ctx, epoch*s.Steps()+step, last*s.Steps(), own{r, emit})
}

// own is what a rank does for itself as a member of a group.
type own struct {
	*Rank
	emit func(*stage.Batch) error
}

// Stage implements stage.Own.
func (o own) Stage(ctx context.Context, epoch, step int, blocked bool,
	next func(epoch, step int) error,
) error {
	if blocked {
		o.stager.Wait()
	}
	return o.stager.Continue(ctx, epoch, step, func(b *stage.Batch) error {
		if err := next(b.Epoch, b.Step); err != nil {
			return err
		}
		return o.emit(b)
	})
}

// Deliver implements stage.Own.
func (o own) Deliver(b *stage.Batch) error {
	o.ledger.Emitted(b)
	return o.emit(b)
}

// Keep has Close leave what the process holds of a group's window as it is, for a connection that
// the process has not closed: it may still use what it was sent.
func (r *Rank) Keep() {
	if r.group != nil {
		r.group.Keep()
	}
}

// Wait records that the process is blocked in next().
func (r *Rank) Wait() {
	if r.group == nil || !r.group.Wait() {
		r.stager.Wait()
	}
}

// WaitForSlots is Wait while slots are about to be returned, of a rank that is in no group.
func (r *Rank) WaitForSlots() { r.stager.WaitForSlots() }

// Return releases a slot of the staging buffer, or of the group's window. retired is the segment
// that was removed with it, or 0.
func (r *Rank) Return(slot uint32) (retired uint32, err error) {
	if r.group != nil && staging.InWindow(slot) {
		return r.group.Return(slot)
	}
	return r.buffer.Return(slot)
}

// Window returns the staging buffer's memory, and its size in bytes.
func (r *Rank) Window() (file *os.File, size int64) { return r.buffer.Ring() }

// Stuck reports whether no more batches can be staged until the process returns slots.
func (r *Rank) Stuck() bool { return r.stager.Stuck() }

// Pace returns how long the process works on a batch, in seconds, without what it waits for
// batches: the mean of the shorter half. ok is false if that is not known yet.
func (r *Rank) Pace() (seconds float64, ok bool) { return r.stager.Pace(0.5) }

// Unshareable is why a rank's batches cannot be those of a group.
type Unshareable struct{ error }

// Unwrap returns the failure.
func (u Unshareable) Unwrap() error { return u.error }

// Shape returns the batches of an epoch of the rank, and its samples, and those of a batch that is
// not the last. An epoch in which a batch is empty is Unshareable: it has no place in a group's
// window.
func (r *Rank) Shape() (steps, samples, batch int, err error) {
	s := r.job.p.Order.Stream()
	steps, samples = s.Steps(), s.RankSamples(r.rank)
	if s.Empty(r.rank) {
		return 0, 0, 0, Unshareable{failure.Input("share: rank %d of job %s has a batch without "+
			"samples, and cannot share batches: start fewer ranks, or use drop_last", r.rank,
			request.Name(r.job.config.Request.Job))}
	}
	return steps, samples, max(s.Offset(r.rank, min(1, steps)), 1), nil
}

// Empties reports whether some rank of the job would have an empty batch without drop_last, if the
// global batch had this size.
func (r *Rank) Empties(globalBatch int) bool {
	return r.job.p.Order.Stream().Empties(globalBatch)
}
