package routing

import "testing"

func TestChoose(t *testing.T) {
	file := 0
	peer := 1
	source := 2
	for _, c := range []struct {
		name               string
		due                float64
		file, peer, source float64
		want               int
	}{
		{"all in time: the cheapest", 1, 0.5, 0.1, 0.01, file},
		{"the file is late", 1, 2, 0.5, 0.01, peer},
		{"only the source is in time", 1, 2, 3, 0.5, source},
		{"all late: one that is much faster", 0, 2, 0.9, 3, peer},
		{"all late: none is by much", 0, 2, 1, 1.1, file},
		{"all late, the source much faster than the peer", 0, 20, 4, 1.9, source},
		{"all late, not as much", 0, 20, 4, 2, peer},
		{"all late, the source fastest", 0, 2, 1, 0.1, source},
		{"all as fast", 0, 1, 1, 1, file},
	} {
		if got := Choose(c.due, []float64{c.file, c.peer, c.source}); got != c.want {
			t.Errorf("%s: candidate %d, not %d", c.name, got, c.want)
		}
	}
}
