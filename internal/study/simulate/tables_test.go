package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// table is a table of the thesis (testdata/thesis_tables.json; "5.2.3" are the figures in that
// section's text).
type table struct {
	Table   string
	Samples int
	Mu      float64 // MB
	Sigma   float64
	Epochs  int
	Bound   float64 `json:"lower_bound"` // seconds
	Rows    []tableRow
}

// tableRow is a row: what a policy takes.
type tableRow struct {
	Row     string
	Policy  string
	Seconds *float64 // nil: N/A
	Line    int      // of the thesis's text
	// What is not as in section 5.2.1: the size of the staging buffer; exactly one more storage
	// class.
	StagingMB float64 `json:"staging_mb"`
	ClassMB   float64 `json:"class_mb"`
	ClassMBps float64 `json:"class_mbps"`
}

func tables(t testing.TB) []table {
	text, err := os.ReadFile("testdata/thesis_tables.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []table
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// small is the machine of thesis 5.2.1, with t(3) = 129 as its text says.
func small() model.Environment {
	class := func(capacity, rate float64) model.Class {
		curve := model.Curve{{Clients: 2, MBps: rate}}
		return model.Class{Capacity: capacity, Threads: 2, Read: curve, Write: curve}
	}
	return model.Environment{
		Compute: 100, Preprocess: 200, PeerBandwidth: 10000, SourceBandwidth: 2000,
		SourceThroughput: model.NewCurve(map[int]float64{1: 66, 2: 86, 3: 129, 4: 146}),
		Classes: []model.Class{
			class(1024, 21164), class(51200, 21164),
			class(102400, 86),
		},
	}
}

// job is a row's job with a part of the table's samples, and the same part of all capacities.
func (t *table) job(row *tableRow, sizes []float64, part float64) *Job {
	job := &Job{
		Env: small(), Nodes: 4, Sizes: sizes[:int(float64(t.Samples)*part)], Epochs: t.Epochs,
		GlobalBatch: 100,
		DropLast:    true, Scheme: access.Uniform, Seed: tableSeed,
	}
	if row.StagingMB > 0 {
		job.Env.Classes[0].Capacity = row.StagingMB
	}
	if row.ClassMB > 0 {
		curve := model.Curve{{Clients: 2, MBps: row.ClassMBps}}
		job.Env.Classes = append(job.Env.Classes[:1],
			model.Class{Capacity: row.ClassMB, Threads: 2, Read: curve, Write: curve})
	}
	for j := range job.Env.Classes {
		job.Env.Classes[j].Capacity *= part
	}
	return job
}

const tableSeed = 1

func runRow(t testing.TB, job *Job, policy string) *Result {
	res, err := RunThesis(context.Background(), job, policy)
	if err != nil {
		t.Fatalf("%s: %v", policy, err)
	}
	return res
}

// against compares a table with what RunThesis makes of a part of it, row by row. Runtimes must be
// within runtime of the thesis's, if that is above 0; their ratios to the lower bound within ratio.
func (t *table) against(tb testing.TB, part, runtime, ratio float64,
	show func(row *tableRow, seconds float64),
) {
	sizes := DrawSizes(tableSeed, t.Samples, t.Mu, t.Sigma, 0)
	bound := runRow(tb, t.job(&tableRow{}, sizes, part), "perfect").Runtime
	for i := range t.Rows {
		row := &t.Rows[i]
		res := runRow(tb, t.job(row, sizes, part), row.Policy)
		show(row, res.Runtime)
		if row.Seconds == nil {
			if res.Supported || res.Reason == "" {
				tb.Errorf("table %s, %s: supported, the thesis says N/A", t.Table, row.Row)
			}
			continue
		}
		if off := res.Runtime / *row.Seconds - 1; runtime > 0 && !(math.Abs(off) <= runtime) {
			tb.Errorf("table %s, %s (line %d): %.2f s, %+.2f %% from the thesis's %.2f s; "+
				"allowed: %.2f %%", t.Table, row.Row, row.Line, res.Runtime, 100*off, *row.Seconds,
				100*runtime)
		}
		ours, theirs := res.Runtime/bound, *row.Seconds/t.Bound
		if off := ours/theirs - 1; !(math.Abs(off) <= ratio) {
			tb.Errorf("table %s, %s (line %d): %.4f times the lower bound, %+.2f %% from the "+
				"thesis's %.4f; allowed: %.2f %%", t.Table, row.Row, row.Line, ours, 100*off,
				theirs, 100*ratio)
		}
	}
}

// TestTables runs table 5.1 as it is, and the others with a fifth of their samples and capacities:
// their ratios to the lower bound hardly change. They would if capacities shrank further, as
// batches stay: a staging buffer of little more than a node's share of a batch holds training up.
func TestTables(t *testing.T) {
	for _, table := range tables(t) {
		t.Run(table.Table, func(t *testing.T) {
			part := 0.2
			runtime := 0.0
			ratio := 0.005
			if table.Table == "5.1" {
				part = 1
				runtime = 0.015
				ratio = 0.005
			}
			table.against(t, part, runtime, ratio, func(*tableRow, float64) {})
		})
	}
}

// TestFullTables runs all tables at full scale and prints them beside the thesis's figures.
func TestFullTables(t *testing.T) {
	if os.Getenv("HDMLP_FULL_TABLES") == "" {
		t.Skip("HDMLP_FULL_TABLES is not set")
	}
	for _, table := range tables(t) {
		runtime := 0.005
		if table.Table == "5.1" {
			runtime = 0.015
		}
		fmt.Printf("\n%-34s %12s %12s %10s\n", "Table "+table.Table, "thesis, s", "ours, s",
			"deviation")
		table.against(t, 1, runtime, 0.005, func(row *tableRow, seconds float64) {
			if row.Seconds == nil {
				fmt.Printf("%-34s %12s %12s\n", row.Row, "N/A", "N/A")
				return
			}
			fmt.Printf("%-34s %12.2f %12.2f %+9.2f%%\n", row.Row, *row.Seconds, seconds,
				100*(seconds / *row.Seconds - 1))
		})
	}
}
