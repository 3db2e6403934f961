package compare

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// TextOptions describe the terminal or file to which a comparison is written.
type TextOptions struct {
	Width  int  // of a line, in characters
	Colour bool // bold and faint text, by ANSI escape codes
}

// text lays out tables.
type text struct {
	strings.Builder
	TextOptions
}

const (
	bold  = "1"
	faint = "2"
	// marked is behind times of runs whose nodes share processors.
	marked = "~"
)

// Text writes the comparison: what was compared, what each policy takes and reads, measured beside
// simulated, the properties, and what did not take part.
func (c *Comparison) Text(w io.Writer, o TextOptions) error {
	t := &text{TextOptions: o}
	t.Width = max(o.Width, 60)
	fmt.Fprintf(t, "%s\n", t.style(bold, human.Name(c.Title)))
	names := 0
	for _, f := range c.Facts {
		names = max(names, utf8.RuneCountInString(f.Name))
	}
	for _, f := range c.Facts {
		for i, line := range human.Wrap(f.Value, t.Width-names-4) {
			name := ""
			if i == 0 {
				name = f.Name
			}
			fmt.Fprintf(t, "  %s  %s\n", t.style(faint, padded(name, names)), line)
		}
	}
	c.times(t)
	c.reads(t)
	c.orders(t)
	c.properties(t)
	c.others(t)
	for _, s := range c.Summary() {
		t.WriteByte('\n')
		for _, line := range human.Wrap(s, t.Width) {
			fmt.Fprintln(t, line)
		}
	}
	_, err := io.WriteString(w, t.String())
	return err
}

func (t *text) style(code, s string) string {
	if !t.Colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *text) title(title, unit string) {
	fmt.Fprintf(t, "\n%s%s\n", t.style(bold, title), t.style(faint, ", "+unit))
}

func (t *text) note(s string) {
	for _, line := range human.Wrap(s, t.Width-2) {
		fmt.Fprintf(t, "  %s\n", t.style(faint, line))
	}
}

// grid writes a table (human.Columns).
func (t *text) grid(head []string, rows [][]string, stub int, left bool) {
	for i, block := range human.Columns(head, rows, stub, t.Width, left) {
		if i > 0 {
			t.WriteByte('\n')
		}
		for _, line := range append([]string{t.style(faint, block.Head)}, block.Rows...) {
			fmt.Fprintln(t, line)
		}
	}
}

// seconds returns a time of a run, marked if its nodes share processors.
func (c *Comparison) seconds(s float64) string {
	if c.Shared && s > 0 {
		return marked + human.Seconds(s)
	}
	return human.Seconds(s)
}

// boundRow is the name of the row with the bound.
const boundRow = "perfect (bound)"

// timeHead are the headings of the table of times. Package replay predicts only some runs.
func (c *Comparison) timeHead() []string {
	head := []string{"policy", "runtime", "sim.", "error"}
	if c.replayed() {
		head = append(head, "replay")
	}
	return append(head, "stall", "sim.", "before", "sim.")
}

func (c *Comparison) replayed() bool {
	return slices.ContainsFunc(c.Rows, func(r Row) bool {
		return r.Measured != nil && r.Measured.Replayed != nil
	})
}

func (c *Comparison) times(t *text) {
	t.title("What each policy takes", "in seconds, measured and simulated")
	t.grid(c.timeHead(), c.timeRows(), 1, false)
	t.note(strings.Join(c.timeNotes(), " "))
}

// timeRows are the rows of the table of times, the bound last.
func (c *Comparison) timeRows() (rows [][]string) {
	add := func(name string, m *Run, s *Prediction) {
		row := []string{name, "-", "-", "-"}
		replay := "-"
		stall, before := []string{"-", "-"}, []string{"-", "-"}
		if m != nil {
			row[1] = c.seconds(m.Runtime)
			stall[0], before[0] = c.seconds(m.Stall), c.seconds(m.Before)
			if m.Replayed != nil {
				replay = human.Seconds(m.Replayed.Runtime)
			}
		}
		if s != nil {
			row[2], stall[1] = human.Seconds(s.Runtime), human.Seconds(s.Stall)
			before[1] = human.Seconds(s.Before)
		}
		if m != nil && s != nil {
			row[3] = fmt.Sprintf("%+.0f %%", 100*difference(s.Runtime, m.Runtime))
		}
		if c.replayed() {
			row = append(row, replay)
		}
		rows = append(rows, append(append(row, stall...), before...))
	}
	for _, r := range c.Rows {
		add(r.Policy, r.Measured, r.Simulated)
	}
	if c.Perfect != nil {
		add(boundRow, nil, c.Perfect)
	}
	return rows
}

// timeNotes explain the table of times.
func (c *Comparison) timeNotes() (all []string) {
	all = append(all, "runtime: from the request for the first batch to the end of the last step, "+
		"with before. stall: runtime less the computation of the steps. before: what the policy loads "+
		"before training. sim.: simulated. error: of the simulated runtime. perfect: no wait at all.")
	if c.replayed() {
		all = append(all, "replay: the runtime that hdmlp simulate --from-run predicts from what the "+
			"run measured of itself.")
	}
	if c.TimeBound > 0 {
		all = append(all, fmt.Sprintf("No policy that keeps the order can take less than %s s on this "+
			"machine.", human.Seconds(c.TimeBound)))
	}
	if c.Shared {
		all = append(all, fmt.Sprintf("%s: the nodes share the processors of this machine, so that "+
			"times are not those of as many machines; bytes are.", marked))
	}
	return all
}

