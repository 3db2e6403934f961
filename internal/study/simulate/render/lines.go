package render

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// look is the style of a policy's line.
type look struct {
	colour color.RGBA
	dashes []vg.Length
	width  vg.Length
}

// boundColour is the colour of the lower bound of the runtimes.
var boundColour = drawing.RGB(0x7c3aed)

// modelLooks are the styles of the methods of the analytical model: grey, because they are no
// policies.
var modelLooks = map[string]look{
	"regular (model)":           {drawing.RGB(0x6d7681), nil, 1},
	"distributed cache (model)": {drawing.RGB(0x6d7681), []vg.Length{6, 3}, 1},
	"locality-aware (model)":    {drawing.RGB(0x6d7681), []vg.Length{2, 2}, 1},
}

// lookOf returns the style that the policy declares. The lower bound is dotted, and the default
// policy's line is wider.
func lookOf(name string) look {
	if bound := policies.Bound(); name == bound.Name() {
		return look{drawing.RGB(bound.About().Line.Colour), []vg.Length{1.5, 2}, 1.5}
	}
	if name == TimeBoundName {
		return look{boundColour, []vg.Length{1.5, 2}, 1.5}
	}
	if l, ok := modelLooks[name]; ok {
		return l
	}
	p, err := policies.ForSimulator(name)
	if err != nil { // a policy that this version does not know
		return look{drawing.Ink, nil, 1.75}
	}
	return lookAs(name, p.About().Line)
}

// look returns the style of a policy of the report.
func (r *plotted) look(name string) look {
	if line, ok := r.Lines[name]; ok && name != policies.Bound().Name() {
		return lookAs(name, line)
	}
	return lookOf(name)
}

// lookAs returns the style of a policy with that line.
func lookAs(name string, line plan.Line) look {
	l := look{colour: drawing.RGB(line.Colour), width: 1.75}
	if line.Dashed {
		l.dashes = []vg.Length{4, 2.5}
	}
	if isDefault(name) {
		l.width = 2.75
	}
	return l
}

func isDefault(name string) bool { return name == policies.Default().Name() }

// series is one line of a chart. NaN in y is a gap.
type series struct {
	name string
	y    []float64
	look look
}

// series returns the runtimes of the policies over the points, and their lower bounds.
func (r *plotted) series() []series {
	var all []series
	for _, name := range r.Names() {
		s := series{name: name}
		some := false
		for i := range r.Points {
			y := math.NaN()
			if p := r.Points[i].Find(name); p != nil && p.Supported && p.Runtime > 0 {
				y, some = p.Runtime, true
			}
			s.y = append(s.y, y)
		}
		if some {
			all = append(all, s)
		}
	}
	if r.TimeBounds() != nil {
		s := series{name: TimeBoundName}
		for i := range r.Points {
			y := math.NaN()
			if bound := r.Points[i].TimeBound; bound > 0 {
				y = bound
			}
			s.y = append(s.y, y)
		}
		all = append(all, s)
	}
	if r.modelled() {
		for k, m := range r.Points[0].Model.Methods {
			s := series{name: modelName(m)}
			for i := range r.Points {
				s.y = append(s.y, r.Points[i].Model.Methods[k].Runtime)
			}
			all = append(all, s)
		}
	}
	for i := range all {
		all[i].look = r.look(all[i].name)
	}
	return all
}

// lines returns a line chart of the runtimes over the values of one key. Over the number of nodes,
// both axes are logarithmic.
func (r *plotted) lines() *drawing.Figure {
	key := r.Sweep[0]
	bound := ""
	if r.TimeBounds() != nil {
		bound = " The time bound is the least runtime of any policy that keeps the order."
	}
	f := &drawing.Figure{
		Name: "sweep", Title: "Runtime by " + ShortKey(key),
		Caption: "The runtime of each policy for every value of " + key +
			", all else as in the scenario. Where a line is missing, the policy cannot run." + bound,
		Height: func(w vg.Length) vg.Length {
			if w < 500 {
				return 300 + 14*vg.Length((len(r.series())+1)/2)
			}
			return 400
		},
	}
	if r.Scaling {
		f.Name, f.Title = "scaling", "Strong scaling: runtime by number of nodes"
		f.Caption = "The same job on more and more nodes, as thesis 4.1. Both axes are " +
			"logarithmic: a line that falls as steeply as the thin straight one halves its " +
			"runtime with twice the nodes." + bound
		if r.modelled() {
			f.Caption += " Grey: the analytical model of Yang and Cong. " + r.limitText()
		}
	}
	chart := r.chart(r.series())
	f.Draw = func(c *drawing.Canvas) {
		l := chart
		l.c = c
		l.draw()
	}
	return f
}

