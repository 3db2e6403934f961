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
	if rate := f.Coefficients().Rate(16, 1); math.Abs(rate/100-1) > 0.1 {
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

func BenchmarkFit(b *testing.B) {
	var f Fit
	for i := range b.N {
		f.Observe(float64(i), 0.1, float64(i%8)*0.1, 0.001)
	}
}
