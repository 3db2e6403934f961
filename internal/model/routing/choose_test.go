package routing

import "testing"

func TestChoose(t *testing.T) {
	file := 0
	peer := 1
	source := 2
	for _, c := range []struct {
		name                       string
		due                        float64
		file, peer, source, shared float64
		want                       int
	}{
		{"all in time: the cheapest", 1, 0.5, 0.1, 0.01, 0, file},
		{"the file is late", 1, 2, 0.5, 0.01, 0, peer},
		{"only the source is in time", 1, 2, 3, 0.5, 0, source},
		{"all late: the fastest", 0, 2, 1, 3, 0, peer},
		{"all late, the source fastest", 0, 2, 1, 0.1, 0, source},
		{"others would wait for the source longer than is saved", 0, 2, 1, 0.1, 1, peer},
		{"in time, for longer than that", 0.8, 2, 1, 0.1, 0.5, peer},
		{"in time, for less", 0.8, 2, 1.9, 0.1, 0.5, source},
		{"hardly faster", 0, 1, 0.9, 0.85, 0, file},
	} {
		got := Choose(c.due, []Candidate{
			{Arrival: c.file}, {Arrival: c.peer}, {Arrival: c.source, Charge: c.shared},
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
		{0, 0.011, 0.01, false, 0},
	} {
		source := Candidate{Arrival: c.source, Shared: c.shared}
		if got := Choose(c.due, []Candidate{{Arrival: c.file}, source}); got != c.want {
			t.Errorf("%+v: candidate %d", c, got)
		}
	}
}

// TestChooseWhereTiersShareWhatLimitsThem: a tier that does not give several times as much for
// longer is not read besides another one, however soon it would have the sample.
func TestChooseWhereTiersShareWhatLimitsThem(t *testing.T) {
	for _, c := range []struct {
		name         string
		due          float64
		peer, source float64 // rates; 0: not known
		want         int
	}{
		{"nothing known, both late", 0, 0, 0, 1},
		{"nothing known, the source in time", 0.5, 0, 0, 1},
		{"the source gives little more, both late", 0, 100, 399, 0},
		{"the source gives little more, and has it in time", 0.5, 100, 399, 0},
		{"the source gives several times as much", 0, 100, 400, 1},
		{"the source is not known", 0, 100, 0, 1},
		{"the other node is not known", 0, 0, 1, 1},
	} {
		candidates := []Candidate{
			{Arrival: 2, Rate: c.peer, Contended: true}, {Arrival: 0.1, Rate: c.source, Contended: true},
		}
		if got := Choose(c.due, candidates); got != c.want {
			t.Errorf("%s: candidate %d, not %d", c.name, got, c.want)
		}
		candidates[1].Contended = false
		if got := Choose(c.due, candidates); got != 1 {
			t.Errorf("%s, but each has its own: candidate %d", c.name, got)
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
