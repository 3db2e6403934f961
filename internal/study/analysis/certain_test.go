package analysis

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// TestRatesInUseThatWereMeasuredRarely: the limit is not certain if a rate with which the
// loader in use prepares or reads was measured rarely, at either end if it is between two rates;
// and advice that rests on such rates is marked.
func TestRatesInUseThatWereMeasuredRarely(t *testing.T) {
	few := func(points []Point, at ...int) {
		for _, i := range at {
			points[i].Few = true
		}
	}
	for name, c := range map[string]struct {
		change func(m *Measured)
		want   bool
	}{
		"nothing":             {func(*Measured) {}, false},
		"threads in use":      {func(m *Measured) { few(m.Preparation, 1) }, true},
		"fewer threads":       {func(m *Measured) { few(m.Preparation, 0) }, false},
		"the fastest streams": {func(m *Measured) { few(m.Source, 2) }, true},
		"fewer streams":       {func(m *Measured) { few(m.Source, 0, 1) }, false},
		"between 4 and 16 streams": {func(m *Measured) {
			m.Loader.Streams = 8
			few(m.Source, 2)
		}, true},
		"below 4 streams": {func(m *Measured) {
			m.Loader.Streams = 2
			few(m.Source, 2)
		}, false},
		"all nodes":                 {func(m *Measured) { two(m); few(m.Sources, 1) }, true},
		"one of two nodes":          {func(m *Measured) { two(m); few(m.Sources, 0) }, false},
		"what one of two nodes has": {func(m *Measured) { two(m); few(m.Source, 2) }, false},
		"workers that one node lacks": {func(m *Measured) {
			m.Loader.Name = Torch
			m.Loader.Workers = 4
			m.Loader.Streams = 4
		}, true},
	} {
		m := job()
		c.change(m)
		r := analyze(t, m, Options{})
		if m.TooFew() != c.want || r.Now.Certain == c.want {
			t.Errorf("%s: too few is %v, certain %v", name, m.TooFew(), r.Now.Certain)
		}
		if m.Loader.Name == HDMLP && r.Remedies[0].Few != c.want {
			t.Errorf("%s: of the first remedy, too few is %v", name, r.Remedies[0].Few)
		}
	}
}

// two makes it a job of two nodes, whose source gives both what it gives one.
func two(m *Measured) {
	m.Nodes = 2
	m.Ranks = 2
	m.Peers = rate(1000)
	m.Sources = []Point{{N: 1, Streams: 16, Rate: *rate(200)}, {N: 2, Streams: 16, Rate: *rate(201)}}
}

// TestWhatReadsTakeDecidesWhatIsCertain: P is above G by more than the intervals, and with what
// reads take of the processors it is not.
func TestWhatReadsTakeDecidesWhatIsCertain(t *testing.T) {
	m := job()
	m.Training, m.Source = rate(300), points(map[int]float64{16: 2000})
	if r := analyze(t, m, Options{}); r.Now.Limit != remedy.Compute || !r.Now.Certain {
		t.Errorf("%+v", r.Now)
	}
	m.SourceWork = 2.2e-3 // 2/(5 + 0.75*2.2 ms) = 301
	if r := analyze(t, m, Options{}); r.Now.Certain {
		t.Errorf("%+v", r.Now)
	}
}
