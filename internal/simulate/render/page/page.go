// Package page draws the results of simulations: as plots (PNG and SVG), and as one self-contained
// HTML page that needs no network. Only this package imports the plotting library.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/simulate/render"
	"github.com/hdmlp/hdmlp/internal/simulate/render/words"
)

//go:embed page.html
var pageText string

// Write writes the report to a directory, which it creates if necessary: index.html, result.json,
// result.csv, and each plot as PNG and SVG. It returns the names of the files written, also on
// error.
func Write(r *render.Report, dir string) ([]string, error) { return (&plotted{r}).write(dir) }

// plotted adds plots to a report.
type plotted struct{ *render.Report }

// figures returns the plots of the report.
func (r *plotted) figures() []*figure {
	var all []*figure
	switch {
	case len(r.Points) == 0:
	case len(r.Sweep) == 0:
		all = append(all, r.bars(&r.Points[0]))
		if f := r.batches(&r.Points[0]); f != nil {
			all = append(all, f)
		}
	case len(r.Sweep) == 1:
		all = append(all, r.lines())
	default:
		for _, name := range r.Names() {
			all = append(all, r.heat(name))
		}
	}
	return all
}

func (r *plotted) write(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	var names []string
	write := func(name string, to func(io.Writer) error) error {
		var b bytes.Buffer
		if err := to(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o666); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		names = append(names, name)
		return nil
	}
	if err := write("index.html", r.page); err != nil {
		return names, err
	}
	if err := write("result.json", r.JSON); err != nil {
		return names, err
	}
	if err := write("result.csv", r.CSV); err != nil {
		return names, err
	}
	for _, f := range r.figures() {
		if err := write(f.name+".png", f.png); err != nil {
			return names, err
		}
		svg := func(w io.Writer) error {
			text, err := f.svg(wide, margin)
			if err == nil {
				_, err = w.Write(text)
			}
			return err
		}
		if err := write(f.name+".svg", svg); err != nil {
			return names, err
		}
	}
	return names, nil
}

// pageFigure is a figure on the page, in both widths.
type pageFigure struct {
	Title, Caption string
	Wide, Narrow   template.HTML
}

// pageCell is a cell of a table on the page. On phones, where a row is shown as a card, Name labels
// the cell.
type pageCell struct{ Name, Value, Detail string }

type pageRow struct {
	Head  string
	Note  string // why the policy cannot run
	Cells []pageCell
}

type pageTable struct {
	Title string
	Head  []string
	Rows  []pageRow
	Pairs bool // names and values are short: phones show two cells side by side
}

