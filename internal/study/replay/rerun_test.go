package replay

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// shape is a job on nodes of a rank each, over samples of 1 MB.
type shape struct {
	nodes, samples, batch, epochs int
	class                         Class
	cached                        int // samples that the class of each node is to hold
}

// job returns a job with a source of 100 MB/s, links of 1000 MB/s, and steps of 10 ms. Node n owns
// the samples n*cached to (n+1)*cached.
func (s shape) job(t testing.TB) *Job {
	t.Helper()
	stream, err := access.New(access.Spec{
		Samples: s.samples, Seed: 3, Epochs: s.epochs, WorldSize: s.nodes,
		GlobalBatch: s.batch * s.nodes, Shuffle: access.Torch, Scheme: access.Strided,
		Tail: access.Keep,
	})
	if err != nil {
		t.Fatal(err)
	}
	planned := &plan.Plan{
		Prefetch: true, Remote: s.nodes > 1, ReadOnce: true, Owner: make([]int32, s.samples),
	}
	for k := range planned.Owner {
		planned.Owner[k] = -1
	}
	j := &Job{
		Stream: stream, Plan: planned, Epochs: s.epochs, Source: 100, Link: 1000,
		Steps: []float64{0.01},
	}
	for range s.samples {
		j.Sizes = append(j.Sizes, 1e6)
	}
	for n := range s.nodes {
		node := Node{
			Ranks: []int{n}, Streams: []Change{{To: 4}}, Staging: []Change{{To: 1000}},
			InForce: []InForce{{Ahead: 8}},
		}
		var ids []int32
		if s.class.Name != "" {
			node.Classes = []Class{s.class}
			for k := n * s.cached; k < (n+1)*s.cached; k++ {
				ids = append(ids, int32(k))
				planned.Owner[k] = int32(n)
			}
		}
		planned.Nodes = append(planned.Nodes, plan.NodePlan{Classes: [][]int32{ids}})
		j.Nodes = append(j.Nodes, node)
	}
	return j
}

