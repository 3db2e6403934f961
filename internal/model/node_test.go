package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// coefficients draws those of a tier between a hung disk and memory.
func coefficients(t *rapid.T, name string) Coefficients {
	log := func(key string, low, high float64) float64 {
		return math.Exp(rapid.Float64Range(math.Log(low), math.Log(high)).Draw(t, name+" "+key))
	}
	c := Coefficients{Latency: log("latency", 1e-7, 0.1), PerMB: log("per MB", 1e-4, 1)}
	if rapid.Bool().Draw(t, name+" shares") {
		c.Queued = c.PerMB * rapid.Float64Range(0, 3).Draw(t, name+" queued")
	}
	return c
}

func drawNode(t *rapid.T) Node {
	origin := rapid.SampledFrom(origins)
	known := func(name string) Known { return Known{coefficients(t, name), origin.Draw(t, name)} }
	value := func(name string) Value {
		return Value{rapid.Float64Range(0.1, 1e4).Draw(t, name), origin.Draw(t, name+" origin")}
	}
	n := Node{
		Compute: value("c"), Preprocess: value("beta"), SourceNetwork: value("b_fs"),
		Network: known("network"), Source: known("source"),
		Streams: rapid.IntRange(2, 512).Draw(t, "streams"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "classes") {
		n.Classes = append(n.Classes,
			NodeClass{Name: "file", Read: known("read"), Write: known("write"), Stores: 4})
	}
	return n
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Max(a, b) }

// TestEnvironmentOfNode: every node has a valid environment, whose curves never fall and say what
// the coefficients predict, and from which the same predictions follow.
func TestEnvironmentOfNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t)
		s := Size{
			Sample: rapid.Float64Range(1e-3, 10).Draw(t, "size"),
			Nodes:  rapid.IntRange(1, 64).Draw(t, "nodes"), Staging: 100, Capacity: []float64{7, 8, 9},
		}
		if err := n.Validate(); err != nil {
			t.Fatal(err)
		}
		e := n.Environment(s)
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		for j, c := range e.Classes {
			for _, curve := range []Curve{c.Read, c.Write} {
				if at, falls := curve.Falls(); falls {
					t.Fatalf("class %d falls to %v", j, at)
				}
			}
		}
		for j, c := range n.Classes {
			back := GivenCurve(e.Classes[j+1].Read, 0, s.Sample)
			for p := 1; p <= n.Streams; p += 7 {
				want := c.Read.Rate(p, s.Sample)
				if got := e.Classes[j+1].Read.At(float64(p)); !near(got, want, 0.05) {
					t.Fatalf("class %d, %d streams: %v MB/s, want %v", j+1, p, got, want)
				}
				if got := back.Rate(p, s.Sample); !near(got, want, 1e-6) {
					t.Fatalf("class %d read back, %d streams: %v MB/s, want %v", j+1, p, got, want)
				}
			}
		}
		// the source as the simulator has it: a latency for each read, and a rate that they share
		most := float64(n.Streams)
		got := most * s.Sample / (e.SourceLatency + most*s.Sample/e.SourceThroughput.At(
			float64(s.Nodes))*float64(s.Nodes))
		if want := n.Source.Rate(n.Streams, s.Sample); want < 1e4 && !near(got, want, 0.05) {
			t.Fatalf("source: %v MB/s, want %v", got, want)
		}
	})
}

