package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// tier is a simulated tier: reads of its clients end in the order in which they began.
type tier struct {
	latency, perMB float64 // of one stream
	mbps           float64 // of all streams together
	noise          float64 // relative, of each read
	r              *rand.Rand
}

func (d *tier) took(size, ahead float64) float64 {
	t := max(d.latency+size*d.perMB, (size+ahead)/d.mbps)
	return t * math.Exp(d.noise*d.r.NormFloat64()-d.noise*d.noise/2)
}

// observe has a fit observe n reads with this many streams.
func (d *tier) observe(f *Fit, now *float64, n, streams int, size func() float64) {
	for range n {
		s := size()
		ahead := float64(streams-1) * s
		took := d.took(s, ahead)
		*now += took / float64(streams)
		f.Observe(*now, s, ahead, took)
	}
}

// TestFitPredicts checks that the prediction at the number of streams that reads were observed with
// is within the noise of what reads take, for tiers from memory to an object store.
func TestFitPredicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, lo, hi float64) float64 {
			return lo * math.Pow(hi/lo, rapid.Float64Range(0, 1).Draw(t, name))
		}
		d := tier{
			latency: draw("latency", 1e-5, 0.1), perMB: draw("s per MB", 1e-4, 0.1),
			mbps:  draw("MB/s", 1, 1e4),
			noise: draw("noise", 0.01, 0.3), r: rand.New(rand.NewPCG(1, 2)),
		}
		mean := draw("size", 0.001, 10)
		size := func() float64 { return mean * (0.5 + d.r.Float64()) }
		streams := rapid.IntRange(1, 64).Draw(t, "streams")
		var f Fit
		now := 0.0
		d.observe(&f, &now, 2000, streams, size)
		d.noise = 0
		ahead := float64(streams-1) * mean
		if got, want := f.Predict(mean, ahead), d.took(mean, ahead); got < want*0.8 ||
			got > want*1.25 {
			t.Errorf("%d streams of %v MB: %v s predicted, reads take %v", streams, mean, got, want)
		}
	})
}

// TestFitSeparates checks that a fit distinguishes latency, rate per stream and the effect of more
// streams when reads of different sizes were observed with different numbers of streams.
func TestFitSeparates(t *testing.T) {
	d := tier{latency: 0.005, perMB: 0.01, mbps: 1e9, noise: 0.1, r: rand.New(rand.NewPCG(1, 2))}
	size := func() float64 { return 2 * d.r.Float64() }
	var f Fit
	now := 0.0
	for i := range 500 {
		d.observe(&f, &now, 1, 1+i%16, size)
	}
	if c := f.Coefficients(); math.Abs(c.Latency/d.latency-1) > 0.2 ||
		math.Abs(c.PerMB/d.perMB-1) > 0.2 || c.Queued > d.perMB/20 {
		t.Errorf("unsaturated: %v", f.x)
	}
	d.mbps = 100 // one stream reaches it
	for i := range 500 {
		d.observe(&f, &now, 1, 1+i%16, size)
	}
	if rate := f.Rate(16, 1); math.Abs(rate/100-1) > 0.1 {
		t.Errorf("16 streams: %v MB/s predicted, not 100: %v", rate, f.x)
	}
}

// TestFitFollows checks that a tier which becomes slower or faster by any factor is known to be so
// after few reads.
func TestFitFollows(t *testing.T) {
	for _, factor := range []float64{0.01, 0.1, 0.5, 2, 10, 100, 1000} {
		d := tier{latency: 0.01, mbps: 1e9, noise: 0.2, r: rand.New(rand.NewPCG(3, 4))}
		size := func() float64 { return 0.1 }
		var f Fit
		now := 0.0
		d.observe(&f, &now, 1000, 4, size)
		d.latency *= factor
		d.observe(&f, &now, 40, 4, size)
		if got := f.Predict(0.1, 0.3) / d.latency; got < 0.7 || got > 1.4 {
			t.Errorf("40 reads after a tier took %v times as long, %v of that is predicted", factor,
				got)
		}
	}
}

