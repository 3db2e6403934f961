package simulate

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// thesisMachine is the small cluster of thesis 5.2.1.
func thesisMachine() model.Environment {
	ram := model.NewCurve(map[int]float64{1: 16550, 2: 21164})
	ssd := model.NewCurve(map[int]float64{1: 66, 2: 86})
	return model.Environment{
		Compute: 100, Preprocess: 200, PeerBandwidth: 10000, SourceBandwidth: 2000,
		SourceThroughput: model.NewCurve(map[int]float64{1: 66, 2: 86, 3: 129, 4: 146}),
		Classes: []model.Class{
			{Capacity: 1024, Threads: 2, Read: ram, Write: ram},
			{Capacity: 51200, Threads: 2, Read: ram, Write: ram},
			{Capacity: 102400, Threads: 2, Read: ssd, Write: ssd},
		},
	}
}

// thesisJob is one of the thesis's scenarios at a tenth of its samples, class capacities and
// staging buffer.
func thesisJob(samples int, size float64, epochs int) *Job {
	job := &Job{
		Env:         thesisMachine(),
		Nodes:       4,
		Epochs:      epochs,
		GlobalBatch: 100,
		DropLast:    true,
		Scheme:      "uniform",
		Seed:        1,
	}
	for j := range job.Env.Classes {
		job.Env.Classes[j].Capacity /= 10
	}
	for k := range samples {
		job.Sizes = append(job.Sizes, size*(0.9+0.2*float64(k%101)/100))
	}
	return job
}

// tinyJob is one node, two samples of 1 and 2 MB, two epochs of one batch, in the order 0 1.
// Compute takes 1 s per MB, the source 1 s, the class 0.1 s, writing to the staging buffer 0.1 s;
// there is one thread everywhere.
func tinyJob() *Job {
	return &Job{
		Env: model.Environment{
			Compute: 1, Preprocess: 10, PeerBandwidth: 10, SourceBandwidth: 100,
			SourceThroughput: model.Constant(1),
			Classes: []model.Class{
				{
					Capacity: 100,
					Threads:  1,
					Read:     model.Constant(1e12),
					Write:    model.Constant(1e12),
				},
				{
					Capacity: 100,
					Threads:  1,
					Read:     model.Constant(10),
					Write:    model.Constant(1e12),
				},
			},
		},
		Nodes: 1, Sizes: []float64{1, 2}, Epochs: 2, GlobalBatch: 2, Scheme: access.Uniform,
		Order: [][]int32{{0, 1}}, PerBatch: true,
	}
}

