package measure

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRanksAreThoseOfTheThesis(t *testing.T) {
	// Table of Le Boudec, Performance Evaluation, appendix A (which the thesis cites), at 95 %.
	for _, test := range []struct{ n, j, k int }{
		{6, 1, 6},
		{7, 1, 7},
		{8, 1, 8},
		{9, 2, 8},
		{10, 2, 9},
		{11, 2, 10},
		{12, 3, 10},
		{15, 4, 12},
		{20, 6, 15},
		{30, 10, 21},
		{50, 18, 33},
	} {
		if j, k, ok := Ranks(test.n); j != test.j || k != test.k || !ok {
			t.Errorf("ranks of %d are %d and %d, %v; want %d and %d", test.n, j, k, ok, test.j, test.k)
		}
	}
	for n := 1; n < 6; n++ {
		if j, k, ok := Ranks(n); j != 1 || k != n || ok {
			t.Errorf("ranks of %d are %d and %d, %v; there is no interval", n, j, k, ok)
		}
	}
}

func TestEstimateIsTheMedianWithItsInterval(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   Estimate
	}{
		{[]float64{7}, Estimate{7, 7, 7, false}},
		{[]float64{9, 1, 4}, Estimate{4, 1, 9, false}},
		{[]float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, Estimate{5.5, 2, 9, true}},
		{[]float64{1, 1, 1, 1, 1, 1000}, Estimate{1, 1, 1000, true}},
	} {
		if got := EstimateOf(test.values); got != test.want {
			t.Errorf("the estimate of %v is %+v, want %+v", test.values, got, test.want)
		}
	}
}

// tier is a fake tier: operations take latency, and then share a bandwidth first come, first
// served.
type tier struct {
	latency   time.Duration
	bandwidth float64 // bytes per second; 0: no limit
	loss      float64 // share of the bandwidth that each stream above 4 costs
	size      int64
	burst     time.Duration // what it would have given in this time before an operation comes at once

	mu   sync.Mutex
	busy time.Time
	in   int
}

func (f *tier) load() Load {
	return Load{Do: func(ctx context.Context, _, _ int) (int64, error) {
		f.mu.Lock()
		f.in++
		f.mu.Unlock()
		time.Sleep(f.latency)
		f.mu.Lock()
		var until time.Time
		if f.bandwidth > 0 {
			if least := time.Now().Add(-f.burst); f.busy.Before(least) {
				f.busy = least
			}
			rate := f.bandwidth * (1 - f.loss*float64(max(f.in-4, 0)))
			f.busy = f.busy.Add(time.Duration(float64(f.size) / rate * 1e9))
			until = f.busy
		}
		f.mu.Unlock()
		if !until.IsZero() {
			time.Sleep(time.Until(until))
		}
		f.mu.Lock()
		f.in--
		f.mu.Unlock()
		return f.size, nil
	}}
}

func TestRatesOfKnownTiersAreFound(t *testing.T) {
	for _, test := range []struct {
		name    string
		tier    *tier
		streams int
		want    map[int]float64 // MB/s by streams
		grows   bool
		within  float64
	}{
		{
			"one stream of latency", &tier{latency: 10 * time.Millisecond, size: 1e5}, 1,
			map[int]float64{1: 10},
			false, 0.001,
		},
		{
			"latency is hidden by streams", &tier{latency: 50 * time.Millisecond, size: 1e5}, 64,
			map[int]float64{1: 2, 2: 4, 4: 8, 8: 16, 16: 32, 32: 64, 64: 128},
			true, 0.001,
		},
		{
			"a bandwidth is shared", &tier{bandwidth: 40e6, size: 1e5}, 256,
			map[int]float64{1: 40, 2: 40, 4: 40},
			false, 0.1,
		},
		{
			"latency and bandwidth",
			&tier{latency: 5 * time.Millisecond, bandwidth: 40e6, size: 1e5}, 256,
			map[int]float64{1: 13.33, 2: 26.67, 4: 40, 8: 40, 16: 40},
			false, 0.1,
		},
		{
			"streams above 4 cost", &tier{bandwidth: 100e6, loss: 0.02, size: 1e5}, 64,
			map[int]float64{1: 100, 2: 100, 4: 100},
			false, 0.1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				c, err := Run(t.Context(), test.tier.load(),
					Options{Size: 0.1, Streams: test.streams, Time: 20 * time.Second})
				if err != nil || c.Ended != nil {
					t.Fatal(err, c.Ended)
				}
				if took := time.Since(begun); took > 21*time.Second {
					t.Errorf("took %v of 20 s", took)
				}
				if c.Grows != test.grows {
					t.Errorf("grows: %v", c.Grows)
				}
				if len(c.Points) != len(test.want) {
					t.Errorf("%d points, want %d", len(c.Points), len(test.want))
				}
				for _, p := range c.Points {
					want := test.want[p.Streams]
					if math.Abs(p.Rate.Median/want-1) > test.within || len(p.Rounds) != Rounds ||
						!p.Rate.Certain {
						t.Errorf("%d streams: %.4g MB/s in %d rounds, want %.4g", p.Streams,
							p.Rate.Median, len(p.Rounds), want)
					}
				}
			})
		})
	}
}

