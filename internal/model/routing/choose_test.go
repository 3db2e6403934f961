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
		{"all late: the fastest", 0, 2, 1, 3, peer},
		{"all late, the source fastest", 0, 2, 1, 0.1, source},
		{"all late, hardly faster", 0, 1, 0.9, 0.85, source},
		{"all as fast", 0, 1, 1, 1, file},
	} {
		if got := Choose(c.due, []float64{c.file, c.peer, c.source}); got != c.want {
			t.Errorf("%s: candidate %d, not %d", c.name, got, c.want)
		}
	}
}
