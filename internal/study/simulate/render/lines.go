package render

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"

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

// lookOf returns the style that the policy declares. The lower bound is dotted, and the default
// policy's line is wider.
func lookOf(name string) look {
	if bound := policies.Bound(); name == bound.Name() {
		return look{drawing.RGB(bound.About().Line.Colour), []vg.Length{1.5, 2}, 1.5}
	}
	if name == TimeBoundName {
		return look{boundColour, []vg.Length{1.5, 2}, 1.5}
	}
	p, err := policies.ForSimulator(name)
	if err != nil { // a policy that this version does not know
		return look{drawing.Ink, nil, 1.75}
	}
	line := p.About().Line
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
	return all
}

// lines returns a line chart of the runtimes over the values of one key. Over the number of nodes,
// both axes are logarithmic.
func (r *plotted) lines() *drawing.Figure {
	key := r.Sweep[0]
	values := r.Axis(0)
	x, unit, numeric := numbers(key, values)
	if !numeric {
		x = nil
		for i := range values {
			x = append(x, float64(i))
		}
	}
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
				return 300 + 14*vg.Length((len(r.Names())+1)/2)
			}
			return 400
		},
	}
	axis := ShortKey(key)
	if unit != "" {
		axis += ", " + unit
	}
	if r.Scaling {
		f.Name, f.Title = "scaling", "Strong scaling: runtime by number of nodes"
		f.Caption = "The same job on more and more nodes, as thesis 4.1. Both axes are " +
			"logarithmic: a line that falls as steeply as the thin straight one halves its " +
			"runtime with twice the nodes." + bound
		axis = "nodes"
	}
	f.Draw = func(c *drawing.Canvas) {
		(&lineChart{
			c:       c,
			x:       x,
			labels:  values,
			series:  r.series(),
			axis:    axis,
			log:     r.Scaling,
			ideal:   r.Scaling,
			numeric: numeric,
		}).draw()
	}
	return f
}

// lineChart draws lines over a numeric axis, with their names at their ends.
type lineChart struct {
	c       *drawing.Canvas
	x       []float64
	labels  []string // of x
	series  []series
	axis    string
	log     bool
	ideal   bool // draw a thin line of ideal scaling from the first point of the fastest policy
	numeric bool

	left, right, top, bottom vg.Length
	xlo, xhi, ylo, yhi       float64
	seconds                  float64
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
	unit, l.seconds = timeUnit(l.yhi)
	l.xlo, l.xhi = slices.Min(l.x), slices.Max(l.x)
	if l.log {
		l.ylo, l.yhi = l.ylo/1.15, l.yhi*1.15
	} else {
		l.ylo, l.yhi = 0, l.yhi*1.04
	}
	l.layout()
	c, soft := l.c, drawing.Style(10, drawing.SoftInk, false)
	marks := drawing.Ticks(l.ylo/l.seconds, l.yhi/l.seconds, 8)
	if l.log {
		marks = drawing.LogTicks(l.ylo/l.seconds, l.yhi/l.seconds)
	}
	for _, v := range marks {
		y := l.py(v * l.seconds)
		c.Line(drawing.Rule, 0.75, nil, vg.Point{X: l.left, Y: y}, vg.Point{X: l.right, Y: y})
		c.Text(l.left-6, y, drawing.TickText(v), soft, drawing.Right)
	}
	c.Text(0, l.top-12, "runtime, "+unit, soft, drawing.Left)
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
	l.left = max(soft.Width(drawing.TickText(l.yhi/l.seconds)), soft.Width("0.01")) + 10
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
	if l.log {
		share = math.Log(v/l.xlo) / math.Log(l.xhi/l.xlo)
	}
	return l.left + 8 + vg.Length(share)*room
}

func (l *lineChart) py(v float64) vg.Length {
	share := (v - l.ylo) / (l.yhi - l.ylo)
	if l.log {
		share = math.Log(v/l.ylo) / math.Log(l.yhi/l.ylo)
	}
	return l.bottom - vg.Length(share)*(l.bottom-l.top)
}

// drawIdeal draws the ideal scaling of the fastest policy.
func (l *lineChart) drawIdeal() {
	start := math.Inf(1)
	for _, s := range l.series {
		if y := s.y[0]; y < start && s.name != TimeBoundName {
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
	s, how := l.series[i], lookOf(l.series[i].name)
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
		ends = append(ends, end{s.name, y, y, l.px(l.x[best])})
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
		how := lookOf(e.name)
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
		how := lookOf(s.name)
		l.c.Line(how.colour, how.width+0.5, how.dashes, vg.Point{X: x, Y: y},
			vg.Point{X: x + 18, Y: y})
		l.c.Text(x+24, y, s.name, sty, drawing.Left)
	}
}
