package simulate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// scenarios is how many random jobs the properties are held against; a failure names the seed of
// its job.
const scenarios = 200

// keepsOrder reports whether a policy trains on the job's own order.
func keepsOrder(t interface{ Fatal(...any) }, job *Job, policy string) bool {
	stream, err := streamOf(job, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policies.ForSimulator(policy)
	if err != nil {
		t.Fatal(err)
	}
	in := input(job, stream)
	in, err = plan.Ordered(p, in)
	if err != nil {
		t.Fatal(err)
	}
	return in.Stream.Order() == nil
}

// randomJob draws a job: one to six nodes, up to two storage classes, caches from nothing to more
// than the dataset.
func randomJob(seed uint64) *Job {
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(lo, hi float64) float64 { return lo * math.Exp(r.Float64()*math.Log(hi/lo)) }
	job := &Job{
		Nodes: 1 + r.IntN(6), Epochs: 1 + r.IntN(5), Seed: seed, DropLast: r.IntN(4) == 0,
		Scheme: []access.Scheme{
			access.Uniform, access.Strided, access.Imbalanced, access.Uniform,
			access.Whole,
		}[r.IntN(5)],
	}
	f, spread := 60+r.IntN(150), r.Float64()
	total := 0.0
	for range f {
		s := 1 + spread*(2*r.Float64()-1)*0.9
		job.Sizes = append(job.Sizes, s)
		total += s
	}
	job.GlobalBatch = job.Nodes * (1 + r.IntN(8))
	if r.IntN(3) == 0 {
		job.GlobalBatch += r.IntN(job.Nodes)
	}
	job.GlobalBatch = min(job.GlobalBatch, f)
	curve := func(at float64) model.Curve { // grows with the threads, ever more slowly
		points := map[int]float64{1: at}
		for n := 2; n <= 8; n *= 2 {
			at *= 1 + r.Float64()
			points[n] = at
		}
		return model.NewCurve(points)
	}
	job.Env = model.Environment{
		Compute: between(20, 500), Preprocess: between(50, 1000), PeerBandwidth: between(50, 5000),
		SourceBandwidth: between(20, 1000), SourceThroughput: curve(between(20, 300)),
	}
	if r.IntN(5) == 0 {
		job.Env.SourceLatency = between(0.0001, 0.1)
	}
	speed := between(1000, 20000)
	for j := range 1 + r.IntN(3) {
		c := model.Class{
			Capacity: total / float64(job.Nodes) * 1.5 * r.Float64(),
			Threads:  1 + r.IntN(4),
			Read:     curve(speed),
		}
		if j == 0 {
			c.Capacity = between(0.5, 100)
		}
		c.Write = c.Read
		job.Env.Classes = append(job.Env.Classes, c)
		if j > 0 {
			speed = between(20, 1000)
		}
	}
	return job
}

func runModel(t *testing.T, job *Job, policy string) *Result {
	t.Helper()
	r, err := RunModel(context.Background(), job, policy)
	if err != nil {
		t.Fatalf("seed %d, %s: %v", job.Seed, policy, err)
	}
	return r
}

// delivered returns what all nodes consume in the job's own order.
func delivered(t *testing.T, job *Job) (total Amount) {
	s, err := streamOf(job, 0)
	if err != nil {
		t.Fatal(err)
	}
	for e := range job.Epochs {
		for _, k := range s.Epoch(e).Reads() {
			total.Samples++
			total.MB += job.Sizes[k]
		}
	}
	return total
}

func consumed(r *Result) Amount {
	a := Amount{
		r.Reads.Source.Samples + r.Reads.Remote.Samples,
		r.Reads.Source.MB + r.Reads.Remote.MB,
	}
	for _, l := range r.Reads.Local {
		a.Samples += l.Samples
		a.MB += l.MB
	}
	return a
}

// TestReadsByTierAddUp: every sample that is consumed was read from exactly one place, training
// never takes less than its computation, and no policy that keeps the order beats perfect.
func TestReadsByTierAddUp(t *testing.T) {
	supported := map[string]int{}
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		want, perfect := delivered(t, job), runModel(t, job, "perfect")
		for _, p := range append(policies.Names(policies.All()), frequencyOptions...) {
			r := runModel(t, job, p)
			if !r.Supported {
				if r.Reason == "" {
					t.Errorf("seed %d, %s: not supported, and does not say why", seed, p)
				}
				continue
			}
			supported[p]++
			got := consumed(r)
			if got.Samples != want.Samples {
				t.Errorf("seed %d, %s: %d samples by tier, %d consumed", seed, p, got.Samples,
					want.Samples)
			}
			if r.Stall < -1e-9*r.Runtime {
				t.Errorf("seed %d, %s: stall %v", seed, p, r.Stall)
			}
			sum := r.BeforeTraining
			for _, e := range r.Epochs {
				sum += e
			}
			if len(r.Epochs) != job.Epochs || math.Abs(sum-r.Runtime) > 1e-9*r.Runtime {
				t.Errorf("seed %d, %s: %d epochs that take %v, before training "+
					"included; runtime %v", seed, p, len(r.Epochs), sum, r.Runtime)
			}
			if r.SourceTotal < r.Reads.Source.MB-1e-6 {
				t.Errorf("seed %d, %s: %v MB left the source, and %v MB were consumed from it",
					seed, p, r.SourceTotal, r.Reads.Source.MB)
			}
			if r.Shuffle < 0 || r.Shuffle > 1 || r.SeenPerEpoch <= 0 || r.SeenPerEpoch > 1 {
				t.Errorf("seed %d, %s: shuffle %v, seen %v", seed, p, r.Shuffle, r.SeenPerEpoch)
			}
			if !keepsOrder(t, job, p) {
				continue
			}
			if math.Abs(got.MB-want.MB) > 1e-9*want.MB {
				t.Errorf("seed %d, %s: %v MB by tier, %v MB consumed", seed, p, got.MB, want.MB)
			}
			if r.Runtime < perfect.Runtime*(1-1e-9) {
				t.Errorf("seed %d, %s: takes %v s, perfect %v s", seed, p, r.Runtime,
					perfect.Runtime)
			}
		}
	}
	t.Logf("seeds 0 to %d; supported: %v", scenarios-1, supported)
	for _, p := range policies.Names(policies.All()) {
		if supported[p] < scenarios/10 {
			t.Errorf("%s ran in %d of %d scenarios: that says little", p, supported[p], scenarios)
		}
	}
}

