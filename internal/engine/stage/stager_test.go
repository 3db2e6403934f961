package stage

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

var errEnough = errors.New("enough")

// TestStagingStartsSlowly checks that a Run stages First batches before the process has taken any,
// two more with each that it takes, and at most Ahead.
func TestStagingStartsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(80, 1)
		o.ahead = 7
		g := newRig(t, o)
		defer g.close()
		s := g.ranks[0].stager
		s.o.First = 2
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = s.Run(ctx, 0, 0, func(*Batch) error { return nil }) })
		for taken, want := range []int{2, 1 + 4, 2 + 6, 3 + 7, 4 + 7} {
			if taken > 0 {
				s.Taken(0, taken-1, Stall{})
			}
			if synctest.Wait(); s.Staged() != want {
				t.Errorf("%d batches taken: %d were staged, want %d", taken, s.Staged(), want)
			}
		}
		s.Taken(0, 1, Stall{}) // an old acknowledgement that arrives late
		if s.taken != 4 {
			t.Errorf("after an old acknowledgement %d batches count as taken, want 4", s.taken)
		}
		cancel()
		ended.Wait()
	})
}

// TestPaceIsThatOfARankAmongOthers: what is due is counted as for ranks that wait for each other.
func TestPaceIsThatOfARankAmongOthers(t *testing.T) {
	o := plain(8, 1)
	o.spec.WorldSize = 2
	g := newRig(t, o)
	defer g.close()
	for _, r := range g.ranks {
		if _, err := g.run(r, step{0, 0}, 0, 0); err != nil {
			t.Fatal(err)
		}
		if n := r.stager.pace.Ranks; n != 2 {
			t.Errorf("rank %d is one of %d, as far as it knows", r.rank, n)
		}
	}
}

// TestStuckWhileTheProcessTakesNothing checks that a stager which has memory, but has staged as
// much as the process may have in advance, counts as stuck once all of that is sent.
func TestStuckWhileTheProcessTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8, 1) // 4 batches
		g := newRig(t, o)
		defer g.close()
		s := g.ranks[0].stager
		s.o.First = 2
		sending := make(chan struct{})
		var ended sync.WaitGroup
		ended.Go(func() {
			_ = s.Run(t.Context(), 0, 0, func(b *Batch) error { <-sending; return nil })
		})
		if synctest.Wait(); s.Stuck() {
			t.Error("the second batch is not sent, and it counts as stuck")
		}
		close(sending)
		if synctest.Wait(); !s.Stuck() {
			t.Error("the process has to take a batch, and it does not count as stuck")
		}
		s.Taken(0, 0, Stall{})
		ended.Wait()
		if !s.Stuck() {
			t.Error("the stream has ended, and it does not count as stuck")
		}
	})
}

// TestRunGoesOnAfterTheLastEpoch checks that a Run that begins after the last planned epoch still
// delivers the stream.
func TestRunGoesOnAfterTheLastEpoch(t *testing.T) {
	g := newRig(t, plain(4, 1))
	defer g.close()
	out, err := g.run(g.ranks[0], step{1, 0}, 3, 0)
	if err != nil || !slices.Equal(stream(out), []int{0, 1, 2, 3, 0, 1}) {
		t.Errorf("got %v, %v", stream(out), err)
	}
}

// TestWaitBetweenRunsGetsAnExtraSegment checks that a process that keeps the batches of one Run,
// and waits for a batch before the next Run has begun, gets that batch in an extra segment.
func TestWaitBetweenRunsGetsAnExtraSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8, 1)
		o.sizes, o.buffer = slices.Repeat([]int{2000}, 8), 4096 // holds one batch
		g := newRig(t, o)
		defer g.close()
		r := g.ranks[0]
		ctx, cancel := context.WithCancel(t.Context())
		got, ended := make(chan *Batch, 1), make(chan error)
		go func() {
			ended <- r.stager.Run(ctx, 0, 0, func(b *Batch) error { got <- b; return nil })
		}()
		r.stager.Wait()
		kept := <-got
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the first Run ended with %v", err)
		}
		r.stager.Wait()
		within, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		extras := 0
		err := r.stager.Run(within, 0, 1, func(b *Batch) error {
			extras = len(b.Extras)
			return errEnough
		})
		if !errors.Is(err, errEnough) || extras != 1 {
			t.Errorf("the second Run ended with %v, after a batch in %d extra segments", err,
				extras)
		}
		g.giveBack(r, kept)
	})
}