// TestFitCorrectsWhatWasAssumed: what an earlier job has stored is wrong by a factor of thousands,
// and the tier is read rarely, one sample at a time. The first read corrects the throughput of many
// streams as well, although it does not measure it.
func TestFitCorrectsWhatWasAssumed(t *testing.T) {
	const size, truth = 0.1, 2000.0
	for _, every := range []int{1 << 30, 20, 5} { // reads after which two take place at a time
		var f Fit
		f.Assume(FromCurve(Constant(0.7), size))
		for i := range 60 {
			ahead := 0.0
			if i%every == every-1 {
				ahead = size
			}
			f.Observe(float64(i), size, ahead, (size+ahead)/truth)
			if rate := f.Coefficients().Rate(16, size); rate < truth/2 || rate > truth*2 {
				t.Fatalf("every %d: after %d reads, 16 streams are expected to give %v MB/s, not %v",
					every, i+1, rate, truth)
			}
		}
	}
}

// TestFitIsFinite checks that no sequence of reads makes a prediction that is not a positive
// number.
func TestFitIsFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Fit
		now := 0.0
		for range 100 {
			draw := func(name string, of ...float64) float64 {
				return rapid.SampledFrom(of).Draw(t, name)
			}
			now += draw("pause", 0, 1e-9, 1e-3, 1, 1e6)
			f.Observe(now, draw("size", 0, 1e-6, 0.1, 1e4), draw("ahead", 0, 1e-6, 0.1, 1e6),
				draw("took", 0, 1e-12, 1e-6, 1e-3, 1, 1e9))
			for _, size := range []float64{0, 0.1, 100} {
				if p := f.Predict(size, size); !(p > 0) || math.IsInf(p, 0) {
					t.Fatalf("%v s predicted by %+v", p, f)
				}
			}
		}
	})
}

// TestFitIsBounded checks that single reads that take for ever, or no time, and impossible values
// hardly change the prediction.
func TestFitIsBounded(t *testing.T) {
	d := tier{latency: 0.001, mbps: 1e9, noise: 0.1, r: rand.New(rand.NewPCG(5, 6))}
	size := func() float64 { return 0.1 }
	for _, odd := range []float64{1e-12, 60, 1e6, 0, -5, math.NaN(), math.Inf(1)} {
		var f Fit
		now := 0.0
		d.observe(&f, &now, 200, 4, size)
		before := f.Predict(0.1, 0.3)
		for range 2 {
			f.Observe(now, 0.1, 0.3, odd)
			d.observe(&f, &now, 10, 4, size)
		}
		if got := f.Predict(0.1, 0.3) / before; got < 0.8 || got > 1.25 {
			t.Errorf("after reads of %v s, %v times as much is predicted", odd, got)
		}
		f.Observe(now-1e9, 0.1, 0.3, 0.001) // a clock that jumps
		f.Observe(now+1e9, 0.1, 0.3, 0.001)
		d.observe(&f, &now, 10, 4, size)
		if got := f.Predict(0.1, 0.3) / before; !(got > 0.5 && got < 2) {
			t.Errorf("after the clock jumped, %v times as much is predicted", got)
		}
	}
}

func TestChoose(t *testing.T) {
	file, peer, source := 0, 1, 2
	for _, c := range []struct {
		name                       string
		due                        float64
		file, peer, source, shared float64
		want                       int
	}{
		{"all in time: the cheapest", 1, 0.5, 0.1, 0.01, 0, file},
		{"the file is late", 1, 2, 0.5, 0.01, 0, peer},
		{"only the source is in time", 1, 2, 3, 0.5, 0, source},
		{"all late: the fastest", 0, 2, 1, 3, 0, peer},
		{"all late, the source fastest", 0, 2, 1, 0.1, 0, source},
		{"others would wait for the source longer than is saved", 0, 2, 1, 0.1, 1, peer},
		{"in time, for longer than that", 0.8, 2, 1, 0.1, 0.5, peer},
		{"in time, for less", 0.8, 2, 1.9, 0.1, 0.5, source},
		{"hardly faster", 0, 1, 0.9, 0.85, 0, file},
	} {
		got := Choose(c.due, []Candidate{
			{Arrival: c.file}, {Arrival: c.peer}, {Arrival: c.source, Charge: c.shared},
		})
		if got != c.want {
			t.Errorf("%s: candidate %d, not %d", c.name, got, c.want)
		}
	}
}

