package compare

import (
	"encoding/json"
	"io"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// ResultFile is the name of the JSON beside the page.
const ResultFile = "result.json"

// Write writes the comparison to a directory, which it creates if necessary: index.html,
// result.json, and each plot as PNG and SVG. It returns the names of the files written, also on
// error.
func (c *Comparison) Write(dir string) ([]string, error) {
	return c.document().Write(dir, drawing.File{Name: ResultFile, Write: c.JSON})
}

// JSON writes the comparison as JSON.
func (c *Comparison) JSON(w io.Writer) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		_, err = io.WriteString(w, human.JSON(string(data))+"\n")
	}
	return err
}

func (c *Comparison) document() *drawing.Document {
	d := &drawing.Document{Title: c.Title, Summary: c.Summary(), Notes: c.timeNotes()}
	for _, f := range c.Facts {
		d.Facts = append(d.Facts, drawing.Fact{Name: f.Name, Value: f.Value})
	}
	d.Figures = []*drawing.Figure{c.timeFigure(), c.readFigure()}
	times := drawing.Table{
		Title: "What each policy takes, in seconds", Pairs: true,
		Head: c.timeHead(),
	}
	for _, row := range c.timeRows() {
		times.Rows = append(times.Rows, rowOf(times.Head, row))
	}
	orders := drawing.Table{
		Title: "What epochs show, and in which order", Pairs: true, Head: orderHead,
	}
	for _, row := range c.orderRows() {
		orders.Rows = append(orders.Rows, rowOf(orders.Head, row))
	}
	d.Tables = append(d.Tables, times, c.readTable(), orders, c.propertyTable())
	if list := c.failures(); list != nil {
		left := drawing.Table{Title: "Not compared", Head: []string{"policy", "why"}}
		for _, l := range list {
			left.Rows = append(left.Rows, drawing.Row{Head: l.Policy, Note: human.Text(l.Why)})
		}
		d.Tables = append(d.Tables, left)
	}
	d.Notes = append(append(d.Notes, c.readNote(), orderNote), c.propertyNotes()...)
	return d
}

func rowOf(head, cells []string) drawing.Row {
	row := drawing.Row{Head: cells[0]}
	for k, cell := range cells[1:] {
		row.Cells = append(row.Cells, drawing.Cell{Name: head[k+1], Value: cell})
	}
	return row
}

// The colours of tiers are those of the simulator's plots.
var tierColours = map[string]uint32{
	Memory: 0x1a5e97, Disk: 0x7db8de, Peers: 0xf0b73f, Source: 0xc8501e,
}

func tierEntries() (all []drawing.Entry) {
	for _, tier := range Tiers() {
		all = append(all, drawing.Entry{Colour: drawing.RGB(tierColours[tier]), Name: tier})
	}
	return all
}

// timeFigure has two bars for each policy: measured, and simulated.
func (c *Comparison) timeFigure() *drawing.Figure {
	b := drawing.Bars{
		Title: "Runtime, measured and simulated", Axis: "runtime, seconds",
		Parts: []drawing.Entry{
			{Colour: drawing.RGB(0x4a5260), Name: "before training"},
			{Colour: drawing.RGB(0x1a5e97), Name: "computation"},
			{Colour: drawing.RGB(0xc8501e), Name: "stall"},
		},
	}
	add := func(name string, before, stall, runtime float64, text string) {
		stall = max(stall-before, 0)
		b.Bars = append(b.Bars, drawing.Bar{
			Name: name, Parts: []float64{before, max(runtime-before-stall, 0), stall}, Text: text,
		})
	}
	for _, r := range c.Rows {
		name := r.Policy
		if m := r.Measured; m != nil {
			add(name, m.Before, m.Stall, m.Runtime, c.seconds(m.Runtime)+" s")
			name = "simulated"
		} else {
			name += ", simulated"
		}
		if s := r.Simulated; s != nil {
			add(name, s.Before, s.Stall, s.Runtime, human.Seconds(s.Runtime)+" s")
		}
	}
	if p := c.Perfect; p != nil {
		add(boundRow, p.Before, p.Stall, p.Runtime, human.Seconds(p.Runtime)+" s")
	}
	return b.Figure("runtime", "Of each policy the measured runtime, and below it the simulated "+
		"one. Stall: the time for which training waits for samples.")
}

// readFigure has two bars for each policy: the bytes that were delivered, by tier.
func (c *Comparison) readFigure() *drawing.Figure {
	b := drawing.Bars{
		Title: "Where the samples came from", Axis: "delivered, MB", Parts: tierEntries(),
	}
	add := func(name string, tiers map[string]float64, left float64) {
		var parts []float64
		for _, tier := range Tiers() {
			parts = append(parts, tiers[tier])
		}
		b.Bars = append(b.Bars, drawing.Bar{
			Name: name, Parts: parts, Text: human.Bytes(left) + " left the source",
		})
	}
	for _, r := range c.Rows {
		name := r.Policy
		if m := r.Measured; m != nil {
			add(name, m.Tiers, m.SourceMB)
			name = "simulated"
		} else {
			name += ", simulated"
		}
		if s := r.Simulated; s != nil {
			add(name, s.Tiers, s.SourceMB)
		}
	}
	return b.Figure("reads", "Of each policy what ranks were given by tier, measured, and below it "+
		"simulated. Beside the bar: all that left the source, also what filled caches.")
}

func (c *Comparison) readTable() drawing.Table {
	t := drawing.Table{Title: "Where the samples came from: measured, and simulated below"}
	t.Head = append(append([]string{"policy"}, Tiers()...), "left the source")
	for _, r := range c.Rows {
		row := drawing.Row{Head: r.Policy}
		cell := func(name string, of func(tiers map[string]float64, left float64) float64) {
			cell := drawing.Cell{Name: name, Value: "–"}
			if m := r.Measured; m != nil {
				cell.Value = human.Bytes(of(m.Tiers, m.SourceMB))
			}
			if s := r.Simulated; s != nil {
				cell.Detail = human.Bytes(of(s.Tiers, s.SourceMB))
			}
			row.Cells = append(row.Cells, cell)
		}
		for _, tier := range Tiers() {
			cell(tier, func(tiers map[string]float64, _ float64) float64 { return tiers[tier] })
		}
		cell("left the source", func(_ map[string]float64, left float64) float64 { return left })
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (c *Comparison) propertyTable() drawing.Table {
	t := drawing.Table{
		Title: "The properties of table 2.1 of the thesis, as measured",
		Head:  append([]string{"policy"}, propertyNames...),
	}
	for _, r := range c.Rows {
		if r.Properties == nil {
			continue
		}
		row := drawing.Row{Head: r.Policy}
		for k, p := range r.Properties.list() {
			answer := "no"
			switch {
			case !p.Known:
				answer = "?"
			case p.Holds:
				answer = "yes"
			}
			row.Cells = append(row.Cells, drawing.Cell{
				Name: propertyNames[k], Value: answer, Detail: p.Value,
			})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
