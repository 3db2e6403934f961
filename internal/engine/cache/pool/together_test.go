package pool

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shared is a source that several gates admit reads to.
type shared struct {
	latency, each time.Duration // of a read; that the source is busy with each read, 0: none

	mu   sync.Mutex
	free time.Time // when it is no longer busy with the reads so far, which it takes in turn
}

func (s *shared) read() {
	s.mu.Lock()
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.each)
	until := s.free.Add(s.latency)
	s.mu.Unlock()
	<-time.After(time.Until(until))
}

// behind has gates admit reads to a source, always as many as they admit, and returns their limits
// after a time. Together, all but the first follow that one.
func behind(s *shared, gates int, together bool, lasts time.Duration) (limits []int) {
	var all []*Gate
	var running sync.WaitGroup
	begun := time.Now()
	for range gates {
		g := NewGate(Limits{Start: 16, Least: 1, Most: 512}, func(int) {})
		if together && len(all) > 0 {
			g.Expect()
		}
		all = append(all, g)
		for range 600 {
			running.Go(func() {
				for time.Since(begun) < lasts {
					g.Enter(true, nil)
					s.read()
					g.Leave(true)
				}
			})
		}
	}
	stop := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		for {
			limit, takes, version, news := all[0].Found()
			if together && version > 0 {
				for _, g := range all[1:] {
					g.Follow(limit, takes)
				}
			}
			select {
			case <-news:
			case <-stop:
				return
			}
		}
	})
	<-time.After(lasts - 10*time.Millisecond)
	for _, g := range all {
		limits = append(limits, g.Limit())
	}
	running.Wait()
	close(stop)
	telling.Wait()
	return limits
}

// TestGatesTogetherTakeNoMoreThanTheSourceNeeds checks that gates to a source that limits them
// admit no more and more reads, as each does to have more of its throughput than the others if they
// do not follow one, and that gates to one with latency admit hundreds.
func TestGatesTogetherTakeNoMoreThanTheSourceNeeds(t *testing.T) {
	for _, c := range []struct {
		name     string
		latency  time.Duration
		each     time.Duration
		together bool
		lasts    time.Duration
		lo, hi   int // on average
	}{
		{
			"a source of 1,818 samples/s",
			0, 550 * time.Microsecond,
			true,
			40 * time.Second, 1, 36,
		},
		{
			"the same, each gate alone",
			0, 550 * time.Microsecond,
			false,
			40 * time.Second, 54, 512,
		},
		{
			"50 ms per open",
			50 * time.Millisecond, 0,
			true,
			15 * time.Second, 140, 512,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const gates = 4
				sum := 0
				limits := behind(&shared{latency: c.latency, each: c.each}, gates, c.together, c.lasts)
				for _, n := range limits {
					sum += n
					if c.together && n != limits[0] {
						t.Errorf("limits %d differ", limits)
					}
				}
				if sum < gates*c.lo || sum > gates*c.hi {
					t.Errorf("limits %d, want %d to %d", limits, c.lo, c.hi)
				}
			})
		})
	}
}

// TestGateThatHearsNothingFindsItsLimit checks that a gate that is to follow another one does so
// for some time only, if there is no news.
func TestGateThatHearsNothingFindsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Start: 16, Least: 1, Most: 512}, func(int) {})
		g.Expect()
		source := shared{latency: 50 * time.Millisecond}
		begun := time.Now()
		var running sync.WaitGroup
		for range 600 {
			running.Go(func() {
				for time.Since(begun) < 10*time.Second {
					g.Enter(true, nil)
					source.read()
					g.Leave(true)
				}
			})
		}
		<-time.After(expected - time.Millisecond)
		if n, _, version, _ := g.Found(); n != 16 || version != 0 {
			t.Errorf("%d, version %d after 3 s, want 16 and none", n, version)
		}
		running.Wait()
		if n, _, version, _ := g.Found(); n < 140 || version == 0 {
			t.Errorf("%d, version %d after 10 s, want hundreds", n, version)
		}
	})
}

