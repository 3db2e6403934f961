package render_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/simulate/render"
	"github.com/hdmlp/hdmlp/internal/study/simulate/rendertest"
)

func TestTable(t *testing.T) {
	for name, test := range map[string]struct {
		report  *render.Report
		options render.TableOptions
	}{
		"table-80.golden":     {rendertest.Sample(), render.TableOptions{Width: 80}},
		"table-110.golden":    {rendertest.Sample(), render.TableOptions{Width: 110}},
		"table-colour.golden": {rendertest.Sample(), render.TableOptions{Width: 80, Colour: true}},
		"table-sweep.golden":  {rendertest.Swept(1), render.TableOptions{Width: 80}},
		"table-matrix.golden": {rendertest.Swept(2), render.TableOptions{Width: 60}},

		"table-scaling-80.golden": {rendertest.Scaled(), render.TableOptions{Width: 80}},
		"table-scaling-50.golden": {rendertest.Scaled(), render.TableOptions{Width: 50}},
	} {
		var b bytes.Buffer
		if err := test.report.Table(&b, test.options); err != nil {
			t.Fatal(err)
		}
		testkit.Compare(t, name, b.String())
		if test.options.Colour {
			continue
		}
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > test.options.Width {
				t.Errorf("%s has a line of %d characters:\n%s", name, n, line)
			}
		}
	}
}

func TestTableInterrupted(t *testing.T) {
	r := rendertest.Sample()
	r.Interrupted, r.Points[0].Policies = true, nil
	var b bytes.Buffer
	if err := r.Table(&b, render.TableOptions{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "Interrupted") || strings.Contains(b.String(), "policy") {
		t.Errorf("got\n%s", b.String())
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := rendertest.Sample().JSON(&b); err != nil {
		t.Fatal(err)
	}
	testkit.Compare(t, "report.json.golden", b.String())
	b.Reset()
	scaled := rendertest.Scaled()
	scaled.Points = scaled.Points[1:3] // as one of few points has all keys
	if err := scaled.JSON(&b); err != nil {
		t.Fatal(err)
	}
	testkit.Compare(t, "scaling.json.golden", b.String())
	b.Reset()
	if err := rendertest.Swept(2).JSON(&b); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Sweep  []string
		Points []struct {
			Set      map[string]string
			Policies map[string]simulate.Result
		}
	}
	if err := json.Unmarshal(b.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Sweep) != 2 || len(answer.Points) != 12 ||
		answer.Points[5].Set["environment.nodes"] != "2" ||
		answer.Points[5].Policies["naive"].Runtime != 61234.5/3 {
		t.Errorf("got %+v", answer)
	}
}

func TestCSV(t *testing.T) {
	for name, r := range map[string]*render.Report{
		"report.csv.golden":  rendertest.Sample(),
		"sweep.csv.golden":   rendertest.Swept(2),
		"scaling.csv.golden": rendertest.Scaled(),
	} {
		var b bytes.Buffer
		if err := r.CSV(&b); err != nil {
			t.Fatal(err)
		}
		testkit.Compare(t, name, b.String())
		lines, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(lines) != 1+len(r.Names())*len(r.Points) {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	}
}

// TestSpeedups: each policy's are relative to its own runtime on the fewest nodes on which it runs,
// in whatever order the points are.
func TestSpeedups(t *testing.T) {
	r := rendertest.Scaled()
	slices.Reverse(r.Points)
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	type speedup struct{ Speedup, Efficiency float64 }
	var answer struct {
		Limit  int `json:"regular_loading_scales_to_nodes"`
		Points []struct {
			Policies map[string]speedup
			Model    struct {
				Regular struct {
					speedup
					Limited bool `json:"limited_by_loading"`
				}
			} `json:"analytical_model"`
		}
	}
	if err := json.Unmarshal(b.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Limit != 2 { // 266.7/2 is above 100 MB/s, and 283.3/3 below
		t.Errorf("regular loading scales to %d nodes", answer.Limit)
	}
	for i, nodes := range []float64{8, 4, 2, 1} {
		for name, want := range map[string]speedup{
			"cooperative":   {math.Pow(nodes, 0.75), math.Pow(nodes, -0.25)},
			"lbann_dynamic": {nodes / 2, 1},
			"mine":          {math.Sqrt(nodes), 1 / math.Sqrt(nodes)},
		} {
			if name == "lbann_dynamic" && nodes == 1 {
				want = speedup{}
			}
			got := answer.Points[i].Policies[name]
			if math.Abs(got.Speedup-want.Speedup) > 1e-9 ||
				math.Abs(got.Efficiency-want.Efficiency) > 1e-9 {
				t.Errorf("%s on %v nodes: %+v, want %+v", name, nodes, got, want)
			}
		}
		if got := answer.Points[i].Model.Regular; got.Limited != (nodes > 2) {
			t.Errorf("on %v nodes: %+v", nodes, got)
		}
	}
}
