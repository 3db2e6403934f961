package simulate

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// boundedJob draws a job of randomJob, and moves what limits it: training, the classes, the source,
// its latency, or the threads. Some datasets are so small that buffers hold several epochs.
func boundedJob(t *rapid.T) *Job {
	job := randomJob(rapid.Uint64().Draw(t, "seed"))
	env := &job.Env
	factor := func(name string, of ...float64) float64 { return rapid.SampledFrom(of).Draw(t, name) }
	env.Compute *= factor("compute", 1, 1, 20, 200)
	env.Preprocess *= factor("preprocess", 1, 1, 20)
	env.PeerBandwidth *= factor("network", 1, 0.02, 20)
	env.SourceLatency += factor("latency", 0, 0, 0, 0.02)
	job.Epochs *= int(factor("epochs", 1, 1, 3))
	if few := int(factor("samples", 0, 0, 0, 0, 1, 3)); few > 0 {
		job.Sizes = job.Sizes[:few]
		job.GlobalBatch = min(job.GlobalBatch, few)
	}
	if factor("forms", 0, 0, 1) > 0 {
		job.Forms = formsOf(job.Seed)
	}
	slow := factor("classes", 1, 1, 0.02)
	larger, threads := factor("capacity", 1, 1, 3), factor("threads", 1, 1, 4)
	for j := range env.Classes {
		c := &env.Classes[j]
		c.Threads *= int(threads)
		if j > 0 {
			c.Capacity *= larger
			c.Read = slices.Clone(c.Read)
			for p := range c.Read {
				c.Read[p].MBps *= slow
			}
		}
	}
	return job
}

// TestTimeBound: no policy that keeps the order is faster than the bound.
func TestTimeBound(t *testing.T) {
	tight, runs := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 5 { // 100 checks of 5 jobs
			job := boundedJob(t)
			bound, err := TimeBound(context.Background(), job)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range append(policies.Names(policies.All()), frequencyOptions...) {
				if p == policies.Bound().Name() {
					continue
				}
				r, err := RunModel(context.Background(), job, p)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Supported || !keepsOrder(t, job, p) {
					continue
				}
				if runs++; r.Runtime < 1.01*bound {
					tight++
				}
				if r.Runtime < bound*(1-1e-9) {
					t.Errorf("%s takes %v s, and the least possible is %v s: %s", p,
						r.Runtime, bound, describe(job))
				}
			}
		}
	})
	t.Logf("%d of %d runs within 1 %% of the bound", tight, runs)
	if tight < runs/20 {
		t.Errorf("only %d of %d runs come near the bound: the test says little", tight, runs)
	}
}

// TestTimeBoundByHand: the bounds of jobs that can be worked out on paper.
func TestTimeBoundByHand(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Job)
		want   float64
	}{
		// Sample 0 leaves the source at 1 and is in the buffer at 1.1; then 6 MB are computed.
		"tiny": {func(*Job) {}, 7.1},
		// Nothing is cached: 6 MB are read at 1 MB/s.
		"source": {func(j *Job) {
			j.Env.Compute, j.Env.Classes[1].Capacity = 1000, 0
		}, 6},
		// The caches hold 2 of 3 MB: 3 MB leave it, then another.
		"cache": {func(j *Job) {
			j.Env.Compute = 1000
			j.Env.Classes[0].Capacity = 0
			j.Env.Classes[1].Capacity = 2
		}, 4},
		// Two nodes get 2 MB/s, and all is cached then; sample 1 is computed in 0.002 s.
		"nodes": {func(j *Job) {
			j.Env.Compute = 1000
			j.Env.SourceThroughput = model.Constant(2)
			j.Nodes = 2
		}, 1.502},
		// Sample 0 leaves the source at 1, and all four epochs may wait for this read: the slow class
		// need not be read.
		"one read": {func(j *Job) {
			j.Env.Compute = 1000
			j.Sizes = []float64{1}
			j.Order = [][]int32{{0}}
			j.GlobalBatch = 1
			j.Epochs = 4
			j.Env.Classes[1].Read = model.Constant(0.1)
		}, 1.104},
		// Between two needs of a sample the buffer, which has capacity for one, holds the others: 12 MB
		// come from the source and the class, at 1.1 MB/s together.
		"two reads": {func(j *Job) {
			j.Env.Compute = 1000
			j.Sizes = []float64{2, 2, 2}
			j.Order = [][]int32{{0, 1, 2}}
			j.GlobalBatch, j.Env.Classes[0].Capacity = 1, 2
			j.Env.Classes[1].Read = model.Constant(0.1)
		}, 12 / 1.1},
		// Both nodes read each sample: from the source once; three epochs more are computed.
		"whole": {func(j *Job) {
			j.Env.Compute = 1000
			j.Nodes = 2
			j.Scheme = "whole"
			j.Epochs = 4
		}, 3.009},
	} {
		job := tinyJob()
		c.change(job)
		got, err := TimeBound(context.Background(), job)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: at least %v s, want %v", name, got, c.want)
		}
	}
	job := tinyJob()
	job.Epochs = 0
	if _, err := TimeBound(context.Background(), job); err == nil {
		t.Error("a job without epochs has a bound")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := TimeBound(ctx, tinyJob()); err == nil {
		t.Error("the context was cancelled, and there is a bound")
	}
}
