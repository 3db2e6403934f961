package render

import (
	"fmt"
	"image/color"
	"strconv"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// The colours of tiers. They differ in lightness as well as in hue, so that people with colour
// blindness can tell them apart.
var (
	waiting  = drawing.RGB(0x4a5260) // before training
	nothing  = drawing.RGB(0xb9c0c9) // no read: all samples are in the staging buffer
	ofSource = drawing.RGB(0xc8501e)
	ofRemote = drawing.RGB(0xf0b73f)
	ofLocal  = []color.RGBA{
		drawing.RGB(0x1a5e97), drawing.RGB(0x7db8de), drawing.RGB(0x11806a), drawing.RGB(0x9bd3b9),
		drawing.RGB(0x6b4c9a), drawing.RGB(0xc3b1e1),
	}
)

// tierColour returns the colour of the tier with that key.
func tierColour(key string) color.RGBA {
	switch key {
	case "source":
		return ofSource
	case "remote":
		return ofRemote
	case "0":
		return nothing
	}
	j, _ := strconv.Atoi(key)
	return ofLocal[max(0, j-1)%len(ofLocal)]
}

// timeUnit returns the unit of an axis of times, and its length in seconds: hours where seconds
// would be long numbers, else seconds.
func timeUnit(longest float64) (name string, seconds float64) {
	if longest >= 200_000 {
		return "hours", 3600
	}
	return "seconds", 1
}

// bars returns a bar chart of the runtime of each policy, split by where its samples were read
// from.
func (r *plotted) bars(p *Point) *drawing.Figure {
	tiers := r.Tiers()
	var entries []drawing.Entry
	preload := false
	for _, policy := range p.Policies {
		preload = preload || policy.BeforeTraining > 0
	}
	if preload {
		entries = append(entries, drawing.Entry{Colour: waiting, Name: "before training"})
	}
	for _, where := range tiers {
		used := false
		for i := range p.Policies {
			used = used || p.Policies[i].From(where.Key).Samples > 0
		}
		if used {
			entries = append(entries, drawing.Entry{Colour: tierColour(where.Key), Name: where.Name})
		}
	}
	best := p.Find(policies.Bound().Name())
	if best != nil && best.Supported {
		entries = append(entries, drawing.Entry{Colour: drawing.Ink, Name: "no stall", Dashed: true})
	}
	caption := ""
	if p.TimeBound > 0 {
		entries = append(entries,
			drawing.Entry{Colour: boundColour, Name: TimeBoundName, Dashed: true})
		caption = " The time bound is the least runtime of any policy that keeps the order."
	}
	longest := p.TimeBound
	for _, policy := range p.Policies {
		if policy.Supported {
			longest = max(longest, policy.Runtime)
		}
	}
	rowHeight := func(w vg.Length) vg.Length {
		if w < 500 {
			return 36 // the name is above its bar
		}
		return 25
	}
	top := func(w vg.Length) vg.Length {
		return drawing.TitleRoom + drawing.Legend(nil, entries, 0, 0, w) + 6
	}
	return &drawing.Figure{
		Name:  "runtime",
		Title: "Runtime per policy",
		Caption: "Each bar is as long as the runtime. Its colours are the shares of the bytes " +
			"read from each tier during training; the time before training has its own colour. " +
			"The label next to a bar is the runtime, and its ratio to that of perfect." + caption,
		Height: func(w vg.Length) vg.Length {
			return top(w) + rowHeight(w)*vg.Length(len(p.Policies)) + 36
		},
		Draw: func(c *drawing.Canvas) {
			drawing.Legend(c, entries, 0, drawing.TitleRoom, c.W)
			drawBars(c, p, tiers, best, longest, top(c.W), rowHeight(c.W))
		},
	}
}

// drawBars draws the axis and the bars below y.
func drawBars(c *drawing.Canvas, p *Point, tiers []Tier, best *Policy,
	longest float64, y, row vg.Length,
) {
	names, numbers := drawing.Style(11, drawing.Ink, false), drawing.Style(10.5, drawing.Ink, false)
	soft := drawing.Style(10, drawing.SoftInk, false)
	unit, seconds := timeUnit(longest)
	value := func(policy *Policy) string {
		s := human.Seconds(policy.Runtime/seconds) + " " + unit[:1]
		if best != nil && best.Supported && best.Runtime > 0 && policy != best {
			s += fmt.Sprintf(" · %s×", human.Ratio(policy.Runtime/best.Runtime))
		}
		return s
	}
	from, behind := vg.Length(0), vg.Length(0)
	for i := range p.Policies {
		if !c.Narrow {
			from = max(from, names.Width(p.Policies[i].Name)+10)
		}
		if p.Policies[i].Supported {
			behind = max(behind, numbers.Width(value(&p.Policies[i]))+8)
		}
	}
	if c.Narrow {
		behind = 6
	}
	scale := func(s float64) vg.Length {
		if longest == 0 {
			return 0
		}
		return vg.Length(s/longest) * (c.W - from - behind)
	}
	bottom := y + row*vg.Length(len(p.Policies))
	n := 6
	if c.Narrow {
		n = 4
	}
	for _, tick := range drawing.Ticks(0, longest/seconds, n) {
		x := from + scale(tick*seconds)
		c.Line(drawing.Rule, 0.75, nil, vg.Point{X: x, Y: y}, vg.Point{X: x, Y: bottom + 3})
		c.Within(x, bottom+11, drawing.TickText(tick), soft)
	}
	c.Text(from, bottom+26, "runtime, "+unit, soft, drawing.Left)
	bounds := func(top, bottom vg.Length) {
		if p.TimeBound > 0 {
			x := from + scale(p.TimeBound)
			c.Line(boundColour, 1, []vg.Length{1.5, 2}, vg.Point{X: x, Y: top},
				vg.Point{X: x, Y: bottom})
		}
		if best != nil && best.Supported {
			x := from + scale(best.Runtime)
			c.Line(drawing.Ink, 1, []vg.Length{3, 2}, vg.Point{X: x, Y: top}, vg.Point{X: x, Y: bottom})
		}
	}
	for i := range p.Policies {
		policy := &p.Policies[i]
		at, high := y+row*vg.Length(i)+4, row-8
		if c.Narrow {
			c.Text(0, at+4, policy.Name, names, drawing.Left)
			if policy.Supported {
				c.Text(c.W, at+4, value(policy), numbers, drawing.Right)
			}
			at, high = at+12, row-19
		} else {
			c.Text(from-8, at+high/2, policy.Name, names, drawing.Right)
		}
		if !policy.Supported {
			reason := drawing.Fit("cannot run: "+policy.Reason, soft, c.W-from-4)
			c.OnPaper(from+4, at+high/2, reason, soft)
			continue
		}
		x := from
		part := func(s float64, key string) {
			if w := scale(s); w > 0.2 {
				colour := waiting
				if key != "" {
					colour = tierColour(key)
				}
				c.Rect(x, at, w, high, colour)
				if x > from {
					c.Line(drawing.Paper, 0.75, nil, vg.Point{X: x, Y: at}, vg.Point{X: x, Y: at + high})
				}
				x += w
			}
		}
		part(policy.BeforeTraining, "")
		total := 0.0
		for _, where := range tiers {
			total += policy.From(where.Key).MB
		}
		for _, where := range tiers {
			if total > 0 {
				part((policy.Runtime-policy.BeforeTraining)*policy.From(where.Key).MB/total,
					where.Key)
			}
		}
		if c.Narrow {
			bounds(at, at+high)
		} else {
			bounds(at-4, at+high+4)
		}
		if !c.Narrow {
			c.OnPaper(from+scale(policy.Runtime)+6, at+high/2, value(policy), numbers)
		}
	}
}
