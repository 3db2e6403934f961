package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// through has ranks 2 and 3 finish epochs.
func through(b *Book, epochs ...int) {
	for _, e := range epochs {
		for rank := 2; rank < 4; rank++ {
			b.Begin(rank, e, 0)
			b.Finish(rank, e, Delivered{Hash: uint64(rank), Samples: 1})
		}
	}
}

// TestParts: the ranks' parts are there when each is through, has left, or went on.
func TestParts(t *testing.T) {
	for what, last := range map[string]struct {
		do   func(b *Book)
		want Part
	}{
		"finishes": {func(b *Book) {
			b.Finish(3, 1, Delivered{Hash: 9, Samples: 4, Missing: 2})
		}, Part{Rank: 3, From: 2, Finished: true, Delivered: Delivered{9, 4, 2}}},
		"leaves":  {func(b *Book) { b.Leave(3) }, Part{Rank: 3, From: 2, Left: true}},
		"goes on": {func(b *Book) { b.Begin(3, 2, 0) }, Part{Rank: 3, From: 2, Left: true}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBook([]int{2, 3})
				var got []Part
				var err error
				asked := make(chan struct{})
				go func() {
					defer close(asked)
					got, err = b.Parts(t.Context(), 1)
				}()
				waits := func(why string) {
					t.Helper()
					synctest.Wait()
					select {
					case <-asked:
						t.Errorf("it did not wait %s: %+v", why, got)
					default:
					}
				}
				waits("for ranks that have not come")
				b.Join(2)
				b.Join(3)
				b.Begin(2, 1, 2)
				b.Begin(3, 1, 2)
				b.Finish(2, 1, Delivered{Hash: 1})
				waits("for the second rank")
				b.Begin(3, 0, 0) // back, and again
				b.Begin(3, 1, 2)
				waits("for a rank that went back")
				last.do(b)
				<-asked
				want := []Part{
					{Rank: 2, From: 2, Finished: true, Delivered: Delivered{Hash: 1}},
					last.want,
				}
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("got %+v, %v; want %+v", got, err, want)
				}
			})
		})
	}
}

// TestPartsAgain: a rank that has left and joined is waited for; what it has finished stays, until
// it begins there again.
func TestPartsAgain(t *testing.T) {
	b := NewBook([]int{2, 3})
	through(b, 0)
	b.Leave(3)
	b.Join(3)
	if parts, err := b.Parts(t.Context(), 0); err != nil || !parts[1].Finished {
		t.Errorf("%+v, %v", parts, err)
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Parts(given, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("of an epoch that it may yet finish: %v", err)
	}
	b.Begin(3, 0, 4)
	if _, err := b.Parts(given, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("of an epoch that it has begun again: %v", err)
	}
}

// TestOnce: a rank that asks while an epoch is audited, or later, gets the same result, until a
// rank begins there again.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBook([]int{2, 3})
		through(b, 0)
		audits := 0
		begun, end := make(chan struct{}), make(chan error)
		audit := func(context.Context) (*Result, error) {
			audits++
			begun <- struct{}{}
			return &Result{Samples: int64(audits)}, <-end
		}
		told := make(chan *Result)
		ask := func(ctx context.Context) {
			r, err := b.Once(ctx, 0, audit)
			if err != nil {
				r = nil
			}
			told <- r
		}
		go ask(t.Context())
		<-begun
		given, cancel := context.WithCancel(t.Context())
		go ask(given)
		go ask(t.Context())
		synctest.Wait()
		cancel()
		if r := <-told; r != nil {
			t.Errorf("the rank that gave up is told %+v", r)
		}
		end <- errors.New("it went away")
		if r := <-told; r != nil {
			t.Errorf("the rank that failed is told %+v", r)
		}
		<-begun // the one that waits takes over
		end <- nil
		if r := <-told; r == nil || r.Samples != 2 {
			t.Errorf("the rank that took over is told %+v", r)
		}
		go ask(t.Context())
		if r := <-told; r == nil || r.Samples != 2 {
			t.Errorf("a rank that asks later is told %+v", r)
		}
		b.Begin(2, 0, 0)
		go ask(t.Context())
		<-begun
		end <- nil
		if r := <-told; r == nil || r.Samples != 3 {
			t.Errorf("a rank that asks when another has begun again is told %+v", r)
		}
	})
}