// page writes the report as one self-contained HTML page.
func (r *plotted) page(w io.Writer) error {
	page := struct {
		*render.Report
		Summary []string
		Figures []pageFigure
		Tables  []pageTable
		Timed   bool // the tables have a lower bound of the runtimes
	}{Report: r.Report, Summary: r.summary(), Tables: r.pageTables()}
	page.Timed = len(r.Sweep) == 0 && r.TimeBounds() != nil
	for _, f := range r.figures() {
		shown := pageFigure{Title: f.title, Caption: f.caption}
		for _, v := range []struct {
			width vg.Length
			to    *template.HTML
		}{{wide, &shown.Wide}, {narrow, &shown.Narrow}} {
			text, err := f.svg(v.width, 0)
			if err != nil {
				return err
			}
			*v.to = inline(text, f.title)
		}
		page.Figures = append(page.Figures, shown)
	}
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	if err := t.Execute(w, page); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

var (
	svgStart = regexp.MustCompile(`(?s)^.*?<svg [^>]*>`)
	viewBox  = regexp.MustCompile(`viewBox="[^"]*"`)
)

// inline returns an SVG file as an element of the page. Its contents were drawn by this package,
// with text escaped, so they are safe HTML.
func inline(svg []byte, title string) template.HTML {
	box := viewBox.Find(svgStart.Find(svg))
	head := fmt.Sprintf(`<svg %s role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`,
		box, template.HTMLEscapeString(title))
	return template.HTML(svgStart.ReplaceAllLiteral(svg, []byte(head)))
}

// summary returns the most important results as sentences.
func (r *plotted) summary() []string {
	var all []string
	if r.Interrupted {
		all = append(all, "Interrupted: only the simulations that finished are shown.")
	}
	if len(r.Sweep) > 0 || len(r.Points) == 0 {
		return all
	}
	p := &r.Points[0]
	var best *render.Policy
	seen := 0.0 // by the job's own order; less than 1 if the last batch is dropped
	for _, policy := range p.Policies {
		seen = max(seen, policy.SeenPerEpoch)
	}
	for i := range p.Policies {
		policy := &p.Policies[i]
		if policy.Supported && policy.Name != policies.Bound().Name() &&
			policy.SeenPerEpoch > seen-0.001 && policy.Shuffle < 0.05 &&
			(best == nil || policy.Runtime < best.Runtime) {
			best = policy
		}
	}
	if best == nil {
		return all
	}
	text := fmt.Sprintf("The fastest policy that keeps the full shuffle is %s: %s", best.Name,
		words.Clock(best.Runtime))
	if perfect := p.Find(policies.Bound().Name()); perfect != nil && perfect.Supported &&
		perfect.Runtime > 0 {
		text += fmt.Sprintf(", %s times the runtime without any stall",
			words.Ratio(best.Runtime/perfect.Runtime))
	}
	if p.TimeBound > 0 {
		text += fmt.Sprintf(", and %s times the least runtime possible on this machine",
			words.Ratio(best.ShareOfTimeBound))
	}
	text += fmt.Sprintf(". It reads %s from the source, %s times the least possible.",
		words.Bytes(best.SourceTotal), words.Ratio(best.ShareOfBound))
	return append(all, text)
}

// pageTables returns the tables of the page: times and reads, or those of a sweep.
func (r *plotted) pageTables() []pageTable {
	if len(r.Points) == 0 {
		return nil
	}
	if len(r.Sweep) > 0 {
		return r.sweepTables()
	}
	p := &r.Points[0]
	times := pageTable{
		Title: "What each policy takes", Pairs: true,
		Head: []string{
			"policy", "runtime, s", "before training, s", "stall, s", "from source",
			"over bound", "dataset seen", "from shuffle",
		},
	}
	if p.TimeBound > 0 {
		times.Head = append(times.Head, "over time bound")
	}
	reads := pageTable{
		Title: "Where the samples were read from: bytes, and numbers of samples",
		Head:  []string{"policy"},
	}
	tiers := r.ReadTiers(p)
	for _, where := range tiers {
		reads.Head = append(reads.Head, where.Name)
	}
	for i := range p.Policies {
		policy := &p.Policies[i]
		if !policy.Supported {
			times.Rows = append(times.Rows,
				pageRow{Head: policy.Name, Note: "cannot run: " + policy.Reason})
			continue
		}
		cells := []string{
			words.Seconds(policy.Runtime), words.Seconds(policy.BeforeTraining),
			words.Seconds(policy.Stall),
			words.Bytes(policy.SourceTotal), words.Ratio(policy.ShareOfBound),
			words.Percent(policy.SeenPerEpoch), words.Distance(policy.Shuffle),
		}
		if p.TimeBound > 0 {
			cells = append(cells, words.Ratio(policy.ShareOfTimeBound))
		}
		times.Rows = append(times.Rows, row(times.Head, policy.Name, cells))
		cells = nil
		for _, where := range tiers {
			a := policy.From(where.Key)
			text := "–"
			if a.Samples > 0 {
				text = words.Bytes(a.MB) + "|" + words.Group(float64(a.Samples), 0)
			}
			cells = append(cells, text)
		}
		if policy.Reads.Local["0"].Samples == 0 { // perfect reads nothing
			reads.Rows = append(reads.Rows, row(reads.Head, policy.Name, cells))
		}
	}
	return []pageTable{times, reads}
}

// row returns a row. In a cell, what follows a "|" is the detail.
func row(head []string, name string, cells []string) pageRow {
	out := pageRow{Head: name}
	for i, c := range cells {
		value, detail, _ := strings.Cut(c, "|")
		out.Cells = append(out.Cells, pageCell{head[i+1], value, detail})
	}
	return out
}

// sweepTables returns the tables of a sweep's runtimes: for one key a table with a row per policy
// and a column per value, for two keys a table per policy.
func (r *plotted) sweepTables() []pageTable {
	heads := func(corner, key string, values []string) []string {
		all := []string{corner}
		for _, v := range values {
			all = append(all, render.ShortKey(key)+" "+v)
		}
		return all
	}
	across := r.Axis(len(r.Sweep) - 1)
	if len(r.Sweep) == 1 {
		t := pageTable{Title: "Runtime, in seconds", Head: heads("policy", r.Sweep[0], across)}
		for _, name := range r.Names() {
			var cells []string
			for _, v := range across {
				cells = append(cells, render.RuntimeCell(r.At(name, v)))
			}
			t.Rows = append(t.Rows, row(t.Head, name, cells))
		}
		if cells := r.TimeBounds(); cells != nil {
			t.Rows = append(t.Rows, row(t.Head, render.TimeBoundName, cells))
		}
		return []pageTable{t}
	}
	var all []pageTable
	for _, name := range r.Names() {
		t := pageTable{Title: name + ": runtime, in seconds", Head: heads("", r.Sweep[1], across)}
		for _, d := range r.Axis(0) {
			var cells []string
			for _, v := range across {
				cells = append(cells, render.RuntimeCell(r.At(name, d, v)))
			}
			t.Rows = append(t.Rows, row(t.Head, render.ShortKey(r.Sweep[0])+" "+d, cells))
		}
		all = append(all, t)
	}
	return all
}
