package flights

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

// Flight is one read of a sample, from when a fetch has found that no class holds it until all
// fetches that wait for it have its result. So no sample is read twice at the same time. The fetch
// that begins a flight leads it; later ones follow, which means that they wait.
//
//	          Land            done is closed
//	flying ----------> landing ----------> landed
//	   |     GiveUp                 Land
//	   +----------> givenUp --------------------> returned
//
//	flying    In its shard's map; others may join. The shard's mutex guards state, since, inside,
//	          hastened and followers. The buffer that is read into is the leader's. A flight is
//	          not given up while it waits for its turn to read the source, which takes as long
//	          as the reads before it; all else that it waits for has a limit, or hangs.
//	landing   Not in the map. followers, found and err belong to the leader, which copies to the
//	          followers' buffers.
//	landed    Final. found and err do not change, and may be read once done is closed.
//	givenUp   Not in the map: the watchdog has taken it away from a leader whose read hangs. err
//	          belongs to the watchdog until it closes done (Tell); then it does not change. The
//	          leader's buffer may still be written to, the followers' are not. since and inside do
//	          not change any more.
//	returned  Final: the read has returned after all. Its leader, which has waited for done, finds
//	          that the flight was given up.
type Flight[R, F any] struct {
	// These do not change:
	ID   int32
	By   R    // the leader's
	Asks bool // the leader asks another node
	// Wanted is closed, and hastened set, when an urgent fetch joins a flight that was not; nil: it
	// was urgent from the beginning.
	Wanted chan struct{}
	copies bool // the leader reads into a buffer of its own, and copies to the followers'
	done   chan struct{}

	state     state
	hastened  bool
	since     time.Time // when it began, or to read the source; zero: it waits for its turn to do so
	inside    bool      // a gate has admitted its read
	found     F
	err       error
	followers [][]byte // the buffers of the fetches that get a copy
}

type state uint8

const (
	flying state = iota
	landing
	landed
	givenUp
	returned
)

func (s state) String() string {
	return [...]string{"flying", "landing", "landed", "given up", "returned"}[s]
}

// follows reports whether state s may come after from.
func (s state) follows(from state) bool {
	switch s {
	case landing, givenUp:
		return from == flying
	case landed:
		return from == landing
	case returned:
		return from == givenUp
	}
	return false
}

func (fl *Flight[R, F]) to(next state) {
	if invariants.Enabled {
		invariants.Check(next.follows(fl.state), "flight of sample %d: from %v to %v", fl.ID,
			fl.state, next)
	}
	fl.state = next
}

// Done is closed when the flight has ended, or was given up.
func (fl *Flight[R, F]) Done() <-chan struct{} { return fl.done }

// Wait waits until the flight has ended, and returns where the leader has found the sample, or why
// it has not. It does not return earlier when ctx is done, because the flight may still write into
// the follower's buffer; err is then of ctx.
func (fl *Flight[R, F]) Wait(ctx context.Context) (found F, failed, err error) {
	<-fl.done
	return fl.found, fl.err, ctx.Err()
}

// Inside reports whether a gate has admitted the read of a flight that was given up.
func (fl *Flight[R, F]) Inside() bool { return fl.inside }

// Since returns when the read of a flight that was given up began, or, to the leader, when its
// flight did.
func (fl *Flight[R, F]) Since() time.Time { return fl.since }

// Tell ends a flight that was given up, for all that wait for it.
func (fl *Flight[R, F]) Tell(err error) {
	fl.err = err
	close(fl.done)
}
