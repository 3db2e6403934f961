package render_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
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
		"report.csv.golden": rendertest.Sample(),
		"sweep.csv.golden":  rendertest.Swept(2),
	} {
		var b bytes.Buffer
		if err := r.CSV(&b); err != nil {
			t.Fatal(err)
		}
		testkit.Compare(t, name, b.String())
		lines, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(lines) != 1+5*len(r.Points) {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	}
}
