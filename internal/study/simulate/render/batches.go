package render

import (
	"math"
	"slices"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// band summarizes the times of the batches in one part of the run: the median, and the 5th and the
// 95th percentile.
type band struct{ low, middle, high float64 }

// bands divides the batches into at most n parts.
func bands(batches []float64, n int) []band {
	n = min(n, len(batches))
	all := make([]band, n)
	var part []float64
	for i := range all {
		part = append(part[:0], batches[i*len(batches)/n:(i+1)*len(batches)/n]...)
		slices.Sort(part)
		at := func(q float64) float64 { return part[int(q*float64(len(part)-1)+0.5)] }
		all[i] = band{at(0.05), at(0.5), at(0.95)}
	}
	return all
}

// batches returns a plot of how long the batches of each policy take in the course of training;
// nil if the report has no times of batches.
func (r *plotted) batches(p *Point) *drawing.Figure {
	var rows []*Policy
	steps, epochs := 0, 0
	least, most := math.Inf(1), 0.0
	for i := range p.Policies {
		policy := &p.Policies[i]
		if !policy.Supported || len(policy.Batches) == 0 {
			continue
		}
		rows = append(rows, policy)
		steps, epochs = max(steps, len(policy.Batches)), max(epochs, len(policy.Epochs))
		for _, b := range bands(policy.Batches, 240) {
			if b.low > 0 {
				least = min(least, b.low)
			}
			most = max(most, b.high)
		}
	}
	if rows == nil || !(most > 0) {
		return nil
	}
	least, most = min(least, most)/1.2, most*1.2
	const row vg.Length = 44
	return &drawing.Figure{
		Name: "batches", Title: "Time per batch",
		Caption: "How long batches take in the course of the run: the line is the median of " +
			"neighbouring batches, and 9 in 10 lie within the band. " +
			"All panels have the same logarithmic scale. " +
			"Vertical lines mark the beginnings of epochs.",
		Height: func(w vg.Length) vg.Length {
			if w < 500 {
				return drawing.TitleRoom + (row+14)*vg.Length(len(rows)) + 40
			}
			return drawing.TitleRoom + row*vg.Length(len(rows)) + 40
		},
		Draw: func(c *drawing.Canvas) { r.drawBatches(c, rows, steps, epochs, least, most, row) },
	}
}

func (r *plotted) drawBatches(c *drawing.Canvas, rows []*Policy, steps, epochs int,
	least, most float64, row vg.Length,
) {
	names, soft := drawing.Style(11, drawing.Ink, false), drawing.Style(9, drawing.SoftInk, false)
	wideName, head := vg.Length(0), vg.Length(0)
	for _, p := range rows {
		wideName = max(wideName, names.Width(p.Name)+14)
	}
	if c.Narrow {
		wideName, head = 0, 14
	}
	marks := drawing.LogTicks(least, most)
	if len(marks) > 3 {
		marks = []float64{marks[0], marks[len(marks)/2], marks[len(marks)-1]}
	}
	numbers := vg.Length(0)
	for _, m := range marks {
		numbers = max(numbers, soft.Width(batchTime(m))+6)
	}
	from := wideName + numbers
	end := c.W - 4
	px := func(batch float64) vg.Length { return from + vg.Length(batch/float64(steps))*(end-from) }
	y := drawing.TitleRoom
	for _, p := range rows {
		top, bottom := y+head+3, y+head+row-5
		py := func(v float64) vg.Length {
			share := math.Log(max(v, least)/least) / math.Log(most/least)
			return bottom - vg.Length(min(share, 1))*(bottom-top)
		}
		if c.Narrow {
			c.Text(0, y+8, p.Name, names, drawing.Left)
		} else {
			c.Text(wideName-14, (top+bottom)/2, p.Name, names, drawing.Right)
		}
		for e := range epochs + 1 {
			if epochs <= 60 {
				x := px(float64(e) * float64(steps) / float64(epochs))
				c.Line(drawing.Rule, 0.5, nil, vg.Point{X: x, Y: top}, vg.Point{X: x, Y: bottom})
			}
		}
		for _, m := range marks {
			c.Line(drawing.Rule, 0.5, nil, vg.Point{X: from, Y: py(m)}, vg.Point{X: end, Y: py(m)})
			c.Text(from-5, py(m), batchTime(m), soft, drawing.Right)
		}
		parts := bands(p.Batches, 240)
		var upper, lower, middle []vg.Point
		for i, b := range parts {
			x := px((float64(i) + 0.5) / float64(len(parts)) * float64(len(p.Batches)))
			upper = append(upper, vg.Point{X: x, Y: py(b.high)})
			lower = append(lower, vg.Point{X: x, Y: py(b.low)})
			middle = append(middle, vg.Point{X: x, Y: py(b.middle)})
		}
		how := r.look(p.Name)
		pale := how.colour
		pale.R = pale.R/4 + 191
		pale.G = pale.G/4 + 191
		pale.B = pale.B/4 + 191
		slices.Reverse(lower)
		c.Polygon(pale, append(upper, lower...))
		c.Line(how.colour, 1.25, nil, middle...)
		y += head + row
	}
	soft = drawing.Style(10, drawing.SoftInk, false)
	n := 8
	if c.Narrow {
		n = 4
	}
	for _, b := range drawing.Ticks(0, float64(steps), n) {
		c.Within(px(b), y+7, drawing.TickText(b), soft)
	}
	c.Text((from+end)/2, y+22, "batch", soft, drawing.Centre)
}

// batchTime formats the time of a batch with a suitable unit.
func batchTime(s float64) string {
	switch {
	case s < 1e-3:
		return drawing.TickText(s*1e6) + " µs"
	case s < 1:
		return drawing.TickText(s*1e3) + " ms"
	}
	return drawing.TickText(s) + " s"
}