// TestByHand holds every policy against a run worked out on paper.
func TestByHand(t *testing.T) {
	same := func(j *Job) { j.Sizes[1] = 1 } // where the order is drawn
	for _, c := range []struct {
		policy        string
		change        func(*Job)
		before        float64
		epochs        []float64
		source, local int64   // samples
		total         float64 // MB that left the source
		stall         float64
	}{
		// 6 MB to compute.
		{"perfect", nil, 0, []float64{3, 3}, 0, 0, 0, 0},
		// Per epoch 1.1 + 1 + 2.2 + 2: nothing overlaps.
		{"naive", nil, 0, []float64{6.3, 6.3}, 4, 0, 6, 6.6},
		// Read until 1, 3, 4, 6; in the buffer at 1.1, 3.2, 4.1, 6.2; computed until 2.1, 5.2, 6.2,
		// 8.2.
		{"staging", nil, 0, []float64{5.2, 3}, 4, 0, 6, 2.2},
		// The same, with 0.2 s of the thread for each read: in the buffer at 1.3, 3.4, 4.3, 6.4.
		{
			"staging", func(j *Job) { j.Env.SourceWork = 0.2 }, 0, []float64{5.4, 3}, 4, 0, 6, 2.4,
		},
		// A buffer for one sample: read at 0, 1.1 (0 is consumed), 3.3 (1 is consumed), 5.3 (0 is,
		// the computation on 1 being over); there at 1.1, 3.3, 4.4, 7.5; computed until 2.1, 5.3,
		// 6.3, 9.5.
		{"staging", func(j *Job) {
			j.Env.Classes[0].Capacity = 0.5
		}, 0, []float64{5.3, 4.2}, 4, 0, 6, 3.5},
		// Each request takes 0.5 s more, in which the source serves the next one: there at 1.6,
		// 3.7, 4.6, 6.7; computed until 2.6, 5.7, 6.7, 8.7.
		{"staging", func(j *Job) {
			j.Env.SourceLatency = 0.5
		}, 0, []float64{5.7, 3}, 4, 0, 6, 2.7},
		// The class is filled with sample 0 at 1; staging waits for that, is given it from the source
		// by this read, reads sample 1 until 3 and keeps it. The second reads wait for the first: in
		// the buffer at 1.1, 3.2, 1.2, 3.4; computed until 2.1, 5.2, 6.2, 8.2.
		{"frequency", nil, 0, []float64{5.2, 3}, 2, 2, 3, 2.2},
		{"cooperative", nil, 0, []float64{5.2, 3}, 2, 2, 3, 2.2},
		{"locality", nil, 0, []float64{5.2, 3}, 2, 2, 3, 2.2},
		{"minio", nil, 0, []float64{5.2, 3}, 2, 2, 3, 2.2},
		// Room for sample 0 alone. Its fill ends at 1, and it is in the buffer at 1.1 and 1.2;
		// sample 1 at 3.2 and 5.2. Computed until 2.1, 5.2, 6.2, 8.2.
		{"minio", func(j *Job) {
			j.Env.Classes[1].Capacity = 1
		}, 0, []float64{5.2, 3}, 3, 1, 5, 2.2},
		// Kept while staging reads: in the buffer at 1.1, 3.2, 1.2, 3.4; computed until 2.1, 5.2,
		// 6.2, 8.2.
		{"lbann_dynamic", nil, 0, []float64{5.2, 3}, 2, 2, 3, 2.2},
		{"partitioned", nil, 0, []float64{5.2, 3}, 2, 2, 3, 2.2},
		// Loaded in 3 s; then in the buffer 0.2 s later, and never late again.
		{"deepio_ordered", nil, 3, []float64{3.2, 3}, 0, 4, 3, 0.2},
		{"lbann_preloading", nil, 3, []float64{3.2, 3}, 0, 4, 3, 0.2},
		// Forms are written in half the 0.1 s: of all samples if there is room for 3.36 MB, of half of
		// them on average if there is half of that beside the 3 MB, and of none without.
		{"lbann_preloading", forms(3.36), 3, []float64{3.15, 3}, 0, 4, 3, 0.15},
		{"lbann_preloading", forms(3.18), 3, []float64{3.175, 3}, 0, 4, 3, 0.175},
		{"lbann_preloading", forms(3), 3, []float64{3.2, 3}, 0, 4, 3, 0.2},
		// Room for sample 0 alone, loaded at 1, in the buffer at 1.2. Sample 1 is asked for at 2.2
		// and read until 4.4; computed until 6.4. Sample 0 was there long before; until 7.4. Sample
		// 1 is asked for again: 9.6, until 11.6.
		{"deepio_ordered", func(j *Job) {
			j.Env.Classes[1].Capacity = 1
		}, 1, []float64{5.4, 5.2}, 2, 2, 5, 4.6},
		// Two samples of 1 MB each.
		{"deepio_opportunistic", same, 2, []float64{2.2, 2}, 0, 4, 2, 0.2},
		{"sharded", same, 2, []float64{2.2, 2}, 0, 4, 2, 0.2},
	} {
		job := tinyJob()
		if c.change != nil {
			c.change(job)
		}
		r := runModel(t, job, c.policy)
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: %s is %v, want %v", c.policy, what, got, want)
			}
		}
		near("time before training", r.BeforeTraining, c.before)
		near("epoch 0", r.Epochs[0], c.epochs[0])
		near("epoch 1", r.Epochs[1], c.epochs[1])
		near("batch 1", r.Batches[1], c.epochs[1])
		near("runtime", r.Runtime, c.before+c.epochs[0]+c.epochs[1])
		near("stall", r.Stall, c.stall)
		near("MB from the source", r.SourceTotal, c.total)
		near("samples from the source", float64(r.Reads.Source.Samples), float64(c.source))
		near("samples from class 1", float64(r.Reads.Local["1"].Samples), float64(c.local))
	}
}

// forms returns a change of a job: forms take half the time, and class 1 has so many MB.
func forms(capacity float64) func(*Job) {
	return func(j *Job) {
		j.Forms = model.Forms{Time: 0.5, Size: model.FormSize, Sent: true}
		j.Env.Classes[1].Capacity = capacity
	}
}

// TestSharedSource: a node that reads alone gets more, from the moment on at which the other has
// ended.
func TestSharedSource(t *testing.T) {
	job := tinyJob()
	job.Nodes, job.Epochs = 2, 1
	job.Env.SourceThroughput = model.Constant(2)
	// Both get 1 MB/s until node 0 has its 1 MB at 1. Node 1 gets 2 MB/s and its second MB at 1.5;
	// written at 1.7, computed at 3.7.
	if r := runModel(t, job, "naive"); math.Abs(r.Runtime-3.7) > 1e-9 {
		t.Errorf("naive on two nodes takes %v s, want 3.7", r.Runtime)
	}
	// One node: sample 0 is read at 0.5 and in the buffer at 0.6; sample 1 at 1.5 and 1.7, and
	// computed until 3.7.
	job.Nodes = 1
	if r := runModel(t, job, "staging"); math.Abs(r.Runtime-3.7) > 1e-9 {
		t.Errorf("staging takes %v s, want 3.7", r.Runtime)
	}
}

