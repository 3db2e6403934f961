package render

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
)

// look is how a policy's line is told from the others'.
type look struct {
	colour color.RGBA
	dashes []vg.Length
	width  vg.Length
}

func lookOf(policy string) look {
	dashed := []vg.Length{4, 2.5}
	switch policy {
	case "perfect":
		return look{softInk, []vg.Length{1.5, 2}, 1.5}
	case "naive":
		return look{ofSource, nil, 1.75}
	case "staging":
		return look{rgb(0xe69f00), nil, 1.75}
	case "frequency":
		return look{rgb(0x3f8fd0), nil, 1.75}
	case "cooperative":
		return look{rgb(0x0b3c6f), nil, 2.75}
	case "deepio_ordered":
		return look{rgb(0xc2699e), nil, 1.75}
	case "deepio_opportunistic":
		return look{rgb(0xc2699e), dashed, 1.75}
	case "lbann_dynamic":
		return look{rgb(0x11806a), nil, 1.75}
	case "lbann_preloading":
		return look{rgb(0x11806a), dashed, 1.75}
	case "sharded":
		return look{rgb(0x7a4a21), nil, 1.75}
	case "locality":
		return look{rgb(0x7db8de), dashed, 1.75}
	case "minio":
		return look{rgb(0x8a8a00), nil, 1.75}
	case "partitioned":
		return look{rgb(0x8a8a00), dashed, 1.75}
	}
	return look{ink, nil, 1.75}
}

// units are what the plain numbers of a key stand for, by its last name.
func unitOf(key string) string {
	parts := strings.Split(key, ".")
	for _, part := range slices.Backward(parts) {
		switch part {
		case "capacity", "mu", "sigma", "min":
			return "MB"
		case "compute", "preprocess", "network", "source_network", "source", "read", "write":
			return "MB/s"
		case "source_latency":
			return "s"
		}
	}
	return ""
}

// numbers reads the values of a key as numbers of one unit; ok is false if they are not all such.
func numbers(key string, values []string) (parsed []float64, unit string, ok bool) {
	for i, value := range values {
		value = strings.Trim(value, `"' `)
		end := strings.LastIndexAny(value, "0123456789.") + 1
		v, err := strconv.ParseFloat(strings.ReplaceAll(value[:end], "_", ""), 64)
		if err != nil {
			return nil, "", false
		}
		u := strings.TrimSpace(value[end:])
		if v == 0 && u == "" && i > 0 {
			u = unit // nothing is nothing in any unit
		}
		if i > 0 && unit == "" && parsed[0] == 0 {
			unit = u
		}
		if i > 0 && u != unit {
			return nil, "", false
		}
		parsed, unit = append(parsed, v), u
	}
	if unit == "" {
		unit = unitOf(key)
	}
	return parsed, unit, true
}

// series is one line: where y is NaN, there is nothing.
type series struct {
	name string
	y    []float64
}

