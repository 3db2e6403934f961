package model

import (
	"math"
	"testing"
)

// cluster is two nodes with a source that gives 10 MB/s to one and 16 MB/s to both, caches of 30
// and 20 MB that give at most 40 and 2.5 MB/s, and a staging buffer of 4 MB.
func cluster() Environment {
	return Environment{
		Compute: 100, Preprocess: 50, PeerBandwidth: 20, SourceBandwidth: 1000,
		SourceThroughput: Curve{{1, 10}, {2, 16}},
		Classes: []Class{
			{Capacity: 4, Threads: 4, Read: Constant(1000), Write: Constant(1000)},
			{Capacity: 30, Threads: 2, Read: Curve{{1, 25}, {4, 40}}, Write: Constant(1000)},
			{Capacity: 20, Threads: 1, Read: Curve{{1, 2}, {2, 2.5}, {4, 1.5}}, Write: Constant(1000)},
		},
	}
}

// even is a job of epochs that need mb MB, half of it on each of two nodes.
func even(epochs int, mb, compute float64) *Workload {
	w := &Workload{Largest: 1}
	for e := range epochs {
		d := Demand{Compute: compute, Nodes: []float64{mb / 2, mb / 2}}
		if e == 0 {
			d.New = mb
		}
		w.Epochs = append(w.Epochs, d)
	}
	return w
}

// TestTimeBound: bounds that can be worked out on paper.
func TestTimeBound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Environment)
		job    *Workload
		want   float64
	}{
		"no epochs": {nil, &Workload{}, 0},
		// 160 MB at 16 MB/s.
		"filling": {nil, even(1, 160, 9), 10},
		"compute": {nil, even(3, 160, 50), 150},
		// The first sample is there after 2 s.
		"first sample": {nil, func() *Workload {
			w := even(3, 160, 50)
			w.First = 2
			return w
		}(), 152},
		// In the two later epochs 312 MB are read, as 8 were staged before them: 2 * 60 from class 1,
		// the others from the source and class 2 in parallel, which give 16 and 5 MB/s. Class 2
		// serves less than the 80 MB that it holds.
		"two tiers in parallel": {nil, even(3, 160, 1), 10 + (312-120)/21.},
		// Class 2 is faster, and serves all that it holds: 280 MB leave the source.
		"the source": {func(e *Environment) {
			e.Classes[2].Read = Constant(50)
		}, even(3, 160, 1), 280 / 16.},
		// All fits into class 1, which gives 80 MB/s; nodes get 12 and 52 MB/s otherwise.
		"a fast class": {func(e *Environment) {
			e.Classes[1].Capacity = 1000
			e.Classes[2].Capacity = 0
			e.Preprocess = 1e6
			e.Classes[0].Write = Constant(1e6)
			e.Classes[0].Threads = 100
		}, even(2, 160, 0.1), 10 + 152./96},
		// Four threads transform 80 MB at 50 MB/s each.
		"threads": {func(e *Environment) {
			e.Classes[1].Capacity = 1000
			e.SourceThroughput = Constant(400)
		}, even(1, 160, 0), 80. / 50 / 4},
		// One node has three quarters of an epoch, and gets 10 MB/s from the source.
		"one node": {func(e *Environment) {
			e.SourceThroughput = Constant(1000)
			e.SourceBandwidth = 10
			e.PeerBandwidth = 0.001
			e.Classes[1].Capacity, e.Classes[2].Capacity = 0, 0
		}, &Workload{
			Largest: 1,
			Epochs:  []Demand{{Nodes: []float64{120, 40}, New: 160}},
		}, 120 / 10.001},
		// Every sample is read on both nodes, 160 MB in an epoch. Of the two epochs' 320 MB, nodes
		// have 50 MB each themselves in the second one; all others come from the source, at
		// 16 MB/s, or through the two links, at 1 MB/s.
		"all nodes read all": {func(e *Environment) {
			e.PeerBandwidth = 1
			e.Classes[2].Read = Constant(1000)
		}, func() *Workload {
			w := even(2, 160, 0)
			w.Readers, w.Epochs[0].New = 2, 80
			return w
		}(), (320 - 100) / 18.},
	} {
		e := cluster()
		if c.change != nil {
			c.change(&e)
		}
		if got := e.TimeBound(c.job); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("%s: at least %v s, want %v", name, got, c.want)
		}
	}
}

// TestTimeBoundIsMonotone: more of anything never makes the bound longer, and a longer job never
// makes it shorter.
func TestTimeBoundIsMonotone(t *testing.T) {
	job := even(4, 160, 2)
	base := cluster()
	before := base.TimeBound(job)
	for name, better := range map[string]func(*Environment){
		"b_c":           func(e *Environment) { e.PeerBandwidth *= 2 },
		"b_fs":          func(e *Environment) { e.SourceBandwidth *= 2 },
		"t":             func(e *Environment) { e.SourceThroughput = Constant(20) },
		"beta":          func(e *Environment) { e.Preprocess *= 2 },
		"d_0":           func(e *Environment) { e.Classes[0].Capacity *= 2 },
		"d_1":           func(e *Environment) { e.Classes[1].Capacity *= 2 },
		"d_2":           func(e *Environment) { e.Classes[2].Capacity *= 2 },
		"r_2":           func(e *Environment) { e.Classes[2].Read = Constant(50) },
		"p_0":           func(e *Environment) { e.Classes[0].Threads *= 2 },
		"another class": func(e *Environment) { e.Classes = append(e.Classes, e.Classes[2]) },
	} {
		e := cluster()
		better(&e)
		if got := e.TimeBound(job); got > before*(1+1e-12) {
			t.Errorf("more %s: %v s, before %v", name, got, before)
		}
	}
	for _, epochs := range []int{1, 2, 3, 4, 5, manyEpochs - 1, manyEpochs, 5000} {
		if a, b := base.TimeBound(even(epochs, 160, 2)),
			base.TimeBound(even(epochs+1, 160, 2)); b < a+2 {
			t.Errorf("%d epochs take %v s, one more %v s", epochs, a, b)
		}
	}
}

// TestReadsBeforeASpanAreNoReadsFewer: what an epoch shares with the one before counts only in a
// span of both. Epoch 0 takes 100 s to read 1,000 MB at 10 MB/s, and epoch 1, of as many from the
// source and a class at 10 MB/s each, 50.
func TestReadsBeforeASpanAreNoReadsFewer(t *testing.T) {
	e := Environment{
		Compute: 1e6, Preprocess: 1e6, PeerBandwidth: 1, SourceBandwidth: 1e6,
		SourceThroughput: Constant(10),
		Classes: []Class{
			{Threads: 1, Read: Constant(1e6), Write: Constant(1e6)},
			{Capacity: 1000, Threads: 1, Read: Constant(10), Write: Constant(1e6)},
		},
	}
	all := []float64{1000}
	w := Workload{Epochs: []Demand{{Nodes: all, New: 1000}, {Nodes: all, Shared: []float64{500}}}}
	if got := e.TimeBound(&w); !near(got, 150, 1e-9) {
		t.Errorf("the bound is %v s, want 150", got)
	}
}
