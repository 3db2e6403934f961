package drawing

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
)

// Chart is a plot of lines: of throughputs by the number of clients with their confidence
// intervals, as figures 5.1 to 5.3 of the thesis, if nothing else is said.
type Chart struct {
	Title  string
	Axis   string // what the horizontal one shows
	Unit   string // of the vertical one; "": MB/s
	Linear bool   // the horizontal axis is linear, not logarithmic
	Lines  []ChartLine
	Marks  []Mark
}

// ChartLine is one line of a chart.
type ChartLine struct {
	Name   string
	Points []ChartPoint
	Dashed bool
	Plain  bool // without dots and intervals
}

// ChartPoint is a value, and the ends of its interval.
type ChartPoint struct{ X, Y, Low, High float64 }

// Mark is a vertical line with a text.
type Mark struct {
	X    float64
	Text string
}

// Curves draws the charts, one below the other, in the format of a file with that extension: .png,
// .svg or .html.
func Curves(charts []Chart, extension string) ([]byte, error) {
	f := &Figure{Name: "rates", Title: "Throughputs, with 95 % intervals"}
	const gap = 24
	f.Height = func(w vg.Length) vg.Length {
		h := TitleRoom
		for _, c := range charts {
			h += c.height(w) + gap
		}
		return h
	}
	f.Draw = func(c *Canvas) {
		y := TitleRoom + 8
		for i := range charts {
			charts[i].draw(c, y)
			y += charts[i].height(c.W) + gap
		}
	}
	var b bytes.Buffer
	switch extension {
	case ".png":
		err := f.PNG(&b)
		return b.Bytes(), err
	case ".svg":
		return f.SVG(Wide, Margin)
	case ".html":
		shown, err := f.show()
		if err != nil {
			return nil, err
		}
		err = curvesPage.Execute(&b, shown)
		return b.Bytes(), err
	}
	return nil, fmt.Errorf("draw the rates: %q is none of .png, .svg and .html", extension)
}

//go:embed curves.html
var curvesText string

var curvesPage = template.Must(template.New("curves").Parse(curvesText))

// Figure returns a figure of the chart alone, with the chart's title.
func (h Chart) Figure(name, caption string) *Figure {
	title := h.Title
	h.Title = ""
	return &Figure{
		Name: name, Title: title, Caption: caption,
		Height: func(w vg.Length) vg.Length { return TitleRoom + h.height(w) },
		Draw:   func(c *Canvas) { h.draw(c, TitleRoom+4) },
	}
}

// lineColours are those of a chart's lines, in their order.
var lineColours = []color.RGBA{
	RGB(0x1a5e97), RGB(0xc8501e), RGB(0x11806a), RGB(0x6b4c9a), RGB(0xf0b73f), Ink,
}

func (h *Chart) entries() (all []Entry) {
	for i, l := range h.Lines {
		all = append(all, Entry{lineColours[i%len(lineColours)], l.Name, l.Dashed})
	}
	return all
}

// plotHeight is the height of the frame of a chart.
const plotHeight vg.Length = 170

func (h *Chart) height(w vg.Length) vg.Length {
	return 18 + plotHeight + 38 + Legend(nil, h.entries(), 0, 0, w)
}

// frame is where the values of a chart are drawn.
type frame struct {
	from, to, top, bottom vg.Length
	least, last, most     float64 // x from least to last, y from 0 to most
	linear                bool
}

func (f *frame) x(v float64) vg.Length {
	room := f.to - f.from - 20
	switch {
	case f.last <= f.least:
		return (f.from + f.to) / 2
	case f.linear:
		return f.from + 10 + vg.Length((v-f.least)/(f.last-f.least))*room
	}
	return f.from + 10 + vg.Length(math.Log(v/f.least)/math.Log(f.last/f.least))*room
}

func (f *frame) y(v float64) vg.Length {
	return f.bottom - vg.Length(v/f.most)*(f.bottom-f.top)
}

// draw draws the chart from y on. Its vertical axis begins at 0.
func (h *Chart) draw(c *Canvas, y vg.Length) {
	soft := Style(10, SoftInk, false)
	var xs []float64
	most := 0.0
	for _, l := range h.Lines {
		for _, p := range l.Points {
			xs = append(xs, p.X)
			most = max(most, p.High, p.Y)
		}
	}
	if xs == nil {
		c.Text(0, y+22, "Nothing was measured.", soft, Left)
		return
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	most = max(most*1.05, 1e-9)
	f := frame{
		from: soft.Width(TickText(most)) + 14, to: c.W - 14, top: y + 22,
		bottom: y + 22 + plotHeight - 10, least: xs[0], last: xs[len(xs)-1], most: most,
		linear: h.Linear,
	}
	if h.Linear {
		xs = Ticks(f.least, f.last, 10)
	}
	unit := h.Unit
	if unit == "" {
		unit = "MB/s"
	}
	c.Text(0, y, h.Title, Style(11.5, Ink, true), Left)
	c.Text(0, f.top-8, unit, soft, Left)
	for _, v := range Ticks(0, most, 5) {
		c.Line(Rule, 0.75, nil, vg.Point{X: f.from, Y: f.y(v)}, vg.Point{X: f.to, Y: f.y(v)})
		c.Text(f.from-6, f.y(v), TickText(v), soft, Right)
	}
	c.Line(SoftInk, 0.75, nil, vg.Point{X: f.from, Y: f.bottom}, vg.Point{X: f.to, Y: f.bottom})
	end := vg.Length(-1000)
	for _, v := range xs {
		x, w := f.x(v), soft.Width(TickText(v))
		c.Line(SoftInk, 0.75, nil, vg.Point{X: x, Y: f.bottom}, vg.Point{X: x, Y: f.bottom + 3})
		if x-w/2 >= end+4 {
			c.Within(x, f.bottom+11, TickText(v), soft)
			end = x + w/2
		}
	}
	c.Text((f.from+f.to)/2, f.bottom+24, h.Axis, soft, Centre)
	for _, m := range h.Marks {
		x := f.x(m.X)
		c.Line(SoftInk, 1, []vg.Length{3, 2}, vg.Point{X: x, Y: f.top}, vg.Point{X: x, Y: f.bottom})
		beside := soft.Width(unit) + 8 + soft.Width(m.Text)/2 // of the unit
		c.Within(max(x, beside), f.top-8, m.Text, soft)
	}
	for i, l := range h.Lines {
		l.draw(c, &f, lineColours[i%len(lineColours)])
	}
	Legend(c, h.entries(), 0, f.bottom+34, c.W)
}

func (l *ChartLine) draw(c *Canvas, f *frame, colour color.Color) {
	var points []vg.Point
	for _, p := range l.Points {
		at := vg.Point{X: f.x(p.X), Y: f.y(p.Y)}
		points = append(points, at)
		if !l.Plain {
			c.interval(colour, at.X, f.y(p.High), f.y(p.Low))
			c.Dot(at.X, at.Y, 2.4, colour)
		}
	}
	var dashes []vg.Length
	if l.Dashed {
		dashes = []vg.Length{4, 2.5}
	}
	if len(points) > 1 {
		c.Line(colour, 1.75, dashes, points...)
	}
}

// interval draws a vertical line with bars at its ends.
func (c *Canvas) interval(colour color.Color, x, high, low vg.Length) {
	c.Line(colour, 0.9, nil, vg.Point{X: x - 3, Y: high}, vg.Point{X: x + 3, Y: high},
		vg.Point{X: x, Y: high}, vg.Point{X: x, Y: low}, vg.Point{X: x - 3, Y: low},
		vg.Point{X: x + 3, Y: low})
}