// TestLimitThatDoesNotChangeIsNewsAgain checks that a gate reports the limit that it has found
// again from time to time although it is the same, for the gates that follow it.
func TestLimitThatDoesNotChangeIsNewsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Start: 4, Least: 4, Most: 4}, func(int) {})
		source := shared{latency: 50 * time.Millisecond}
		begun := time.Now()
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				for time.Since(begun) < 20*time.Second {
					g.Enter(true, nil)
					source.read()
					g.Leave(true)
				}
			})
		}
		running.Wait()
		if _, _, version, _ := g.Found(); version < 3 || version > 5 {
			t.Errorf("the limit was told %d times in 20 s, want every 4 to 5 s", version)
		}
	})
}

// TestGateFollowsWithinItsLimits checks that a gate that follows another one's limit admits as many
// reads at once, as far as its own limits allow.
func TestGateFollowsWithinItsLimits(t *testing.T) {
	changed := 0
	g := NewGate(Limits{Start: 1, Least: 1, Most: 3}, func(n int) { changed = n })
	admitted := make(chan int)
	for i := range 4 {
		go func() {
			g.Enter(true, nil)
			admitted <- i
		}()
	}
	<-admitted
	g.Follow(500, 0)
	<-admitted
	<-admitted
	if g.Limit() != 3 || changed != 3 {
		t.Errorf("%d reads are admitted, and %d was called with", g.Limit(), changed)
	}
	if g.Follow(-7, 0); g.Limit() != 1 || changed != 1 {
		t.Errorf("%d reads are admitted, and %d was called with", g.Limit(), changed)
	}
	for range 3 {
		g.Leave(true)
	}
	<-admitted
	g.Leave(true)
}

// TestGateThatFollowsMeasuresAnew checks that a gate measures how long a read takes in a window
// that begins with the limit that it follows. If the window began under another limit, the gate
// would take its source for another one than that of the gate that it follows.
func TestGateThatFollowsMeasuresAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		source := shared{latency: 10 * ms}
		g := NewGate(Limits{Start: 1, Least: 1, Most: 512}, func(int) {})
		begun := time.Now()
		var running sync.WaitGroup
		for range 100 {
			running.Go(func() {
				for time.Since(begun) < 600*ms {
					g.Enter(true, nil)
					source.read()
					g.Leave(true)
				}
			})
		}
		<-time.After(200 * ms) // a window lasts 250 ms
		g.Follow(64, source.latency)
		<-time.After(280 * ms)
		if _, takes, _, _ := g.Found(); takes < 9*ms || takes > 11*ms {
			t.Errorf("a read takes %v, want %v", takes, source.latency)
		}
		if g.Follow(32, source.latency); g.Limit() != 32 {
			t.Errorf("%d reads are admitted, want those of the gate that it follows", g.Limit())
		}
		running.Wait()
	})
}

// TestGatesToDifferentSourcesFindTheirOwnLimits checks that a gate does not follow one whose reads
// are much faster, or slower: what is best there is not here.
func TestGatesToDifferentSourcesFindTheirOwnLimits(t *testing.T) {
	for name, sources := range map[string][2]*shared{
		"the first has its dataset in memory": {
			{each: 500 * time.Microsecond}, {latency: 50 * time.Millisecond},
		},
		"the second has": {
			{latency: 50 * time.Millisecond}, {each: 500 * time.Microsecond},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var gates [2]*Gate
			var running sync.WaitGroup
			begun := time.Now()
			for i := range gates {
				g := NewGate(Limits{Start: 16, Least: 1, Most: 512}, func(int) {})
				gates[i] = g
				for range 600 {
					running.Go(func() {
						for time.Since(begun) < 30*time.Second {
							g.Enter(true, nil)
							sources[i].read()
							g.Leave(true)
						}
					})
				}
			}
			gates[1].Expect()
			running.Go(func() {
				for time.Since(begun) < 29*time.Second {
					if limit, takes, version, _ := gates[0].Found(); version > 0 {
						gates[1].Follow(limit, takes)
					}
					<-time.After(100 * time.Millisecond)
				}
			})
			running.Wait()
			for i, g := range gates {
				if n := g.Limit(); sources[i].latency > 0 && n < 140 || sources[i].latency == 0 && n > 54 {
					t.Errorf("%s: gate %d admits %d reads", name, i, n)
				}
			}
		})
	}
}