// series returns the runtimes of the policies over the points.
func (r *Report) series() []series {
	var all []series
	for _, name := range r.names() {
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
	return all
}

// lines shows runtimes over the values of one key; over the number of nodes, both axes are logarithmic.
func (r *Report) lines() *figure {
	key := r.Sweep[0]
	values := r.axis(0)
	x, unit, numeric := numbers(key, values)
	if !numeric {
		x = nil
		for i := range values {
			x = append(x, float64(i))
		}
	}
	f := &figure{
		name: "sweep", title: "Runtime by " + shortKey(key),
		caption: "The runtime of each policy for every value of " + key + ", all else as in the scenario. Where a line is missing, the policy can not run.",
		height: func(w vg.Length) vg.Length {
			if w < 500 {
				return 300 + 14*vg.Length((len(r.names())+1)/2)
			}
			return 400
		},
	}
	axis := shortKey(key)
	if unit != "" {
		axis += ", " + unit
	}
	if r.Scaling {
		f.name, f.title = "scaling", "Strong scaling: runtime by number of nodes"
		f.caption = "The same job on more and more nodes, as thesis 4.1. Both axes are logarithmic: a line that falls as steeply as the thin straight one halves its runtime with twice the nodes."
		axis = "nodes"
	}
	f.draw = func(c *canvas) {
		(&lineChart{c: c, x: x, labels: values, series: r.series(), axis: axis, log: r.Scaling, ideal: r.Scaling, numeric: numeric}).draw()
	}
	return f
}

// shortKey leaves out what a reader need not be told.
func shortKey(key string) string {
	key = strings.TrimPrefix(key, "environment.")
	key = strings.TrimPrefix(key, "storage_class.")
	return strings.NewReplacer("_", " ", ".", " ").Replace(strings.TrimPrefix(strings.TrimPrefix(key, "job."), "dataset."))
}

// lineChart draws lines over numbers, with their names at their ends.
type lineChart struct {
	c       *canvas
	x       []float64
	labels  []string // of x
	series  []series
	axis    string
	log     bool
	ideal   bool // a thin line of ideal scaling from the first point of the fastest
	numeric bool

	left, right, top, bottom vg.Length
	xlo, xhi, ylo, yhi       float64
	seconds                  float64
}

func (l *lineChart) draw() {
	if len(l.series) == 0 {
		l.c.text(0, titleRoom+20, "No policy can run here.", style(11, softInk, false), left)
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
	c, soft := l.c, style(10, softInk, false)
	marks := ticks(l.ylo/l.seconds, l.yhi/l.seconds, 8)
	if l.log {
		marks = logTicks(l.ylo/l.seconds, l.yhi/l.seconds)
	}
	for _, v := range marks {
		y := l.py(v * l.seconds)
		c.line(rule, 0.75, nil, vg.Point{X: l.left, Y: y}, vg.Point{X: l.right, Y: y})
		c.text(l.left-6, y, tickText(v), soft, right)
	}
	c.text(0, l.top-12, "runtime, "+unit, soft, left)
	last := vg.Length(-1000)
	for i, v := range l.x {
		x := l.px(v)
		c.line(softInk, 0.75, nil, vg.Point{X: x, Y: l.bottom}, vg.Point{X: x, Y: l.bottom + 3})
		w := soft.Width(l.label(i))
		if x-w/2 < last+4 {
			continue // its neighbour's number is in the way
		}
		c.text(x, l.bottom+11, l.label(i), soft, centre)
		last = x + w/2
	}
	c.line(softInk, 0.75, nil, vg.Point{X: l.left, Y: l.bottom}, vg.Point{X: l.right, Y: l.bottom})
	c.text((l.left+l.right)/2, l.bottom+26, l.axis, soft, centre)
	if l.ideal {
		l.drawIdeal()
	}
	for i, s := range l.series {
		if s.name != "cooperative" {
			l.drawSeries(i)
		}
	}
	for i, s := range l.series {
		if s.name == "cooperative" {
			l.drawSeries(i)
		}
	}
	if c.narrow {
		l.legend()
	} else {
		l.names()
	}
}

func (l *lineChart) label(i int) string {
	if v, err := strconv.ParseFloat(l.labels[i], 64); err == nil {
		return tickText(v)
	}
	return strings.Trim(l.labels[i], `"'`)
}

func (l *lineChart) layout() {
	soft := style(10, softInk, false)
	l.left = max(soft.Width(tickText(l.yhi/l.seconds)), soft.Width("0.01")) + 10
	l.top, l.bottom = titleRoom+24, l.c.h-38
	l.right = l.c.w - 14
	if l.c.narrow {
		l.bottom -= 14*vg.Length((len(l.series)+1)/2) + 8
		return
	}
	for _, s := range l.series {
		l.right = min(l.right, l.c.w-style(10.5, ink, false).Width(s.name)-40)
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

// drawIdeal draws what ideal scaling of the fastest policy would be.
func (l *lineChart) drawIdeal() {
	start := math.Inf(1)
	for _, s := range l.series {
		if y := s.y[0]; y < start {
			start = y
		}
	}
	if math.IsInf(start, 1) || l.xhi == l.xlo {
		return
	}
	end := l.xhi
	if y := start * l.xlo / end; y < l.ylo { // leaves the frame below
		end = start * l.xlo / l.ylo
	}
	l.c.line(rgb(0xaab1ba), 0.75, nil, vg.Point{X: l.px(l.xlo), Y: l.py(start)}, vg.Point{X: l.px(end), Y: l.py(start * l.xlo / end)})
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
			l.c.line(how.colour, how.width, how.dashes, run...)
		}
		run = nil
	}
	for _, k := range order {
		if math.IsNaN(s.y[k]) {
			flush()
			continue
		}
		at := vg.Point{X: l.px(l.x[k]), Y: l.py(s.y[k])}
		l.c.dot(at.X, at.Y, how.width+0.6, how.colour)
		run = append(run, at)
	}
	flush()
}

// names writes the name of each line behind its end, moved apart where lines meet.
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
	slices.SortStableFunc(ends, func(a, b end) int { return int(math.Copysign(1, float64(a.at-b.at))) })
	places := make([]float64, len(ends))
	for i, e := range ends {
		places[i] = float64(e.at)
	}
	for i, y := range spread(places, 14, float64(l.top)-10, float64(l.bottom)+4) {
		ends[i].y = vg.Length(y)
	}
	sty := style(10.5, ink, false)
	for _, e := range ends {
		how := lookOf(e.name)
		l.c.line(how.colour, 0.75, nil, vg.Point{X: e.x + 4, Y: e.at}, vg.Point{X: max(l.right, e.x) + 2, Y: e.at}, vg.Point{X: l.right + 12, Y: e.y}, vg.Point{X: l.right + 16, Y: e.y})
		l.c.line(how.colour, how.width+0.5, how.dashes, vg.Point{X: l.right + 16, Y: e.y}, vg.Point{X: l.right + 30, Y: e.y})
		l.c.text(l.right+34, e.y, e.name, sty, left)
	}
}

// spread moves ascending places so far apart that they are apart, each as little as possible (pool adjacent violators), and
// within the limits if there is room.
func spread(places []float64, apart, low, high float64) []float64 {
	type pool struct {
		sum float64
		n   int
	}
	var pools []pool
	for i, p := range places {
		pools = append(pools, pool{p - float64(i)*apart, 1})
		for k := len(pools) - 1; k > 0 && pools[k-1].sum/float64(pools[k-1].n) > pools[k].sum/float64(pools[k].n); k-- {
			pools[k-1] = pool{pools[k-1].sum + pools[k].sum, pools[k-1].n + pools[k].n}
			pools = pools[:k]
		}
	}
	// Between the limits: what is beyond one is moved to it, in its order.
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

// legend writes the names below the chart, in two columns.
func (l *lineChart) legend() {
	sty := style(10, ink, false)
	rows := (len(l.series) + 1) / 2
	for i, s := range l.series {
		x, y := l.c.w/2*vg.Length(i/rows), l.bottom+44+14*vg.Length(i%rows)
		how := lookOf(s.name)
		l.c.line(how.colour, how.width+0.5, how.dashes, vg.Point{X: x, Y: y}, vg.Point{X: x + 18, Y: y})
		l.c.text(x+24, y, s.name, sty, left)
	}
}

// heat shows the runtimes of one policy over two keys.
func (r *Report) heat(name string) *figure {
	down, across := r.axis(0), r.axis(1)
	const row vg.Length = 34
	return &figure{
		name: "sweep-" + name, title: fmt.Sprintf("%s: runtime in seconds", name),
		caption: "The darker, the longer the runtime of " + name + ". Down: " + r.Sweep[0] + ". Across: " + r.Sweep[1] + ".",
		height:  func(vg.Length) vg.Length { return titleRoom + 14 + row*vg.Length(len(down)) + 40 },
		draw:    func(c *canvas) { r.drawHeat(c, name, down, across, row) },
	}
}

func (r *Report) drawHeat(c *canvas, name string, down, across []string, row vg.Length) {
	soft := style(10, softInk, false)
	least, most := math.Inf(1), 0.0
	for _, d := range down {
		for _, a := range across {
			if p := r.at(name, d, a); p != nil && p.Supported {
				least, most = min(least, p.Runtime), max(most, p.Runtime)
			}
		}
	}
	axisName := func(k int, values []string) string {
		_, unit, ok := numbers(r.Sweep[k], values)
		if ok && unit != "" {
			return shortKey(r.Sweep[k]) + ", " + unit
		}
		return shortKey(r.Sweep[k])
	}
	label := func(v string) string {
		if x, err := strconv.ParseFloat(v, 64); err == nil {
			return tickText(x)
		}
		return strings.Trim(v, `"'`)
	}
	from := vg.Length(0)
	for _, d := range down {
		from = max(from, soft.Width(label(d))+30)
	}
	width := (c.w - from) / vg.Length(len(across))
	top := titleRoom + 8
	bottom := top + row*vg.Length(len(down))
	c.turned(8, (top+bottom)/2, fit(axisName(0, down), soft, bottom-top), soft)
	size := vg.Length(11)
	for size > 6 && style(size, ink, false).Width(timeText(most)) > width-6 {
		size -= 0.5
	}
	for i, d := range down {
		y := top + row*vg.Length(i)
		c.text(from-8, y+row/2, label(d), soft, right)
		for k, a := range across {
			x := from + width*vg.Length(k)
			p := r.at(name, d, a)
			if p == nil || !p.Supported {
				c.rect(x+1, y+1, width-2, row-2, rgb(0xf0f1f3))
				if p != nil {
					c.text(x+width/2, y+row/2, "n/a", soft, centre)
				}
				continue
			}
			share := 0.0
			if most > least {
				share = (p.Runtime - least) / (most - least)
			}
			fill, letters := heatColour(share)
			c.rect(x+1, y+1, width-2, row-2, fill)
			c.text(x+width/2, y+row/2, timeText(p.Runtime), style(size, letters, p.Runtime == least), centre)
		}
	}
	for k, a := range across {
		c.text(from+width*(vg.Length(k)+0.5), bottom+11, fit(label(a), soft, width), soft, centre)
	}
	c.text(from+(c.w-from)/2, bottom+27, axisName(1, across), soft, centre)
}

// heatColour goes from a pale to a dark blue, and tells in which colour letters can be read on it.
func heatColour(share float64) (fill, letters color.RGBA) {
	stops := []color.RGBA{rgb(0xeaf3fa), rgb(0xa9d0ea), rgb(0x4f97cb), rgb(0x1a5e97), rgb(0x0b2f57)}
	at := share * float64(len(stops)-1)
	i := min(int(at), len(stops)-2)
	part := at - float64(i)
	mix := func(a, b uint8) uint8 { return uint8(float64(a) + part*(float64(b)-float64(a)) + 0.5) }
	a, b := stops[i], stops[i+1]
	fill = color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
	if light := luminance(fill) + 0.05; 1.05/light > light/0.05 {
		return fill, paper
	}
	return fill, rgb(0x000000) // ink would not stand out on the middle blues
}

// luminance is the relative luminance of a colour as WCAG defines it, by which contrasts are measured.
func luminance(c color.RGBA) float64 {
	linear := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
}
