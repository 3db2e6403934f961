package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
	"github.com/hdmlp/hdmlp/internal/study/measure"
	"github.com/hdmlp/hdmlp/internal/study/measure/survey"
)

// probeAnswer is what `hdmlp probe --json` prints.
type probeAnswer struct {
	Dataset string  `json:"dataset"`
	Seconds float64 `json:"seconds"`
	*survey.Result
	Environment string `json:"environment"` // the file that was written; "": none
	Plot        string `json:"plot,omitempty"`

	started time.Time
	size    model.Size
}

// write writes the environment and the plot, each as a whole or not at all. Where all nodes would
// write the same file, node 0 does.
func (a *probeAnswer) write(ctx context.Context, o *probeOptions, src source.Source,
	first bool,
) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if o.plot != "" && first {
		picture, err := drawing.Curves(a.charts(), strings.ToLower(filepath.Ext(o.plot)))
		if err != nil {
			return err
		}
		if err := files.Write(o.plot, 0o644, picture); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
		a.Plot = o.plot
	}
	if o.out != "" {
		if !first {
			return nil
		}
		a.Environment = o.out
		return files.Write(o.out, 0o644, a.file())
	}
	beside, ok := source.As[source.Beside](src)
	if !ok {
		a.Notes = append(a.Notes, "the environment is not stored: this kind of source has no place "+
			"for it; give --out")
		return nil
	}
	a.keep(beside)
	path, err := beside.WriteBeside(envfile.Suffix, a.file())
	if err != nil {
		a.Notes = append(a.Notes, fmt.Sprintf("the environment could not be stored beside the "+
			"index: %v; give --out to write it elsewhere", err))
		return nil
	}
	a.Environment = path
	return nil
}

// file returns the text of the environment.
func (a *probeAnswer) file() []byte {
	return envfile.Encode(envfile.File{
		Node: a.Node, Size: a.size, Threads: a.Threads, Work: a.Work(),
	})
}

// keep takes over from the stored environment what was not measured now.
func (a *probeAnswer) keep(beside source.Beside) {
	old, path, err := envfile.Stored(beside)
	if err != nil || path == "" {
		return // it is replaced
	}
	for _, v := range []struct{ now, was *model.Value }{
		{&a.Node.Compute, &old.Node.Compute},
		{&a.Node.Preprocess, &old.Node.Preprocess},
		{&a.Node.SourceNetwork, &old.Node.SourceNetwork},
	} {
		if v.now.Number == 0 {
			*v.now = *v.was
		}
	}
	if !a.Node.Network.IsKnown() {
		a.Node.Network = old.Node.Network
	}
	if !a.Node.Source.IsKnown() {
		a.Node.Source = old.Node.Source
		a.Node.Sources, a.Node.SourcesOrigin = old.Node.Sources, old.Node.SourcesOrigin
	}
	if a.Transforms == nil {
		a.Threads = old.Threads
	}
}

// unmeasured returns an error if the source was not measured: what was written lacks it.
func (a *probeAnswer) unmeasured() error {
	if len(a.Source) > 0 || len(a.Sources) > 0 {
		return nil
	}
	why := "no sample could be read in the time"
	for _, s := range a.Skipped {
		if strings.HasPrefix(s.What, "source, samples") {
			why = s.Why
		}
	}
	return fmt.Errorf("the source was not measured: %s; the environment lacks it, and a job or "+
		"simulation must get it elsewhere", why)
}

// text formats the answer for people.
func (a *probeAnswer) text(width int) string {
	var b strings.Builder
	nodes := ""
	if a.Nodes > 1 {
		nodes = fmt.Sprintf(" on %d nodes", a.Nodes)
	}
	fmt.Fprintf(&b, "%s: %s, %s on average; measured%s in %s\n\n", human.Name(a.Dataset),
		count(a.Samples, "sample"), survey.Megabytes(a.Mean), nodes, seconds(a.Seconds))
	fmt.Fprintf(&b, "%-36s %8s %11s   %s\n", "", "streams", "MB/s", "95 % interval")
	few := false
	row := func(name string, streams int, rate measure.Estimate) {
		mark := ""
		if !rate.Certain {
			mark, few = " *", true
		}
		fmt.Fprintf(&b, "%-36s %8d %11s   %s to %s%s\n", name, streams, rateText(rate.Median),
			rateText(rate.Low), rateText(rate.High), mark)
	}
	curve := func(name string, c measure.Curve) {
		for _, p := range c.Points {
			row(name, p.Streams, p.Rate)
			name = ""
		}
	}
	if a.Page != nil {
		curve("source, a page of a sample", *a.Page)
	}
	for _, c := range a.Source {
		curve("source, samples of "+survey.Megabytes(c.Size), c)
	}
	for _, t := range a.Sources {
		row("source, "+count(t.Nodes, "node")+" at once", t.Point.Streams, t.Point.Rate)
	}
	for _, c := range a.Network {
		curve("network, samples of "+survey.Megabytes(c.Size), c)
	}
	for _, class := range a.Classes {
		for _, c := range class.Write {
			curve(class.Name+", write of "+survey.Megabytes(c.Size), c)
		}
		for _, c := range class.Read {
			curve(class.Name+", read of "+survey.Megabytes(c.Size), c)
		}
	}
	if a.Transforms != nil {
		curve("transforms (threads)", *a.Transforms)
	}
	if few {
		b.WriteString("* least to largest: too few measurements for an interval; raise --time\n")
	}
	a.modelText(&b)
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		b.WriteString("\n" + title + "\n")
		for _, line := range lines {
			b.WriteString(wrapped(human.Text(line), width))
		}
	}
	var skipped []string
	for _, s := range a.Skipped {
		skipped = append(skipped, s.What+": "+s.Why)
	}
	section("Not measured", skipped)
	section("Notes", a.Notes)
	if a.Plot != "" {
		fmt.Fprintf(&b, "\nPlots: %s\n", human.Name(a.Plot))
	}
	if a.Environment != "" {
		fmt.Fprintf(&b, "\nEnvironment: %s\n", human.Name(a.Environment))
	}
	return b.String()
}

