package replay

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
)

// TestFormsOfEpochs: an epoch takes as long to transform as it took, divided by the run's rates of
// samples as read and of forms.
func TestFormsOfEpochs(t *testing.T) {
	run := formedRun(t, nil)
	nodes := run.inForce(&run.report.Nodes[0])
	for e, want := range []InForce{
		{Transform: 0.08, Form: 0.04, Forms: 0}, // beside other processes
		{Transform: 0.04, Form: 0.02, Forms: 0.5},
		{Transform: 0.08, Form: 0.04, Forms: 1}, // beside other processes
	} {
		got := nodes[e]
		for what, v := range map[string][2]float64{
			"as read": {got.Transform, want.Transform}, "a form": {got.Form, want.Form},
			"share": {got.Forms, want.Forms},
		} {
			if math.Abs(v[0]-v[1]) > 1e-9 {
				t.Errorf("epoch %d, %s: %v, want %v", e, what, v[0], v[1])
			}
		}
	}
	if f := run.forms(); math.Abs(f.Size-1.2) > 1e-9 || !f.Sent {
		t.Errorf("forms are %+v", f)
	}
}

// formedRun is a run of one rank over 100 samples of 1 MB, of which memory holds all and, beside
// 1.3 segments, has room for half of the forms. Samples take 40 ms on the only thread, and forms
// half of that; in epoch 1 half of the samples were forms, and in epoch 2 all. Processes delayed
// epochs 0 and 2.
func formedRun(t *testing.T, change func(report map[string]any)) *Run {
	t.Helper()
	epoch := func(e int, tier string, seconds float64, forms int, took float64) map[string]any {
		return map[string]any{
			"epoch": e, "batches": 10, "seconds": seconds, "step_seconds": 0.001,
			"stall":  map[string]any{"transform ToTensor": seconds * 0.9},
			"reads":  map[string]any{tier: map[string]any{"samples": 100, "bytes": 100_000_000}},
			"source": map[string]any{"bytes": 100_000_000 * (1 - min(e, 1))},
			"transformed": map[string]any{
				"samples": 100, "seconds": seconds, "form_samples": forms, "form_seconds": took,
			},
			"tiers": []any{map[string]any{
				"tier": tier, "samples": 100, "bytes": 100_000_000, "busy_seconds": 0.5,
			}},
		}
	}
	report := map[string]any{
		"dataset": "/d", "samples": 100, "bytes": 100_000_000, "positions": 100, "policy": "minio",
		"nodes": 1, "world_size": 1, "global_batch_size": 10, "seed": 1, "planned_epochs": 8,
		"steps": 10, "shuffle": "torch", "scheme": "strided", "tail": "keep", "source_threads": 8,
		"prefetch_batches": 2,
		"epochs": []any{
			epoch(0, "source", 8, 0, 0), epoch(1, "memory", 3, 50, 1), epoch(2, "memory", 4, 100, 4),
		},
		"ranks": []any{map[string]any{
			"rank": 0, "staging": map[string]any{"size": 32_000_000}, "batches": 30, "seconds": 15.0,
			"stall": map[string]any{"transform ToTensor": 13.5}, "epochs": []any{},
		}},
		"tiers": []any{
			map[string]any{
				"tier": "source", "samples": 100, "bytes": 100_000_000, "busy_seconds": 0.5,
			},
		},
		"classes": []any{map[string]any{
			"name": "memory", "capacity": 119_727_891, "used": 110_000_000,
			"held_at_start": map[string]any{},
			"forms": map[string]any{
				"samples": 50, "bytes": 60_000_000, "as_read_bytes": 50_000_000, "converted": 50,
				"seconds": 1.0,
			},
		}},
		"preprocessing": map[string]any{
			"samples": 300, "threads": 1, "form_samples": 150, "form_seconds": 5.0,
			"transforms": []any{map[string]any{"name": "ToTensor", "seconds": 15.0}},
		},
	}
	if change != nil {
		change(report)
	}
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	run, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func epochsOf(t *testing.T, run *Run, v Variation) *Result {
	t.Helper()
	r, err := run.Simulate(context.Background(), nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMoreMemoryForForms: with memory for all forms, twice as many are forms in each epoch; with
// less memory than samples take, none are; and as the job ran, epochs take what they took.
func TestMoreMemoryForForms(t *testing.T) {
	run := formedRun(t, nil)
	for _, c := range []struct {
		name string
		v    Variation
		took []float64 // by the thread, in epochs 1 and 2
	}{
		{"as it ran", AsItRan, []float64{3, 4}},
		{"room for all", Variation{Memory: 131_000_000}, []float64{2, 4}},
		{"much more room", Variation{Memory: 900_000_000}, []float64{2, 4}},
		{"for a quarter", Variation{Memory: 114_285_714}, []float64{3.5, 6}},
		{"for none", Variation{Memory: 105_000_000}, []float64{4, 8}},
		{"for half of the samples", Variation{Memory: 50_000_000}, []float64{4, 8}},
		{"on two nodes", Variation{Memory: 131_000_000, Nodes: 2}, []float64{2, 4}},
	} {
		job, err := run.job(context.Background(), nil, c.v)
		if err != nil {
			t.Fatal(err)
		}
		for e, want := range c.took {
			limits := job.Nodes[0].InForce[e+1]
			if got := 100 * limits.transformMB(limits.Forms); math.Abs(got-want) > 1e-4 {
				t.Errorf("%s: the samples of epoch %d take %v s, want %v", c.name, e+1, got, want)
			}
		}
		if again := run.inForce(&run.report.Nodes[0]); again[1].Forms != 0.5 {
			t.Errorf("%s has changed the run: %+v", c.name, again[1])
		}
	}
	as, more := epochsOf(t, run, AsItRan), epochsOf(t, run, Variation{Memory: 131_000_000})
	if math.Abs(as.Epochs[1]-3) > 0.2 || math.Abs(more.Epochs[1]-2) > 0.2 {
		t.Errorf("epoch 1 takes %v s as it ran, and %v s with room for all forms; want 3 and 2",
			as.Epochs[1], more.Epochs[1])
	}
	if said := run.Unsure(as, more); len(said) != 0 {
		t.Errorf("unsure: %q", said)
	}
}

// TestFormsNotMeasured: a run without forms says so if there would be room for some, in a job for
// which they would be made.
func TestFormsNotMeasured(t *testing.T) {
	none := func(report map[string]any) {
		delete(report["classes"].([]any)[0].(map[string]any), "forms")
		for _, e := range report["epochs"].([]any) {
			delete(e.(map[string]any)["transformed"].(map[string]any), "form_samples")
			delete(e.(map[string]any)["transformed"].(map[string]any), "form_seconds")
		}
	}
	few := func(report map[string]any) {
		none(report)
		report["planned_epochs"] = 5
	}
	raw := func(report map[string]any) {
		none(report)
		delete(report, "preprocessing")
	}
	for _, c := range []struct {
		name   string
		change func(map[string]any)
		memory int64
		says   bool
	}{
		{"room for all", none, 131_000_000, true},
		{"room for few", none, 105_000_000, false},
		{"as it ran", none, -1, false},
		{"too few epochs", few, 131_000_000, false},
		{"nothing is transformed", raw, 131_000_000, false},
		{"forms were kept", nil, 131_000_000, false},
	} {
		run := formedRun(t, c.change)
		said := strings.Join(run.Unsure(epochsOf(t, run, Variation{Memory: c.memory})), " ")
		if strings.Contains(said, "in other forms than as read") != c.says {
			t.Errorf("%s: %q", c.name, said)
		}
	}
}

// TestFormsOverLinks: what another node sends are forms, with their bytes and their rate, but for
// samples that the node is to keep and forms that are too large.
func TestFormsOverLinks(t *testing.T) {
	for _, c := range []struct {
		name  string
		forms model.Forms
		keeps bool
		tier  string
		want  float64
	}{
		{"memory", model.Forms{Size: 1.2, Sent: true}, false, "memory", 0.5},
		{"sent", model.Forms{Size: 1.2, Sent: true}, false, "peer", 0.5},
		{"to be kept", model.Forms{Size: 1.2, Sent: true}, true, "peer", 0},
		{"pixels", model.Forms{Size: 3}, false, "peer", 0},
		{"source", model.Forms{Size: 1.2, Sent: true}, false, "source", 0},
	} {
		n := &node{c: &cluster{job: &Job{Forms: c.forms}}, limits: &InForce{Forms: 0.5}}
		if got := n.form(c.tier, c.keeps); got != c.want {
			t.Errorf("%s: %v of it are forms, want %v", c.name, got, c.want)
		}
	}
	// Half of the samples come over a slow link, and all are forms that are half as large again.
	took := map[bool]float64{}
	for _, sent := range []bool{false, true} {
		j := shape{2, 40, 5, 3, Class{Name: "memory", Memory: true}, 20}.job(t)
		j.Link, j.Steps = 20, []float64{0.001}
		for i := range j.Nodes {
			j.Nodes[i].Threads = []Change{{To: 4}}
			j.Nodes[i].InForce = []InForce{{Ahead: 8, Transform: 0.001, Form: 0.0005, Forms: 1}}
		}
		j.Forms = model.Forms{Size: 1.5, Sent: sent}
		result, err := Simulate(context.Background(), j)
		if err != nil {
			t.Fatal(err)
		}
		took[sent] = result.Runtime
	}
	if times := took[true] / took[false]; times < 1.3 || times > 1.7 {
		t.Errorf("forms of 1.5 times the size take %v times as long over a link", times)
	}
}
