package analysis

import (
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

func medians(points []Point) (all []float64) {
	for _, p := range points {
		all = append(all, p.Median)
	}
	return all
}

func TestRatesOfPreparationDoNotFall(t *testing.T) {
	for _, c := range []struct{ measured, want []float64 }{
		{nil, nil},
		{[]float64{100}, []float64{100}},
		{[]float64{100, 200, 200}, []float64{100, 200, 200}},
		{[]float64{182, 94}, []float64{138, 138}},
		{[]float64{100, 210, 190, 300}, []float64{100, 200, 200, 300}},
		{[]float64{60, 50, 40, 30}, []float64{45, 45, 45, 45}},
		{[]float64{80, 30, 70, 20, 300}, []float64{50, 50, 50, 50, 300}},
	} {
		var all []Point
		for i, v := range c.measured {
			all = append(all, Point{N: 1 << i, Rate: *rate(v)})
		}
		before := slices.Clone(all)
		if got := medians(isotonic(all)); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.measured, got, c.want)
		}
		if !slices.Equal(all, before) {
			t.Errorf("%v was changed", c.measured)
		}
	}
	pooled := isotonic([]Point{{N: 1, Rate: *rate(182)}, {N: 2, Rate: Rate{94, 50, 99, true}}})
	if p := pooled[0]; p.Low != 50 || p.High != rate(182).High || !p.Few || p.N != 1 {
		t.Errorf("%+v", p)
	}
}

// TestPreparationThatFalls: it is what limits at the rate that was fitted, and what was measured is
// kept.
func TestPreparationThatFalls(t *testing.T) {
	m := job()
	m.Loader.CacheMB = 1000
	m.Preparation = points(map[int]float64{1: 182, 2: 94})
	r := analyze(t, m, Options{})
	if !near(r.Now.Samples, 138, 1e-9) || r.Now.Limit != remedy.Preprocessing ||
		!slices.Equal(medians(r.Preparation), []float64{138, 138}) || r.Switched != nil ||
		!slices.Equal(medians(r.Measured.Preparation), []float64{182, 94}) {
		t.Errorf("%+v, %v of %v", r.Now, r.Preparation, r.Measured.Preparation)
	}
	if r = analyze(t, job(), Options{}); r.Preparation != nil {
		t.Errorf("%v", r.Preparation)
	}
}

// TestWhatTheJobAsItIsRefutes: the source limits to 267 samples/s, or 200 in the first epoch.
func TestWhatTheJobAsItIsRefutes(t *testing.T) {
	for _, c := range []struct {
		asIs          float64
		first, refute bool
	}{
		{0, false, false},
		{267, false, false},
		{270 * 1.15, false, false},
		{280 * 1.25, false, true},
		{267 * 0.75, false, true},
		{200 * 0.85, true, false},
		{230, true, false},
		{190 * 0.75, true, true},
		{280 * 1.25, true, true},
	} {
		m := job()
		if m.First = c.first; c.asIs > 0 {
			m.AsIs = rate(c.asIs)
		}
		r := analyze(t, m, Options{})
		if r.Refuted() != c.refute || (r.Refuted() && r.Now.Certain) {
			t.Errorf("%+v: differs by %v, certain %v", c, r.Differs, r.Now.Certain)
		}
		if got := r.Differs; c.first && c.asIs == 230 && got != 0 {
			t.Errorf("between the first and later epochs: differs by %v", got)
		}
	}
}

// TestPreparationThatTheJobRefutes: measured on a busy machine, it is less than the job as it is
// takes. If the source explains that, the source limits; if nothing does, preparation does.
func TestPreparationThatTheJobRefutes(t *testing.T) {
	for _, c := range []struct {
		name         string
		asIs, source float64
		change       func(m *Measured)
		limit        string
		speed, times float64
	}{
		{"the source explains it", 182, 190, nil, remedy.Source, 190, 190.0 / 94},
		{"the source is a little slower", 182, 170, nil, remedy.Source, 170, 182.0 / 94},
		{"nothing explains it", 182, 400, nil, remedy.Preprocessing, 182, 182.0 / 94},
		{"it may be right", 110, 400, nil, remedy.Preprocessing, 94, 1},
		{"reads take of the processors", 182, 400, func(m *Measured) {
			m.SourceWork = 1e-3
		}, remedy.Preprocessing, 182, 0},
		{"one after the other", 182, 190, func(m *Measured) {
			m.Loader.Workers = 0
		}, remedy.Preprocessing, 0, 1},
		{"the first epoch, with caches", 182, 190, func(m *Measured) {
			m.First, m.Loader.CacheMB = true, 100
		}, remedy.Preprocessing, 94, 1},
		{
			"the first epoch, without", 182, 190, func(m *Measured) { m.First = true },
			remedy.Source, 190, 190.0 / 94,
		},
	} {
		m := job()
		m.Loader = Loader{Name: Torch, Workers: 2, Streams: 2}
		m.Preparation = points(map[int]float64{1: 50, 2: 94})
		m.Source, m.AsIs = points(map[int]float64{2: c.source}), rate(c.asIs)
		if c.change != nil {
			c.change(m)
		}
		r := analyze(t, m, Options{})
		if r.Now.Limit != c.limit || c.speed > 0 && !near(r.Now.Samples, c.speed, 1e-5) ||
			c.times > 0 && !near(r.Refutes, c.times, 1e-5) || r.Refutes != 1 && r.Now.Certain {
			t.Errorf("%s: %+v, %v times", c.name, r.Now, r.Refutes)
		}
		if got := medians(m.Preparation); !slices.Equal(got, []float64{50, 94}) {
			t.Errorf("%s: %v was measured", c.name, got)
		}
	}
}

// TestAdviceThatNeedsMoreCoresComesLast: whether or not it brings the most. With prices, the
// cheapest comes first.
func TestAdviceThatNeedsMoreCoresComesLast(t *testing.T) {
	r := &Report{Measured: job()}
	r.Remedies = []Option{
		{Text: "more", Changes: []remedy.Change{{Key: remedy.Threads, Amount: 3}}, Times: 2},
		{Text: "none", Times: 1},
		{Text: "enough", Changes: []remedy.Change{{Key: remedy.Threads, Amount: 2}}, Times: 1.5},
	}
	r.order(Options{})
	if got := r.First(); got == nil || got.Text != "enough" || r.Remedies[2].Text != "more" {
		t.Errorf("first %+v of %+v", got, r.Remedies)
	}
	for i := range r.Remedies {
		r.Remedies[i].Price = &Price{Hour: float64(3 - i), Known: true}
	}
	r.order(Options{Prices: &Prices{}})
	if got := r.First(); got.Text != "more" {
		t.Errorf("the cheapest is %q", got.Text)
	}
	if r.Remedies = nil; r.First() != nil {
		t.Error("nothing helps")
	}
}
