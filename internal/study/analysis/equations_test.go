package analysis

import (
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// The rates of AlexNet on the server SSD-V100 with ImageNet-1k, in samples/s: from table 2, 530
// MB/s of samples of 113 kB, and 28 GB/s.
const (
	alexSource, alexMemory = 4698.5, 252_000
)

// near reports whether got is within a share of want.
func near(got, want, share float64) bool { return math.Abs(got-want) <= share*want }

// TestTable5: the fetch rates that CoorDL predicts for three cache sizes.
func TestTable5(t *testing.T) {
	for x, want := range map[float64]float64{0.25: 6226, 0.35: 7164, 0.50: 9225} {
		if got := Fetch(Cached(x, alexMemory, alexSource)); !near(got, want, 0.0015) {
			t.Errorf("F(%v) = %.0f samples/s, want %.0f", x, got, want)
		}
	}
}

// TestFigure16: a cache of 55 % of the dataset is enough, and preparation limits from there on.
func TestFigure16(t *testing.T) {
	prepared := 10_200.0
	x, ok := NeededCache(alexMemory, alexSource, prepared)
	if !ok || math.Abs(x-0.55) > 0.005 {
		t.Errorf("x* = %.3f, %v; want 0.55", x, ok)
	}
	for share, want := range map[float64]string{
		x - 0.01: remedy.Source, x + 0.01: remedy.Preprocessing,
	} {
		r := Rates{
			Fetch: Fetch(Cached(share, alexMemory, alexSource)), Preparation: prepared,
			Training: 3 * prepared,
		}
		if got := r.Limit(); got != want {
			t.Errorf("with %.2f of the dataset %s limits, want %s", share, got, want)
		}
	}
	if least := Fetch(Cached(x, alexMemory, alexSource)); !near(least, prepared, 1e-9) {
		t.Errorf("F(x*) = %v, want %v", least, prepared)
	}
}

// TestReadsTakeProcessorsFromPreparation: with a processor that prepares 100 samples/s, and reads
// of 10 ms of it, half of them from a cache, 1/(10 + 5 ms) are prepared; the rest of the time is
// due to the reads, and not to preparing.
func TestReadsTakeProcessorsFromPreparation(t *testing.T) {
	r := Rates{Fetch: 500, Preparation: 100, Training: 1000, Reading: 0.5 * 0.010}
	if got := r.Speed(); !near(got, 1/0.015, 1e-9) || r.Limit() != remedy.Preprocessing {
		t.Errorf("%v samples/s, limited by %s", got, r.Limit())
	}
	s := r.StallOf(1000)
	if !near(s.Training, 1, 1e-9) || !near(s.Preparation, 9, 1e-9) || !near(s.Fetch, 5, 1e-9) {
		t.Errorf("%+v", s)
	}
}

// TestFigure1: ResNet18 with 35 % in memory, in MB/s: F is 802, and 24 cores prepare 735, so that
// they limit, at 32 % of the speed of the GPUs; where these prepare too, F does.
func TestFigure1(t *testing.T) {
	f := Fetch(Cached(0.35, 17_100, 530))
	if !near(f, 802, 0.001) {
		t.Errorf("F = %.1f MB/s, want 802", f)
	}
	r := Rates{Fetch: f, Preparation: 735, Training: 2283}
	if got := r.Limit(); got != remedy.Preprocessing || !near(r.Speed()/r.Training, 0.32, 0.01) {
		t.Errorf("%s limits, at %.3f of G", got, r.Speed()/r.Training)
	}
	if n := NeededCores(735.0/24, min(f, r.Training)); n != 27 {
		t.Errorf("%d cores, want 27: 30.6 MB/s each for 802", n)
	}
	if n := NeededCores(735.0/24, 735); n != 24 {
		t.Errorf("%d cores for what 24 do", n)
	}
	r.Preparation = 1062
	if got := r.Limit(); got != remedy.Source {
		t.Errorf("%s limits", got)
	}
}

// TestTable6: with 65 % of OpenImages (645 GB) in memory, 35 % or 225 GB are read from the source
// in each epoch.
func TestTable6(t *testing.T) {
	parts := Cached(0.65, alexMemory, alexSource)
	if miss := parts[1].Share; !near(miss, 0.35, 1e-9) || !near(645*miss, 225, 0.005) {
		t.Errorf("misses %.3f, %.0f GB; want 0.35, 225 GB", miss, 645*miss)
	}
}

func TestStall(t *testing.T) {
	r := Rates{Fetch: 50, Preparation: 100, Training: 200}
	s := r.StallOf(1000)
	if want := (Stall{5, 5, 10}); s != want || s.Epoch() != 20 || s.Share() != 0.75 {
		t.Errorf("%+v, want %+v", s, want)
	}
	if got, want := s.Per(10), (Stall{0.5, 0.5, 1}); got != want {
		t.Errorf("per iteration %+v, want %+v", got, want)
	}
	// what was measured is divided such that no part is negative
	for speed, want := range map[float64]Stall{40: {5, 5, 15}, 125: {5, 3, 0}, 300: {5, 0, 0}} {
		if got := r.observed(1000, speed); got != want {
			t.Errorf("at %v samples/s %+v, want %+v", speed, got, want)
		}
	}
	r.Serial = true
	if s = r.StallOf(1000); s.Training != 5 || !near(s.Preparation, 10, 1e-9) ||
		!near(s.Fetch, 20, 1e-9) {
		t.Errorf("without overlap %+v", s)
	}
}

// TestTheEquationsAtTheirLimits: a source that is fast enough needs no cache, and a cache that is
// too slow does not help; an infinite rate limits nothing.
func TestTheEquationsAtTheirLimits(t *testing.T) {
	if x, ok := NeededCache(1000, 200, 100); x != 0 || !ok {
		t.Error(x, ok)
	}
	if x, ok := NeededCache(90, 50, 100); x != 1 || ok {
		t.Error(x, ok)
	}
	if x, ok := NeededCache(100, 50, 100); x != 1 || !ok {
		t.Error(x, ok)
	}
	none := math.Inf(1)
	r := Rates{Fetch: Fetch(Cached(1, none, 10)), Preparation: none, Training: 7}
	if r.Speed() != 7 || r.Limit() != remedy.Compute {
		t.Error(r.Speed(), r.Limit())
	}
}

// TestOtherNodesAreReadBesidesTheSource: a quarter from the own cache, a quarter from other nodes,
// and a half from the source, or all but the own cache from other nodes.
func TestOtherNodesAreReadBesidesTheSource(t *testing.T) {
	parts := []Part{{"memory", 0.25, 10_000}, {remedy.Network, 0.25, 1000}, {remedy.Source, 0.5, 400}}
	if got, want := Fetch(parts), 1/(0.25/10_000+0.5/400); !near(got, want, 1e-9) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := slowest(parts); got != remedy.Source {
		t.Errorf("%s limits, want the source", got)
	}
	parts[1].Share, parts[2].Share = 0.75, 0
	if got, want := Fetch(parts), 1000/0.75; !near(got, want, 1e-9) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := slowest(parts); got != remedy.Network {
		t.Errorf("%s limits, want the network", got)
	}
}
