package render

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// TestLinesHaveTheStyleOfTheirPolicy: lines have the style that policies declare; the default's is
// wider, the lower bound's is dotted, and an unknown policy is drawn as well.
func TestLinesHaveTheStyleOfTheirPolicy(t *testing.T) {
	for _, p := range policies.All() {
		line, l := p.About().Line, lookOf(p.Name())
		if l.colour != drawing.RGB(line.Colour) || (len(l.dashes) > 0) != line.Dashed {
			t.Errorf("%s is drawn as %+v, and says %+v", p.Name(), l, line)
		}
		if usual := lookOf("unknown").width; (l.width > usual) !=
			(p.Name() == policies.Default().Name()) {
			t.Errorf("%s has a line of %v; the usual is %v", p.Name(), l.width, usual)
		}
	}
	if bound, dashed := lookOf(policies.Bound().Name()),
		lookOf("partitioned"); slices.Equal(bound.dashes, dashed.dashes) {
		t.Error("the lower bound is dashed as policies are")
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct{ places, want []float64 }{
		{[]float64{10, 50, 90}, []float64{10, 50, 90}},
		{[]float64{50, 50, 50}, []float64{40, 50, 60}},
		{[]float64{0, 0}, []float64{0, 10}},
		{[]float64{100, 100}, []float64{90, 100}},
		{[]float64{20, 22, 60, 61}, []float64{16, 26, 55.5, 65.5}},
	} {
		got := spread(test.places, 10, 0, 100)
		for i := range got {
			if math.Abs(got[i]-test.want[i]) > 1e-9 {
				t.Errorf("spread(%v) = %v, want %v", test.places, got, test.want)
				break
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		values []string
		want   []float64
		unit   string
	}{
		{[]string{"0", "10240"}, []float64{0, 10240}, "MB"},
		{[]string{"0", "10 GB", "20 GB"}, []float64{0, 10, 20}, "GB"},
		{[]string{"1 GB", "500 MB"}, nil, ""},
		{[]string{"uniform", "whole"}, nil, ""},
	} {
		got, unit, ok := numbers("environment.storage_class.ram.capacity", test.values)
		if ok != (test.want != nil) || !cmp.Equal(test.want, got) || unit != test.unit {
			t.Errorf("numbers(%v) = %v, %q, %v", test.values, got, unit, ok)
		}
	}
}

// TestHeatColour: letters can be read on every cell, with a contrast of at least 4.5 (WCAG AA).
func TestHeatColour(t *testing.T) {
	for i := range 101 {
		fill, letters := heatColour(float64(i) / 100)
		a, b := luminance(fill)+0.05, luminance(letters)+0.05
		if contrast := max(a, b) / min(a, b); contrast < 4.5 {
			t.Errorf("contrast of %.1f at %d %%", contrast, i)
		}
	}
}