// TestNewerPointsOfTheSourceReplaceThoseThatContradictThem: a source that has become slower has a
// curve that does not fall, so that it can be stored and read again.
func TestNewerPointsOfTheSourceReplaceThoseThatContradictThem(t *testing.T) {
	old := Curve{{1, 50}, {2, 100}, {4, 150}, {8, 150}}
	flat := Curve{{1, 104}, {2, 110}, {3, 97}} // 97 is within 5 % of 100, and not of 104
	for _, c := range []struct {
		old  Curve
		add  Point
		want Curve
	}{
		{old, Point{3, 120}, Curve{{1, 50}, {2, 100}, {3, 120}, {4, 150}, {8, 150}}},
		{old, Point{4, 160}, Curve{{1, 50}, {2, 100}, {4, 160}}},
		{old, Point{4, 152}, Curve{{1, 50}, {2, 100}, {4, 152}, {8, 150}}},
		{old, Point{4, 60}, Curve{{1, 50}, {4, 60}, {8, 150}}},
		{old, Point{16, 10}, Curve{{16, 10}}},
		{old, Point{1, 500}, Curve{{1, 500}}},
		{flat, Point{2, 100}, Curve{{1, 104}, {2, 100}}},
		{flat, Point{2, 98.8}, Curve{{1, 104}, {2, 98.8}}},
		// by 5 %, which is no more
		{Curve{{1, 100}}, Point{2, 95}, Curve{{1, 100}, {2, 95}}},
		{Curve{{2, 95}}, Point{1, 100}, Curve{{1, 100}, {2, 95}}},
	} {
		if at, falls := c.want.Falls(); falls {
			t.Errorf("%v falls at %v", c.want, at)
		}
		if diff := cmp.Diff(c.want, c.old.with(c.add)); diff != "" {
			t.Errorf("with %v: %s", c.add, diff)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		points := map[int]float64{}
		clients, rate := rapid.IntRange(1, 64), rapid.Float64Range(1, 100)
		for range rapid.IntRange(0, 6).Draw(t, "points") {
			points[clients.Draw(t, "clients")] = rate.Draw(t, "MB/s")
		}
		add := Point{clients.Draw(t, "new"), rate.Draw(t, "its MB/s")}
		got := NewCurve(points).with(add)
		if at, falls := got.Falls(); falls || got.validate("t") != nil || !slices.Contains(got, add) {
			t.Fatalf("%v with %v is %v, which falls at %v", points, add, got, at)
		}
	})
}

// TestMergeIsAgreed: the result does not depend on the order of reports, is valid, and each number
// is one that a node reported.
func TestMergeIsAgreed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Node
		for range rapid.IntRange(1, 7).Draw(t, "nodes") {
			nodes = append(nodes, drawNode(t))
		}
		merged := Merge(nodes, 0.1)
		if err := merged.Validate(); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "order")))
		r.Shuffle(len(nodes), func(a, b int) { nodes[a], nodes[b] = nodes[b], nodes[a] })
		if diff := cmp.Diff(merged, Merge(nodes, 0.1)); diff != "" {
			t.Fatal(diff)
		}
		found := false
		for _, n := range nodes {
			found = found || n.Network == merged.Network
		}
		if !found {
			t.Fatalf("no node reported the network %+v", merged.Network)
		}
	})
}