func (c *Comparison) reads(t *text) {
	head := append([]string{"policy", ""}, Tiers()...)
	head = append(head, "left source")
	var rows [][]string
	add := func(name, how string, tiers map[string]float64, left float64) {
		row := []string{name, how}
		for _, tier := range Tiers() {
			cell := "-"
			if tiers[tier] > 0 {
				cell = human.Bytes(tiers[tier])
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, human.Bytes(left)))
	}
	for _, r := range c.Rows {
		name := r.Policy
		if m := r.Measured; m != nil {
			add(name, "measured", m.Tiers, m.SourceMB)
			if name = ""; m.Replayed != nil {
				add(name, "replay", m.Replayed.Tiers, m.Replayed.SourceMB)
			}
		}
		if s := r.Simulated; s != nil {
			add(name, "simulated", s.Tiers, s.SourceMB)
		}
	}
	t.title("Where the samples came from", "bytes")
	t.grid(head, rows, 2, false)
	t.note(c.readNote())
}

func (c *Comparison) readNote() string {
	return "memory, disk: own caches. peers: other nodes. left source: all bytes read from the " +
		"source, also those that fill caches; with caches alone, which staging buffers add to, the " +
		"least possible is " + human.Bytes(c.Bound) + "."
}

func (c *Comparison) orders(t *text) {
	t.title("What epochs show, and in which order", "measured and simulated")
	t.grid(orderHead, c.orderRows(), 1, false)
	t.note(orderNote)
}

var orderHead = []string{"policy", "seen", "sim.", "distance", "sim.", "global batches"}

const orderNote = "seen: the share of the samples that an epoch shows. distance: 0 is a full " +
	"shuffle, 1 an order that never changes. global batches: whether they have the samples of the " +
	"full shuffle by the seed."

// orderRows are the rows of the table of orders.
func (c *Comparison) orderRows() (rows [][]string) {
	for _, r := range c.Rows {
		row := []string{r.Policy, "-", "-", "-", "-", "-"}
		if m := r.Measured; m != nil {
			row[1], row[3] = human.Percent(m.Seen), c.distance(m.Distance)
			if row[5] = "others"; m.SameBatches {
				row[5] = "the same"
			}
		}
		if s := r.Simulated; s != nil {
			row[2], row[4] = human.Percent(s.Seen), c.distance(s.Distance)
		}
		rows = append(rows, row)
	}
	return rows
}

// distance formats a distance, which a single epoch does not have.
func (c *Comparison) distance(d float64) string {
	if c.Settings.Epochs < 2 {
		return "-"
	}
	return fmt.Sprintf("%.2f", d)
}

// cell returns a property as a cell.
func (p Property) cell() string {
	switch {
	case !p.Known && p.Value == "":
		return "-"
	case !p.Known:
		return "? " + p.Value
	case p.Holds:
		return "yes " + p.Value
	}
	return "no  " + p.Value
}

func (c *Comparison) properties(t *text) {
	head := append([]string{"policy"}, propertyNames...)
	var rows [][]string
	for _, r := range c.Rows {
		if r.Properties == nil {
			continue
		}
		row := []string{r.Policy}
		for _, p := range r.Properties.list() {
			row = append(row, p.cell())
		}
		rows = append(rows, row)
	}
	if rows == nil {
		return
	}
	t.title("The properties of table 2.1 of the thesis", "as measured")
	t.grid(head, rows, 1, true)
	for _, words := range c.propertyNotes() {
		t.note(words)
	}
}

// propertyNotes say how each property is measured.
func (c *Comparison) propertyNotes() (all []string) {
	for _, words := range propertyWords {
		if strings.Contains(words, "%s") {
			words = fmt.Sprintf(words, fmt.Sprintf("%.3f",
				distanceLimit(c.Samples, c.Settings.Epochs)))
		}
		all = append(all, words)
	}
	return all
}

// others writes what did not take part, and what failed.
func (c *Comparison) others(t *text) {
	list := c.failures()
	if list == nil {
		return
	}
	width := 0
	for _, l := range list {
		width = max(width, utf8.RuneCountInString(l.Policy))
	}
	t.title("Not compared", "and why")
	for _, l := range list {
		for i, line := range human.Wrap(l.Why, t.Width-width-4) {
			name := ""
			if i == 0 {
				name = l.Policy
			}
			fmt.Fprintf(t, "  %s  %s\n", padded(name, width), line)
		}
	}
}

// failures returns the policies that were left out, and those that failed.
func (c *Comparison) failures() (list []Left) {
	for _, r := range c.Rows {
		if r.Failed != "" {
			list = append(list, Left{r.Policy, "failed: " + r.Failed})
		}
	}
	return append(list, c.Left...)
}

// Summary returns the most important results as sentences.
func (c *Comparison) Summary() (all []string) {
	switch n := c.Measured(); {
	case c.Interrupted && n == len(c.Rows):
		all = append(all, "Interrupted: all policies ran to the end, and not all were simulated. The "+
			"same command does so.")
	case c.Interrupted:
		all = append(all, fmt.Sprintf("Interrupted: %d of %d policies ran to the end. The same "+
			"command goes on with the others.", n, len(c.Rows)))
	}
	if best := c.Best(); best != nil && c.Settings.Epochs > 1 {
		words := fmt.Sprintf("The fastest policy that keeps the full shuffle is %s: %s measured",
			best.Policy, human.Clock(best.Measured.Runtime))
		if best.Simulated != nil {
			words += fmt.Sprintf(", %s simulated", human.Clock(best.Simulated.Runtime))
		}
		words += fmt.Sprintf("; %s left the source, %s times the least possible with caches alone.",
			human.Bytes(best.Measured.SourceMB),
			human.Ratio(best.Measured.SourceMB/max(c.Bound, 1e-9)))
		all = append(all, words)
	}
	for _, n := range c.Notes {
		all = append(all, human.Text(n))
	}
	return all
}

func padded(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}