// modelText writes what the performance model makes of the results.
func (a *probeAnswer) modelText(b *strings.Builder) {
	title := "\nIn the performance model"
	if a.Nodes > 1 {
		title += ": medians over the nodes; the table has what node 0 measured"
	}
	title += "\n"
	line := func(name, format string, values ...any) {
		fmt.Fprintf(b, "%s  %-15s "+format+"\n", append([]any{title, name}, values...)...)
		title = ""
	}
	tier := func(name string, k model.Known) {
		if k.Origin != model.Probed {
			return
		}
		one := k.Rate(1, a.Mean)
		text := fmt.Sprintf("%s MB/s by 1 stream", rateText(one))
		if k.Queued > 0 {
			text += fmt.Sprintf(", at most %s MB/s", rateText(max(1/k.Queued, one)))
		}
		if k.Latency >= 1e-6 {
			text += fmt.Sprintf("; latency %s", shortTime(k.Latency))
		}
		line(name, "%s", text)
	}
	tier("source", a.Node.Source)
	tier("network", a.Node.Network)
	for _, c := range a.Node.Classes {
		tier(c.Name+", read", c.Read)
		tier(c.Name+", write", c.Write)
	}
	if v := a.Node.Preprocess; v.Number > 0 {
		line("transforms", "%s MB/s per thread, %s", rateText(v.Number), count(a.Threads, "thread"))
	}
}

// shortTime formats a latency.
func shortTime(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.3g us", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g s", s)
}

// rateText formats MB/s with three digits.
func rateText(mbps float64) string {
	if mbps >= 1000 {
		return thousands(int(mbps + 0.5))
	}
	return fmt.Sprintf("%.3g", mbps)
}

// wrapped breaks a text into lines of at most width columns, indented.
func wrapped(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case column == 0:
			b.WriteString("  ")
			column = 2
		case column+1+n > width:
			b.WriteString("\n    ")
			column = 4
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteString("\n")
	return b.String()
}

// charts returns the plots: of memory and other classes, as figures 5.1 and 5.2 of the thesis, of
// the source, as figure 5.3, and of the others.
func (a *probeAnswer) charts() []drawing.Chart {
	line := func(name string, c measure.Curve) drawing.ChartLine {
		l := drawing.ChartLine{Name: name}
		for _, p := range c.Points {
			l.Points = append(l.Points, drawing.ChartPoint{
				X: float64(p.Streams), Y: p.Rate.Median, Low: p.Rate.Low, High: p.Rate.High,
			})
		}
		return l
	}
	lines := func(before string, curves []measure.Curve) (all []drawing.ChartLine) {
		for _, c := range curves {
			all = append(all, line(before+survey.Megabytes(c.Size), c))
		}
		return all
	}
	var charts []drawing.Chart
	add := func(title, axis string, l []drawing.ChartLine) {
		if len(l) > 0 {
			charts = append(charts, drawing.Chart{Title: title, Axis: axis, Lines: l})
		}
	}
	for _, c := range a.Classes {
		var both []drawing.ChartLine
		if n := len(c.Read); n > 0 {
			both = append(both, lines("read of ", c.Read[n-1:])...)
		}
		if n := len(c.Write); n > 0 {
			both = append(both, lines("write of ", c.Write[n-1:])...)
		}
		add("Storage class "+c.Name, "streams", both)
	}
	add("Source: random reads by size of samples", "streams", lines("", a.Source))
	if len(a.Sources) > 0 {
		l := drawing.ChartLine{Name: "all nodes"}
		for _, t := range a.Sources {
			r := t.Point.Rate
			l.Points = append(l.Points,
				drawing.ChartPoint{X: float64(t.Nodes), Y: r.Median, Low: r.Low, High: r.High})
		}
		add("Source: nodes that read at the same time", "nodes", []drawing.ChartLine{l})
	}
	if n := len(a.Network); n > 0 {
		add("Network: reads from the next node", "streams", lines("", a.Network[n-1:]))
	}
	if a.Transforms != nil {
		add("Transforms", "threads", []drawing.ChartLine{line("encoded bytes", *a.Transforms)})
	}
	return charts
}
