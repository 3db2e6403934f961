package stage

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

// TestBatchStateTransitions checks that only the documented transitions are allowed, and that any
// other panics if invariants are enabled.
func TestBatchStateTransitions(t *testing.T) {
	may := map[[2]batchState]bool{
		{planned, fetching}: true, {fetching, staged}: true, {fetching, parked}: true,
		{parked, fetching}: true,
		{staged, sent}:     true, {staged, discarded}: true, {parked, discarded}: true,
	}
	for from := planned; from <= discarded; from++ {
		for to := planned; to <= discarded; to++ {
			if to.follows(from) != may[[2]batchState{from, to}] {
				t.Errorf("%v after %v: %v", to, from, to.follows(from))
			}
			if !invariants.Enabled {
				continue
			}
			func() {
				defer func() {
					if panics := recover() != nil; panics == may[[2]batchState{from, to}] {
						t.Errorf("%v after %v panics: %v", to, from, panics)
					}
				}()
				(&batch{state: from}).to(to)
			}()
		}
	}
}

// TestFirstFailureByPositionIsReported checks that the error of a batch is that of its first failed
// sample by position, not by time, and takes precedence over a read that was given up.
func TestFirstFailureByPositionIsReported(t *testing.T) {
	g := newRig(t, plain(8, 1))
	defer g.close()
	b, tasks, err := g.ranks[0].stager.prepare(t.Context(), g.stream.Epoch(0), 0)
	if err != nil || len(tasks) != 2 {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	hangs := errors.New("hangs")
	second := errors.New("second")
	first := errors.New("first")
	b.GivenUp(hangs)
	if b.err != hangs || b.state != fetching {
		t.Errorf("%v, %v", b.err, b.state)
	}
	b.fail(1, second)
	b.fail(0, first)
	b.fail(1, second)
	b.arrived()
	<-b.done
	if b.err != first || b.state != staged {
		t.Errorf("%v, %v", b.err, b.state)
	}
	b.hung.Done()
	g.ranks[0].stager.discard(b)
	if g.ranks[0].stager.reap.Wait(); b.state != discarded {
		t.Errorf("the batch is %v", b.state)
	}
}
