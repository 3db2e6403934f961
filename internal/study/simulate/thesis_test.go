package simulate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// originals are the policies that the simulator of the thesis has.
func originals() []string {
	return policies.Names(slices.DeleteFunc(policies.All(), func(p plan.Policy) bool {
		_, ok := p.(simulated.Original)
		return !ok
	}))
}

// frequencyOptions are the other values of the options of `frequency`.
var frequencyOptions = []string{
	"frequency:in_order=false", "frequency:cleanup_read=true",
	"frequency:in_order=false:cleanup_read=true",
}

// drawnJob draws a job of a few samples whose classes hold some of them, on a machine on which any
// way to fetch may be the fastest.
func drawnJob(rng *rand.Rand) *Job {
	rate := func(low, high float64) float64 { return low * math.Pow(high/low, rng.Float64()) }
	class := func(capacity, low, high float64) model.Class {
		c := model.Curve{{Clients: 1, MBps: rate(low, high)}}
		return model.Class{Capacity: capacity, Threads: 1 + rng.IntN(3), Read: c, Write: c}
	}
	job := &Job{
		Nodes: 1 + rng.IntN(5), Epochs: 1 + rng.IntN(4), DropLast: rng.IntN(2) == 0,
		Scheme: access.Uniform,
		Seed:   rng.Uint64(), PerBatch: true,
	}
	files := job.Nodes + rng.IntN(80)
	job.GlobalBatch = 1 + rng.IntN(min(files, 6*job.Nodes))
	total := 0.0
	for range files {
		job.Sizes = append(job.Sizes, rate(0.3, 3))
		total += job.Sizes[len(job.Sizes)-1]
	}
	job.Env = model.Environment{
		Compute: rate(20, 500), Preprocess: rate(50, 500), PeerBandwidth: rate(20, 2000),
		SourceBandwidth: rate(40, 500),
		SourceThroughput: model.Curve{
			{Clients: 1, MBps: rate(30, 200)},
			{Clients: 3, MBps: rate(30, 500)},
		},
		Classes: []model.Class{
			class(total*rate(0.02, 1), 500, 5000), class(3+total*rate(0.05, 1), 100, 2000),
			class(3+total*rate(0.05, 2), 20, 200),
		},
	}
	if rng.IntN(4) == 0 {
		job.Env.SourceLatency = rate(0.001, 0.05)
	}
	if rng.IntN(3) == 0 { // round numbers, which tie, and classes of a few samples
		for k, s := range job.Sizes {
			job.Sizes[k] = math.Ceil(2*s) / 2
		}
		for j := range job.Env.Classes {
			job.Env.Classes[j].Capacity = float64(3 + rng.IntN(6))
		}
		job.Env.PeerBandwidth = 1e5
	}
	return job
}

// TestThesisReference: RunThesis computes, to the last bit, what the literal implementation does.
func TestThesisReference(t *testing.T) {
	tried := map[string]int{}
	for seed := range uint64(400) {
		job := drawnJob(rand.New(rand.NewPCG(seed, 1)))
		for _, policy := range append(originals(), frequencyOptions...) {
			got := runRow(t, job, policy)
			if !got.Supported {
				continue
			}
			tried[policy]++
			want := runReference(job, policy)
			if got.Runtime != want.Runtime || got.BeforeTraining != want.BeforeTraining ||
				!slices.Equal(got.Batches, want.Batches) {
				t.Fatalf("seed %d, %s: %v s, %v before, the reference %v s, %v before\n%v\n%v",
					seed, policy, got.Runtime, got.BeforeTraining, want.Runtime,
					want.BeforeTraining, got.Batches, want.Batches)
			}
			same := func(what string, a, b Amount) {
				if a.Samples != b.Samples || math.Abs(a.MB-b.MB) > 1e-9*(1+b.MB) {
					t.Fatalf("seed %d, %s: %s %v, the reference %v", seed, policy, what, a, b)
				}
			}
			same("source", got.Reads.Source, want.Reads.Source)
			same("remote", got.Reads.Remote, want.Reads.Remote)
			for j := range job.Env.Classes {
				same("class "+strconv.Itoa(j), got.Reads.Local[strconv.Itoa(j)],
					want.Reads.Local[strconv.Itoa(j)])
			}
			same("bytes from the source", Amount{MB: got.SourceTotal}, Amount{MB: want.SourceTotal})
		}
	}
	for _, policy := range append(originals(), frequencyOptions...) {
		if tried[policy] < 60 {
			t.Errorf("%s ran %d of 400 jobs: too few to say anything", policy, tried[policy])
		}
	}
}

