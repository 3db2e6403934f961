package render

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// TableOptions describe the terminal or file to which a table is written.
type TableOptions struct {
	Width  int  // of a line, in characters
	Colour bool // bold and faint text, by ANSI escape codes
}

// Table writes the report as text tables: what was simulated, what each policy takes, and where
// its samples were read from.
func (r *Report) Table(w io.Writer, o TableOptions) error {
	t := &tables{width: max(o.Width, 40), colour: o.Colour}
	t.heading(r)
	switch {
	case len(r.Points) == 0:
	case len(r.Sweep) == 0:
		t.point(r, &r.Points[0])
	case len(r.Sweep) == 2:
		for _, name := range r.Names() {
			t.matrix(r, name)
		}
	default:
		t.sweep(r)
	}
	if r.Interrupted {
		fmt.Fprintf(&t.text, "\n%s\n",
			t.style("1", "Interrupted: only the simulations that finished are shown."))
	}
	_, err := w.Write(t.text.Bytes())
	return err
}

// tables lays out tables.
type tables struct {
	text   bytes.Buffer
	width  int
	colour bool
}

func (t *tables) style(code, text string) string {
	if !t.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

const (
	bold  = "1"
	faint = "2"
)

// heading writes what was simulated.
func (t *tables) heading(r *Report) {
	fmt.Fprintf(&t.text, "%s\n", t.style(bold, human.Name(r.Title)))
	name := 0
	for _, f := range r.Facts {
		name = max(name, len(f.Name))
	}
	for _, f := range r.Facts {
		lines := human.Wrap(f.Value, t.width-name-4)
		for i, line := range lines {
			head := ""
			if i == 0 {
				head = f.Name
			}
			fmt.Fprintf(&t.text, "  %s  %s\n", t.style(faint, fmt.Sprintf("%-*s", name, head)),
				line)
		}
	}
}

// point writes the two tables of a single point.
func (t *tables) point(r *Report, p *Point) {
	best := p.Find(policies.Bound().Name())
	head := []string{"policy", "runtime", "before", "stall"}
	switch {
	case p.TimeBound > 0:
		head = append(head, "/bound")
	case best != nil && best.Supported:
		head = append(head, "/perfect")
	}
	head = append(head, "seen", "distance")
	var rows [][]string
	for _, policy := range p.Policies {
		if !policy.Supported {
			continue
		}
		row := []string{
			policy.Name, human.Seconds(policy.Runtime),
			human.Seconds(policy.BeforeTraining), human.Seconds(policy.Stall),
		}
		switch {
		case p.TimeBound > 0:
			row = append(row, human.Ratio(policy.ShareOfTimeBound))
		case best != nil && best.Supported:
			row = append(row, human.Ratio(policy.Runtime/best.Runtime))
		}
		rows = append(rows,
			append(row, human.Percent(policy.SeenPerEpoch), human.Distance(policy.Shuffle)))
	}
	if rows != nil {
		t.title("What each policy takes", "in seconds")
		t.grid(head, rows)
		bound := ""
		if p.TimeBound > 0 {
			bound = "/bound: relative to the least possible on this machine in the same order, " +
				human.Seconds(p.TimeBound) + " s. "
		}
		t.note("before: preloading before training starts. " +
			"stall: time for which the slowest node waits for data. " + bound +
			"seen: share of the dataset that is read in an epoch. " +
			"distance: 0 is a full shuffle, 1 an order that never changes.")
	}
	t.reads(r, p)
	t.unsupported(p)
}

// reads writes where samples were read from, without the tiers that no policy reads from.
func (t *tables) reads(r *Report, p *Point) {
	tiers := r.ReadTiers(p)
	head := []string{"policy"}
	for _, where := range tiers {
		head = append(head, where.Name, "")
	}
	head = append(head, "left source", "/bound")
	var rows [][]string
	for i := range p.Policies {
		policy := &p.Policies[i]
		if !policy.Supported || policy.Reads.Local["0"].Samples > 0 {
			continue // perfect reads nothing
		}
		row := []string{policy.Name}
		for _, where := range tiers {
			a := policy.From(where.Key)
			if a.Samples == 0 {
				row = append(row, "", "-")
				continue
			}
			row = append(row, human.Group(float64(a.Samples), 0), human.Bytes(a.MB))
		}
		rows = append(rows,
			append(row, human.Bytes(policy.SourceTotal), human.Ratio(policy.ShareOfBound)))
	}
	if rows == nil {
		return
	}
	t.title("Where the samples were read from", "samples and bytes")
	t.grid(head, rows)
	t.note("left source: all bytes read from the source, including those that fill caches. " +
		"/bound: relative to the least possible, " + human.Bytes(p.Bound) + ".")
}

// unsupported lists the policies that cannot run the point, with the reasons.
func (t *tables) unsupported(p *Point) {
	var rows []Policy
	width := 0
	for _, policy := range p.Policies {
		if !policy.Supported {
			rows, width = append(rows, policy), max(width, len(policy.Name))
		}
	}
	if rows == nil {
		return
	}
	t.title("Policies that cannot run here", "")
	for _, policy := range rows {
		for i, line := range human.Wrap(policy.Reason, t.width-width-4) {
			head := ""
			if i == 0 {
				head = policy.Name
			}
			fmt.Fprintf(&t.text, "  %-*s  %s\n", width, head, line)
		}
	}
}

// sweep writes the runtimes of a sweep over one key: a row per policy, a column per value, split
// into as many tables as the width requires.
func (t *tables) sweep(r *Report) {
	t.title("Runtime by "+r.Sweep[0], "in seconds")
	head := []string{"policy"}
	for i := range r.Points {
		head = append(head, r.Points[i].Values[0])
	}
	var rows [][]string
	for _, name := range r.Names() {
		row := []string{name}
		for i := range r.Points {
			row = append(row, RuntimeCell(r.Points[i].Find(name)))
		}
		rows = append(rows, row)
	}
	if cells := r.TimeBounds(); cells != nil {
		rows = append(rows, append([]string{TimeBoundName}, cells...))
	}
	t.grid(head, rows)
	t.reasons(r)
	if r.Scaling {
		t.scaling(r)
	}
}

// matrix writes the runtimes of one policy in a sweep over two keys.
func (t *tables) matrix(r *Report, name string) {
	t.title(name,
		fmt.Sprintf("seconds; down %s, across %s", ShortKey(r.Sweep[0]), ShortKey(r.Sweep[1])))
	down, across := r.Axis(0), r.Axis(1)
	var rows [][]string
	for _, d := range down {
		row := []string{d}
		for _, a := range across {
			row = append(row, RuntimeCell(r.At(name, d, a)))
		}
		rows = append(rows, row)
	}
	t.grid(append([]string{""}, across...), rows)
	t.reasonsOf(r, name)
}

// Axis returns the values of the k-th key, in the order in which they were given.
func (r *Report) Axis(k int) []string {
	var values []string
	for i := range r.Points {
		if v := r.Points[i].Values[k]; !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// At returns a policy at the point with these values; nil if it was not simulated.
func (r *Report) At(name string, values ...string) *Policy {
	for i := range r.Points {
		if slices.Equal(r.Points[i].Values, values) {
			return r.Points[i].Find(name)
		}
	}
	return nil
}

// RuntimeCell returns the runtime as a table shows it: "" if p is nil, "n/a" if the policy cannot
// run.
func RuntimeCell(p *Policy) string {
	switch {
	case p == nil:
		return ""
	case !p.Supported:
		return "n/a"
	}
	return human.Seconds(p.Runtime)
}

// TimeBoundName is the name of the lower bound of the runtimes in tables and plots.
const TimeBoundName = "time bound"

// TimeBounds returns the points' lower bounds of the runtime as a table shows them, "" where there
// is none; nil if no point has one.
func (r *Report) TimeBounds() []string {
	cells, some := make([]string, len(r.Points)), false
	for i := range r.Points {
		if bound := r.Points[i].TimeBound; bound > 0 {
			cells[i], some = human.Seconds(bound), true
		}
	}
	if !some {
		return nil
	}
	return cells
}

// reasons writes, for each policy that cannot run at some point of a sweep, the first such point
// and the reason.
func (t *tables) reasons(r *Report) {
	for _, name := range r.Names() {
		t.reasonsOf(r, name)
	}
}

func (t *tables) reasonsOf(r *Report, name string) {
	for i := range r.Points {
		if p := r.Points[i].Find(name); p != nil && !p.Supported {
			t.note("n/a: " + name + " cannot run, for example with " + r.Sweep[0] + " = " +
				r.Points[i].Values[0] + ": " + p.Reason)
			return
		}
	}
}

func (t *tables) title(title, unit string) {
	fmt.Fprintf(&t.text, "\n%s", t.style(bold, title))
	if unit != "" {
		fmt.Fprintf(&t.text, "%s", t.style(faint, ", "+unit))
	}
	t.text.WriteByte('\n')
}

func (t *tables) note(text string) {
	for _, line := range human.Wrap(text, t.width-2) {
		fmt.Fprintf(&t.text, "  %s\n", t.style(faint, line))
	}
}

// grid writes a table (human.Columns).
func (t *tables) grid(head []string, rows [][]string) {
	for i, block := range human.Columns(head, rows, 1, t.width, false) {
		if i > 0 {
			t.text.WriteByte('\n')
		}
		for _, line := range append([]string{t.style(faint, block.Head)}, block.Rows...) {
			fmt.Fprintln(&t.text, line)
		}
	}
}
