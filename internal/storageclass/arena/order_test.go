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