// TestThesisInvariants: what holds whatever the job, in every scheme.
func TestThesisInvariants(t *testing.T) {
	schemes := []access.Scheme{access.Uniform, access.Strided, access.Whole, access.Imbalanced}
	for seed := range uint64(200) {
		job := drawnJob(rand.New(rand.NewPCG(seed, 2)))
		job.Scheme = schemes[seed%4]
		lowest, consumed := runRow(t, job, "perfect"), 0.0
		for _, policy := range originals() {
			res := runRow(t, job, policy)
			if !res.Supported {
				continue
			}
			reads := []Amount{res.Reads.Source, res.Reads.Remote}
			for _, a := range res.Reads.Local {
				reads = append(reads, a)
			}
			var all Amount
			for _, a := range reads {
				all.Samples, all.MB = all.Samples+a.Samples, all.MB+a.MB
			}
			rewritten := policy == "sharded" || policy == "deepio_opportunistic"
			if policy == "perfect" {
				consumed = all.MB
			}
			if want := lowest.Reads.Local["0"].Samples; all.Samples != want ||
				!rewritten && math.Abs(all.MB-consumed) > 1e-9*consumed {
				t.Errorf("seed %d, %s: %v by tier, the job reads %d samples and %v MB", seed,
					policy, all, want, consumed)
			}
			if res.Runtime < lowest.Runtime-1e-9 && !rewritten {
				t.Errorf("seed %d, %s: %v s, the lower bound is %v s", seed, policy, res.Runtime,
					lowest.Runtime)
			}
			near := func(what string, a, b float64) {
				if math.Abs(a-b) > 1e-9*(1+math.Abs(b)) {
					t.Errorf("seed %d, %s: %s are %v, not %v", seed, policy, what, a, b)
				}
			}
			sum := res.BeforeTraining
			for _, s := range res.Epochs {
				sum += s
			}
			near("epochs", sum, res.Runtime)
			sum = res.BeforeTraining
			for _, s := range res.Batches {
				sum += s
			}
			near("batches", sum, res.Runtime)
			if !rewritten {
				near("stall and compute", res.BeforeTraining+res.Stall+lowest.Runtime, res.Runtime)
			}
			if res.SeenPerEpoch <= 0 || res.SeenPerEpoch > 1 || res.Shuffle < 0 ||
				res.Shuffle > 1 || res.SourceTotal < res.Reads.Source.MB-1e-9 {
				t.Errorf("seed %d, %s: %+v", seed, policy, res)
			}
		}
	}
}

// TestThesisOrders: policies that rewrite the traces say so, and sharded sees its shards only.
func TestThesisOrders(t *testing.T) {
	table := tables(t)[0]
	sizes := DrawSizes(tableSeed, table.Samples, table.Mu, table.Sigma, 0)
	for policy, want := range map[string]struct{ seen, shuffle [2]float64 }{
		"staging":              {[2]float64{1, 1}, [2]float64{0, 0.05}},
		"sharded":              {[2]float64{0.6, 0.66}, [2]float64{0.5, 1}}, // 1-1/e of every shard
		"deepio_opportunistic": {[2]float64{0.55, 0.66}, [2]float64{0.3, 1}},
	} {
		res := runRow(t, table.job(&tableRow{}, sizes, 1), policy)
		if res.SeenPerEpoch < want.seen[0] || res.SeenPerEpoch > want.seen[1] ||
			res.Shuffle < want.shuffle[0] || res.Shuffle > want.shuffle[1] {
			t.Errorf("%s: sees %.3f of the dataset, %.3f from a full shuffle; want %v", policy,
				res.SeenPerEpoch, res.Shuffle, want)
		}
	}
}