// TestChooseWhatOtherNodesReadToo: a shared tier must save at least 20 ms, one of a node alone must
// only be sooner, or in time.
func TestChooseWhatOtherNodesReadToo(t *testing.T) {
	for _, c := range []struct {
		due, file, source float64
		shared            bool
		want              int
	}{
		{0.1, 0.11, 0.05, false, 1},
		{0.1, 0.11, 0.05, true, 0},
		{0.1, 0.13, 0.05, true, 1},
		{0, 0.011, 0.001, false, 1},
		{0, 0.011, 0.001, true, 0},
		{0, 0.022, 0.001, true, 1},
		{0, 0.011, 0.01, false, 0},
	} {
		source := Candidate{Arrival: c.source, Shared: c.shared}
		if got := Choose(c.due, []Candidate{{Arrival: c.file}, source}); got != c.want {
			t.Errorf("%+v: candidate %d", c, got)
		}
	}
}

// TestChooseWhereTiersShareWhatLimitsThem: a tier that does not give several times as much for
// longer is not read besides another one, however soon it would have the sample.
func TestChooseWhereTiersShareWhatLimitsThem(t *testing.T) {
	for _, c := range []struct {
		name         string
		due          float64
		peer, source float64 // rates; 0: not known
		want         int
	}{
		{"nothing known, both late", 0, 0, 0, 1},
		{"nothing known, the source in time", 0.5, 0, 0, 1},
		{"the source gives little more, both late", 0, 100, 399, 0},
		{"the source gives little more, and has it in time", 0.5, 100, 399, 0},
		{"the source gives several times as much", 0, 100, 400, 1},
		{"the source is not known", 0, 100, 0, 1},
		{"the other node is not known", 0, 0, 1, 1},
	} {
		candidates := []Candidate{
			{Arrival: 2, Rate: c.peer, Contended: true}, {Arrival: 0.1, Rate: c.source, Contended: true},
		}
		if got := Choose(c.due, candidates); got != c.want {
			t.Errorf("%s: candidate %d, not %d", c.name, got, c.want)
		}
		candidates[1].Contended = false
		if got := Choose(c.due, candidates); got != 1 {
			t.Errorf("%s, but each has its own: candidate %d", c.name, got)
		}
	}
}

// TestChooseBesideATierThatAddsLittle: what a slow shared tier brings may be late by as much less
// as it gives less.
func TestChooseBesideATierThatAddsLittle(t *testing.T) {
	for _, c := range []struct {
		peer, source float64 // rates
		late         float64 // of the other node's sample
		want         int
	}{
		{100, 100, 0.019, 0},
		{100, 100, 0.022, 1},
		{100, 399, 0.019, 0},
		{12, 2400, 0.0003, 0},
		{12, 2400, 0.0005, 1}, // 20 ms * 4 * 12/2400 = 0.4 ms
		{0, 2400, 0.019, 0},
		{12, 0, 0.019, 0},
	} {
		got := Choose(0.1, []Candidate{
			{Arrival: 0.1 + c.late, Shared: true, Rate: c.peer},
			{Arrival: 1e-4, Shared: true, Rate: c.source},
		})
		if got != c.want {
			t.Errorf("%+v: candidate %d", c, got)
		}
	}
}

func TestKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		due, supply, arrival, read, spares float64
		want                               bool
	}{
		"in time":              {10, 8, 2, 0, 0, true},
		"late by the supply":   {9.9, 8, 2, 1, 1, false},
		"late, but it repays":  {0, 8, 2, 1, 8, true},
		"it nearly repays":     {0, 8.1, 2, 1, 8, false},
		"nothing reads again":  {0, 8, 2, 1, 0, false},
		"supply takes no time": {0, 0, 2, 1, 0, true},
	} {
		if got := Keeps(c.due, c.supply, c.arrival, c.read, c.spares); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func BenchmarkFit(b *testing.B) {
	var f Fit
	for i := range b.N {
		f.Observe(float64(i), 0.1, float64(i%8)*0.1, 0.001)
	}
}
