package arena

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestOrderMatchesAList compares an Order with a list from which samples are deleted.
func TestOrderMatchesAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Order
		var want []int32
		held := func(id int32) bool { return slices.Contains(want, id) }
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			id := rapid.Int32Range(0, 9).Draw(t, "id")
			if i := slices.Index(want, id); i >= 0 {
				want = slices.Delete(want, i, i+1)
				o.Gone(held)
			} else {
				want = append(want, id)
				o.Came(id)
			}
			if got := o.Held(held); !slices.Equal(got, want) {
				t.Fatalf("held %v, want %v", got, want)
			}
			if len(o.added) > 2*len(want)+1 {
				t.Fatalf("%d entries for %d samples", len(o.added), len(want))
			}
		}
	})
}

// TestSamplesMayGoTogether checks that samples which no longer count as held before they are
// removed, as when several readers find copies corrupt at the same time, are removed once.
func TestSamplesMayGoTogether(t *testing.T) {
	o := NewOrder([]int32{1, 2, 3, 4})
	none := func(int32) bool { return false }
	for range 4 {
		o.Gone(none)
	}
	if held := o.Held(none); len(held) > 0 {
		t.Errorf("%v are held", held)
	}
	o.Came(7)
	if held := o.Held(func(id int32) bool { return id == 7 }); len(held) != 1 || held[0] != 7 {
		t.Errorf("%v are held, want 7", held)
	}
}
