package page

import (
	"fmt"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/simulate/render"
	"github.com/hdmlp/hdmlp/internal/simulate/render/words"
)

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
func (r *plotted) bars(p *render.Point) *figure {
	tiers := r.Tiers()
	var entries []legendEntry
	preload := false
	for _, policy := range p.Policies {
		preload = preload || policy.BeforeTraining > 0
	}
	if preload {
		entries = append(entries, legendEntry{colour: waiting, name: "before training"})
	}
	for _, where := range tiers {
		used := false
		for i := range p.Policies {
			used = used || p.Policies[i].From(where.Key).Samples > 0
		}
		if used {
			entries = append(entries, legendEntry{colour: tierColour(where.Key), name: where.Name})
		}
	}
	best := p.Find(policies.Bound().Name())
	if best != nil && best.Supported {
		entries = append(entries, legendEntry{colour: ink, name: "no stall", dashed: true})
	}
	caption := ""
	if p.TimeBound > 0 {
		entries = append(entries,
			legendEntry{colour: boundColour, name: render.TimeBoundName, dashed: true})
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
	top := func(w vg.Length) vg.Length { return titleRoom + legend(nil, entries, 0, 0, w) + 6 }
	return &figure{
		name:  "runtime",
		title: "Runtime per policy",
		caption: "Each bar is as long as the runtime. Its colours are the shares of the bytes " +
			"read from each tier during training; the time before training has its own colour. " +
			"The label next to a bar is the runtime, and its ratio to that of perfect." + caption,
		height: func(w vg.Length) vg.Length {
			return top(w) + rowHeight(w)*vg.Length(len(p.Policies)) + 36
		},
		draw: func(c *canvas) {
			legend(c, entries, 0, titleRoom, c.w)
			c.drawBars(p, tiers, best, longest, top(c.w), rowHeight(c.w))
		},
	}
}

// drawBars draws the axis and the bars below y.
func (c *canvas) drawBars(p *render.Point, tiers []render.Tier, best *render.Policy,
	longest float64, y, row vg.Length,
) {
	names, numbers := style(11, ink, false), style(10.5, ink, false)
	soft := style(10, softInk, false)
	unit, seconds := timeUnit(longest)
	value := func(policy *render.Policy) string {
		s := words.Seconds(policy.Runtime/seconds) + " " + unit[:1]
		if best != nil && best.Supported && best.Runtime > 0 && policy != best {
			s += fmt.Sprintf(" · %s×", words.Ratio(policy.Runtime/best.Runtime))
		}
		return s
	}
	from, behind := vg.Length(0), vg.Length(0)
	for i := range p.Policies {
		if !c.narrow {
			from = max(from, names.Width(p.Policies[i].Name)+10)
		}
		if p.Policies[i].Supported {
			behind = max(behind, numbers.Width(value(&p.Policies[i]))+8)
		}
	}
	if c.narrow {
		behind = 6
	}
	scale := func(s float64) vg.Length {
		if longest == 0 {
			return 0
		}
		return vg.Length(s/longest) * (c.w - from - behind)
	}
	bottom := y + row*vg.Length(len(p.Policies))
	n := 6
	if c.narrow {
		n = 4
	}
	for _, tick := range ticks(0, longest/seconds, n) {
		x := from + scale(tick*seconds)
		c.line(rule, 0.75, nil, vg.Point{X: x, Y: y}, vg.Point{X: x, Y: bottom + 3})
		c.within(x, bottom+11, tickText(tick), soft)
	}
	c.text(from, bottom+26, "runtime, "+unit, soft, left)
	bounds := func(top, bottom vg.Length) {
		if p.TimeBound > 0 {
			x := from + scale(p.TimeBound)
			c.line(boundColour, 1, []vg.Length{1.5, 2}, vg.Point{X: x, Y: top},
				vg.Point{X: x, Y: bottom})
		}
		if best != nil && best.Supported {
			x := from + scale(best.Runtime)
			c.line(ink, 1, []vg.Length{3, 2}, vg.Point{X: x, Y: top}, vg.Point{X: x, Y: bottom})
		}
	}
	for i := range p.Policies {
		policy := &p.Policies[i]
		at, high := y+row*vg.Length(i)+4, row-8
		if c.narrow {
			c.text(0, at+4, policy.Name, names, left)
			if policy.Supported {
				c.text(c.w, at+4, value(policy), numbers, right)
			}
			at, high = at+12, row-19
		} else {
			c.text(from-8, at+high/2, policy.Name, names, right)
		}
		if !policy.Supported {
			c.onPaper(from+4, at+high/2, fit("cannot run: "+policy.Reason, soft, c.w-from-4), soft)
			continue
		}
		x := from
		part := func(s float64, key string) {
			if w := scale(s); w > 0.2 {
				colour := waiting
				if key != "" {
					colour = tierColour(key)
				}
				c.rect(x, at, w, high, colour)
				if x > from {
					c.line(paper, 0.75, nil, vg.Point{X: x, Y: at}, vg.Point{X: x, Y: at + high})
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
		if c.narrow {
			bounds(at, at+high)
		} else {
			bounds(at-4, at+high+4)
		}
		if !c.narrow {
			c.onPaper(from+scale(policy.Runtime)+6, at+high/2, value(policy), numbers)
		}
	}
}