// TestThesisSource: which node reads how much from the source, where that can be said beforehand.
func TestThesisSource(t *testing.T) {
	table := tables(t)[0]
	sizes := DrawSizes(tableSeed, table.Samples, table.Mu, table.Sigma, 0)
	total := 0.0
	for _, s := range sizes {
		total += s
	}
	for policy, passes := range map[string]float64{
		"perfect": 0, "naive": 10, "staging": 10, "deepio_ordered": 1, "lbann_preloading": 1,
		"locality": 1, "sharded": 1,
	} {
		res := runRow(t, table.job(&tableRow{}, sizes, 1), policy)
		if math.Abs(res.SourceTotal-passes*total) > 1e-6*total ||
			math.Abs(res.ShareOfBound-passes) > 1e-3 {
			t.Errorf("%s: %v MB from the source, %v of the bound; want the dataset %v times, %v MB",
				policy, res.SourceTotal, res.ShareOfBound, passes, passes*total)
		}
	}
}

// TestThesisReportsUnsupportedPolicies: a policy that cannot run a job is reported in the Result,
// not as an error.
func TestThesisReportsUnsupportedPolicies(t *testing.T) {
	job := drawnJob(rand.New(rand.NewPCG(1, 3)))
	job.Nodes, job.GlobalBatch = 4, 8
	huge := *job
	bare := *job
	few := *job
	huge.Env.Classes = slices.Clone(job.Env.Classes)
	huge.Env.Classes[1].Capacity = 1
	bare.Env.Classes = job.Env.Classes[:1]
	few.Sizes, few.GlobalBatch = job.Sizes[:3], 2
	for _, c := range []struct {
		job          *Job
		policy, want string
	}{
		{job, "cooperative", "original simulator does not implement"},
		{job, "minio", "original simulator does not implement"},
		{job, "partitioned", "original simulator does not implement"},
		{&huge, "lbann_dynamic", "class 1 of all nodes together holds 4 MB"},
		{&huge, "lbann_preloading", "class 1 of all nodes together holds 4 MB"},
		{&bare, "deepio_ordered", "no class above 0"},
		{&bare, "sharded", "class 2"},
		{&bare, "locality", "class 2"},
		{&few, "sharded", "node 0 has no sample of its own"},
		{&few, "deepio_opportunistic", "node 0 has no sample of its own"},
	} {
		res := runRow(t, c.job, c.policy)
		if res.Supported || !strings.Contains(res.Reason, c.want) {
			t.Errorf("%s: supported %v, %q; want %q", c.policy, res.Supported, res.Reason, c.want)
		}
	}
	exact := few // a dataset of exactly what LBANN's store holds
	exact.Sizes, exact.Env = slices.Repeat([]float64{1}, 16), huge.Env
	exact.Env.Classes = slices.Clone(exact.Env.Classes)
	exact.Env.Classes[1].Capacity = 4
	if res := runRow(t, &exact, "lbann_dynamic"); !res.Supported {
		t.Errorf("lbann_dynamic with 16 MB on 4 times 4 MB: %s", res.Reason)
	}
	if res := runRow(t, &bare, "frequency"); !res.Supported || res.Reads.Source.Samples == 0 {
		t.Errorf("frequency without classes: %+v", res)
	}
}

func TestThesisErrors(t *testing.T) {
	job := drawnJob(rand.New(rand.NewPCG(1, 4)))
	for want, spoil := range map[string]func(*Job){
		"c is 0":               func(j *Job) { j.Env.Compute = 0 },
		"epochs":               func(j *Job) { j.Epochs = 0 },
		"Samples is 0":         func(j *Job) { j.Sizes = nil },
		"sample 0 has -1 MB":   func(j *Job) { j.Sizes = append([]float64{-1}, j.Sizes...) },
		"GlobalBatch is 0":     func(j *Job) { j.GlobalBatch = 0 },
		"nothing would be del": func(j *Job) { j.GlobalBatch, j.DropLast = len(j.Sizes)+1, true },
	} {
		bad := *job
		spoil(&bad)
		if _, err := RunThesis(context.Background(), &bad, "naive"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	if _, err := RunThesis(context.Background(), job, "nonsense"); err == nil ||
		!strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("error %v for an unknown policy", err)
	}
}

// countdown is a context that ends when it has been asked often enough.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestThesisCancel: a run asks its context at every stage, so often that little time passes
// between, and ends.
func TestThesisCancel(t *testing.T) {
	job := drawnJob(rand.New(rand.NewPCG(1, 5)))
	for _, policy := range originals() {
		var all int
		for left := 0; ; left++ {
			if _, err := RunThesis(&countdown{context.Background(), left}, job,
				policy); err == nil {
				all = left
				break
			} else if !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v", policy, err)
			}
		}
		if steps := len(runRow(t, job, policy).Batches); all < steps {
			t.Errorf("%s asks its context %d times in %d batches", policy, all, steps)
		}
	}
}