// TestOwnerReadsOnce: where the classes hold everything and are faster than the source, every byte
// leaves the source once, whichever node needs it first.
func TestOwnerReadsOnce(t *testing.T) {
	checked := 0
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		total := 0.0
		for _, s := range job.Sizes {
			total += s
		}
		if len(job.Env.Classes) < 2 {
			continue
		}
		job.DropLast = false
		job.Env.PeerBandwidth = 1e4
		job.Env.Classes[1].Capacity = total/float64(job.Nodes) + 4
		for j := range job.Env.Classes {
			job.Env.Classes[j].Read = model.Constant(1e5)
		}
		checked++
		if r := runModel(t, job, "cooperative"); math.Abs(r.SourceTotal-total) > 1e-6*total {
			t.Errorf("seed %d: %v MB left the source, of a dataset of %v: %s", seed, r.SourceTotal,
				total, describe(job))
		}
	}
	if checked < scenarios/4 {
		t.Errorf("only %d jobs looked at", checked)
	}
}

func TestShuffleDistance(t *testing.T) {
	job := tinyJob()
	job.Nodes = 4
	job.GlobalBatch = 40
	job.Epochs = 4
	job.Order = nil
	job.Sizes = make([]float64, 20000)
	for k := range job.Sizes {
		job.Sizes[k] = 0.001
	}
	for _, c := range []struct {
		policy string
		room   float64 // MB
		want   float64
	}{
		{"staging", 100, 0},
		{"deepio_opportunistic", 100, 0},
		// A quarter of the dataset is seen: what is read in two epochs is shuffled, the rest never
		// comes.
		{"deepio_opportunistic", 1.25, 0.75 / (1 - 1./64)},
		// Always the same node: 1 - 1/4, where a fixed order has 1 - 1/64.
		{"sharded", 100, 0.75 / (1 - 1./64)},
	} {
		job.Env.Classes[1].Capacity = c.room
		if got := runModel(t, job, c.policy).Shuffle; math.Abs(got-c.want) > 0.02 {
			t.Errorf("%s with %v MB per node is %.3f from a full shuffle, want %.3f", c.policy,
				c.room, got, c.want)
		}
	}
	order := make([]int32, 20000)
	for i := range order {
		order[i] = int32(i)
	}
	job.Order = [][]int32{order}
	if got := runModel(t, job, "staging").Shuffle; got != 1 {
		t.Errorf("an order that never changes is %v from a full shuffle, want 1", got)
	}
}

func TestModelRefuses(t *testing.T) {
	job := tinyJob()
	if _, err := RunModel(context.Background(), job, "lru"); err == nil {
		t.Error("an unknown policy was run")
	}
	job.Env.Compute = 0
	if _, err := RunModel(context.Background(), job, "staging"); err == nil {
		t.Error("an environment without compute was run")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range append(policies.Names(policies.All()), frequencyOptions...) {
		if _, err := RunModel(ctx, thesisJob(5000, 1, 5), p); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v after the context was cancelled", p, err)
		}
	}
}

// TestThesisScenarios runs the thesis's four scenarios, scaled down: what the thesis says in words
// about them holds.
func TestThesisScenarios(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      int
		size   float64
		epochs int
		lbann  bool // fits
	}{
		{"1", 1000, 0.027, 10, true},
		{"2", 5000, 1, 10, true},
		{"3", 10000, 2, 5, false},
		{"4", 13000, 3, 5, false},
	} {
		job := thesisJob(c.f, c.size, c.epochs)
		for j := range job.Env.Classes {
			job.Env.Classes[j].Capacity /= 3
		}
		took := map[string]float64{}
		for _, p := range policies.Names(policies.All()) {
			r := runModel(t, job, p)
			took[p] = r.Runtime
			if want := c.lbann ||
				p != "lbann_dynamic" && p != "lbann_preloading"; r.Supported != want {
				t.Errorf("scenario %s: %s runs: %v, want %v: %s", c.name, p, r.Supported, want,
					r.Reason)
			}
		}
		t.Logf("scenario %s: %.5v", c.name, took)
		for _, slower := range []struct{ than, is string }{
			{"perfect", "cooperative"},
			{"cooperative", "frequency"},
			{"frequency", "minio"},
			{"minio", "staging"},
			{"staging", "naive"},
		} {
			if took[slower.is] < took[slower.than]*0.99 {
				t.Errorf("scenario %s: %s takes %.2f s, %s %.2f s", c.name, slower.is,
					took[slower.is], slower.than, took[slower.than])
			}
		}
	}
}
