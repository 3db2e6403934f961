// Package history draws how a job went: its stalls by step, and bytes by tier, processors and
// memory over time, from the series of its report (report.Series). These are figure 5.14 of the
// thesis and figures 11, 19 and 20 of CoorDL, for any job.
package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

const (
	mostMarks  = 12 // beginnings of epochs that are marked: more could not be read
	mostPieces = 64 // points of a line over time
)

// Document returns the page of a job over all its nodes. The error says that there is nothing to
// draw yet.
func Document(c *report.ClusterReport) (*drawing.Document, error) {
	s := c.Series
	if s == nil || len(s.Points) == 0 {
		return nil, errors.New("the report has no series: no rank has taken a batch yet, or an " +
			"earlier release made it")
	}
	steps := "each point is a step"
	if s.Width > 1 {
		steps = fmt.Sprintf("each point covers %d steps", s.Width)
	}
	return &drawing.Document{
		Title:   "How the job went: " + c.Job,
		Summary: []string{c.Sentence},
		Facts: []drawing.Fact{
			{Name: "dataset", Value: c.Dataset},
			{Name: "policy", Value: c.Policy},
			{Name: "nodes", Value: fmt.Sprint(len(c.Nodes))},
			{Name: "ranks", Value: fmt.Sprint(c.WorldSize)},
			{Name: "steps per epoch", Value: fmt.Sprint(c.Steps)},
		},
		Figures: []*drawing.Figure{
			stalls(c, steps), delivered(s), rates(s), processors(s), memory(s),
		},
		Notes: []string{"Stalls are those of next(). Processors and memory are the daemons', summed " +
			"over nodes and measured once a second; shared memory with samples counts where it is " +
			"mapped."},
	}, nil
}

// stalls draws the stall by step (thesis, figure 5.14).
func stalls(c *report.ClusterReport, steps string) *drawing.Figure {
	s := c.Series
	longest := drawing.ChartLine{Name: "longest of any rank", Plain: true}
	mean := drawing.ChartLine{Name: "mean over ranks", Plain: true, Dashed: true}
	for i, p := range s.Points {
		if p.Batches == 0 {
			continue
		}
		x := float64(s.First + i*s.Width)
		longest.Points = append(longest.Points, drawing.ChartPoint{X: x, Y: p.Longest})
		mean.Points = append(mean.Points, drawing.ChartPoint{X: x, Y: p.Stall / float64(p.Batches)})
	}
	chart := drawing.Chart{
		Title: "Stall per step", Axis: "step of the job", Unit: "s", Linear: true,
		Lines: []drawing.ChartLine{longest, mean},
	}
	last := s.First + len(s.Points)*s.Width
	if c.Steps > 0 && (last-s.First)/c.Steps <= mostMarks {
		for e := s.First/c.Steps + 1; e*c.Steps < last; e++ {
			chart.Marks = append(chart.Marks, drawing.Mark{
				X: float64(e * c.Steps), Text: fmt.Sprintf("epoch %d", e),
			})
		}
	}
	return chart.Figure("stall", "How long next() was blocked; "+steps+".")
}

// overTime returns the points of a line over time: value of what happened in each piece of it.
// Pieces are at least a second long, as usage is measured once a second, and there are at most
// mostPieces.
func overTime(s *report.Series, value func(now, last *report.Point, seconds float64) float64,
) (points []drawing.ChartPoint) {
	least := max(1, s.Points[len(s.Points)-1].At/mostPieces)
	last := &report.Point{}
	for i := range s.Points {
		p := &s.Points[i]
		if p.Batches == 0 || p.At-last.At < least && i < len(s.Points)-1 || p.At <= last.At {
			continue
		}
		points = append(points, drawing.ChartPoint{X: p.At, Y: value(p, last, p.At-last.At)})
		last = p
	}
	return points
}

// rates draws what was read from each tier (CoorDL, figure 11).
func rates(s *report.Series) *drawing.Figure {
	chart := drawing.Chart{Title: "Reads by tier", Axis: "s since the job was opened", Linear: true}
	read := s.Points[len(s.Points)-1].Read
	for _, tier := range slices.Sorted(maps.Keys(read)) {
		if read[tier] == 0 {
			continue
		}
		chart.Lines = append(chart.Lines, drawing.ChartLine{
			Name: tier, Plain: true,
			Points: overTime(s, func(p, last *report.Point, seconds float64) float64 {
				return float64(p.Read[tier]-last.Read[tier]) / 1e6 / seconds
			}),
		})
	}
	return chart.Figure("reads", "Of all jobs that use the dataset's cache. Samples in memory are "+
		"used where they lie, without a read.")
}

// delivered draws where the samples of each step came from.
func delivered(s *report.Series) *drawing.Figure {
	tiers := map[string]bool{}
	for i := range s.Points {
		for tier := range s.Points[i].Bytes {
			tiers[tier] = true
		}
	}
	chart := drawing.Chart{
		Title: "Delivered by tier", Axis: "step of the job", Unit: "MB per step", Linear: true,
	}
	for _, tier := range slices.Sorted(maps.Keys(tiers)) {
		line := drawing.ChartLine{Name: tier, Plain: true}
		for i, p := range s.Points {
			line.Points = append(line.Points, drawing.ChartPoint{
				X: float64(s.First + i*s.Width), Y: float64(p.Bytes[tier]) / 1e6 / float64(s.Width),
			})
		}
		chart.Lines = append(chart.Lines, line)
	}
	return chart.Figure("delivered", "Where the samples of the steps were when they were needed.")
}

// processors draws what the daemons use (CoorDL, figure 19).
func processors(s *report.Series) *drawing.Figure {
	chart := drawing.Chart{
		Title: "Processors", Axis: "s since the job was opened", Unit: "processors", Linear: true,
		Lines: []drawing.ChartLine{{
			Name: "daemons", Plain: true,
			Points: overTime(s, func(p, last *report.Point, seconds float64) float64 {
				return max(p.CPU-last.CPU, 0) / seconds
			}),
		}},
	}
	return chart.Figure("processors", "Processor time of the daemons per second.")
}

// memory draws what the daemons have (CoorDL, figure 20).
func memory(s *report.Series) *drawing.Figure {
	chart := drawing.Chart{
		Title: "Memory", Axis: "s since the job was opened", Unit: "MB", Linear: true,
		Lines: []drawing.ChartLine{{
			Name: "daemons", Plain: true,
			Points: overTime(s, func(p, _ *report.Point, _ float64) float64 {
				return float64(p.Memory) / 1e6
			}),
		}},
	}
	return chart.Figure("memory", "Resident memory of the daemons.")
}