// TestMergeHasTheClassesOfAllNodes: of each class, what is known on the nodes that have it.
func TestMergeHasTheClassesOfAllNodes(t *testing.T) {
	class := func(path string, rate float64) NodeClass {
		guess := (&NodeClass{Path: path}).Guess()
		return NodeClass{Path: path, Read: GivenRate(rate, 0), Write: guess, Stores: 1 + len(path)}
	}
	one := Node{Classes: []NodeClass{class("", 100)}}
	two := Node{Classes: []NodeClass{class("", 300), class("/ssd", 20)}}
	for _, nodes := range [][]Node{{one, two}, {two, one}} {
		merged := Merge(nodes, 1)
		want := []NodeClass{
			{Read: GivenRate(300, 0), Write: GuessedMemory, Stores: 1},
			{Path: "/ssd", Read: GivenRate(20, 0), Write: GuessedClass, Stores: 5},
		}
		if diff := cmp.Diff(want, merged.Classes); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestMergeOfSources: for each number of nodes, the lower median of the most certain throughputs.
func TestMergeOfSources(t *testing.T) {
	node := func(o Origin, c Curve) Node { return Node{Sources: c, SourcesOrigin: o} }
	merged := Merge([]Node{
		node(Probed, Curve{{1, 90}, {2, 95}}), node(Measured, Curve{{2, 10}, {4, 40}}),
		{},
		node(Measured, Curve{{2, 30}}), node(Measured, Curve{{2, 20}, {4, 25}}),
	}, 1)
	if diff := cmp.Diff(Curve{{2, 20}, {4, 25}}, merged.Sources); diff != "" ||
		merged.SourcesOrigin != Measured {
		t.Errorf("%s, -want +got:\n%s", merged.SourcesOrigin, diff)
	}
	if merged := Merge([]Node{{}, {}}, 1); merged.Sources != nil || merged.SourcesOrigin != "" {
		t.Errorf("of nothing: %v, %s", merged.Sources, merged.SourcesOrigin)
	}
}

func TestMergeTakesTheMostCertain(t *testing.T) {
	node := func(c float64, o Origin) Node { return Node{Compute: Value{c, o}} }
	for _, p := range []struct {
		nodes []Node
		want  Value
	}{
		{nil, Value{}},
		{[]Node{node(5, Probed), node(9, Guessed), {}}, Value{5, Probed}},
		{[]Node{node(5, Measured), node(1, Measured), node(9, Measured)}, Value{5, Measured}},
		{[]Node{node(5, Measured), node(1, Measured)}, Value{1, Measured}},
		{[]Node{node(5, Measured), node(7, Given)}, Value{7, Given}},
	} {
		if got := Merge(p.nodes, 1).Compute; got != p.want {
			t.Errorf("%+v: %v, want %v", p.nodes, got, p.want)
		}
	}
	if got := Merge([]Node{{}, {}, {Streams: 8}}, 1).Streams; got != 8 {
		t.Errorf("%d streams, want those of the node on which they are known, 8", got)
	}
}

func TestImpossibleNodesAreRefused(t *testing.T) {
	for _, n := range []Node{
		{Compute: Value{-1, Given}},
		{Compute: Value{math.NaN(), Given}},
		{Preprocess: Value{math.Inf(1), Given}},
		{SourceNetwork: Value{1, "dreamt"}},
		{Network: Known{Coefficients{Latency: math.NaN()}, Given}},
		{Source: Known{Coefficients{PerMB: -1}, Given}},
		{Sources: Curve{{1, 0}}},
		{Sources: Curve{{2, 1}, {1, 1}}},
		{Classes: make([]NodeClass, maxClasses+1)},
		{Classes: []NodeClass{{Stores: -1}}},
		{Classes: []NodeClass{{Stores: mostStreams + 1}}},
		{Classes: []NodeClass{{Read: Known{Coefficients{Queued: 1e10}, Given}}}},
		{Streams: -1},
		{Streams: mostStreams + 1},
	} {
		if n.Validate() == nil {
			t.Errorf("%+v was accepted", n)
		}
	}
	most := Node{Streams: mostStreams, Classes: make([]NodeClass, maxClasses)}
	most.Classes[0].Stores = mostStreams
	if err := most.Validate(); err != nil {
		t.Errorf("with as much as is allowed: %v", err)
	}
}

// TestWhatIsNotKnownLimitsNothing: an environment has numbers above 0.
func TestWhatIsNotKnownLimitsNothing(t *testing.T) {
	n := Node{Network: GuessedPeer, Source: GuessedSource}
	e := n.Environment(Size{Sample: 0.1, Nodes: 1, Staging: 1})
	if e.Compute != unlimited || e.Preprocess != unlimited || e.Validate() != nil {
		t.Errorf("c = %v and beta = %v, want %v; %v", e.Compute, e.Preprocess, unlimited, e.Validate())
	}
}

// TestCertain: a tier that is only guessed keeps plans as they are; memory may be guessed.
func TestCertain(t *testing.T) {
	measured := Known{Origin: Measured}
	n := Node{
		Source: measured,
		Classes: []NodeClass{
			{Name: "memory", Read: GuessedClass},
			{Name: "file", Path: "/d", Read: measured},
		},
	}
	if !n.Certain(1) || n.Certain(2) {
		t.Error("the network counts with one node, or does not with two")
	}
	n.Network = measured
	if !n.Certain(2) {
		t.Error("all is measured")
	}
	n.Classes[1].Read = GuessedClass
	if n.Certain(2) {
		t.Error("a directory is guessed")
	}
	if new(Node).Certain(1) {
		t.Error("nothing is known")
	}
}

// TestSaturatedTierIsNotFasterAlone: reads that were never without others tell only by how much
// they delay each other. That is the rate of one stream as well, not a fraction of it.
func TestSaturatedTierIsNotFasterAlone(t *testing.T) {
	c := Coefficients{PerMB: 1e-4, Queued: 0.05} // 20 MB/s, of all streams
	for p := 1; p <= 64; p *= 4 {
		if got := c.Rate(p, 0.1); !near(got, 20, 1e-6) {
			t.Errorf("%d streams: %v MB/s, want 20", p, got)
		}
	}
	if latency, rate := c.shared(0.1); latency > 1e-9 || !near(rate, 20, 1e-6) {
		t.Errorf("%v s and %v MB/s, want 20 MB/s without latency", latency, rate)
	}
}
