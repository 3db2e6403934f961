package page

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

// Chart is a plot of measured throughputs by the number of clients, with their confidence
// intervals, as figures 5.1 to 5.3 of the thesis.
type Chart struct {
	Title string
	Axis  string // what the number is of
	Lines []ChartLine
}

// ChartLine is one line of a chart.
type ChartLine struct {
	Name   string
	Points []ChartPoint
}

// ChartPoint is a throughput in MB/s, and the ends of its interval.
type ChartPoint struct{ X, Y, Low, High float64 }

// Curves draws the charts, one below the other, in the format of a file with that extension: .png,
// .svg or .html.
func Curves(charts []Chart, extension string) ([]byte, error) {
	f := &figure{name: "rates", title: "Throughputs, with 95 % intervals"}
	const gap = 24
	f.height = func(w vg.Length) vg.Length {
		h := titleRoom
		for _, c := range charts {
			h += c.height(w) + gap
		}
		return h
	}
	f.draw = func(c *canvas) {
		y := titleRoom + 8
		for i := range charts {
			charts[i].draw(c, y)
			y += charts[i].height(c.w) + gap
		}
	}
	var b bytes.Buffer
	switch extension {
	case ".png":
		err := f.png(&b)
		return b.Bytes(), err
	case ".svg":
		return f.svg(wide, margin)
	case ".html":
		large, err := f.svg(wide, 0)
		if err != nil {
			return nil, err
		}
		small, err := f.svg(narrow, 0)
		if err != nil {
			return nil, err
		}
		err = curvesPage.Execute(&b, pageFigure{
			Title: f.title, Wide: inline(large, f.title), Narrow: inline(small, f.title),
		})
		return b.Bytes(), err
	}
	return nil, fmt.Errorf("draw the rates: %q is none of .png, .svg and .html", extension)
}

//go:embed curves.html
var curvesText string

var curvesPage = template.Must(template.New("curves").Parse(curvesText))

// lineColours are those of a chart's lines, in their order.
var lineColours = []color.RGBA{
	rgb(0x1a5e97), rgb(0xc8501e), rgb(0x11806a), rgb(0x6b4c9a), rgb(0xf0b73f), ink,
}

func (h *Chart) entries() (all []legendEntry) {
	for i, l := range h.Lines {
		all = append(all, legendEntry{lineColours[i%len(lineColours)], l.Name, false})
	}
	return all
}

// plotHeight is the height of the frame of a chart.
const plotHeight vg.Length = 170

func (h *Chart) height(w vg.Length) vg.Length {
	return 18 + plotHeight + 38 + legend(nil, h.entries(), 0, 0, w)
}

// draw draws the chart from y on: its horizontal axis is logarithmic, its vertical one begins at 0.
func (h *Chart) draw(c *canvas, y vg.Length) {
	soft := style(10, softInk, false)
	var xs []float64
	most := 0.0
	for _, l := range h.Lines {
		for _, p := range l.Points {
			xs = append(xs, p.X)
			most = max(most, p.High, p.Y)
		}
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	most = max(most*1.05, 1e-9)
	top, bottom := y+22, y+22+plotHeight-10
	from, to := soft.Width(tickText(most))+14, c.w-14
	px := func(v float64) vg.Length {
		if last := xs[len(xs)-1]; last > xs[0] {
			return from + 10 + vg.Length(math.Log(v/xs[0])/math.Log(last/xs[0]))*(to-from-20)
		}
		return (from + to) / 2
	}
	py := func(v float64) vg.Length { return bottom - vg.Length(v/most)*(bottom-top) }
	c.text(0, y, h.Title, style(11.5, ink, true), left)
	c.text(0, top-8, "MB/s", soft, left)
	for _, v := range ticks(0, most, 5) {
		c.line(rule, 0.75, nil, vg.Point{X: from, Y: py(v)}, vg.Point{X: to, Y: py(v)})
		c.text(from-6, py(v), tickText(v), soft, right)
	}
	c.line(softInk, 0.75, nil, vg.Point{X: from, Y: bottom}, vg.Point{X: to, Y: bottom})
	end := vg.Length(-1000)
	for _, v := range xs {
		x, w := px(v), soft.Width(tickText(v))
		c.line(softInk, 0.75, nil, vg.Point{X: x, Y: bottom}, vg.Point{X: x, Y: bottom + 3})
		if x-w/2 >= end+4 {
			c.within(x, bottom+11, tickText(v), soft)
			end = x + w/2
		}
	}
	c.text((from+to)/2, bottom+24, h.Axis, soft, centre)
	for i, l := range h.Lines {
		colour := lineColours[i%len(lineColours)]
		var points []vg.Point
		for _, p := range l.Points {
			at := vg.Point{X: px(p.X), Y: py(p.Y)}
			points = append(points, at)
			c.interval(colour, at.X, py(p.High), py(p.Low))
			c.dot(at.X, at.Y, 2.4, colour)
		}
		if len(points) > 1 {
			c.line(colour, 1.75, nil, points...)
		}
	}
	legend(c, h.entries(), from, bottom+34, to-from)
}

// interval draws a vertical line with bars at its ends.
func (c *canvas) interval(colour color.Color, x, high, low vg.Length) {
	c.line(colour, 0.9, nil, vg.Point{X: x - 3, Y: high}, vg.Point{X: x + 3, Y: high},
		vg.Point{X: x, Y: high}, vg.Point{X: x, Y: low}, vg.Point{X: x - 3, Y: low},
		vg.Point{X: x + 3, Y: low})
}
