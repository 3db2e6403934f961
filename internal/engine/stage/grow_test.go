package stage

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// far returns options for a source that takes a second for each sample, however many it is asked
// for, and for samples of 4096 bytes, each of which is a batch.
func far(samples int) rigOptions {
	o := plain(samples, 1)
	o.sizes = slices.Repeat([]int{4096}, samples)
	o.spec.GlobalBatch = 1
	o.threads, o.buffer = 32, 1<<20
	o.hook = func(context.Context, int) error {
		<-time.After(time.Second)
		return nil
	}
	return o
}

// TestMoreIsStagedIfThatIsWhatTheProcessWaitsFor checks that the number of batches in progress, and
// the buffer, grow while the process waits although more samples could be read at the same time, up
// to their limits, and only if there is memory.
func TestMoreIsStagedIfThatIsWhatTheProcessWaitsFor(t *testing.T) {
	const samples = 320
	yes := func(int64) bool { return true }
	for name, c := range map[string]struct {
		change  func(o *rigOptions)
		longest time.Duration
		least   time.Duration
	}{
		"fixed number of batches": {
			func(o *rigOptions) { o.ahead = 4 }, 81 * time.Second, 79 * time.Second,
		},
		"batches grow": {
			func(o *rigOptions) { o.ahead, o.mostAhead = 4, 100 }, 25 * time.Second, 0,
		},
		"batches grow to a limit": {
			func(o *rigOptions) { o.ahead, o.mostAhead = 4, 8 }, 45 * time.Second, 38 * time.Second,
		},
		"fixed buffer": {
			func(o *rigOptions) { o.ahead, o.buffer = 100, 4*4096 }, 81 * time.Second,
			60 * time.Second,
		},
		"the buffer grows": {
			func(o *rigOptions) {
				o.ahead = 100
				o.buffer = 4 * 4096
				o.mostBuffer = 1 << 20
				o.grow = yes
			}, 25 * time.Second, 0,
		},
		"there is no memory for that": {
			func(o *rigOptions) {
				o.ahead = 100
				o.buffer = 4 * 4096
				o.mostBuffer = 1 << 20
				o.grow = func(int64) bool { return false }
			}, 81 * time.Second, 60 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := far(samples)
				c.change(&o)
				g := newRig(t, o)
				defer g.close()
				begun := time.Now()
				out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took < c.least || took > c.longest {
					t.Errorf("took %v, want %v to %v", took, c.least, c.longest)
				}
				for at, got := range out {
					if !equal(got, g.want(0, at)) {
						t.Errorf("%+v: wrong content", at)
					}
				}
			})
		})
	}
}

// TestBufferGrowsAfterATurnover checks that a buffer grows by half once the process has taken as
// many batches as the buffer has memory for, and not a batch later; in another Run, of batches of
// that Run.
func TestBufferGrowsAfterATurnover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := far(80)
		o.ahead = 100
		o.buffer = 4 * 4096
		o.mostBuffer = 1 << 20
		var s *Stager
		var at []int // how many batches of the Run were taken when the buffer grew
		o.grow = func(int64) bool { at = append(at, s.taken); return true }
		g := newRig(t, o)
		defer g.close()
		s = g.ranks[0].stager
		if _, err := g.run(g.ranks[0], step{0, 0}, 30, 0); err != nil {
			t.Fatal(err)
		}
		if want := []int{4, 4 + 6, 4 + 6 + 9}; !slices.Equal(at, want) {
			t.Errorf("it grew after %v batches, want %v", at, want)
		}
		at = nil
		if _, err := g.run(g.ranks[0], step{0, 50}, 0, 0); err != nil {
			t.Fatal(err)
		}
		if len(at) == 0 || at[0] > 13 { // for which it has memory by then
			t.Errorf("in another Run it grew after %v batches, want at most 13", at)
		}
	})
}

// TestNothingGrowsForAProcessThatDoesNotWait checks that a process that takes longer for a batch
// than the source has no more staged than at first.
func TestNothingGrowsForAProcessThatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := far(40)
		o.ahead = 4
		o.mostAhead = 100
		o.buffer = 4 * 4096
		o.mostBuffer = 1 << 20
		o.grow = func(int64) bool { t.Error("the buffer is to grow"); return true }
		g := newRig(t, o)
		defer g.close()
		r := g.ranks[0]
		waits := true
		r.stager.Wait()
		err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
			if waits = false; b.Step < 39 {
				<-time.After(3 * time.Second) // the process works on the batch before
			}
			g.giveBack(r, b)
			r.stager.Taken(b.Epoch, b.Step, Stall{})
			return nil
		})
		if err != nil || waits {
			t.Fatal(err, waits)
		}
		if r.stager.ahead != 4 {
			t.Errorf("%d batches are staged", r.stager.ahead)
		}
	})
}

// TestBufferThatSufficesDoesNotGrow checks that a buffer that has memory for all batches that may
// be staged does not grow, although the process waits and the source could read more.
func TestBufferThatSufficesDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := far(40)
		o.ahead = 3
		o.buffer = 8 * 4096
		o.mostBuffer = 1 << 20
		o.grow = func(int64) bool { t.Error("the buffer is to grow"); return true }
		g := newRig(t, o)
		defer g.close()
		if _, err := g.run(g.ranks[0], step{0, 0}, 0, 0); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNothingGrowsIfThreadsAreTheBottleneck checks that no more is staged for a process that waits
// because samples take long to be transformed.
func TestNothingGrowsIfThreadsAreTheBottleneck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := far(40)
		o.preprocessor = busy{}
		o.ahead = 4
		o.mostAhead = 100
		o.buffer = 4 * 4096
		o.mostBuffer = 1 << 20
		o.grow = func(int64) bool { t.Error("the buffer is to grow"); return true }
		g := newRig(t, o)
		defer g.close()
		if _, err := g.run(g.ranks[0], step{0, 0}, 0, 0); err != nil {
			t.Fatal(err)
		}
		if ahead := g.ranks[0].stager.Ahead(); ahead != 4 {
			t.Errorf("%d batches may be staged", ahead)
		}
	})
}

// TestLimitThatIsNotReachedStays checks that a process that waits for memory, and not because as
// many batches are staged as may be, does not raise that limit.
func TestLimitThatIsNotReachedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := far(40)
		o.ahead = 100
		o.mostAhead = 1000
		o.buffer = 4 * 4096
		g := newRig(t, o)
		defer g.close()
		if _, err := g.run(g.ranks[0], step{0, 0}, 0, 0); err != nil {
			t.Fatal(err)
		}
		if ahead := g.ranks[0].stager.Ahead(); ahead != 100 {
			t.Errorf("%d batches may be staged", ahead)
		}
	})
}
