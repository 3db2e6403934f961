package render

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// heat returns a heat map of the runtimes of one policy over two keys.
func (r *plotted) heat(name string) *drawing.Figure {
	down, across := r.Axis(0), r.Axis(1)
	const row vg.Length = 34
	return &drawing.Figure{
		Name: "sweep-" + name, Title: fmt.Sprintf("%s: runtime in seconds", name),
		Caption: "Darker cells mean longer runtimes of " + name + ". Down: " + r.Sweep[0] +
			". Across: " + r.Sweep[1] + ".",
		Height: func(vg.Length) vg.Length {
			return drawing.TitleRoom + 14 + row*vg.Length(len(down)) + 40
		},
		Draw: func(c *drawing.Canvas) { r.drawHeat(c, name, down, across, row) },
	}
}

func (r *plotted) drawHeat(c *drawing.Canvas, name string, down, across []string, row vg.Length) {
	soft := drawing.Style(10, drawing.SoftInk, false)
	least, most := math.Inf(1), 0.0
	for _, d := range down {
		for _, a := range across {
			if p := r.At(name, d, a); p != nil && p.Supported {
				least, most = min(least, p.Runtime), max(most, p.Runtime)
			}
		}
	}
	axisName := func(k int, values []string) string {
		_, unit, ok := numbers(r.Sweep[k], values)
		if ok && unit != "" {
			return ShortKey(r.Sweep[k]) + ", " + unit
		}
		return ShortKey(r.Sweep[k])
	}
	label := func(v string) string {
		if x, err := strconv.ParseFloat(v, 64); err == nil {
			return drawing.TickText(x)
		}
		return strings.Trim(v, `"'`)
	}
	from := vg.Length(0)
	for _, d := range down {
		from = max(from, soft.Width(label(d))+30)
	}
	width := (c.W - from) / vg.Length(len(across))
	top := drawing.TitleRoom + 8
	bottom := top + row*vg.Length(len(down))
	c.Turned(8, (top+bottom)/2, drawing.Fit(axisName(0, down), soft, bottom-top), soft)
	size := vg.Length(11)
	for size > 6 && drawing.Style(size, drawing.Ink, false).Width(human.Seconds(most)) > width-6 {
		size -= 0.5
	}
	for i, d := range down {
		y := top + row*vg.Length(i)
		c.Text(from-8, y+row/2, label(d), soft, drawing.Right)
		for k, a := range across {
			x := from + width*vg.Length(k)
			p := r.At(name, d, a)
			if p == nil || !p.Supported {
				c.Rect(x+1, y+1, width-2, row-2, drawing.RGB(0xf0f1f3))
				if p != nil {
					c.Text(x+width/2, y+row/2, "n/a", soft, drawing.Centre)
				}
				continue
			}
			share := 0.0
			if most > least {
				share = (p.Runtime - least) / (most - least)
			}
			fill, letters := heatColour(share)
			c.Rect(x+1, y+1, width-2, row-2, fill)
			c.Text(x+width/2, y+row/2, human.Seconds(p.Runtime),
				drawing.Style(size, letters, p.Runtime == least), drawing.Centre)
		}
	}
	for k, a := range across {
		c.Text(from+width*(vg.Length(k)+0.5), bottom+11, drawing.Fit(label(a), soft, width), soft,
			drawing.Centre)
	}
	c.Text(from+(c.W-from)/2, bottom+27, axisName(1, across), soft, drawing.Centre)
}

// heatColour returns a blue, from pale to dark, and a colour in which letters can be read on it.
func heatColour(share float64) (fill, letters color.RGBA) {
	stops := []color.RGBA{
		drawing.RGB(0xeaf3fa), drawing.RGB(0xa9d0ea), drawing.RGB(0x4f97cb), drawing.RGB(0x1a5e97),
		drawing.RGB(0x0b2f57),
	}
	at := share * float64(len(stops)-1)
	i := min(int(at), len(stops)-2)
	part := at - float64(i)
	mix := func(a, b uint8) uint8 { return uint8(float64(a) + part*(float64(b)-float64(a)) + 0.5) }
	a, b := stops[i], stops[i+1]
	fill = color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
	if light := luminance(fill) + 0.05; 1.05/light > light/0.05 {
		return fill, drawing.Paper
	}
	return fill, drawing.RGB(0x000000) // ink would not stand out on the middle blues
}

// luminance is the relative luminance of a colour as WCAG defines it, by which contrasts are
// measured.
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
