package simulate

import "testing"

// TestProcessor: samples that are fetched sooner are preprocessed in the gaps before those that are
// fetched later, and the threads together are never faster than they are.
func TestProcessor(t *testing.T) {
	var p processor
	for _, c := range []struct {
		what            string
		now, at, shared float64
		want            float64
	}{
		{"the threads wait until 10 for the first", 0, 10, 1, 12},
		{"one that is there at 2 is done in that time", 0, 2, 1, 4},
		{"the rest of the gap, from 3 on, is free", 0, 2, 6, 14},
		{"1 s of it is left, and 1 s is added after the first", 0, 2, 2, 12},
		{"all are busy until 12", 0, 11, 3, 17},
	} {
		if got := p.run(c.now, c.at, 2*c.shared, c.shared); got != c.want {
			t.Errorf("%s: finished at %v, want %v", c.what, got, c.want)
		}
	}
}
