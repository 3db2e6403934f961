package distance

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// TestDeliveredOrdersAreMeasured: a full shuffle, one order for all epochs, half of the samples.
func TestDeliveredOrdersAreMeasured(t *testing.T) {
	stream, err := access.New(access.Spec{
		Samples: 4000, Seed: 2, Epochs: 3, WorldSize: 2, GlobalBatch: 40, Tail: access.Keep,
	})
	if err != nil {
		t.Fatal(err)
	}
	batch := func(e, s, n int) []int32 { return stream.Epoch(e).Batch(nil, n, s) }
	for name, c := range map[string]struct {
		of             func(epoch, step, node int) []int32
		seen           float64
		nearest, wider float64
	}{
		"full shuffle": {batch, 1, 0, 0.03},
		"one order":    {func(_, s, n int) []int32 { return batch(0, s, n) }, 1, 0.99, 1},
		"half":         {func(e, s, n int) []int32 { return batch(e, s, n)[:10] }, 0.5, 0.2, 0.9},
	} {
		o := Others(stream, []int{20, 20}, []int{20, 20}, 3)
		for e := range o.Epochs() {
			for step := range stream.Steps() {
				for node := range 2 {
					o.Add(e, step, node, c.of(e, step, node))
				}
			}
		}
		if seen, distance := o.Result(); seen != c.seen || distance < c.nearest || distance > c.wider {
			t.Errorf("%s: it shows %v, at a distance of %v", name, seen, distance)
		}
	}
}
