package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
	"github.com/hdmlp/hdmlp/internal/study/simulate/scaling"
)

// Speedup is how the runtime of a policy scales, relative to its own on the fewest nodes on which
// it runs.
type Speedup struct {
	Speedup    float64 `json:"speedup"`
	Efficiency float64 `json:"efficiency"` // the speed-up over that of the number of nodes
}

// modelName returns the name of a method of the analytical model among policies.
func modelName(m scaling.Method) string { return m.Name + " (model)" }

// modelled reports whether points have predictions of the analytical model.
func (r *Report) modelled() bool {
	return r.Scaling && len(r.Points) > 0 && r.Points[0].Model != nil
}

// nodes returns the number of nodes of a point of a scaling.
func (p *Point) nodes() float64 {
	n, err := strconv.ParseFloat(p.Values[0], 64)
	if err != nil { // the scenario would have been refused
		return math.NaN()
	}
	return n
}

// runtimes returns the point's runtimes by name, of policies and of the methods of the analytical
// model.
func (p *Point) runtimes() map[string]float64 {
	all := map[string]float64{}
	for _, policy := range p.Policies {
		if policy.Supported && policy.Runtime > 0 {
			all[policy.Name] = policy.Runtime
		}
	}
	if p.Model != nil {
		for _, m := range p.Model.Methods {
			all[modelName(m)] = m.Runtime
		}
	}
	return all
}

// speedups returns, for each point of a scaling, the speed-ups by name; empty maps otherwise.
func (r *Report) speedups() []map[string]Speedup {
	found := make([]map[string]Speedup, len(r.Points))
	if !r.Scaling {
		return found
	}
	type base struct{ nodes, runtime float64 }
	fewest := map[string]base{}
	for i := range r.Points {
		p := &r.Points[i]
		for name, runtime := range p.runtimes() {
			if b, ok := fewest[name]; !ok || p.nodes() < b.nodes {
				fewest[name] = base{p.nodes(), runtime}
			}
		}
	}
	for i := range r.Points {
		p := &r.Points[i]
		found[i] = map[string]Speedup{}
		for name, runtime := range p.runtimes() {
			b := fewest[name]
			s := b.runtime / runtime
			found[i][name] = Speedup{s, s * b.nodes / p.nodes()}
		}
	}
	return found
}

// speedupCells returns the speed-up and the efficiency of a name at each point, as tables show
// them.
func speedupCells(speedups []map[string]Speedup, name string) (cells []string) {
	for _, point := range speedups {
		if s, ok := point[name]; ok {
			cells = append(cells, human.Ratio(s.Speedup), human.Group(s.Efficiency*100, 0)+" %")
		} else {
			cells = append(cells, "", "n/a")
		}
	}
	return cells
}

// scaling writes how the runtimes scale, and what the analytical model predicts.
func (t *tables) scaling(r *Report) {
	speedups := r.speedups()
	head := []string{"policy"}
	for i := range r.Points {
		head = append(head, r.Points[i].Values[0], "")
	}
	var rows [][]string
	for _, name := range r.Names() {
		rows = append(rows, append([]string{name}, speedupCells(speedups, name)...))
	}
	t.title("Speed-up and efficiency by "+r.Sweep[0], "")
	t.grid(head, rows)
	t.note("relative to the policy's own runtime on the fewest nodes on which it runs. " +
		"efficiency: speed-up, relative to that of the number of nodes.")
	if !r.modelled() {
		return
	}
	head = []string{"loading"}
	rows = nil
	for i := range r.Points {
		head = append(head, r.Points[i].Values[0])
		for k, m := range r.Points[i].Model.Methods {
			if i == 0 {
				rows = append(rows, []string{m.Name})
			}
			rows[k] = append(rows[k], modelCell(m))
		}
	}
	t.title("Analytical model of Yang and Cong", "in seconds")
	t.grid(head, rows)
	t.note("*: loading takes longer than training in every epoch after the first. " +
		r.limitText())
}

// modelCell returns the runtime of a method as a table shows it, marked if loading limits it.
func modelCell(m scaling.Method) string {
	if m.Later.Limited() {
		return human.Seconds(m.Runtime) + "*"
	}
	return human.Seconds(m.Runtime) + " "
}