// chart returns a chart of runtimes over the values of the key.
func (r *plotted) chart(of []series) lineChart {
	values := r.Axis(0)
	x, unit, numeric := numbers(r.Sweep[0], values)
	if !numeric {
		x = nil
		for i := range values {
			x = append(x, float64(i))
		}
	}
	axis := ShortKey(r.Sweep[0])
	if unit != "" {
		axis += ", " + unit
	}
	if r.Scaling {
		axis = "nodes"
	}
	return lineChart{
		x: x, labels: values, series: of, axis: axis, quantity: "runtime", unit: timeUnit,
		logX: r.Scaling, logY: r.Scaling, ideal: r.Scaling,
	}
}

// lineChart draws lines over a numeric axis, with their names at their ends.
type lineChart struct {
	c      *drawing.Canvas
	x      []float64
	labels []string // of x
	series []series
	axis   string
	ideal  bool // draw a thin line of ideal scaling from the first point of the fastest policy

	quantity   string // of y
	unit       func(longest float64) (name string, length float64)
	logX, logY bool

	left, right, top, bottom vg.Length
	xlo, xhi, ylo, yhi       float64
	one                      float64 // of the unit, in y
}

func (l *lineChart) draw() {
	if len(l.series) == 0 {
		l.c.Text(0, drawing.TitleRoom+20, "No policy can run here.",
			drawing.Style(11, drawing.SoftInk, false), drawing.Left)
		return
	}
	l.ylo, l.yhi = math.Inf(1), 0
	for _, s := range l.series {
		for _, y := range s.y {
			if !math.IsNaN(y) {
				l.ylo, l.yhi = min(l.ylo, y), max(l.yhi, y)
			}
		}
	}
	var unit string
	unit, l.one = l.unit(l.yhi)
	l.xlo, l.xhi = slices.Min(l.x), slices.Max(l.x)
	if l.logY {
		l.ylo, l.yhi = l.ylo/1.15, l.yhi*1.15
	} else {
		l.ylo, l.yhi = 0, l.yhi*1.04
	}
	l.layout()
	c, soft := l.c, drawing.Style(10, drawing.SoftInk, false)
	marks := drawing.Ticks(l.ylo/l.one, l.yhi/l.one, 8)
	if l.logY {
		marks = drawing.LogTicks(l.ylo/l.one, l.yhi/l.one)
	}
	for _, v := range marks {
		y := l.py(v * l.one)
		c.Line(drawing.Rule, 0.75, nil, vg.Point{X: l.left, Y: y}, vg.Point{X: l.right, Y: y})
		c.Text(l.left-6, y, drawing.TickText(v), soft, drawing.Right)
	}
	c.Text(0, l.top-12, l.quantity+", "+unit, soft, drawing.Left)
	last := vg.Length(-1000)
	for i, v := range l.x {
		x := l.px(v)
		c.Line(drawing.SoftInk, 0.75, nil, vg.Point{X: x, Y: l.bottom}, vg.Point{X: x, Y: l.bottom + 3})
		w := soft.Width(l.label(i))
		if x-w/2 < last+4 {
			continue // would overlap the label before it
		}
		c.Within(x, l.bottom+11, l.label(i), soft)
		last = x + w/2
	}
	c.Line(drawing.SoftInk, 0.75, nil, vg.Point{X: l.left, Y: l.bottom},
		vg.Point{X: l.right, Y: l.bottom})
	c.Text((l.left+l.right)/2, l.bottom+26, l.axis, soft, drawing.Centre)
	if l.ideal {
		l.drawIdeal()
	}
	for i, s := range l.series {
		if !isDefault(s.name) {
			l.drawSeries(i)
		}
	}
	for i, s := range l.series {
		if isDefault(s.name) {
			l.drawSeries(i)
		}
	}
	if c.Narrow {
		l.legend()
	} else {
		l.names()
	}
}

func (l *lineChart) label(i int) string {
	if v, err := strconv.ParseFloat(l.labels[i], 64); err == nil {
		return drawing.TickText(v)
	}
	return strings.Trim(l.labels[i], `"'`)
}

func (l *lineChart) layout() {
	soft := drawing.Style(10, drawing.SoftInk, false)
	l.left = max(soft.Width(drawing.TickText(l.yhi/l.one)), soft.Width("0.01")) + 10
	l.top, l.bottom = drawing.TitleRoom+24, l.c.H-38
	l.right = l.c.W - 14
	if l.c.Narrow {
		l.bottom -= 14*vg.Length((len(l.series)+1)/2) + 8
		return
	}
	for _, s := range l.series {
		l.right = min(l.right, l.c.W-drawing.Style(10.5, drawing.Ink, false).Width(s.name)-40)
	}
}

func (l *lineChart) px(v float64) vg.Length {
	room := l.right - l.left - 16
	if l.xhi == l.xlo {
		return l.left + 8 + room/2
	}
	share := (v - l.xlo) / (l.xhi - l.xlo)
	if l.logX {
		share = math.Log(v/l.xlo) / math.Log(l.xhi/l.xlo)
	}
	return l.left + 8 + vg.Length(share)*room
}

func (l *lineChart) py(v float64) vg.Length {
	share := (v - l.ylo) / (l.yhi - l.ylo)
	if l.logY {
		share = math.Log(v/l.ylo) / math.Log(l.yhi/l.ylo)
	}
	return l.bottom - vg.Length(share)*(l.bottom-l.top)
}

