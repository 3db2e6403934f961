package tune

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTuner lets the tuner run on machines of which it is known how fast they are.
func TestTuner(t *testing.T) {
	cores := func(n float64) func(int) float64 { // more threads than cores bring nothing
		return func(threads int) float64 { return 100 * math.Min(float64(threads), n) }
	}
	for name, c := range map[string]struct {
		most    int
		rate    func(threads int) float64
		lo, hi  int // where most of the windows are to be spent
		windows int
	}{
		"all help":            {8, cores(8), 8, 8, 400},
		"three help":          {8, cores(3), 3, 3, 400},
		"one does":            {8, cores(1), 1, 1, 400},
		"only one is allowed": {1, cores(4), 1, 1, 50},
		"more are slower": {8, func(n int) float64 {
			return 400 - 30*math.Abs(float64(n)-4)
		}, 4, 4, 400},
		"a little more each": {8, func(n int) float64 {
			return 100 * math.Pow(float64(n), 0.9)
		}, 8, 8, 400},
	} {
		t.Run(name, func(t *testing.T) {
			tuner := New(Options{Start: c.most, Least: 1, Most: c.most})
			there := 0
			for range c.windows {
				if kept := tuner.Kept(); kept != tuner.Value() && tuner.from != kept {
					t.Fatalf("%d is kept, while %d is tried after %d", kept, tuner.Value(), tuner.from)
				}
				if tuner.Value() < 1 || tuner.Value() > c.most {
					t.Fatalf("%d threads of %d", tuner.Value(), c.most)
				}
				if tuner.Value() >= c.lo && tuner.Value() <= c.hi {
					there++
				}
				tuner.Next(c.rate(tuner.Value()))
			}
			if there < c.windows*8/10 {
				t.Errorf("%d to %d threads in %d of %d windows", c.lo, c.hi, there, c.windows)
			}
		})
	}
}

// TestTunerFollows changes the machine while it runs.
func TestTunerFollows(t *testing.T) {
	tuner := New(Options{Start: 8, Least: 1, Most: 8})
	cores := 8.0
	run := func(windows int) {
		for range windows {
			tuner.Next(100 * math.Min(float64(tuner.Value()), cores))
		}
	}
	run(50)
	for _, n := range []float64{2, 6, 3, 8} {
		cores = n
		run(6000)
		if math.Abs(float64(tuner.Value())-n) > 1 {
			t.Errorf("%d threads on a machine that now has %v cores", tuner.Value(), n)
		}
	}
}

// TestTunerOfStreams checks that the number of streams for a source is near the best one within 24
// windows, which take 6 s: for one with a long latency hundreds, for one that more streams slow
// down few.
func TestTunerOfStreams(t *testing.T) {
	for name, rate := range map[string]func(n float64) float64{
		"a long latency":              func(n float64) float64 { return math.Min(n/182, 1) },
		"2 % less per stream above 4": losing,
		"a hard disk":                 hardDisk,
		"one is enough":               func(n float64) float64 { return 1 },
	} {
		tuner := New(Options{Start: 16, Least: 1, Most: 512, Growth: 1.5})
		for range 24 {
			tuner.Next(rate(float64(tuner.Value())))
		}
		if tuner.from != 0 { // a trial may be under way
			tuner.Next(rate(float64(tuner.Value())))
		}
		if got := rate(float64(tuner.Value())) / rate(best(rate)); got < 0.9 {
			t.Errorf("%s: %d streams give %v of the best throughput", name, tuner.Value(), got)
		}
	}
}

// TestTunerIsNotMisledByNoise checks that windows whose rates vary by 10 % leave the number of
// streams near the best one after 40 windows, or 10 s: within 15 % of its rate in nine of ten runs.
func TestTunerIsNotMisledByNoise(t *testing.T) {
	for name, rate := range map[string]func(n float64) float64{
		"a long latency":              func(n float64) float64 { return math.Min(n/182, 1) },
		"2 % less per stream above 4": losing,
		"a hard disk":                 hardDisk,
	} {
		var shares []float64
		for seed := range uint64(200) {
			noise := rand.New(rand.NewPCG(seed, 1))
			tuner := New(Options{Start: 16, Least: 1, Most: 512, Growth: 1.5})
			sum := 0.0
			for window := range 56 {
				now := rate(float64(tuner.Value()))
				if window >= 40 {
					sum += now / 16
				}
				tuner.Next(now * math.Exp(noise.NormFloat64()/10))
			}
			shares = append(shares, sum/rate(best(rate)))
		}
		slices.Sort(shares)
		if least := shares[len(shares)/10]; least < 0.85 {
			t.Errorf("%s: one run in ten gives at most %.2f of the best throughput", name, least)
		}
	}
}

func losing(n float64) float64 {
	return math.Min(n/4, 1) * (1 - 0.02*math.Min(math.Max(n-4, 0), 45))
}

func hardDisk(n float64) float64 { return 1 / (1 + math.Abs(math.Log2(n/2))) }

// best returns the number of streams with the best rate.
func best(rate func(n float64) float64) float64 {
	most := 1.0
	for n := range 512 {
		if rate(float64(n+1)) > rate(most) {
			most = float64(n + 1)
		}
	}
	return most
}

// TestTunerAdopts checks that a number that was found elsewhere is the one in use, within the
// limits, and that what was measured before it does not count.
func TestTunerAdopts(t *testing.T) {
	u := New(Options{Start: 4, Least: 2, Most: 64, Growth: 2})
	for _, c := range []struct{ to, want int }{{1, 2}, {100, 64}, {16, 16}} {
		for range 3 {
			u.Next(1e9) // in the middle of a trial
		}
		if u.Adopt(c.to); u.Value() != c.want || u.Kept() != c.want {
			t.Fatalf("%d after %d was adopted, kept %d", u.Value(), c.to, u.Kept())
		}
	}
	if u.Next(100); u.Value() != 32 {
		t.Fatalf("%d is tried first", u.Value())
	}
	if u.Next(200); u.Kept() != 32 {
		t.Errorf("twice the rate is no gain: %d", u.Kept())
	}
}

// TestTunerThatAdoptsStartsAnew checks that a tuner that has adopted a number then tries the same
// numbers as one that starts with that number, however far it was.
func TestTunerThatAdoptsStartsAnew(t *testing.T) {
	for name, rate := range map[string]func(n int) float64{
		"more are a little faster": func(n int) float64 { return math.Pow(float64(n), 0.2) },
		"all are as fast":          func(int) float64 { return 1 },
	} {
		for before := range 60 {
			o := Options{Start: 4, Least: 1, Most: 64, Growth: 2}
			u := New(o)
			for range before {
				u.Next(1.5 * rate(u.Value()))
			}
			o.Start = 16
			u.Adopt(o.Start)
			for since, anew := 0, New(o); since < 12; since++ {
				got, want := u.Next(rate(u.Value())), anew.Next(rate(anew.Value()))
				if got != want {
					t.Fatalf("%s: after %d windows, and %d since, %d is tried, want %d", name, before,
						since, got, want)
				}
			}
		}
	}
}