func run(t *testing.T, j *Job) *Result {
	t.Helper()
	r, err := Simulate(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// transform has the first node transform samples, for so many seconds each.
func transform(j *Job, seconds float64, threads ...Change) {
	j.Nodes[0].Threads, j.Nodes[0].InForce[0].Transform = threads, seconds
}

var memory = Class{Name: "memory", Memory: true}

// TestByHand runs jobs of which the times and bytes follow from a sum.
func TestByHand(t *testing.T) {
	one := shape{nodes: 1, samples: 40, batch: 4, epochs: 2}
	half := shape{nodes: 1, samples: 40, batch: 4, epochs: 2, class: memory, cached: 20}
	two := shape{nodes: 2, samples: 80, batch: 4, epochs: 2, class: memory, cached: 40}
	for name, c := range map[string]struct {
		shape  shape
		change func(*Job)
		epochs []float64 // seconds
		source float64   // MB
		within float64   // seconds
	}{
		// 40 MB at 100 MB/s, and the last step; the second epoch is partly read ahead.
		"source": {one, nil, []float64{0.41, 0.4}, 80, 0.04},
		"compute": {
			one, func(j *Job) { j.Steps[0] = 0.1 },
			[]float64{10*0.1 + 0.04, 10 * 0.1},
			80, 0.01,
		},
		"slower steps": {
			one, func(j *Job) { j.Steps = []float64{0.1, 0.2} },
			[]float64{10*0.1 + 0.04, 10 * 0.2},
			80, 0.01,
		},
		"cached": {shape{1, 40, 4, 2, memory, 40}, nil, []float64{0.41, 0.1}, 40, 0.01},
		"warm": {shape{1, 40, 4, 2, memory, 40}, func(j *Job) {
			j.Nodes[0].Classes[0].Held = j.Plan.Nodes[0].Classes[0]
		}, []float64{0.1, 0.1}, 0, 1e-9},
		"half": {half, nil, []float64{0.41, 0.2}, 60, 0.02},
		// Ranks wait, so that the disk and the source are read in parallel: up to a third of the 40 MB
		// from the source.
		"on disk": {shape{1, 40, 4, 2, Class{Name: "file", Rate: 200}, 40}, func(j *Job) {
			j.Nodes[0].InForce[0].Ahead = 4
		}, []float64{0.41, 0.13}, 47, 0.03},
		// From the disk in the first epoch, at 40 MB/s, as are the two batches that are then read ahead
		// for the second one, and then from the page cache.
		"disk, then memory": {shape{1, 40, 4, 2, Class{Name: "file", Rate: 4000}, 40}, func(j *Job) {
			j.Nodes[0].Classes[0].Held = j.Plan.Nodes[0].Classes[0]
			j.Nodes[0].InForce = []InForce{{Ahead: 2, Read: []float64{40}}, {Ahead: 2}}
			j.Known.Classes = []model.NodeClass{{Read: model.GivenRate(40, 0)}}
			j.Known.Source = model.GivenRate(0.1, 0)
		}, []float64{1.01, 0.28}, 0, 0.001},
		// 10 ms for each of 40 samples, on one thread.
		"transforms": {shape{1, 40, 4, 2, memory, 40}, func(j *Job) {
			transform(j, 0.03, Change{To: 1})
		}, []float64{1.2, 1.2}, 40, 0.06},
		"two threads": {shape{1, 40, 4, 2, memory, 40}, func(j *Job) {
			transform(j, 0.03, Change{To: 2})
		}, []float64{0.6, 0.6}, 40, 0.11},
		// One thread until the first epoch is over, then two.
		"more threads": {shape{1, 40, 4, 2, memory, 40}, func(j *Job) {
			transform(j, 0.03, Change{To: 1}, Change{At: 1.2, To: 2})
		}, []float64{1.2, 0.6}, 40, 0.06},
		"slower transforms": {shape{1, 40, 4, 2, memory, 40}, func(j *Job) {
			transform(j, 0.03, Change{To: 1})
			j.Nodes[0].InForce = append(j.Nodes[0].InForce, InForce{Ahead: 8, Transform: 0.06})
		}, []float64{1.2, 2.4}, 40, 0.3},
		"fewer threads": {shape{1, 40, 4, 2, memory, 40}, func(j *Job) {
			transform(j, 0.03, Change{To: 2}, Change{At: 0.6, To: 1})
		}, []float64{0.6, 1.2}, 40, 0.25},
		// Both read 40 MB of the source, and then 20 from the other node.
		"two nodes": {two, nil, []float64{0.81, 0.1}, 80, 0.02},
		// The pauses are not a part of the epochs; in them, what is needed is read.
		"pauses": {half, func(j *Job) {
			j.Nodes[0].InForce = []InForce{
				{Ahead: 8, Pause: 10}, {Ahead: 8, Pause: 10},
			}
		}, []float64{0.2, 0.1}, 60, 0.03},
		// 4 MB of the buffer: a batch is read once the one before is no longer used.
		"no room": {
			one, func(j *Job) { j.Nodes[0].Staging[0].To = 4 },
			[]float64{10 * 0.05, 10 * 0.05},
			80, 0.011,
		},
		"lazy": {one, func(j *Job) { j.Plan.Prefetch = false }, []float64{0.5, 0.5}, 80, 1e-9},
	} {
		j := c.shape.job(t)
		if c.change != nil {
			c.change(j)
		}
		r := run(t, j)
		for e, want := range c.epochs {
			if math.Abs(r.Epochs[e]-want) > c.within {
				t.Errorf("%s: epoch %d takes %.4f s, want %.4f", name, e, r.Epochs[e], want)
			}
		}
		// A sample that two ranks, or epochs, need at the same time is read once; one that another
		// node owns is read directly if that is sooner.
		if math.Abs(r.Source-c.source) > 0.04*c.source {
			t.Errorf("%s: %v MB from the source, want %v", name, r.Source, c.source)
		}
	}
}

// TestRanksWaitForEachOther: with a barrier no rank is further than a step; without, a rank whose
// node has all it needs does not wait for one that reads.
func TestRanksWaitForEachOther(t *testing.T) {
	for _, free := range []bool{false, true} {
		j := shape{nodes: 2, samples: 80, batch: 4, epochs: 1, class: memory, cached: 40}.job(t)
		j.Plan.Remote = false
		j.Plan.ReadOnce = false
		j.Free = free
		for k := range 80 {
			j.Nodes[0].Classes[0].Held = append(j.Nodes[0].Classes[0].Held, int32(k))
		}
		j.Plan.Nodes[1].Classes[0] = nil
		c := newCluster(j)
		furthest := 0
		for !c.over() && c.events.next() {
			furthest = max(furthest, c.ranks[0].taken-c.ranks[1].taken)
		}
		if !c.over() || (furthest > 1) != free {
			t.Errorf("free %v: a rank is %d steps ahead of the other", free, furthest)
		}
	}
}

// TestFillThatIsWaitedForIsUrgent: as in package cache.
func TestFillThatIsWaitedForIsUrgent(t *testing.T) {
	var order []string
	g := gate{limit: 1}
	enter := func(name string, urgent bool) *flight {
		f := &flight{urgent: urgent}
		f.admitted = func() { order = append(order, name) }
		g.enter(f)
		return f
	}
	enter("first", true)
	enter("ahead", false)
	wanted := enter("wanted", false)
	enter("urgent", true)
	g.hasten(wanted)
	for range 3 {
		g.leave()
	}
	if diff := cmp.Diff([]string{"first", "urgent", "wanted", "ahead"}, order); diff != "" {
		t.Error(diff)
	}
}

// TestBytesAddUp: of random jobs, ranks are given every sample of their order, nothing is read for
// nothing, no epoch is faster than the source or the computation allows, and the same job runs
// alike.
func TestBytesAddUp(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := shape{
			nodes: 1 + r.IntN(4), samples: 20 + r.IntN(200), batch: 1 + r.IntN(5),
			epochs: 1 + r.IntN(4), class: memory,
		}
		if r.IntN(2) == 0 {
			s.class = Class{Name: "file", Rate: 10 + 500*r.Float64()}
		}
		s.cached = r.IntN(s.samples/s.nodes + 1)
		j := s.job(t)
		j.Source = 10 + 500*r.Float64()
		j.Link = 1 + 1000*r.Float64()
		j.Steps[0] = 0.02 * r.Float64()
		j.Free = r.IntN(2) == 0
		for n := range j.Nodes {
			node := &j.Nodes[n]
			node.Streams = []Change{
				{To: float64(1 + r.IntN(20))}, {At: r.Float64(), To: float64(1 + r.IntN(20))},
			}
			node.InForce = []InForce{{Ahead: 1 + r.IntN(20)}}
			node.Staging = []Change{{To: 1 + 50*r.Float64()}, {At: r.Float64(), To: 50}}
			if r.IntN(3) == 0 {
				node.InForce[0].Transform = 0.01 * r.Float64()
				node.Threads = []Change{
					{To: float64(1 + r.IntN(3))}, {At: r.Float64(), To: float64(1 + r.IntN(3))},
				}
			}
		}
		got := run(t, j)
		if diff := cmp.Diff(got, run(t, j)); diff != "" {
			t.Fatalf("seed %d: the same job runs otherwise: %s", seed, diff)
		}
		delivered := 0.0
		for _, mb := range got.Delivered {
			delivered += mb
		}
		if want := float64(j.Stream.Delivered() * s.epochs); math.Abs(delivered-want) > 1e-6 {
			t.Errorf("seed %d: %v MB were delivered, of %v", seed, delivered, want)
		}
		cold := float64(s.samples)
		if got.Source < cold-1e-6 && j.Stream.Delivered() == s.samples ||
			got.Source > delivered+cold {
			t.Errorf("seed %d: %v MB from the source, for %v", seed, got.Source, delivered)
		}
		if least := float64(j.Stream.Steps()*s.epochs) * j.Steps[0]; got.Runtime < least-1e-9 {
			t.Errorf("seed %d: it takes %v s, and computes for %v", seed, got.Runtime, least)
		}
		if got.Runtime < got.Source/j.Source-1e-9 {
			t.Errorf("seed %d: it takes %v s, and reads %v MB at %v MB/s", seed, got.Runtime,
				got.Source, j.Source)
		}
	}
}

// TestLateClassIsGivenUp: a class that is said to be fast and is slow is not waited for longer than
// the source would take several times over, and not read while a read that was given up is in
// progress, for good: what a user said is not corrected by measurements.
func TestLateClassIsGivenUp(t *testing.T) {
	job := func(said float64) *Job {
		j := shape{1, 400, 4, 3, Class{Name: "file", Rate: 4}, 200}.job(t)
		j.Steps[0], j.Plan.OnRead = 0.001, true
		if said > 0 {
			j.Known.Source = model.GivenRate(said, 0)
			j.Known.Classes = []model.NodeClass{{Read: model.GivenRate(said, 0)}}
		}
		return j
	}
	misled := run(t, job(2000))
	// 400 MB from a source of 100 MB/s, less what the class delivers beside, at 4 MB/s.
	for e, took := range misled.Epochs {
		if took < 3.5 || took > 4.1 {
			t.Errorf("epoch %d takes %v s", e, took)
		}
	}
	// Most of the 200 MB were not in the class in time in each later epoch.
	if misled.Direct < 350 || misled.Direct > 400 {
		t.Errorf("%v MB were read from the source although the class has them", misled.Direct)
	}
	// Samples that the class has are not written again when the source has delivered them.
	j := job(2000)
	j.Nodes[0].Classes[0].Write = 50
	for _, j := range []*Job{job(2000), j} {
		if got := run(t, j).Written["file"]; math.Abs(got-200) > 1e-6 {
			t.Errorf("%v MB were written of the 200 that the class is to hold", got)
		}
	}
}

// TestImpossibleJobs: are refused, and a job that takes long can be cancelled.
func TestImpossibleJobs(t *testing.T) {
	for says, change := range map[string]func(*Job){
		"the source is 0":              func(j *Job) { j.Source = 0 },
		"the link is NaN":              func(j *Job) { j.Link = math.NaN() },
		"0 epochs":                     func(j *Job) { j.Epochs = 0 },
		"a step of epoch 0 takes -1 s": func(j *Job) { j.Steps[0] = -1 },
		"how long a step takes":        func(j *Job) { j.Steps = nil },
		"a class in an epoch":          func(j *Job) { j.Nodes[0].InForce[0].Read = []float64{-1} },
		"impossible limits":            func(j *Job) { j.Nodes[0].InForce[0].Ahead = 0 },
		"impossible change":            func(j *Job) { j.Nodes[0].Streams[0].To = 0 },
		"file is written at -1": func(j *Job) {
			j.Nodes[0].Classes = []Class{{Name: "file", Rate: 1, Write: -1}}
		},
		"file is 0 MB/s": func(j *Job) { j.Nodes[0].Classes = []Class{{Name: "file"}} },
		"no limits":      func(j *Job) { j.Nodes[0].InForce = nil },
	} {
		j := shape{nodes: 1, samples: 8, batch: 2, epochs: 1}.job(t)
		change(j)
		if _, err := Simulate(t.Context(), j); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; it should say %q", err, says)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j := shape{nodes: 1, samples: 8, batch: 2, epochs: 1}.job(t)
	if _, err := Simulate(ctx, j); !errors.Is(err, context.Canceled) {
		t.Errorf("after it was cancelled: %v", err)
	}
}

// TestCopiesWaitToBeWritten: what a class that is slower than the source has not got yet is
// delivered
// from memory, of which there is a limit, and costs neither the class nor the source.
func TestCopiesWaitToBeWritten(t *testing.T) {
	job := func(write float64) *Job {
		j := shape{1, 100, 4, 2, Class{Name: "file", Rate: 200, Write: write}, 100}.job(t)
		j.Plan.OnRead = true
		return j
	}
	fast, slow := run(t, job(0)), run(t, job(10))
	if fast.Delivered[writebackTier] != 0 {
		t.Errorf("written at once: %v MB waited", fast.Delivered[writebackTier])
	}
	// 10 MB are written in the first epoch, and up to 10 in the second.
	if got := slow.Delivered[writebackTier]; got < writeMemory/2 || got > writeMemory+20 {
		t.Errorf("%v MB waited to be written", got)
	}
	if got := slow.Delivered["file"]; got > 21 {
		t.Errorf("the class delivered %v MB, of at most 20 that were written", got)
	}
	if got := slow.Source; got < 200-writeMemory-21 || got > 200-writeMemory {
		t.Errorf("%v MB from the source", got)
	}
	// A class that keeps all that is read does so beside what memory keeps.
	j := job(10)
	j.Nodes[0].Classes = []Class{{Name: "memory", Memory: true}, {
		Name: "file", Rate: 200, Write: 10, KeepAll: true,
	}}
	j.Plan.Nodes[0].Classes = [][]int32{j.Plan.Nodes[0].Classes[0][:20], nil}
	if r := run(t, j); r.Delivered["memory"] < 15 || r.Delivered[writebackTier] == 0 {
		t.Errorf("beside memory: %+v", r.Delivered)
	}
}

// TestReadingAheadReadsEachSampleOnce: reading ahead for a class that is slower than the source
// reads nothing that the class then misses, which some of what is read for batches is.
func TestReadingAheadReadsEachSampleOnce(t *testing.T) {
	j := shape{1, 100, 4, 2, Class{Name: "file", Rate: 200, Write: 10}, 100}.job(t)
	j.Steps = []float64{1}
	if r := run(t, j); r.Source > 110 || r.Delivered["file"] < 100-writeMemory {
		t.Errorf("%v MB from the source, want little more than 100; %+v", r.Source, r.Delivered)
	}
}
