package replay

import (
	"math/rand/v2"
	"testing"
)

// TestHeapSorts: whatever is pushed between, the first comes out first.
func TestHeapSorts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h heap[event]
	for seq := range 5000 {
		h.push(event{at: float64(r.IntN(50)), seq: seq})
		if r.IntN(3) > 0 {
			continue
		}
		first := h.pop()
		for _, e := range h {
			if e.before(first) {
				t.Fatalf("%+v came out before %+v", first, e)
			}
		}
	}
	for last := (event{at: -1}); len(h) > 0; {
		first := h.pop()
		if first.before(last) {
			t.Fatalf("%+v came out after %+v", first, last)
		}
		last = first
	}
}