// TestSourceBound: no policy that sees every sample in every epoch reads less from the source than
// the bound.
func TestSourceBound(t *testing.T) {
	tight := 0
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		job.DropLast = false
		for _, p := range policies.Names(policies.All())[1:] {
			r := runModel(t, job, p)
			if !r.Supported || r.SeenPerEpoch < 1 {
				continue
			}
			if r.ShareOfBound < 1-1e-5 { // placement counts bytes, rounded up
				t.Errorf("seed %d, %s reads %v of the bound", seed, p, r.ShareOfBound)
			}
			if r.ShareOfBound < 1.01 {
				tight++
			}
		}
	}
	t.Logf("seeds 0 to %d; %d runs within 1 %% of the bound", scenarios-1, tight)
	if tight == 0 {
		t.Error("no run comes near the bound: the test could not fail")
	}
}

// TestCapacities: no class of any plan is over its capacity, and no node has a sample twice.
func TestCapacities(t *testing.T) {
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		stream, err := streamOf(job, 0)
		if err != nil {
			t.Fatal(err)
		}
		in := input(job, stream)
		for _, name := range append(policies.Names(policies.All()), frequencyOptions...) {
			policy, err := policies.ForSimulator(name)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := policy.Plan(in)
			if err != nil {
				continue
			}
			for i, n := range plan.Nodes {
				here := map[int32]bool{}
				for j, ids := range n.Classes {
					used := 0.0
					for _, k := range ids {
						used += job.Sizes[k]
						if here[k] {
							t.Errorf("seed %d, %s: node %d has sample %d twice", seed, name, i, k)
						}
						here[k] = true
					}
					if room := job.Env.Classes[j+1].Capacity; used > room {
						t.Errorf("seed %d, %s: %v MB in class %d of node %d, which takes %v", seed,
							name, used, j+1, i, room)
					}
				}
			}
		}
	}
}

