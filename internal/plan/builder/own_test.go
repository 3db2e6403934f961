package builder

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// TestFillOwnTakesTheMostReadOfManyEpochs: memory does not grow with the square of the epochs.
func TestFillOwnTakesTheMostReadOfManyEpochs(t *testing.T) {
	const epochs = 100_000
	stream, err := access.New(access.Spec{
		Samples: 8, Seed: 3, Epochs: epochs, WorldSize: 2, GlobalBatch: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	in := plan.Input{
		Stream: stream, Size: func(int) int64 { return 1 },
		Nodes: []plan.Node{
			{Ranks: []int{0}, Capacity: []int64{3}}, {Ranks: []int{1}, Capacity: []int64{3}},
		},
	}
	b, err := New(&in)
	if err != nil {
		t.Fatal(err)
	}
	b.FillOwn(NewReads(b), 1)
	var reads [2][8]int
	for e := range epochs {
		for rank, k := range stream.Epoch(e).Reads() {
			reads[rank][k]++
		}
	}
	for n := range reads {
		held := b.Held(n)
		if len(held) != 3 {
			t.Errorf("node %d holds %v", n, held)
		}
		for _, k := range held {
			more := 0
			for _, count := range reads[n] {
				if count > reads[n][k] {
					more++
				}
			}
			if more >= 3 {
				t.Errorf("node %d holds sample %d, and reads %d others more often: %v", n, k, more,
					reads[n])
			}
		}
	}
}

// TestLevelsAreSummedFromTheHighest, whether they are dense or sparse.
func TestLevelsAreSummedFromTheHighest(t *testing.T) {
	var s levels
	add := map[int]int64{0: 1, 5: 2, denseLevels - 1: 4, denseLevels: 8, 3 * denseLevels: 16}
	for level, bytes := range add {
		*s.at(level) += bytes
	}
	s.accumulate()
	for level := range add {
		var want int64
		for other, bytes := range add {
			if other > level {
				want += bytes
			}
		}
		if got := *s.at(level); got != want {
			t.Errorf("above level %d are %d bytes; want %d", level, got, want)
		}
	}
}
