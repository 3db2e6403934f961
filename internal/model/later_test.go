package model

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawLater returns a machine whose staging buffer does not limit, and an epoch on it.
func drawLater(t *rapid.T) (Environment, Later) {
	log := func(name string, low, high float64) float64 {
		return math.Exp(rapid.Float64Range(math.Log(low), math.Log(high)).Draw(t, name))
	}
	constant := func(name string) Curve { return Constant(log(name, 1, 1e3)) }
	e := Environment{
		Compute: log("c", 1, 1e4), Preprocess: log("beta", 1, 1e4), PeerBandwidth: log("b_c", 1, 1e3),
		SourceBandwidth: 1e6, SourceThroughput: constant("t"),
		Classes: []Class{
			{Threads: 1 << 12, Read: Constant(1e6), Write: Constant(1e6), Capacity: 1},
		},
	}
	l := Later{Data: log("data", 1, 1e4), Sample: 0.1, Nodes: rapid.IntRange(1, 8).Draw(t, "nodes")}
	l.Node = l.Data / float64(l.Nodes)
	for range rapid.IntRange(0, 3).Draw(t, "classes") {
		e.Classes = append(e.Classes, Class{
			Threads: 4, Read: constant("r"), Write: constant("w"),
			Capacity: l.Data * rapid.Float64Range(0, 1.2).Draw(t, "capacity"),
		})
	}
	return e, l
}

// TestEpochIsAtLeastTheBound: a later epoch is predicted to take at least as long as the bound of
// many epochs has for one.
func TestEpochIsAtLeastTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, l := drawLater(t)
		bound := func(epochs int) float64 {
			w := Workload{}
			for k := range epochs {
				d := Demand{
					Compute: l.Node / e.Compute, Nodes: slices.Repeat([]float64{l.Node}, l.Nodes),
				}
				if k == 0 {
					d.New = l.Data
				}
				w.Epochs = append(w.Epochs, d)
			}
			return e.TimeBound(&w)
		}
		least := (bound(200) - bound(100)) / 100
		if f := e.Epoch(&l); f.Seconds < least*(1-1e-3) {
			t.Fatalf("%v s are predicted, the least is %v s: %+v", f.Seconds, least, f)
		}
	})
}

// TestEpochOfSlowLink is computed by hand: of 500 MB that a node reads, it holds a half, and the
// other node the other half, so that 250 MB come through the network and from the source at 10 and
// 5 MB/s.
func TestEpochOfSlowLink(t *testing.T) {
	e := Environment{
		Compute: 50, Preprocess: 1e6, PeerBandwidth: 10, SourceBandwidth: 1e6,
		SourceThroughput: Constant(10),
		Classes: []Class{
			{Threads: 8, Read: Constant(1e6), Write: Constant(1e6)},
			{Threads: 1, Read: Constant(5000), Write: Constant(5000), Capacity: 500},
		},
	}
	f := e.Epoch(&Later{Data: 1000, Node: 500, Nodes: 2})
	const seconds = 250.0 / 15
	if !near(f.Seconds, seconds, 1e-9) || !near(f.Network.MB, 10*seconds, 1e-9) ||
		!near(f.Source.MB, 5*seconds, 1e-9) || !near(f.Classes[0].MB, 250+10*seconds, 1e-9) ||
		!near(f.Compute.Seconds, 10, 1e-9) {
		t.Errorf("%+v", f)
	}
	// nothing is cached in the first epoch, and nothing comes through the network
	f = e.Epoch(&Later{Data: 1000, Node: 500, Nodes: 2, Cold: true})
	if !near(f.Seconds, 100, 1e-9) || f.Network.MB != 0 || !near(f.Source.MB, 500, 1e-9) {
		t.Errorf("cold: %+v", f)
	}
	// a source with a latency of 0.16 s per read of 0.1 MB gives 8 streams 0.8 MB in 0.16+0.16 s
	e.SourceLatency = 0.16
	f = e.Epoch(&Later{Data: 1000, Node: 500, Nodes: 2, Cold: true, Sample: 0.1})
	if !near(f.Seconds, 500/2.5, 1e-9) {
		t.Errorf("with a latency: %+v", f)
	}
}

// TestEpochReadsFromTheSourceWhatNoClassHolds is computed by hand: of 1,000 MB that a node reads,
// its fast class holds 400, so that 600 MB come from the source, although the class could give all
// of them in less time.
func TestEpochReadsFromTheSourceWhatNoClassHolds(t *testing.T) {
	e := Environment{
		Compute: 1e6, Preprocess: 100, PeerBandwidth: 1e6, SourceBandwidth: 1e6,
		SourceThroughput: Constant(20),
		Classes: []Class{
			{Threads: 1, Read: Constant(1e6), Write: Constant(1e6)},
			{Threads: 1, Read: Constant(5000), Write: Constant(5000), Capacity: 400},
		},
	}
	l := Later{Data: 1000, Node: 1000, Nodes: 1, Sample: 0.1}
	f := e.Epoch(&l)
	if !near(f.Seconds, 600.0/20, 1e-9) || !near(f.Source.MB, 600, 1e-9) ||
		!near(f.Classes[0].MB, 400, 1e-9) || !near(f.Preprocess.Seconds, 10, 1e-9) {
		t.Errorf("%+v", f)
	}
	// 6,000 reads of 0.1 MB take the processors that transform 0.01 s each
	e.SourceWork = 0.01
	f = e.Epoch(&l)
	if !near(f.Preprocess.Seconds, 10+60, 1e-9) || !near(f.Seconds, 70, 1e-9) {
		t.Errorf("with work: %+v", f)
	}
}