// fetchTimes returns the sum of thesis equation 3.13 over all nodes: the time to fetch all that is
// read, with every copy of the plan there and all nodes reading from the source.
func fetchTimes(t *testing.T, job *Job, policy string) float64 {
	stream, err := streamOf(job, 0)
	if err != nil {
		t.Fatal(err)
	}
	in := input(job, stream)
	p, err := policies.ForSimulator(policy)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	env := &job.Env
	remote := make([]float64, len(job.Sizes)) // rate at which a node's copy can be read
	for _, n := range plan.Nodes {
		for j, ids := range n.Classes {
			for _, k := range ids {
				remote[k] = max(remote[k], min(env.PeerBandwidth, env.ReadRate(j+1)))
			}
		}
	}
	sum := 0.0
	for i, n := range plan.Nodes {
		rate := slices.Clone(remote)
		for j, ids := range n.Classes {
			for _, k := range ids {
				rate[k] = max(rate[k], env.ReadRate(j+1))
			}
		}
		for k, r := range stream.Frequencies([]int{i}, 0, job.Epochs) {
			sum += float64(r) * job.Sizes[k] / max(rate[k], env.SourceRate(job.Nodes))
		}
	}
	return sum
}

// TestCooperativeAgainstFrequency: where peers are faster than the source, cooperative is never
// worse than frequency by more than 0.5 % in the sum of thesis equation 3.13 over all nodes, nor in
// what leaves the source.
func TestCooperativeAgainstFrequency(t *testing.T) {
	var times, bytes []float64
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		// so that one sample more or less at the end of a class is little
		for len(job.Sizes) < 1000 {
			job.Sizes = append(job.Sizes, job.Sizes...)
			for j := range job.Env.Classes {
				job.Env.Classes[j].Capacity *= 2
			}
		}
		// One sample may fit with one policy and not with the other.
		one := float64(job.Epochs) * job.Sizes[0] / job.Env.SourceRate(job.Nodes)
		ratio := (fetchTimes(t, job, "cooperative") - one) / fetchTimes(t, job, "frequency")
		times = append(times, ratio)
		if ratio > 1.005 {
			t.Errorf("seed %d: the sum of 3.13 is %.4f times that of frequency: %s", seed, ratio,
				describe(job))
		}
		env := &job.Env
		peers := inf
		for j := 1; j < len(env.Classes); j++ {
			peers = min(peers, env.PeerBandwidth, env.ReadRate(j))
		}
		if peers < slices.Max(newSource(env, job.Nodes).rate) {
			continue
		}
		c, f := runModel(t, job, "cooperative"), runModel(t, job, "frequency")
		bytes = append(bytes, c.SourceTotal/f.SourceTotal)
		if c.SourceTotal > 1.005*f.SourceTotal {
			t.Errorf("seed %d: %.1f MB leave the source, with frequency %.1f: %s", seed,
				c.SourceTotal, f.SourceTotal, describe(job))
		}
	}
	slices.Sort(times)
	slices.Sort(bytes)
	t.Logf("seeds 0 to %d: 3.13 from %.3f to %.3f times that of frequency, median %.3f; source "+
		"bytes (%d jobs) %.3f to %.3f, median %.3f",
		scenarios-1, times[0], times[len(times)-1], times[len(times)/2], len(bytes), bytes[0],
		bytes[len(bytes)-1], bytes[len(bytes)/2])
}

func describe(job *Job) string {
	var size float64
	for _, s := range job.Sizes {
		size += s
	}
	d := fmt.Sprintf("N=%d E=%d B=%d F=%d S=%.0f %s c=%.0f b_c=%.0f source(N)=%.0f", job.Nodes,
		job.Epochs, job.GlobalBatch, len(job.Sizes), size, job.Scheme, job.Env.Compute,
		job.Env.PeerBandwidth, job.Env.SourceRate(job.Nodes))
	for j, c := range job.Env.Classes {
		d += fmt.Sprintf(" d_%d=%.1f p=%d r/p=%.0f", j, c.Capacity, c.Threads, job.Env.ReadRate(j))
	}
	return d
}
