package lockstep

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/failure"
)

// begun is a run of rank 0 of node 0, and the calls of its cancel and note.
type begun struct {
	*Run
	canceled int
	noted    []int
}

func begin(s *Stops, at int) *begun {
	b := new(begun)
	b.Run = s.Begin(0, at, func() { b.canceled++ }, func(at int) { b.noted = append(b.noted, at) })
	return b
}

// stop is a stop of rank 2 of node 1.
func stop(round, at int, over bool) []Stop {
	return []Stop{{
		Rank: 2, Node: 1, Host: "b", Round: round, At: at, Over: over,
		Error: failure.Error{Kind: failure.Sample, Message: "unreadable"},
	}}
}

func deliver(t *testing.T, b *begun, batches int) {
	t.Helper()
	for range batches {
		if err := b.Deliver(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunBeginsAtTheStop: a run that begins at the batch that another rank could not get ends at
// once.
func TestRunBeginsAtTheStop(t *testing.T) {
	s := New(0, "a", func(error) {})
	s.Hear(stop(0, 5, false))
	b := begin(s, 5)
	if b.canceled != 1 || !slices.Equal(b.noted, []int{-1, 5}) {
		t.Errorf("canceled %d times, noted %v", b.canceled, b.noted)
	}
	if err := b.End(context.Canceled, false); failure.Of(err).Kind != failure.Sample {
		t.Errorf("the rank is told %v", err)
	}
}

// TestRunIsCanceledAtTheStop: a run is canceled when it has delivered the last batch before a stop,
// and its rank gets the error of the stop even if its stream ended there as well.
func TestRunIsCanceledAtTheStop(t *testing.T) {
	s := New(0, "a", func(error) {})
	b := begin(s, 0)
	s.Hear(stop(0, 2, false))
	deliver(t, b, 1)
	if b.canceled != 0 {
		t.Error("a run is canceled before it has delivered all batches before the stop")
	}
	if deliver(t, b, 1); b.canceled != 1 {
		t.Errorf("canceled %d times", b.canceled)
	}
	if err := b.End(nil, false); failure.Of(err).Kind != failure.Sample {
		t.Errorf("the rank is told %v", err)
	}
}

// TestRunThatWasCompleteIsForgotten: a run that has delivered its last batch gets no later stops,
// and stops no other rank.
func TestRunThatWasCompleteIsForgotten(t *testing.T) {
	s := New(0, "a", func(error) {})
	b := begin(s, 0)
	deliver(t, b, 3)
	if err := b.End(nil, false); err != nil {
		t.Errorf("the rank is told %v", err)
	}
	s.Hear(stop(0, 1, false))
	if list, _, _ := s.Own(); len(list) > 0 || !slices.Equal(b.noted, []int{-1}) {
		t.Errorf("noted %v, told the others %v", b.noted, list)
	}
}

// TestBatchThatWasLostDoesNotCount: a batch that could not be sent was not delivered.
func TestBatchThatWasLostDoesNotCount(t *testing.T) {
	b := begin(New(0, "a", func(error) {}), 0)
	deliver(t, b, 2)
	gone := errors.New("the process is gone")
	if err := b.Deliver(func() error { return gone }); err != gone {
		t.Error(err)
	}
	if last, some := b.Last(); last != 1 || !some {
		t.Errorf("the last batch is %d, %v", last, some)
	}
}

// TestLateListsChangeNothing: a node's list that arrives after one of many rounds later is ignored.
func TestLateListsChangeNothing(t *testing.T) {
	told := 0
	s := New(0, "a", func(error) { told++ })
	s.Hear(stop(kept, 9, false))
	s.Hear(stop(0, 2, false))
	if b := begin(s, 0); told != 1 || !slices.Equal(b.noted, []int{-1, 9}) {
		t.Errorf("told of %d stops, noted %v", told, b.noted)
	}
	s = New(0, "a", func(error) { told++ })
	s.Hear(stop(0, 9, true))
	s.Hear(stop(0, 9, false))
	if b := begin(s, 0); b.round != 1 || !slices.Equal(b.noted, []int{-1}) {
		t.Errorf("in round %d, noted %v", b.round, b.noted)
	}
}

// TestRunThatHasFailedIsToldOfEarlierBatches: a run that has ended with an error of its own is
// notified of an earlier batch of its round. A stop of a later round is for a later run: the rank
// that stopped has gone back from an error which this one will get. If it will not, because there
// were too many rounds since, the stop applies.
func TestRunThatHasFailedIsToldOfEarlierBatches(t *testing.T) {
	for round, want := range map[int][]int{
		0: {-1, 3}, 1: {-1}, kept - 1: {-1}, kept: {-1, 3},
	} {
		s := New(0, "a", func(error) {})
		b := begin(s, 0)
		deliver(t, b, 6)
		if err := b.End(errors.New("a fault"), false); err == nil {
			t.Error("the rank is told nothing")
		}
		s.Hear(stop(round, 3, false))
		if !slices.Equal(b.noted, want) {
			t.Errorf("in round %d: noted %v, want %v", round, b.noted, want)
		}
	}
}

// TestRunIsToldOfItsRoundFirst: of two errors of a rank that has gone back after the first, a run
// that has had neither ends with the first.
func TestRunIsToldOfItsRoundFirst(t *testing.T) {
	first, second := stop(0, 5, true), stop(1, 2, false)
	for _, lists := range [][]Stop{append(first, second...), append(second, first...)} {
		s := New(0, "a", func(error) {})
		b := begin(s, 0)
		deliver(t, b, 3)
		for _, p := range lists {
			s.Hear([]Stop{p})
		}
		if !slices.Equal(b.noted, []int{-1, 5}) || b.canceled > 0 {
			t.Errorf("heard %v: noted %v, canceled %d times", lists, b.noted, b.canceled)
		}
	}
}

// TestProcessThatDies: an error counts if the process had taken all batches before it. Otherwise
// the one that takes its place still gets it, as other ranks do.
func TestProcessThatDies(t *testing.T) {
	for taken, want := range map[int][]int{6: {-1}, 5: {-1, 6}} {
		s := New(0, "a", func(error) {})
		b := begin(s, 0)
		deliver(t, b, 6)
		if err := b.End(errors.New("a fault"), false); err == nil {
			t.Error("the rank is told nothing")
		}
		s.Took(0, taken-1)
		s.Leave(0)
		s.Leave(0)
		s.Raised(0)
		if b := begin(s, 0); !slices.Equal(b.noted, want) {
			t.Errorf("%d batches were taken: noted %v, want %v", taken, b.noted, want)
		}
	}
}

// TestRankAfterAnErrorJoinsItsRound: a rank that has begun after the batch that another rank of its
// node could not get joins the round of that one when the error has been raised there.
func TestRankAfterAnErrorJoinsItsRound(t *testing.T) {
	s := New(0, "a", func(error) {})
	b := begin(s, 0)
	deliver(t, b, 6)
	_ = b.End(errors.New("a fault"), false)
	other := s.Begin(1, 8, func() {}, func(int) {})
	if other.round != 0 {
		t.Errorf("round %d before the error was raised", other.round)
	}
	if s.Raised(0); other.round != 1 {
		t.Errorf("round %d after the error was raised", other.round)
	}
}

// TestWhatAProcessHasHad: a process that has gone on from the batch of a stop, and begun again
// elsewhere, counts an error; one that has yet to come to it does not. Where it was before the last
// error does not count.
func TestWhatAProcessHasHad(t *testing.T) {
	s := New(0, "a", func(error) {})
	goOn := func(b *begun, to int) *begun {
		deliver(t, b, 12)
		s.Took(0, b.from+7)
		_ = b.End(context.Canceled, true)
		return begin(s, to)
	}
	hear := func(round, at, iteration int) {
		list := stop(round, at, false)
		list[0].Raised, list[0].Iteration = true, iteration
		s.Hear(list)
	}
	b := goOn(begin(s, 0), 20)
	if hear(0, 6, 1); b.round != 0 {
		t.Error("it counts an error of an iteration to come")
	}
	for _, c := range []struct{ round, at, want int }{
		{0, 8, 0}, {0, 19, 0}, {0, 7, 1}, {1, 7, 1}, {1, 8, 1},
	} {
		if hear(c.round, c.at, 0); b.round != c.want {
			t.Errorf("after the stop of round %d at %d it is in round %d", c.round, c.at, b.round)
		}
	}
	b = goOn(b, 40)
	if hear(1, 19, 0); b.round != 1 {
		t.Error("it counts an error at a batch that it had in the round before")
	}
	if hear(1, 20, 0); b.round != 2 {
		t.Error("it does not count an error at a batch that it had")
	}
}

// TestStopThatTheLoopStepsOver: a rank that has broken off before its error, and begun again, has
// not had it; and still has not if another one is raised.
func TestStopThatTheLoopStepsOver(t *testing.T) {
	s := New(0, "a", func(error) {})
	fail := func(b *begun, batches int) (own []Stop) {
		deliver(t, b, batches)
		_ = b.End(errors.New("a fault"), false)
		own, _, _ = s.Own()
		return own
	}
	fail(begin(s, 0), 9)
	for _, to := range []int{2, 20} {
		begun := begin(s, to)
		if own, _, _ := s.Own(); len(own) != 1 || own[0].Raised || own[0].Over {
			t.Errorf("after it has begun at %d, others are told %+v", to, own)
		}
		if to == 2 {
			_ = begun.End(context.Canceled, true)
			continue
		}
		fail(begun, 2)
	}
	s.Raised(0)
	if own, _, _ := s.Own(); len(own) != 1 || own[0].At != 22 || !own[0].Raised {
		t.Errorf("after the second error others are told %+v", own)
	}
}