// TestSamplesBeginAtMultiplesOf8 checks that samples of odd sizes are aligned in the staging
// buffer.
func TestSamplesBeginAtMultiplesOf8(t *testing.T) {
	o := plain(4, 1)
	o.sizes, o.spec.GlobalBatch = []int{1, 3, 12, 100}, 4
	g := newRig(t, o)
	defer g.close()
	r := g.ranks[0]
	err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
		for i, off := range b.Offsets {
			if off%8 != 0 {
				t.Errorf("sample %d begins at %d", b.IDs[i], off)
			}
		}
		g.giveBack(r, b)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRepeatsAreDrawnApart checks that a sample that occurs twice in an epoch is preprocessed
// twice, with different random numbers.
func TestRepeatsAreDrawnApart(t *testing.T) {
	o := plain(4, 1)
	o.preprocessor = summary{}
	o.spec.Subset = []int32{2, 1, 2}
	o.spec.GlobalBatch = 3
	g := newRig(t, o)
	defer g.close()
	out, err := g.run(g.ranks[0], step{}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var draws []uint64
	for _, s := range out[step{}] {
		draws = append(draws, binary.LittleEndian.Uint64(s.data[8:]))
	}
	if !slices.Equal(stream(out), []int{2, 1, 2}) ||
		!slices.Equal(slices.Sorted(slices.Values(draws)), []uint64{1, 2, 1<<32 | 2}) {
		t.Errorf("samples %v are made with draws %x", stream(out), draws)
	}
}

// lasting is a preprocessor that takes some time.
type lasting struct {
	summary
	time.Duration
}

func (p lasting) Apply(alloc func(int, int) ([]byte, error), src [][]byte,
	kind uint8, epoch, id, occurrence int, whole bool, spent []time.Duration,
) error {
	<-time.After(p.Duration)
	spent[1] += p.Duration
	return p.summary.Apply(alloc, src, kind, epoch, id, occurrence, whole, spent)
}

// TestStallIsChargedToTheSlower checks that a stall is charged to fetching or preprocessing,
// whichever took longer for the last sample.
func TestStallIsChargedToTheSlower(t *testing.T) {
	for cause, c := range map[string]struct{ fetch, make time.Duration }{
		"source": {3 * time.Second, time.Second}, "transform Sum": {time.Second, 3 * time.Second},
	} {
		t.Run(cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := plain(1, 1)
				o.preprocessor = lasting{summary{}, c.make}
				o.hook = func(context.Context, int) error { <-time.After(c.fetch); return nil }
				g := newRig(t, o)
				defer g.close()
				r := g.ranks[0]
				err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
					r.ledger.Yielded(0, 0, Stall{All: 4 * time.Second})
					g.giveBack(r, b)
					return nil
				})
				if stall := r.ledger.Epochs()[0].Stall; err != nil ||
					!maps.Equal(stall, map[string]float64{cause: 4}) {
					t.Errorf("stall %v, want all of it for %s; %v", stall, cause, err)
				}
			})
		})
	}
}

// TestUnusedReservationIsReleased checks that a complete batch takes no more of the ring than its
// results.
func TestUnusedReservationIsReleased(t *testing.T) {
	p := ragged{largest: 300, wrong: 1 << 20}
	g := newRig(t, rigOptions{
		sizes: same(4), spec: access.Spec{
			Samples:     4,
			Epochs:      1,
			WorldSize:   1,
			GlobalBatch: 4,
			Shuffle:     access.Sequential,
			Tail:        access.Keep,
		},
		threads: 2, buffer: 1 << 16, ahead: 1, preprocessor: p,
	})
	defer g.close()
	r := g.ranks[0]
	var taken int64
	for id := range 4 {
		if taken += aligned(int64(p.size(0, id)), 8); id%3 == 0 { // it asks for another size first
			taken += aligned(int64(p.size(0, id)+8), 8)
		}
		if id%5 == 0 {
			taken += aligned(int64(p.size(0, id)+16), 8)
		}
	}
	err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
		if used, extra := r.buffer.Usage(); used < taken || used >= taken+64 || extra != 0 {
			t.Errorf("%d bytes of the ring and %d outside it are in use for results of %d", used,
				extra, taken)
		}
		g.giveBack(r, b)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAwaitAndGateAreCalled checks that Await is called before each epoch of a Run, and Gate before
// each batch, and that an error of either ends the Run.
func TestAwaitAndGateAreCalled(t *testing.T) {
	var called []step
	g := newRig(t, plain(4, 3))
	defer g.close()
	s := g.ranks[0].stager
	s.o.Await = func(_ context.Context, epoch int) error {
		called = append(called, step{epoch, -1})
		return nil
	}
	s.o.Gate = func(_ context.Context, epoch, at int) error {
		if called = append(called, step{epoch, at}); epoch == 2 && at == 1 {
			return errEnough
		}
		return nil
	}
	out, err := g.run(g.ranks[0], step{0, 1}, 0, 0)
	if want := []step{
		{0, -1},
		{0, 1},
		{1, -1},
		{1, 0},
		{1, 1},
		{2, -1},
		{2, 0},
		{2, 1},
	}; !errors.Is(err, errEnough) || len(out) != 4 || !slices.Equal(called, want) {
		t.Errorf("called for %v, want %v; %d batches, %v", called, want, len(out), err)
	}
	s.o.Await = func(context.Context, int) error { return errEnough }
	if out, err := g.run(g.ranks[0], step{0, 0}, 0, 0); !errors.Is(err, errEnough) ||
		len(out) != 0 {
		t.Errorf("%d batches, %v", len(out), err)
	}
}