// drawIdeal draws the ideal scaling of the fastest policy.
func (l *lineChart) drawIdeal() {
	start := math.Inf(1)
	for _, s := range l.series {
		_, model := modelLooks[s.name]
		if y := s.y[0]; y < start && s.name != TimeBoundName && !model {
			start = y
		}
	}
	if math.IsInf(start, 1) || l.xhi == l.xlo {
		return
	}
	end := l.xhi
	if y := start * l.xlo / end; y < l.ylo { // would leave the frame at the bottom
		end = start * l.xlo / l.ylo
	}
	l.c.Line(drawing.RGB(0xaab1ba), 0.75, nil, vg.Point{X: l.px(l.xlo), Y: l.py(start)},
		vg.Point{X: l.px(end), Y: l.py(start * l.xlo / end)})
}

func (l *lineChart) drawSeries(i int) {
	s, how := l.series[i], l.series[i].look
	order := make([]int, len(l.x))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case l.x[a] < l.x[b]:
			return -1
		case l.x[a] > l.x[b]:
			return 1
		}
		return 0
	})
	var run []vg.Point
	flush := func() {
		if len(run) > 1 {
			l.c.Line(how.colour, how.width, how.dashes, run...)
		}
		run = nil
	}
	for _, k := range order {
		if math.IsNaN(s.y[k]) {
			flush()
			continue
		}
		at := vg.Point{X: l.px(l.x[k]), Y: l.py(s.y[k])}
		l.c.Dot(at.X, at.Y, how.width+0.6, how.colour)
		run = append(run, at)
	}
	flush()
}

// names writes the name of each line beside its end, and moves names apart that would overlap.
func (l *lineChart) names() {
	type end struct {
		name  string
		at, y vg.Length // where the line ends, and where the name stands
		x     vg.Length
		look  look
	}
	var ends []end
	for _, s := range l.series {
		best := -1
		for k, y := range s.y {
			if !math.IsNaN(y) && (best < 0 || l.x[k] > l.x[best]) {
				best = k
			}
		}
		y := l.py(s.y[best])
		ends = append(ends, end{s.name, y, y, l.px(l.x[best]), s.look})
	}
	slices.SortStableFunc(ends, func(a, b end) int {
		return int(math.Copysign(1, float64(a.at-b.at)))
	})
	places := make([]float64, len(ends))
	for i, e := range ends {
		places[i] = float64(e.at)
	}
	for i, y := range spread(places, 14, float64(l.top)-10, float64(l.bottom)+4) {
		ends[i].y = vg.Length(y)
	}
	sty := drawing.Style(10.5, drawing.Ink, false)
	for _, e := range ends {
		how := e.look
		l.c.Line(how.colour, 0.75, nil, vg.Point{X: e.x + 4, Y: e.at},
			vg.Point{X: max(l.right, e.x) + 2, Y: e.at}, vg.Point{X: l.right + 12, Y: e.y},
			vg.Point{X: l.right + 16, Y: e.y})
		l.c.Line(how.colour, how.width+0.5, how.dashes, vg.Point{X: l.right + 16, Y: e.y},
			vg.Point{X: l.right + 30, Y: e.y})
		l.c.Text(l.right+34, e.y, e.name, sty, drawing.Left)
	}
}

// spread moves ascending places so that neighbours differ by at least apart, each place as little
// as possible (pool adjacent violators), and keeps them within low and high if they fit.
func spread(places []float64, apart, low, high float64) []float64 {
	type pool struct {
		sum float64
		n   int
	}
	var pools []pool
	for i, p := range places {
		pools = append(pools, pool{p - float64(i)*apart, 1})
		for k := len(pools) - 1; k > 0 &&
			pools[k-1].sum/float64(pools[k-1].n) > pools[k].sum/float64(pools[k].n); k-- {
			pools[k-1] = pool{pools[k-1].sum + pools[k].sum, pools[k-1].n + pools[k].n}
			pools = pools[:k]
		}
	}
	// Clamp the places to the limits, keeping their order.
	least, most := low, high-float64(len(places)-1)*apart
	var moved []float64
	for _, p := range pools {
		for range p.n {
			at := max(least, min(most, p.sum/float64(p.n)))
			moved = append(moved, at+float64(len(moved))*apart)
		}
	}
	return moved
}

// legend writes the names of the lines below the chart, in two columns.
func (l *lineChart) legend() {
	sty := drawing.Style(10, drawing.Ink, false)
	rows := (len(l.series) + 1) / 2
	for i, s := range l.series {
		x, y := l.c.W/2*vg.Length(i/rows), l.bottom+44+14*vg.Length(i%rows)
		how := s.look
		l.c.Line(how.colour, how.width+0.5, how.dashes, vg.Point{X: x, Y: y},
			vg.Point{X: x + 18, Y: y})
		l.c.Text(x+24, y, s.name, sty, drawing.Left)
	}
}
