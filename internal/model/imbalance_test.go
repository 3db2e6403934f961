package model

import (
	"math"
	"testing"
)

// TestImbalance compares the closed form with the sum over the distribution, and with figure 6,
// whose medians for local batches of 32, 64 and 128 are 6.9, 4.8 and 3.4 %.
func TestImbalance(t *testing.T) {
	for _, test := range []struct{ samples, nodes, batch int }{
		{1000, 4, 100}, {1000, 2, 1000}, {96, 8, 16}, {4096, 16, 512}, {10, 10, 5}, {7, 2, 3},
	} {
		n, drawn := float64(test.samples), float64(test.batch)
		own := math.Round(n / float64(test.nodes))
		mean, deficit := drawn*own/n, 0.0
		for x := max(0, drawn-(n-own)); x < mean; x++ {
			deficit += (mean - x) * math.Exp(logChoose(own, x)+logChoose(n-own, drawn-x)-
				logChoose(n, drawn))
		}
		got := Imbalance(test.samples, test.nodes, test.batch)
		if want := deficit * float64(test.nodes) / drawn; math.Abs(got-want) > 1e-9 {
			t.Errorf("%+v: %v, want %v", test, got, want)
		}
	}
	for local, want := range map[int]float64{32: 0.069, 64: 0.048, 128: 0.034} {
		for _, nodes := range []int{16, 32, 64, 128} {
			if got := Imbalance(1281167, nodes, nodes*local); math.Abs(got-want) > 0.0025 {
				t.Errorf("%d nodes with %d samples each: %v, figure 6 has %v", nodes, local, got, want)
			}
		}
	}
	if got := Imbalance(1000, 1, 100); got != 0 {
		t.Errorf("one node exchanges %v", got)
	}
}
