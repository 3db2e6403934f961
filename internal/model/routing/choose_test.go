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
		got := Choose(c.due, []Candidate{
			{Arrival: c.file}, {Arrival: c.peer}, {Arrival: c.source},
		})
		if got != c.want {
			t.Errorf("%s: candidate %d, not %d", c.name, got, c.want)
		}
	}
}

// TestChooseWhatOtherNodesReadToo: a shared tier must save at least 20 ms, one of a node alone must
// only be sooner, or in time.
func TestChooseWhatOtherNodesReadToo(t *testing.T) {
	for _, c := range []struct {
		due, file, source float64
		shared            bool
		want              int
	}{
		{0.1, 0.11, 0.05, false, 1},
		{0.1, 0.11, 0.05, true, 0},
		{0.1, 0.13, 0.05, true, 1},
		{0, 0.011, 0.001, false, 1},
		{0, 0.011, 0.001, true, 0},
		{0, 0.022, 0.001, true, 1},
		{0, 0.011, 0.01, false, 1},
		{0, 0.01, 0.01, false, 0},
	} {
		source := Candidate{Arrival: c.source, Shared: c.shared}
		if got := Choose(c.due, []Candidate{{Arrival: c.file}, source}); got != c.want {
			t.Errorf("%+v: candidate %d", c, got)
		}
	}
}

// TestChooseBesideATierThatAddsLittle: what a slow shared tier brings may be late by as much less
// as it gives less.
func TestChooseBesideATierThatAddsLittle(t *testing.T) {
	for _, c := range []struct {
		peer, source float64 // rates
		late         float64 // of the other node's sample
		want         int
	}{
		{100, 100, 0.019, 0},
		{100, 100, 0.022, 1},
		{100, 399, 0.019, 0},
		{12, 2400, 0.0003, 0},
		{12, 2400, 0.0005, 1}, // 20 ms * 4 * 12/2400 = 0.4 ms
		{0, 2400, 0.019, 0},
		{12, 0, 0.019, 0},
	} {
		got := Choose(0.1, []Candidate{
			{Arrival: 0.1 + c.late, Shared: true, Rate: c.peer},
			{Arrival: 1e-4, Shared: true, Rate: c.source},
		})
		if got != c.want {
			t.Errorf("%+v: candidate %d", c, got)
		}
	}
}

func TestKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		due, supply, arrival, read, spares float64
		want                               bool
	}{
		"in time":              {10, 8, 2, 0, 0, true},
		"late by the supply":   {9.9, 8, 2, 1, 1, false},
		"late, but it repays":  {0, 8, 2, 1, 8, true},
		"it nearly repays":     {0, 8.1, 2, 1, 8, false},
		"nothing reads again":  {0, 8, 2, 1, 0, false},
		"supply takes no time": {0, 0, 2, 1, 0, true},
	} {
		if got := Keeps(c.due, c.supply, c.arrival, c.read, c.spares); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
