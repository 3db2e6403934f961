package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// classNames are those of the storage classes of the job.
var classNames = []string{"staging", "ram", "ssd"}

// job is a small one, on 3 nodes whose caches hold a half of the dataset.
func job() *simulate.Job {
	j := &simulate.Job{
		Env: model.Environment{
			Compute: 100, Preprocess: 200, PeerBandwidth: 500, SourceBandwidth: 2000,
			SourceThroughput: model.NewCurve(map[int]float64{1: 40, 3: 60}),
			Classes: []model.Class{
				{Capacity: 8, Threads: 2, Read: model.Constant(20000), Write: model.Constant(20000)},
				{Capacity: 6, Threads: 2, Read: model.Constant(20000), Write: model.Constant(20000)},
				{Capacity: 10, Threads: 2, Read: model.Constant(200), Write: model.Constant(200)},
			},
		},
		Nodes: 3, Epochs: 4, GlobalBatch: 12, Scheme: access.Uniform, Seed: 1,
	}
	for k := range 96 {
		j.Sizes = append(j.Sizes, 0.5+float64(k%7)/6)
	}
	return j
}

// tableOf writes a plan as a table: the class by number or by name, the rows in the order of the
// nodes' classes, backwards, so that only the column `order` has the order of filling.
func tableOf(p *plan.Plan) string {
	var rows []string
	for n := range p.Nodes {
		for j, ids := range p.Nodes[n].Classes {
			for at, k := range ids {
				class := fmt.Sprint(j + 1)
				if k%2 == 0 {
					class = classNames[j+1]
				}
				rows = append(rows, fmt.Sprintf("%d,%d,%s,%d", at, k, class, n))
			}
		}
	}
	slices.Reverse(rows)
	return "order, sample ,class,node\n# a comment\n\n" + strings.Join(rows, "\n \n") + "\n"
}

func read(t interface{ Fatal(...any) }, text string) *Table {
	table, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestTableOfAPolicyIsThatPolicy: the table of a policy's plan, with the options by which the
// policy is executed, gives that policy's result, to the last digit.
func TestTableOfAPolicyIsThatPolicy(t *testing.T) {
	for name, options := range map[string]Options{
		"frequency":   {},
		"cooperative": {ReadOnce: true},
		// it preloads, and reads from its class even if the source is faster, which it is not here
		"lbann_preloading": {Preload: true},
	} {
		j := job()
		if name == "lbann_preloading" {
			j.Env.Classes[1].Capacity, j.Env.Classes[2].Capacity = 40, 0
		}
		policy, err := policies.ForSimulator(name)
		if err != nil {
			t.Fatal(err)
		}
		in, err := simulate.Input(j)
		if err != nil {
			t.Fatal(err)
		}
		made, err := policy.Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		mine := read(t, tableOf(made)).New("mine", classNames, plan.Line{}, options)
		if err := mine.Check(j.Nodes, len(j.Sizes), in.Size, in.Nodes[0].Capacity); err != nil {
			t.Fatal(err)
		}
		again, err := mine.Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		for n := range made.Nodes {
			for c := range made.Nodes[n].Classes {
				if !slices.Equal(made.Nodes[n].Classes[c], again.Nodes[n].Classes[c]) {
					t.Errorf("%s: node %d has %v in class %d, not %v", name, n,
						again.Nodes[n].Classes[c], c+1, made.Nodes[n].Classes[c])
				}
			}
		}
		want, err := simulate.Run(t.Context(), j, policy)
		if err != nil {
			t.Fatal(err)
		}
		got, err := simulate.Run(t.Context(), j, mine)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the table of %s: -policy +table\n%s", name, diff)
		}
	}
}

// TestOptionsMatter: they change the result, so that the test above compares something.
func TestOptionsMatter(t *testing.T) {
	j := job()
	in, err := simulate.Input(j)
	if err != nil {
		t.Fatal(err)
	}
	made, err := policies.Cooperative{}.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	var runtimes []float64
	for _, options := range []Options{{}, {ReadOnce: true}, {Preload: true}} {
		mine := read(t, tableOf(made)).New("mine", classNames, plan.Line{}, options)
		result, err := simulate.Run(t.Context(), j, mine)
		if err != nil {
			t.Fatal(err)
		}
		if before := result.BeforeTraining > 0; before != options.Preload {
			t.Errorf("%+v: %v s before training", options, result.BeforeTraining)
		}
		if slices.Contains(runtimes, result.Runtime) {
			t.Errorf("%+v changes nothing: %v", options, runtimes)
		}
		runtimes = append(runtimes, result.Runtime)
	}
}