// limitText describes where regular loading stops scaling.
func (r *Report) limitText() string {
	switch {
	case !r.Limit.Bounded:
		return "The source gives any number of nodes what they train on."
	case r.Limit.Nodes == 0:
		return "The source gives not even one node what it trains on."
	}
	nodes := fmt.Sprintf("%s nodes", human.Number(float64(r.Limit.Nodes)))
	if r.Limit.Nodes == 1 {
		nodes = "1 node"
	}
	return "The source gives up to " + nodes + " what they train on; on more, regular loading does " +
		"not scale."
}

// scalingTables returns the tables of a page on how the runtimes scale. heads returns the headings
// of columns over the values of a key.
func (r *plotted) scalingTables(heads func(corner, key string, values []string) []string,
) []drawing.Table {
	speedups := r.speedups()
	t := drawing.Table{
		Title: "Speed-up and efficiency",
		Head:  heads("policy", r.Sweep[0], r.Axis(0)),
	}
	for _, name := range r.Names() {
		var cells []string
		for _, point := range speedups {
			cell := "n/a"
			if s, ok := point[name]; ok {
				cell = human.Ratio(s.Speedup) + "|" + human.Group(s.Efficiency*100, 0) + " %"
			}
			cells = append(cells, cell)
		}
		t.Rows = append(t.Rows, row(t.Head, name, cells))
	}
	if !r.modelled() {
		return []drawing.Table{t}
	}
	model := drawing.Table{
		Title: "Analytical model of Yang and Cong, in seconds",
		Head:  heads("loading", r.Sweep[0], r.Axis(0)),
	}
	for k, m := range r.Points[0].Model.Methods {
		var cells []string
		for i := range r.Points {
			cells = append(cells, strings.TrimSpace(modelCell(r.Points[i].Model.Methods[k])))
		}
		model.Rows = append(model.Rows, row(model.Head, m.Name, cells))
	}
	return []drawing.Table{t, model}
}

// efficiency returns a line chart of the efficiency of each policy over the number of nodes.
func (r *plotted) efficiency() *drawing.Figure {
	speedups := r.speedups()
	var lines []series
	for _, s := range r.series() {
		for i := range s.y {
			s.y[i] = math.NaN()
			if v, ok := speedups[i][s.name]; ok {
				s.y[i] = v.Efficiency
			}
		}
		if s.name != TimeBoundName {
			lines = append(lines, s)
		}
	}
	f := r.lines()
	f.Name, f.Title = "efficiency", "Efficiency by number of nodes"
	f.Caption = "The speed-up of each policy relative to its own runtime on the fewest nodes on " +
		"which it runs, divided by that of the number of nodes: at 100 percent, twice the nodes " +
		"take half the time."
	chart := r.chart(lines)
	chart.quantity, chart.unit = "efficiency", func(float64) (string, float64) {
		return "percent", 0.01
	}
	chart.logY, chart.ideal = false, false
	f.Draw = func(c *drawing.Canvas) {
		l := chart
		l.c = c
		l.draw()
	}
	return f
}

// modelJSON returns what the analytical model predicts at a point.
func modelJSON(p *scaling.Prediction, speedups map[string]Speedup) json.RawMessage {
	var b bytes.Buffer
	object(&b, func(field func(string, any)) {
		field("cached_share", p.Alpha)
		field("imbalance_share", p.Beta)
		for _, m := range p.Methods {
			field(m.Key, struct {
				Runtime       float64 `json:"runtime_s"`
				Later         float64 `json:"later_epoch_s"`
				Limited       bool    `json:"limited_by_loading"`
				Training      float64 `json:"training_s"`
				Storage       float64 `json:"storage_s"`
				Exchange      float64 `json:"exchange_s"`
				Preprocessing float64 `json:"preprocessing_s"`
				Speedup
			}{
				m.Runtime, m.Later.Seconds(), m.Later.Limited(), m.Later.Training,
				m.Later.Storage, m.Later.Exchange, m.Later.Preprocessing, speedups[modelName(m)],
			})
		}
	})
	return b.Bytes()
}
