package render

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// The names of the files beside index.html and the plots.
const (
	ResultFile      = "result.json"
	EnvironmentFile = "environment.toml"
)

// Write writes the report to a directory, which it creates if necessary: index.html, result.json,
// environment.toml for hdmlp simulate, and each plot as PNG and SVG. It returns the names of the
// files written, also on error.
func Write(r *analysis.Report, dir string) ([]string, error) {
	return document(r).Write(dir,
		drawing.File{Name: ResultFile, Write: func(w io.Writer) error { return JSON(r, w) }},
		drawing.File{Name: EnvironmentFile, Write: func(w io.Writer) error {
			_, err := w.Write(r.Measured.Environment())
			return err
		}})
}

// JSON writes the report as JSON, which analysis.Read reads.
func JSON(r *analysis.Report, w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// document returns the page.
func document(r *analysis.Report) *drawing.Document {
	d := &drawing.Document{
		Title: title(r.Measured), Summary: summary(r), Facts: facts(r), Tables: tables(r),
	}
	if r.Missing == nil {
		d.Figures = figures(r)
	}
	d.Notes = notes(r)
	return d
}

// notes say what is to be known of the measurements and of the predictions.
func notes(r *analysis.Report) (all []string) {
	for _, n := range r.Measured.Notes {
		text := human.Text(n.Text)
		if n.About != "" {
			text = human.Text(n.About) + ": " + text
		}
		all = append(all, text)
	}
	if r.Refutes != 1 && r.Refutes != 0 {
		all = append(all, fmt.Sprintf("preparation: the job as it is takes %s samples/s, which it "+
			"could not if no more were prepared than was measured: they are taken to be %s times as many",
			rate(r.Measured.AsIs.Median), human.Ratio(r.Refutes)))
	} else {
		all = append(all, fitted("preparation", r.Measured.Preparation, r.Preparation)...)
	}
	all = append(all, fitted("preparation_by_hdmlp", r.Measured.Switched, r.Switched)...)
	if marked(r.Measured) {
		all = append(all, few)
	}
	return append(all, model)
}

// marked reports whether a rate is marked in the table of what was measured.
func marked(m *analysis.Measured) bool {
	t := rates(m)
	return slices.ContainsFunc(t.Rows, func(row drawing.Row) bool {
		return slices.ContainsFunc(row.Cells, func(c drawing.Cell) bool {
			return strings.HasSuffix(c.Value, mark)
		})
	})
}

const (
	// mark is at the interval of a rate that has none, and few explains it.
	mark = " *"
	few  = "* least to largest: too few measurements for an interval."
	// model describes what the predictions are.
	model = "Epochs are predictions for those after the first one: by the equations 3 and 4 of " +
		"CoorDL (F = 1 / (x/C + (1-x)/S), and a job is as fast as the least of F, P and G), and " +
		"by hdmlp's simulator, which also lets source and caches work in parallel."
)

// The colours of the parts of an epoch.
var parts = []drawing.Entry{
	{Colour: drawing.RGB(0x1a5e97), Name: "training"},
	{Colour: drawing.RGB(0xf0b73f), Name: "stall for preparation"},
	{Colour: drawing.RGB(0xc8501e), Name: "stall for fetching"},
}

// figures are figures 2, 16 and 4 of CoorDL for this job.
func figures(r *analysis.Report) []*drawing.Figure {
	all := []*drawing.Figure{stallFigure(r), cacheFigure(r)}
	if len(r.Measured.Preparation) > 0 {
		all = append(all, coresFigure(r))
	}
	return all
}

// stallFigure has the stall of the job, and with other caches.
func stallFigure(r *analysis.Report) *drawing.Figure {
	b := drawing.Bars{Title: "What an epoch waits for", Axis: "seconds per epoch", Parts: parts}
	bar := func(name string, s analysis.Stall) {
		b.Bars = append(b.Bars, drawing.Bar{
			Name:  name,
			Parts: []float64{s.Training, s.Preparation, s.Fetch},
			Text:  human.Percent(s.Share()) + " stall",
		})
	}
	if r.Observed != nil {
		bar("as measured", *r.Observed)
	}
	bar("predicted", r.Stall)
	for _, percent := range shown {
		c := atShare(r, percent)
		bar(fmt.Sprintf("%d %% cached", percent), c.Stall)
	}
	return b.Figure("stall", "The time of a later epoch, of the job as it is and with a cache in "+
		"each node's memory for a part of the dataset: training, what it takes longer because "+
		"samples must be prepared, and what it takes longer still because they must be read "+
		"(CoorDL, figure 2).")
}

// cacheFigure has F(x) with P and G.
func cacheFigure(r *analysis.Report) *drawing.Figure {
	n := &r.Now
	most := 1.6 * max(n.Train, n.Prepare)
	fetch := drawing.ChartLine{Name: "fetch (F)", Plain: true}
	speed := drawing.ChartLine{Name: "the job", Plain: true, Dashed: true}
	prepare := drawing.ChartLine{Name: "preparation (P)", Plain: true}
	train := drawing.ChartLine{Name: "training (G)", Plain: true}
	point := func(l *drawing.ChartLine, x, y float64) {
		l.Points = append(l.Points, drawing.ChartPoint{X: x, Y: y})
	}
	for _, c := range r.Caches {
		x := 100 * c.Share
		if c.Fetch > 0 && c.Fetch <= most {
			point(&fetch, x, c.Fetch)
		} else if n := len(fetch.Points); n > 0 && fetch.Points[n-1].Y < most {
			// From here on it is above the figure: up to where it leaves it.
			last := fetch.Points[n-1]
			point(&fetch, last.X+(x-last.X)*(most-last.Y)/(c.Fetch-last.Y), most)
		}
		point(&speed, x, c.Speed)
		point(&train, x, n.Train)
		if n.Prepare > 0 {
			point(&prepare, x, n.Prepare)
		}
	}
	chart := drawing.Chart{
		Title: "How much cache is enough", Axis: "% of the dataset in each node's memory",
		Unit: "samples/s", Linear: true, Lines: []drawing.ChartLine{train},
	}
	above := ""
	if len(fetch.Points) > 0 {
		chart.Lines = append([]drawing.ChartLine{fetch}, chart.Lines...)
	} else {
		above = " Reads (F) are above the figure, whatever is cached."
	}
	if n.Prepare > 0 {
		chart.Lines = append(chart.Lines, prepare)
	}
	chart.Lines = append(chart.Lines, speed)
	if r.Needed.Enough && r.Needed.Cache > 0 {
		chart.Marks = []drawing.Mark{{
			X: 100 * r.Needed.Cache, Text: "x* = " + human.Percent(r.Needed.Cache),
		}}
	}
	return chart.Figure("cache", "How fast samples are read with more and more of the dataset in "+
		"memory, beside how fast they are prepared and trained with: the least of the three is "+
		"the speed of the job (CoorDL, figure 16). From x* on, more cache brings nothing."+above)
}

// coresFigure has P(n) with G.
func coresFigure(r *analysis.Report) *drawing.Figure {
	m := r.Measured
	line := func(name string, points []analysis.Point) drawing.ChartLine {
		l := drawing.ChartLine{Name: name}
		for _, p := range points {
			l.Points = append(l.Points, drawing.ChartPoint{
				X: float64(p.N), Y: p.Median, Low: p.Low, High: p.High,
			})
		}
		return l
	}
	name := "preparation (P)"
	lines := []drawing.ChartLine{line(name, m.Preparation)}
	last := float64(m.Preparation[len(m.Preparation)-1].N)
	if len(m.Switched) > 0 {
		lines = append(lines, line("preparation by hdmlp", m.Switched))
		last = max(last, float64(m.Switched[len(m.Switched)-1].N))
	}
	g := m.Training
	train := drawing.ChartLine{Name: "training (G)", Plain: true, Dashed: true}
	for _, x := range []float64{1, last} {
		train.Points = append(train.Points, drawing.ChartPoint{X: x, Y: g.Median})
	}
	chart := drawing.Chart{
		Title: "How many threads are enough", Axis: "threads or workers of a node",
		Unit: "samples/s", Lines: append(lines, train),
	}
	return chart.Figure("cores", "How fast so many threads or workers prepare samples that are in "+
		"memory, beside how fast training takes them (CoorDL, figure 4). Bars are 95 % intervals.")
}

// fitted lists which rates are taken to be others than were measured; nothing if none are.
func fitted(about string, measured, taken []analysis.Point) []string {
	var all []string
	for i, p := range taken {
		if was := measured[i].Median; was != p.Median {
			all = append(all, fmt.Sprintf("%s with %d instead of %s", rate(p.Median), p.N, rate(was)))
		}
	}
	if all == nil {
		return nil
	}
	return []string{about + ": less was measured with more threads or workers, as other work on " +
		"the machine makes it; taken are " + strings.Join(all, ", ") +
		" samples/s (isotonic regression)"}
}
