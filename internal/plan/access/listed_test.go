package access

import (
	"slices"
	"strings"
	"testing"
)

func TestListed(t *testing.T) {
	spec := Spec{Samples: 5, WorldSize: 2, GlobalBatch: 2, Epochs: 3, Tail: Keep, Scheme: Uniform}
	orders := [][]int32{{4, 3, 2, 1, 0}, {0, 2, 4, 1, 3}}
	s, err := NewListed(spec, orders)
	if err != nil {
		t.Fatal(err)
	}
	for e := range 4 { // the third starts again
		var got []int32
		for step := range s.Steps() {
			got = s.Epoch(e).Global(got, step)
		}
		if want := orders[e%2]; !slices.Equal(got, want) {
			t.Errorf("epoch %d is %v, want %v", e, got, want)
		}
	}
	s.Frequencies([]int{0, 1}, 0, 3)
	if !slices.Equal(orders[0], []int32{4, 3, 2, 1, 0}) {
		t.Errorf("the given order was overwritten: %v", orders[0])
	}
	if p := s.Epoch(1).Find(1); len(p) != 1 || p[0].Step != 1 || p[0].Rank != 1 {
		t.Errorf("sample 1 is read at %+v in epoch 1, want step 1, rank 1", p)
	}

	for _, c := range []struct {
		orders [][]int32
		want   string
	}{
		{nil, "no orders"},
		{[][]int32{{0, 1}}, "has 2 entries"},
		{[][]int32{{0, 1, 2, 3, 3}}, "has sample 3 at position 4"},
		{[][]int32{{0, 1, 2, 3, 5}}, "has sample 5 at position 4"},
	} {
		if _, err := NewListed(spec, c.orders); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("orders %v: error %v, want one with %q", c.orders, err, c.want)
		}
	}
}

func TestOrders(t *testing.T) {
	for _, shuffle := range []Shuffle{Torch, Feistel, Sequential} {
		spec := Spec{Samples: 50, Seed: 3, WorldSize: 2, GlobalBatch: 7, Shuffle: shuffle}
		s, err := New(spec)
		if err != nil {
			t.Fatal(err)
		}
		listed, err := NewListed(spec, s.Orders(3))
		if err != nil {
			t.Fatal(err)
		}
		var reused *Epoch
		for e := range 3 {
			reused = listed.EpochInto(reused, e) // must not draw into what is kept
			for step := range s.Steps() {
				if got, want := reused.Global(nil, step),
					s.Epoch(e).Global(nil, step); !slices.Equal(got, want) {
					t.Errorf("%s: step %d of epoch %d is %v, want %v", shuffle, step, e, got, want)
				}
			}
		}
	}
}

// TestOrdersOfAListAreNotDrawnInto: the memory of an epoch of given orders is theirs, and another
// stream that is given the epoch draws elsewhere.
func TestOrdersOfAListAreNotDrawnInto(t *testing.T) {
	spec := Spec{Samples: 20, Seed: 3, WorldSize: 1, GlobalBatch: 5}
	drawn := mustNew(t, spec)
	orders := drawn.Orders(2)
	want := slices.Clone(orders[0])
	listed, err := NewListed(spec, orders)
	if err != nil {
		t.Fatal(err)
	}
	other := drawn.EpochInto(listed.Epoch(0), 1)
	if got := other.Global(nil, 0); !slices.Equal(got, orders[1][:5]) {
		t.Errorf("the other stream's first batch is %v, want %v", got, orders[1][:5])
	}
	if !slices.Equal(orders[0], want) {
		t.Errorf("the given order is now %v, was %v", orders[0], want)
	}
}