// TestReadRefuses: what is wrong is named with line, column, value and what is allowed.
func TestReadRefuses(t *testing.T) {
	const head = "sample,node,class,order\n"
	for text, want := range map[string]string{
		"":                    "line 1: there is no line with the names of the columns; allowed",
		"# nothing\n\n":       "line 1: there is no line with the names",
		"sample,node,class\n": "line 1, column order: missing in the line with the names",

		"sample,node,class,order,sample\n": "line 1, column sample: it is there twice",
		"sample,node,class,order,clas\n":   `column "clas": unknown; did you mean "class"?`,

		head + "1,2\n":             "line 2: 2 values; allowed: 4, one for each column",
		head + "-1,0,1,0\n":        `line 2, column sample: "-1": not a number`,
		head + "0,x,1,0\n":         `line 2, column node: "x": not a number`,
		head + "0,0,1,1.5\n":       `column order: "1.5": not a number`,
		head + "0,0,1,\n":          `line 2, column order: not a number`,
		head + "\"0,0,1,\n":        "line 2: not CSV",
		head + "0,0,r\xe4m,0\n":    "line 2: \"r\ufffdm\": not UTF-8",
		head + "99999999999,0,1,0": "a whole number from 0 to 2147483647",
	} {
		_, err := Read(strings.NewReader(text))
		if wrong := (Faults)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestByteOrderMark: as spreadsheets write it.
func TestByteOrderMark(t *testing.T) {
	if table := read(t, "\ufeffsample,node,class,order\r\n3,0,1,0\r\n"); len(table.rows) != 1 {
		t.Errorf("%+v", table)
	}
}

// TestCheckRefuses: what the machine or the dataset does not have.
func TestCheckRefuses(t *testing.T) {
	const head = "sample,node,class,order\n"
	for text, want := range map[string]string{
		head + "96,0,1,0\n": `line 2, column sample: "96": there is no such sample in the dataset; ` +
			"allowed: 0 to 95",
		head + "0,0,1,0\n1,3,1,0\n": `line 3, column node: "3": there is no such node; allowed: 0 to 2`,
		head + "0,0,disk,0\n": `line 2, column class: "disk": there is no such storage class; ` +
			"allowed: 1 (ram) or 2 (ssd)",
		head + "0,0,0,0\n":       "the staging buffer is not filled by a plan; allowed: 1 (ram)",
		head + "0,0,staging,0\n": "the staging buffer is not filled by a plan",
		head + "5,1,1,9\n7,1,1,1\n5,1,ssd,2\n": `line 4, column sample: "5": node 1 has it already, ` +
			"by line 2",
		head + "0,0,1,0\n1,0,1,0\n2,0,1,0\n3,0,1,0\n4,0,1,0\n5,0,1,0\n6,0,1,0\n": "line 2: class 1 " +
			"of node 0 gets 7 samples of 7000002 bytes (7.0 MB), and holds 6000000 bytes (6.0 MB)",
	} {
		in, err := simulate.Input(job())
		if err != nil {
			t.Fatal(err)
		}
		p := read(t, text).New("mine", classNames, plan.Line{}, Options{})
		err = p.Check(3, 96, in.Size, in.Nodes[0].Capacity)
		if wrong := (Faults)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		_, err = p.Plan(in)
		if no := (*plan.Unsupported)(nil); !errors.As(err, &no) || !strings.Contains(no.Reason, want) {
			t.Errorf("Plan of %q: %v, want %q", text, err, want)
		}
	}
	many := head + strings.Repeat("99,9,1,0\n", 100)
	p := read(t, many).New("mine", classNames, plan.Line{}, Options{})
	wrong := (Faults)(nil)
	err := p.Check(3, 96, nil, []int64{1, 1})
	if !errors.As(err, &wrong) || len(wrong) > mostFaults+1 {
		t.Errorf("%d faults", len(wrong))
	}
}

// TestEmptyTable places nothing: every sample is read from the source in every epoch.
func TestEmptyTable(t *testing.T) {
	p := read(t, "sample,node,class,order\n").New("mine", classNames, plan.Line{}, Options{})
	got, err := simulate.Run(t.Context(), job(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got.Reads.Source.Samples != 4*96 {
		t.Errorf("%+v", got.Reads)
	}
}

// TestAnyTableThatFitsIsAPlan: random placements that fit become plans that hold what the table
// has, in its order, and whose runs deliver every sample.
func TestAnyTableThatFitsIsAPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := job()
		in, err := simulate.Input(j)
		if err != nil {
			t.Fatal(err)
		}
		room := [3][2]int64{}
		for n := range room {
			copy(room[n][:], in.Nodes[n].Capacity)
		}
		text := "sample,node,class,order\n"
		placed := map[[2]int]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "rows") {
			k, n := rapid.IntRange(0, 95).Draw(t, "sample"), rapid.IntRange(0, 2).Draw(t, "node")
			c := rapid.IntRange(0, 1).Draw(t, "class")
			if size := in.Size(k); size <= room[n][c] && !placed[[2]int{k, n}] {
				room[n][c] -= size
				placed[[2]int{k, n}] = true
				text += fmt.Sprintf("%d,%d,%d,%d\n", k, n, c+1, rapid.IntRange(0, 9).Draw(t, "order"))
			}
		}
		p := read(t, text).New("mine", classNames, plan.Line{}, Options{
			ReadOnce: rapid.Bool().Draw(t, "read_once"), Preload: rapid.Bool().Draw(t, "preload"),
		})
		if p.Copies() != len(placed) {
			t.Fatalf("%d copies, not %d", p.Copies(), len(placed))
		}
		made, err := p.Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		for n := range made.Nodes {
			for _, ids := range made.Nodes[n].Classes {
				for _, k := range ids {
					if !placed[[2]int{int(k), n}] {
						t.Fatalf("node %d has sample %d", n, k)
					}
					delete(placed, [2]int{int(k), n})
				}
			}
		}
		if len(placed) > 0 {
			t.Fatalf("left out: %v", placed)
		}
		got, err := simulate.Run(t.Context(), j, p)
		if err != nil {
			t.Fatal(err)
		}
		reads := got.Reads.Source.Samples + got.Reads.Remote.Samples
		for _, a := range got.Reads.Local {
			reads += a.Samples
		}
		if reads != 4*96 {
			t.Fatalf("%d reads", reads)
		}
	})
}
