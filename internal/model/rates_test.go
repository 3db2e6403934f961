package model

import (
	"math"
	"slices"
	"testing"
)

// TestRatesOfATierGiveItsCoefficients: for tiers with a latency, a rate of one stream and one of
// all together, whose throughput is limited by the slower of the two.
func TestRatesOfATierGiveItsCoefficients(t *testing.T) {
	for _, test := range []struct {
		name    string
		sizes   []float64
		streams []int
		tier    Coefficients
		grows   bool
		want    Coefficients
	}{
		{
			"a bandwidth that one stream can use, and latency",
			[]float64{0.004, 0.1, 0.4},
			[]int{1, 2, 4, 8, 16},
			Coefficients{5e-3, 1.0 / 40, 1.0 / 40},
			false,
			Coefficients{5e-3, 1.0 / 40, 1.0 / 40},
		},
		{
			"a rate of each stream, and one of all",
			[]float64{0.004, 0.1},
			[]int{1, 2, 4, 8, 16, 32},
			Coefficients{1e-3, 1.0 / 100, 1.0 / 800},
			false,
			Coefficients{1e-3, 1.0 / 100, 1.0 / 800},
		},
		{
			"one size tells no latency",
			[]float64{0.1},
			[]int{1, 2, 4, 8},
			Coefficients{5e-3, 1.0 / 40, 1.0 / 40},
			false,
			Coefficients{0, 7.5e-3 / 0.1, 1.0 / 40},
		},
		{
			"one stream",
			[]float64{0.1},
			[]int{1},
			Coefficients{0, 1.0 / 40, 1.0 / 40},
			false,
			Coefficients{0, 1.0 / 40, 1.0 / 40},
		},
		{
			"latency alone, and streams that still add",
			[]float64{0.004, 0.1},
			[]int{1, 2, 4, 8},
			Coefficients{50e-3, 0, 0},
			true,
			Coefficients{50e-3, 0, 0},
		},
	} {
		var rates []Rate
		for _, size := range test.sizes {
			for _, p := range test.streams {
				alone := test.tier.Latency + size*test.tier.PerMB
				took := max(alone, float64(p)*size*test.tier.Queued)
				rates = append(rates, Rate{size, p, float64(p) * size / took})
			}
		}
		got := FromRates(rates, 0.1, test.grows)
		for _, c := range []struct {
			name      string
			got, want float64
		}{
			{"latency", got.Latency, test.want.Latency},
			{"s/MB", got.PerMB, test.want.PerMB},
			{"s/MB queued", got.Queued, test.want.Queued},
		} {
			if math.Abs(c.got-c.want) > 1e-9+0.01*c.want {
				t.Errorf("%s: %s is %.6g, want %.6g", test.name, c.name, c.got, c.want)
			}
		}
	}
}

// TestOneStreamIsAsFastAsMeasured: for samples of the size that is nearest, even if no line fits
// all sizes, such as memory in whose caches small samples fit.
func TestOneStreamIsAsFastAsMeasured(t *testing.T) {
	for _, rates := range [][]Rate{
		{{0.004, 1, 25e3}, {0.1, 1, 6e3}, {0.1, 2, 6100}},
		{{0.004, 1, 900}, {0.1, 1, 10}, {0.4, 1, 50}},
		{{0.004, 1, 1}, {0.1, 1, 100}},
	} {
		got := FromRates(rates, 0.1, false).Rate(1, 0.1)
		if want := rates[1].MBps; math.Abs(got-want) > 0.01*want {
			t.Errorf("%v: %.5g MB/s, want %v", rates, got, want)
		}
	}
}

// TestCoefficientsOfNoisyRatesAreValid: whatever was measured, curves do not fall.
func TestCoefficientsOfNoisyRatesAreValid(t *testing.T) {
	for _, rates := range [][]Rate{
		{{0.1, 1, 100}, {0.1, 2, 60}, {0.1, 4, 20}},
		{{0.004, 1, 900}, {0.1, 1, 10}, {0.1, 2, 1000}},
		{{0.004, 1, 1e-3}, {0.1, 1, 1e9}},
		{{1e-9, 1, 1e-9}, {1e-9, 512, 1e-9}},
	} {
		for _, grows := range []bool{false, true} {
			c := FromRates(rates, 0.1, grows)
			n := Node{Source: Known{c, Probed}}
			if _, falls := c.Curve(0.1, mostStreams).Falls(); falls || n.Validate() != nil {
				t.Errorf("%v: %+v: falls %v, %v", rates, c, falls, n.Validate())
			}
		}
	}
}

func TestRisingCurveIsNearest(t *testing.T) {
	for _, test := range []struct{ curve, want Curve }{
		{nil, Curve{}},
		{Curve{{1, 5}}, Curve{{1, 5}}},
		{Curve{{1, 1}, {2, 2}, {4, 3}}, Curve{{1, 1}, {2, 2}, {4, 3}}},
		{Curve{{1, 10}, {2, 30}, {4, 20}, {8, 40}}, Curve{{1, 10}, {2, 25}, {4, 25}, {8, 40}}},
		{Curve{{1, 30}, {2, 20}, {4, 10}}, Curve{{1, 20}, {2, 20}, {4, 20}}},
	} {
		if got := test.curve.Rising(); !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.curve, got, test.want)
		}
	}
}

// TestStreamsThatStillGrow is computed by hand: one read of 1 MB takes 20 ms, of which 10 are
// latency, and each of 7 others delays it by 1 ms.
func TestStreamsThatStillGrow(t *testing.T) {
	rates := []Rate{{0.5, 1, 0.5 / 0.015}, {1, 1, 1 / 0.02}, {1, 8, 8 / 0.027}}
	c := FromRates(rates, 1, true)
	if !near(c.Latency, 0.01, 1e-6) || !near(c.PerMB, 0.01, 1e-6) || !near(c.Queued, 0.001, 1e-6) {
		t.Errorf("%+v", c)
	}
}

// TestSpeedSince: the counters of a report are those since another.
func TestSpeedSince(t *testing.T) {
	now := Speed{Samples: 10, Bytes: 1000, Seconds: 8, Busy: 4, Peak: 3}
	before := Speed{Samples: 4, Bytes: 300, Seconds: 2, Busy: 1, Peak: 2}
	want := Speed{Samples: 6, Bytes: 700, Seconds: 6, Busy: 3, Peak: 3}
	if got := now.Since(&before); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
