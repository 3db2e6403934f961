package instrument

import (
	"math"
	"reflect"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// spans returns n spans of 4 samples, of which each turn-th one takes that long, and the others no
// time worth mentioning: as batches of workers arrive.
func spansOf(n, turn int, seconds float64) []span {
	all := make([]span, n)
	for i := range all {
		all[i] = span{1e-9, 4}
		if i%turn == 0 {
			all[i].seconds = seconds
		}
	}
	return all
}

func TestRatesAreThoseOfBlocks(t *testing.T) {
	for _, test := range []struct {
		name   string
		spans  []span
		turn   int
		blocks int
		rate   float64
	}{
		{"nothing", nil, 1, 0, 0},
		{"one", spansOf(1, 1, 0.5), 1, 1, 8},
		{"as many as blocks", spansOf(20, 1, 0.5), 1, 20, 8},
		{"more", spansOf(90, 1, 0.5), 1, 18, 8},
		{"a turn of 4 workers", spansOf(40, 4, 2), 4, 10, 8},
		{"few turns", spansOf(12, 4, 2), 4, 3, 8},
		{"less than a turn", spansOf(3, 3, 1.5), 4, 1, 8},
		{"the process itself", spansOf(5, 1, 0.5), 0, 5, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := rates(test.spans, test.turn)
			if len(got) != test.blocks {
				t.Fatalf("%d blocks, want %d: %v", len(got), test.blocks, got)
			}
			for _, rate := range got {
				if math.Abs(rate-test.rate) > 1e-6 {
					t.Errorf("%v, want %v samples/s each", got, test.rate)
				}
			}
		})
	}
}

func TestRanksAddUp(t *testing.T) {
	if got := together([][]float64{{1, 2, 3}, {10, 10}}); !reflect.DeepEqual(got,
		&analysis.Rate{Median: 2 / (1/11.0 + 1/12.0), Low: 11, High: 12, Few: true}) {
		t.Errorf("%+v", got)
	}
	// Of 3 blocks of as many samples, one takes no time worth mentioning.
	if got := together([][]float64{{80, 1e6, 80}}); math.Abs(got.Median-120) > 0.1 || !got.Few {
		t.Errorf("%+v", got)
	}
	if got := together([][]float64{{80, 80, 1e6, 80, 80, 80}}); got.Median != 80 || got.Few {
		t.Errorf("%+v", got)
	}
	for _, none := range [][][]float64{nil, {{}}, {{1}, nil}} {
		if got := together(none); got != nil {
			t.Errorf("%v: %+v", none, got)
		}
	}
}

func TestPointsAreOfAllSizesTogether(t *testing.T) {
	rate := func(mbps float64) measure.Estimate {
		return measure.Estimate{Median: mbps, Low: mbps / 2, High: mbps * 2, Certain: true}
	}
	// Small samples of 0.1 MB at 1 MB/s take 0.1 s, large ones of 0.9 MB at 3 MB/s 0.3 s.
	small := measure.Curve{Size: 0.1, Points: []measure.Point{
		{Streams: 1, Rate: rate(1)}, {Streams: 2, Rate: rate(2)},
	}}
	large := measure.Curve{Size: 0.9, Points: []measure.Point{{Streams: 1, Rate: rate(3)}}}
	got := Points([]measure.Curve{small, large})
	if len(got) != 1 || got[0].N != 1 || math.Abs(got[0].Median-5) > 1e-9 ||
		math.Abs(got[0].Low-2.5) > 1e-9 || math.Abs(got[0].High-10) > 1e-9 || got[0].Few {
		t.Errorf("%+v", got)
	}
	if got := Points([]measure.Curve{small}); len(got) != 2 || math.Abs(Best(got).Median-20) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if Points(nil) != nil || Best(nil) != nil {
		t.Error("there is a rate of nothing")
	}
}
