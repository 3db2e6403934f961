package render

import (
	"fmt"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// Write writes the report to a directory, which it creates if necessary: index.html, result.json,
// result.csv, and each plot as PNG and SVG. It returns the names of the files written, also on
// error.
func Write(r *Report, dir string) ([]string, error) { return (&plotted{r}).write(dir) }

// plotted adds plots to a report.
type plotted struct{ *Report }

// figures returns the plots of the report.
func (r *plotted) figures() []*drawing.Figure {
	var all []*drawing.Figure
	switch {
	case len(r.Points) == 0:
	case len(r.Sweep) == 0:
		all = append(all, r.bars(&r.Points[0]))
		if f := r.batches(&r.Points[0]); f != nil {
			all = append(all, f)
		}
	case len(r.Sweep) == 1:
		all = append(all, r.lines())
		if r.Scaling {
			all = append(all, r.efficiency())
		}
	default:
		for _, name := range r.Names() {
			all = append(all, r.heat(name))
		}
	}
	return all
}

func (r *plotted) write(dir string) ([]string, error) {
	return r.document().Write(dir, drawing.File{Name: "result.json", Write: r.JSON},
		drawing.File{Name: "result.csv", Write: r.CSV})
}

// document returns the report as a page.
func (r *plotted) document() *drawing.Document {
	d := &drawing.Document{
		Title: r.Title, Summary: r.summary(), Figures: r.figures(), Tables: r.pageTables(),
	}
	for _, f := range r.Facts {
		d.Facts = append(d.Facts, drawing.Fact{Name: f.Name, Value: f.Value})
	}
	timed := ""
	if len(r.Sweep) == 0 && r.TimeBounds() != nil {
		timed = "Over time bound: the runtime, relative to the least that any policy needs which " +
			"reads the samples in the same order on this machine. "
	}
	if r.Scaling {
		timed += "Speed-up: relative to the policy's own runtime on the fewest nodes on which it " +
			"runs. Efficiency: speed-up, relative to that of the number of nodes. "
	}
	if r.modelled() {
		timed += "*: loading takes longer than training in every epoch after the first. " +
			r.limitText() + " "
	}
	d.Notes = []string{fmt.Sprintf("Computed in profile %v with seed %v. Runtimes are predictions "+
		"of the performance model, not measurements. Over bound: bytes read from the source, "+
		"including those that fill caches, relative to the least possible. %sDataset seen: the "+
		"share of the samples that is read in an epoch. From shuffle: the distance of the order "+
		"from a full shuffle: 0 is a full shuffle, 1 an order that never changes.", r.Profile, r.Seed,
		timed)}
	return d
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
	var best *Policy
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
		human.Clock(best.Runtime))
	if perfect := p.Find(policies.Bound().Name()); perfect != nil && perfect.Supported &&
		perfect.Runtime > 0 {
		text += fmt.Sprintf(", %s times the runtime without any stall",
			human.Ratio(best.Runtime/perfect.Runtime))
	}
	if p.TimeBound > 0 {
		text += fmt.Sprintf(", and %s times the least runtime possible on this machine",
			human.Ratio(best.ShareOfTimeBound))
	}
	text += fmt.Sprintf(". It reads %s from the source, %s times the least possible.",
		human.Bytes(best.SourceTotal), human.Ratio(best.ShareOfBound))
	return append(all, text)
}

// drawing.Tables returns the tables of the page: times and reads, or those of a sweep.
func (r *plotted) pageTables() []drawing.Table {
	if len(r.Points) == 0 {
		return nil
	}
	if len(r.Sweep) > 0 {
		return r.sweepTables()
	}
	p := &r.Points[0]
	times := drawing.Table{
		Title: "What each policy takes", Pairs: true,
		Head: []string{
			"policy", "runtime, s", "before training, s", "stall, s", "from source",
			"over bound", "dataset seen", "from shuffle",
		},
	}
	if p.TimeBound > 0 {
		times.Head = append(times.Head, "over time bound")
	}
	reads := drawing.Table{
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
				drawing.Row{Head: policy.Name, Note: "cannot run: " + policy.Reason})
			continue
		}
		cells := []string{
			human.Seconds(policy.Runtime), human.Seconds(policy.BeforeTraining),
			human.Seconds(policy.Stall),
			human.Bytes(policy.SourceTotal), human.Ratio(policy.ShareOfBound),
			human.Percent(policy.SeenPerEpoch), human.Distance(policy.Shuffle),
		}
		if p.TimeBound > 0 {
			cells = append(cells, human.Ratio(policy.ShareOfTimeBound))
		}
		times.Rows = append(times.Rows, row(times.Head, policy.Name, cells))
		cells = nil
		for _, where := range tiers {
			a := policy.From(where.Key)
			text := "–"
			if a.Samples > 0 {
				text = human.Bytes(a.MB) + "|" + human.Group(float64(a.Samples), 0)
			}
			cells = append(cells, text)
		}
		if policy.Reads.Local["0"].Samples == 0 { // perfect reads nothing
			reads.Rows = append(reads.Rows, row(reads.Head, policy.Name, cells))
		}
	}
	return []drawing.Table{times, reads}
}

// row returns a row. In a cell, what follows a "|" is the detail.
func row(head []string, name string, cells []string) drawing.Row {
	out := drawing.Row{Head: name}
	for i, c := range cells {
		value, detail, _ := strings.Cut(c, "|")
		out.Cells = append(out.Cells, drawing.Cell{Name: head[i+1], Value: value, Detail: detail})
	}
	return out
}

// sweepTables returns the tables of a sweep's runtimes: for one key a table with a row per policy
// and a column per value, for two keys a table per policy.
func (r *plotted) sweepTables() []drawing.Table {
	heads := func(corner, key string, values []string) []string {
		all := []string{corner}
		for _, v := range values {
			all = append(all, ShortKey(key)+" "+v)
		}
		return all
	}
	across := r.Axis(len(r.Sweep) - 1)
	if len(r.Sweep) == 1 {
		t := drawing.Table{Title: "Runtime, in seconds", Head: heads("policy", r.Sweep[0], across)}
		for _, name := range r.Names() {
			var cells []string
			for _, v := range across {
				cells = append(cells, RuntimeCell(r.At(name, v)))
			}
			t.Rows = append(t.Rows, row(t.Head, name, cells))
		}
		if cells := r.TimeBounds(); cells != nil {
			t.Rows = append(t.Rows, row(t.Head, TimeBoundName, cells))
		}
		if r.Scaling {
			return append([]drawing.Table{t}, r.scalingTables(heads)...)
		}
		return []drawing.Table{t}
	}
	var all []drawing.Table
	for _, name := range r.Names() {
		t := drawing.Table{Title: name + ": runtime, in seconds", Head: heads("", r.Sweep[1], across)}
		for _, d := range r.Axis(0) {
			var cells []string
			for _, v := range across {
				cells = append(cells, RuntimeCell(r.At(name, d, v)))
			}
			t.Rows = append(t.Rows, row(t.Head, ShortKey(r.Sweep[0])+" "+d, cells))
		}
		all = append(all, t)
	}
	return all
}
