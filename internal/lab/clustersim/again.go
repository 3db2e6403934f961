package clustersim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
)

// errReplaced reports that no other process could take the place of one.
var errReplaced = errors.New("the process could not be replaced")

// again moves to the batch with which a process begins again after an error: together with all
// others, or alone.
func (t *trainer) again(ctx context.Context) (err error) {
	if t.undone && t.script.Singly {
		t.position--
	}
	if !t.script.Singly {
		t.position, err = t.crew.Gather(ctx, max(t.position-t.script.Rewind, 0))
	} else {
		number := t.script.Seed + uint64(7919*t.rank+104729*t.errors)
		err = t.crew.AllFailed(ctx, t.errors)
		if err == nil && !sleep(ctx, time.Duration(number%2000)*time.Millisecond) {
			err = ctx.Err()
		}
	}
	if t.script.StepsOver() {
		t.position++
	}
	if t.script.Renews && err == nil && t.isReplaced() && !t.replace(ctx) {
		return errReplaced
	}
	return err
}

// isReplaced reports whether another process takes the place of the rank's, if there are batches
// left: others then go on.
func (t *trainer) isReplaced() bool {
	return t.rank == t.script.Replaced(t.Launch) &&
		t.position < t.script.Epochs*t.Steps()
}

// replace ends the process, and has another one take its place. ok is false if that is refused. One
// with another order is refused alone.
func (t *trainer) replace(ctx context.Context) (ok bool) {
	t.close()
	o := t.options(t.rank)
	*o.Request.Stream.Seed++
	if p, err := process.Open(ctx, o); err == nil {
		p.Close()
		t.broken(t.rank, "a rank comes back with another order, and is not refused")
	} else if alone := fmt.Sprintf("Only rank %d is refused", t.rank); ctx.Err() == nil &&
		!strings.Contains(err.Error(), alone) {
		t.broken(t.rank, "a rank that comes back with another order is told: %v", err)
	}
	p, err := process.Open(ctx, t.options(t.rank))
	if err != nil {
		if ctx.Err() == nil {
			_ = t.fail(judge.Refused, err)
		}
		return false
	}
	t.Process, t.closed = p, false
	t.add(judge.Event{Kind: judge.Opened, Rank: t.rank})
	return true
}

// close ends the process, if it has not ended.
func (t *trainer) close() {
	if !t.closed {
		t.closed = true
		t.within(t.State())
		t.Close()
	}
}
