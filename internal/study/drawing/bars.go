package drawing

import (
	"gonum.org/v1/plot/vg"
)

// Bars is a chart of stacked horizontal bars.
type Bars struct {
	Title string
	Axis  string  // what the bars' length is, with its unit
	Parts []Entry // what each bar is divided into
	Bars  []Bar
}

// Bar is one bar.
type Bar struct {
	Name  string
	Parts []float64 // of at least 0, in the order of Bars.Parts
	Text  string    // beside the bar
}

// barHeight is the height of a bar with the room around it.
func barHeight(w vg.Length) vg.Length {
	if w < 500 {
		return 36 // the name is above its bar
	}
	return 25
}

// Figure returns the figure.
func (b Bars) Figure(name, caption string) *Figure {
	top := func(w vg.Length) vg.Length { return TitleRoom + Legend(nil, b.Parts, 0, 0, w) + 6 }
	return &Figure{
		Name: name, Title: b.Title, Caption: caption,
		Height: func(w vg.Length) vg.Length {
			return top(w) + barHeight(w)*vg.Length(len(b.Bars)) + 36
		},
		Draw: func(c *Canvas) {
			Legend(c, b.Parts, 0, TitleRoom, c.W)
			b.draw(c, top(c.W))
		},
	}
}

func (b *Bars) draw(c *Canvas, y vg.Length) {
	names, numbers := Style(11, Ink, false), Style(10.5, Ink, false)
	soft, row := Style(10, SoftInk, false), barHeight(c.W)
	from := vg.Length(0)
	behind := vg.Length(6)
	longest := 1e-9
	for _, bar := range b.Bars {
		sum := 0.0
		for _, p := range bar.Parts {
			sum += p
		}
		longest = max(longest, sum)
		if !c.Narrow {
			from = max(from, names.Width(bar.Name)+10)
			behind = max(behind, numbers.Width(bar.Text)+8)
		}
	}
	scale := func(v float64) vg.Length { return vg.Length(v/longest) * (c.W - from - behind) }
	bottom, n := y+row*vg.Length(len(b.Bars)), 6
	if c.Narrow {
		n = 4
	}
	for _, tick := range Ticks(0, longest, n) {
		x := from + scale(tick)
		c.Line(Rule, 0.75, nil, vg.Point{X: x, Y: y}, vg.Point{X: x, Y: bottom + 3})
		c.Within(x, bottom+11, TickText(tick), soft)
	}
	c.Text(from, bottom+26, b.Axis, soft, Left)
	for i, bar := range b.Bars {
		at, high := y+row*vg.Length(i)+4, row-8
		if c.Narrow {
			c.OnPaper(2, at+4, bar.Name, names)
			c.Text(c.W, at+4, bar.Text, numbers, Right)
			at, high = at+12, row-19
		} else {
			c.Text(from-8, at+high/2, bar.Name, names, Right)
		}
		x := from
		for k, part := range bar.Parts {
			if w := scale(part); w > 0.2 {
				c.Rect(x, at, w, high, b.Parts[k].Colour)
				x += w
			}
		}
		if !c.Narrow {
			c.OnPaper(x+6, at+high/2, bar.Text, numbers)
		}
	}
}