// TestIntervalsAllowForBursts checks that rounds which are so short that bursts make them faster
// than a source is for long have intervals with that rate, and longer ones narrow intervals.
func TestIntervalsAllowForBursts(t *testing.T) {
	for name, c := range map[string]struct {
		time   time.Duration
		least  float64 // MB/s: the interval begins below that
		narrow bool
	}{"2 s": {2 * time.Second, 40, false}, "60 s": {time.Minute, 40.4, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tier{bandwidth: 40e6, size: 1e5, burst: 5 * time.Millisecond}
				l := f.load()
				l.Bursts = true
				l.Prepare = func(_ context.Context, n int) (int, error) {
					time.Sleep(5 * time.Millisecond)
					return n, nil
				}
				curve, err := Run(t.Context(), l, Options{Size: 0.1, Streams: 64, Time: c.time})
				if err != nil || len(curve.Points) < 3 {
					t.Fatal(curve.Points, err)
				}
				for _, p := range curve.Points {
					e := p.Rate
					if e.Low > c.least || e.High < 40 || c.narrow && e.High > 1.02*e.Low {
						t.Errorf("%d streams: %.4g MB/s, %.4g to %.4g", p.Streams, e.Median, e.Low, e.High)
					}
				}
			})
		})
	}
}

func TestSlowTiersAreMeasuredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tier{latency: 3 * time.Second, size: 1e6}
		begun := time.Now()
		c, err := Run(t.Context(), f.load(), Options{Streams: 64, Time: 20 * time.Second})
		if took := time.Since(begun); err != nil || took > 22*time.Second || len(c.Points) == 0 {
			t.Fatalf("%d points in %v: %v", len(c.Points), took, err)
		}
		for _, p := range c.Points {
			if want := float64(p.Streams) / 3; math.Abs(p.Rate.Median/want-1) > 0.01 {
				t.Errorf("%d streams: %.3f MB/s, want %.3f", p.Streams, p.Rate.Median, want)
			}
		}
	})
}

func TestHungOperationEndsWithTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returns := make(chan struct{})
		begun := time.Now()
		c, err := Run(t.Context(), Load{Do: func(_ context.Context, stream, _ int) (int64, error) {
			if stream == 1 {
				<-returns
			}
			time.Sleep(time.Millisecond)
			return 1000, nil
		}}, Options{Streams: 8, Time: 4 * time.Second})
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("took %v", took)
		}
		if err != nil || len(c.Points) != 1 || !errors.Is(c.Ended, ErrHangs) {
			t.Errorf("%d points, ended by %v, %v; want that of one stream", len(c.Points), c.Ended,
				err)
		}
		close(returns)
		time.Sleep(time.Second) // in which all goroutines end
	})
}

func TestErrorKeepsWhatWasMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := errors.New("too many open files")
		c, err := Run(t.Context(), Load{Do: func(_ context.Context, stream, _ int) (int64, error) {
			if stream >= 4 {
				return 0, limit
			}
			time.Sleep(time.Millisecond)
			return 1000, nil
		}}, Options{Streams: 8, Time: 4 * time.Second})
		if err != nil || len(c.Points) != 3 || !errors.Is(c.Ended, limit) {
			t.Errorf("%d points, ended by %v, %v; want 3", len(c.Points), c.Ended, err)
		}
	})
}

func TestInterruptEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := tier{latency: time.Millisecond, size: 1e6}
		begun := time.Now()
		_, err := Run(ctx, f.load(), Options{Streams: 64, Time: time.Minute})
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) ||
			took > time.Second+10*time.Millisecond {
			t.Errorf("ended after %v: %v", took, err)
		}
	})
}

func TestFewOperationsLimitStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tier{latency: time.Millisecond, size: 1e6}
		l := f.load()
		l.Prepare = func(_ context.Context, n int) (int, error) { return min(n, 5), nil }
		c, err := Run(t.Context(), l, Options{Streams: 64, Time: time.Second})
		if err != nil || len(c.Points) != 3 || c.Ended != nil {
			t.Errorf("%d points, %v, %v; want those of 1, 2 and 4 streams", len(c.Points), c.Ended,
				err)
		}
	})
}

func TestSteadyCountsEachWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tier{latency: 5 * time.Millisecond, bandwidth: 40e6, size: 1e5}
		began := false
		rates, err := Steady(t.Context(), f.load(), SteadyOptions{
			Streams: 16, Windows: 10, Window: 200 * time.Millisecond,
			Begin: func(context.Context) error { began = true; return nil },
		})
		if err != nil || len(rates) != 10 || !began {
			t.Fatalf("%d windows, began: %v, %v", len(rates), began, err)
		}
		for i, rate := range rates {
			if math.Abs(rate/40-1) > 0.05 {
				t.Errorf("window %d: %.4g MB/s, want 40", i, rate)
			}
		}
	})
}

func TestSteadyEndsWithTheOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tier{latency: 10 * time.Millisecond, size: 1e5}
		l := f.load()
		l.Prepare = func(_ context.Context, n int) (int, error) { return min(n, 45), nil }
		rates, err := Steady(t.Context(), l, SteadyOptions{
			Streams: 1, Windows: 10, Window: 100 * time.Millisecond, Operations: 1000,
		})
		// 45 operations take 4.5 windows, of which the first does not count.
		if err != nil || len(rates) != 3 {
			t.Errorf("%v: %v; want 3 windows", rates, err)
		}
	})
}

func TestSteadyGoesOnWithWindowsWithoutOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tier{latency: 250 * time.Millisecond, size: 1e5}
		rates, err := Steady(t.Context(), f.load(), SteadyOptions{
			Streams: 1, Windows: 10, Window: 100 * time.Millisecond,
		})
		if err != nil || len(rates) != 4 {
			t.Errorf("%v: %v; want 4 windows", rates, err)
		}
		for i, rate := range rates { // 0.1 MB in 2 or 3 windows
			if rate < 0.1/0.31 || rate > 0.1/0.19 {
				t.Errorf("window %d: %.4g MB/s", i, rate)
			}
		}
	})
}

func TestSteadyOfFewOperationsHasOneRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tier{latency: 10 * time.Millisecond, size: 1e5}
		l := f.load()
		l.Prepare = func(_ context.Context, n int) (int, error) { return min(n, 8), nil }
		rates, err := Steady(t.Context(), l, SteadyOptions{
			Streams: 1, Windows: 10, Window: 100 * time.Millisecond, Operations: 1000,
		})
		if err != nil || len(rates) != 1 || math.Abs(rates[0]/10-1) > 0.01 {
			t.Errorf("%v MB/s: %v; want 10", rates, err)
		}
	})
}

func TestSteadyWaitsForTheFirstOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tier{latency: 500 * time.Millisecond, size: 1e5}
		rates, err := Steady(t.Context(), f.load(), SteadyOptions{
			Streams: 1, Windows: 10, Window: time.Millisecond,
		})
		if err != nil || len(rates) != 1 || math.Abs(rates[0]/0.2-1) > 0.01 {
			t.Errorf("%v MB/s: %v; want 0.2", rates, err)
		}
	})
}

func TestSteadyEndsIfOperationsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returns := make(chan struct{})
		begun := time.Now()
		_, err := Steady(t.Context(), Load{Do: func(context.Context, int, int) (int64, error) {
			<-returns
			return 0, nil
		}}, SteadyOptions{Streams: 4, Windows: 10, Window: 100 * time.Millisecond})
		if took := time.Since(begun); !errors.Is(err, ErrHangs) || took > 5*time.Second {
			t.Errorf("ended after %v: %v", took, err)
		}
		close(returns)
		time.Sleep(time.Second)
	})
}
