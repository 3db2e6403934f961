package pool

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGateFindsTheNumberOfStreams checks that as many reads are admitted as give the highest
// throughput after 10 s: hundreds if the source takes long to open a file, few if more slow it
// down, and as many as at first if reads never wait.
func TestGateFindsTheNumberOfStreams(t *testing.T) {
	for name, c := range map[string]struct {
		takes  func(streams float64) float64 // seconds
		reads  int                           // that are there at a time
		lo, hi int
	}{
		"50 ms per open, 3636 samples per second": {
			func(n float64) float64 { return max(0.05, n/3636) }, 600, 140, 512,
		},
		"2 % less per stream above 4": {
			func(n float64) float64 { return 0.001 * max(n/4, 1) / max(1-0.02*max(n-4, 0), 0.1) },
			600, 3, 8,
		},
		"no read waits": {func(float64) float64 { return 0.05 }, 10, 16, 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limit atomic.Int32
				g := NewGate(Limits{Start: 16, Least: 1, Most: 512},
					func(n int) { limit.Store(int32(n)) })
				var reading atomic.Int32
				var all sync.WaitGroup
				begun := time.Now()
				for range c.reads {
					all.Go(func() {
						for time.Since(begun) < 10*time.Second {
							g.Enter(true, nil)
							n := float64(reading.Add(1))
							<-time.After(time.Duration(c.takes(n) * float64(time.Second)))
							reading.Add(-1)
							g.Leave(true)
						}
					})
				}
				all.Wait()
				n := g.Limit()
				if n < c.lo || n > c.hi || n != 16 && n != int(limit.Load()) {
					t.Errorf("%d reads at a time after 10 s, want %d to %d", n, c.lo, c.hi)
				}
				var changes []int
				for _, to := range g.Changes() {
					changes = append(changes, to)
				}
				if changes[0] != 16 || changes[len(changes)-1] != n {
					t.Errorf("the limit changed to %v, and is %d", changes, n)
				}
			})
		})
	}
}

// TestGateAdmitsInOrder checks that no more reads are admitted than allowed, those that something
// waits for first, or begins to wait for, and more in the place of reads that hang.
func TestGateAdmitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Start: 1, Least: 1, Most: 1}, func(int) {})
		g.Enter(true, nil)
		var mu sync.Mutex
		var order []string
		wanted := map[string]chan struct{}{"wanted": make(chan struct{})}
		come := func(name string, urgent bool) {
			go func() {
				g.Enter(urgent, wanted[name])
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		come("ahead", false)
		come("first", true)
		come("second", true)
		come("wanted", false)
		close(wanted["wanted"]) // by now, something waits for it
		synctest.Wait()
		if len(order) > 0 {
			t.Errorf("%v were admitted beside another one", order)
		}
		g.Lend(1) // the one inside hangs
		synctest.Wait()
		if want := []string{"first"}; !slices.Equal(order, want) {
			t.Errorf("%v were admitted, want %v", order, want)
		}
		g.Lend(-1) // it returns
		g.Leave(false)
		g.Leave(true)
		synctest.Wait()
		g.Leave(true)
		synctest.Wait()
		g.Leave(true)
		synctest.Wait()
		g.Leave(true)
		if g.inside != 0 {
			t.Errorf("%d reads are inside after all have left", g.inside)
		}
		if want := []string{"first", "second", "wanted", "ahead"}; !slices.Equal(order, want) {
			t.Errorf("%v were admitted, want %v", order, want)
		}
	})
}

// TestFailedReadsDoNotTuneTheGate checks that the limit stays if all reads fail, however fast.
func TestFailedReadsDoNotTuneTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Start: 2, Least: 1, Most: 64}, func(n int) {
			t.Errorf("%d reads are admitted at a time", n)
		})
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				for range 100 {
					g.Enter(true, nil)
					<-time.After(10 * time.Millisecond)
					g.Leave(false)
				}
			})
		}
		all.Wait()
	})
}