// TestKept: the book does not grow for ever, and reports which epochs it no longer has.
func TestKept(t *testing.T) {
	b := NewBook([]int{2, 3})
	for epoch := range 3 * Kept {
		through(b, epoch)
		if _, err := b.Once(t.Context(), epoch, func(context.Context) (*Result, error) {
			return &Result{}, nil
		}); err != nil {
			t.Error(err)
		}
	}
	if len(b.ways) > 2*Kept || len(b.audits) > Kept {
		t.Errorf("%d ways and %d audits are kept", len(b.ways), len(b.audits))
	}
	const oldest = 2 * Kept
	for _, epoch := range []int{oldest, 3*Kept - 1, 3 * Kept} {
		if err := b.Check(epoch); err != nil {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	if err := b.Check(oldest - 1); err == nil ||
		!strings.Contains(err.Error(), "from epoch 32 on") {
		t.Error(err)
	}
	b.Begin(2, 4, 0) // again, long after
	if err := b.Check(4); err != nil {
		t.Errorf("an epoch that a rank has begun again: %v", err)
	}
}

// TestRankThatGoesBack: what a rank did in later epochs counts no more once it has begun an earlier
// one again, nor do their audits; the other ranks' parts stay.
func TestRankThatGoesBack(t *testing.T) {
	b := NewBook([]int{2, 3})
	through(b, 0, 1, 2)
	asked := func(epoch int) (audited bool) {
		_, err := b.Once(t.Context(), epoch, func(context.Context) (*Result, error) {
			audited = true
			return &Result{}, nil
		})
		if err != nil {
			t.Error(err)
		}
		return audited
	}
	for epoch := range 3 {
		if !asked(epoch) || asked(epoch) {
			t.Errorf("epoch %d is not audited once", epoch)
		}
	}
	b.Begin(3, 1, 4)
	for epoch, again := range []bool{false, true, true} {
		if asked(epoch) != again {
			t.Errorf("epoch %d is audited again: %v", epoch, !again)
		}
	}
	b.Leave(3)
	for epoch, want := range []Part{
		{Rank: 3, Finished: true, Delivered: Delivered{Hash: 3, Samples: 1}},
		{Rank: 3, From: 4, Left: true},
		{Rank: 3, Left: true},
	} {
		parts, err := b.Parts(t.Context(), epoch)
		if err != nil || !parts[0].Finished || parts[1] != want {
			t.Errorf("epoch %d: %+v, %v; want %+v", epoch, parts, err, want)
		}
	}
}

// TestLaterEpochsOfARankThatWentBack: a rank that went back is waited for there, though it had been
// further.
func TestLaterEpochsOfARankThatWentBack(t *testing.T) {
	b := NewBook([]int{2, 3})
	through(b, 0, 1)
	b.Begin(3, 0, 0)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if parts, err := b.Parts(given, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("it is not waited for: %+v, %v", parts, err)
	}
}

// TestSlowRank: a rank that is many epochs behind the other keeps its part, and does not bring back
// what is too long ago.
func TestSlowRank(t *testing.T) {
	b := NewBook([]int{2, 3})
	b.Begin(3, 0, 2)
	for epoch := range 2 * Kept {
		b.Begin(2, epoch, 0)
		b.Finish(2, epoch, Delivered{Hash: 2})
	}
	b.Finish(3, 0, Delivered{Hash: 3})
	if last := b.Last(); last != 2*Kept-1 {
		t.Errorf("the last epoch is %d", last)
	}
	if parts, err := b.Parts(t.Context(), 0); err != nil ||
		parts[1] != (Part{Rank: 3, From: 2, Finished: true, Delivered: Delivered{Hash: 3}}) {
		t.Errorf("%+v, %v", parts, err)
	}
	if err := b.Check(Kept - 1); err == nil {
		t.Error("an epoch that is too long ago can be audited again")
	}
}

// TestFailedAuditOfABeginAgoIsForgotten: an audit that fails after a rank has begun the epoch again
// does not take the newer one with it.
func TestFailedAuditOfABeginAgoIsForgotten(t *testing.T) {
	b := NewBook([]int{2, 3})
	through(b, 0)
	begun := make(chan struct{})
	end := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.Once(t.Context(), 0, func(context.Context) (*Result, error) {
			close(begun)
			<-end
			return nil, errors.New("it went away")
		})
	}()
	<-begun
	b.Begin(2, 0, 0)
	newer := &Result{Samples: 7}
	if r, err := b.Once(t.Context(), 0, func(context.Context) (*Result, error) {
		return newer, nil
	}); r != newer || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	close(end)
	<-ended
	r, err := b.Once(t.Context(), 0, func(context.Context) (*Result, error) {
		return nil, errors.New("it is audited anew")
	})
	if r != newer || err != nil {
		t.Errorf("a rank that asks later is told %+v, %v", r, err)
	}
}

// TestUnfinishedPartsDoNotCount: what a rank was given that has not finished the epoch is not in
// the sums.
func TestUnfinishedPartsDoNotCount(t *testing.T) {
	e := epochOf(t, access.Strided, 3)
	whole := Part{Rank: 0, Finished: true, Delivered: given(e, 0, 0, nothing)}
	cut := Part{Rank: 1, Left: true, Delivered: given(e, 1, 0, nothing)}
	r, want := Compare(e, []Part{whole, cut}), Compare(e, []Part{whole, {Rank: 1}})
	if r.Complete || r.Samples != whole.Samples || r.Delivered != want.Delivered {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// TestWaitForAnAuditEndsWithItsCaller: a caller that waits for another one's audit may give up.
func TestWaitForAnAuditEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := NewBook([]int{2, 3}), make(chan struct{})
		go b.Once(t.Context(), 1, func(context.Context) (*Result, error) { //nolint:errcheck // it waits
			<-end
			return &Result{}, nil
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := b.Once(ctx, 1, nil); r != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", r, err)
		}
		close(end)
	})
}

// TestBookIsSafe: ranks may join, finish and leave while others ask.
func TestBookIsSafe(t *testing.T) {
	b := NewBook([]int{2, 3})
	var all sync.WaitGroup
	for rank := 2; rank < 4; rank++ {
		all.Go(func() {
			for e := range 20 {
				b.Join(rank)
				b.Begin(rank, e, 0)
				b.Finish(rank, e, Delivered{})
				b.Leave(rank)
			}
		})
		all.Go(func() {
			for range 20 {
				if last := b.Last(); last > 19 {
					t.Errorf("a rank has finished epoch %d", last)
				}
			}
		})
	}
	all.Wait()
}