// TestThesisOrder: a job's own order decides which node reads what.
func TestThesisOrder(t *testing.T) {
	job := drawnJob(rand.New(rand.NewPCG(1, 6)))
	drawn := runRow(t, job, "naive")
	job.Order = make([][]int32, job.Epochs)
	for e := range job.Order {
		stream, err := access.New(access.Spec{
			Samples:     len(job.Sizes),
			Seed:        job.Seed,
			GlobalBatch: len(job.Sizes),
			WorldSize:   1,
			Tail:        access.Keep,
		})
		if err != nil {
			t.Fatal(err)
		}
		job.Order[e] = stream.Epoch(e).Global(nil, 0)
	}
	if given := runRow(t, job, "naive"); given.Runtime != drawn.Runtime {
		t.Errorf("%v s with the order drawn from the seed, %v s with the same one given",
			drawn.Runtime, given.Runtime)
	}
	slices.Reverse(job.Order[0])
	if given := runRow(t, job, "naive"); given.Runtime == drawn.Runtime {
		t.Error("another order takes the same time")
	}
}

// TestClients: gamma on logs that are not sorted is what bisection makes of them.
func TestClients(t *testing.T) {
	r := &thesisRun{
		nodes:  make([]thesisNode, 3),
		newest: []float64{-inf, -inf, -inf},
		latest: []float64{-inf, -inf, -inf},
	}
	for i := range r.nodes {
		r.nodes[i].newestUse, r.nodes[i].newestFill = -inf, -inf
	}
	want := func(t0 float64, node, gamma int) {
		t.Helper()
		if got := r.clients(t0, node); got != gamma {
			t.Errorf("clients(%v, %d) = %d, want %d", t0, node, got, gamma)
		}
	}
	want(0, 0, 1)
	r.logUse(1, 5)
	want(5, 0, 2)
	want(5.01, 0, 1) // sorted: the window of 0.1 s does not matter
	want(5, 1, 1)    // a node does not count itself twice
	for _, at := range []float64{1, 9, 6} {
		r.logFill(2, at)
	}
	want(6, 0, 2)
	want(6.05, 0, 2) // bisection meets the 9, in the middle
	want(6.2, 0, 1)  // outside the window
	r.logFill(2, 6)
	r.logFill(2, 6) // 1 9 6 6 6: it no longer does
	want(6.05, 0, 1)
	r.logUse(2, 7)
	r.logFill(2, 6)
	want(6.5, 0, 2) // an older start does not hide a newer use
}

func TestDrawSizes(t *testing.T) {
	sizes := DrawSizes(7, 100000, 2, 1, 1)
	sum, lowest := 0.0, inf
	for _, s := range sizes {
		sum, lowest = sum+s, min(lowest, s)
	}
	// The mean of a normal distribution cut off at one sigma below: mu + sigma phi(1)/Phi(1).
	if mean := sum / 1e5; lowest < 1 || math.Abs(mean-2.2876) > 0.01 {
		t.Errorf("smallest %v, mean %v; want 1 or more, 2.2876", lowest, mean)
	}
	if again := DrawSizes(7, 100000, 2, 1, 1); !slices.Equal(sizes, again) {
		t.Error("the same seed draws other sizes")
	}
	if other := DrawSizes(8, 100000, 2, 1, 1); slices.Equal(sizes, other) {
		t.Error("another seed draws the same sizes")
	}
	if got := DrawSizes(1, 2, 1, 0, 3); !slices.Equal(got, []float64{3, 3}) {
		t.Errorf("sigma 0, mu 1, min 3: %v", got)
	}
}
