package policies

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// machine returns an environment with these rates in MB/s: of the source per node, of the network,
// and of the storage classes from 1 on.
func machine(source, network float64, classes ...float64) *model.Environment {
	e := &model.Environment{
		Compute:          1,
		Preprocess:       1,
		PeerBandwidth:    network,
		SourceBandwidth:  source,
		SourceThroughput: model.Constant(1e6),
	}
	for _, rate := range append([]float64{1e5}, classes...) {
		c := model.Constant(rate)
		e.Classes = append(e.Classes, model.Class{Capacity: 1, Threads: 1, Read: c, Write: c})
	}
	return e
}

// TestFastestClassTakesWhatGainsMost checks that of the samples that a node holds, its fastest
// class has those for which that saves most time, including reads by other nodes of samples that
// the node owns, and that no class exceeds its capacity.
func TestFastestClassTakesWhatGainsMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "nodes")
		f := rapid.IntRange(10, 200).Draw(t, "samples")
		even := rapid.Bool().Draw(t, "of one size")
		size := func(k int) int64 {
			if even {
				return 1000
			}
			return 500 + int64(access.Mix(1, k)%1000)
		}
		capacity := func(class string) int64 {
			return int64(rapid.IntRange(0, f*1000/n).Draw(t, class))
		}
		in := plan.Input{
			Stream: policytest.Stream(t,
				access.Spec{
					Samples:     f,
					Seed:        rapid.Uint64().Draw(t, "seed"),
					Epochs:      8,
					WorldSize:   n,
					GlobalBatch: n,
				}),
			Nodes: policytest.Nodes(n, capacity("memory"), capacity("file")), Size: size,
			Env: machine(10, rapid.SampledFrom([]float64{12, 100, 2000}).Draw(t, "network"), 5000,
				50),
		}
		p := policytest.Plan(t, Cooperative{}, in)
		local, peer := gains(in.Env)
		all := in.Stream.Frequencies(ranks(n), 0, 8)
		for i, node := range p.Nodes {
			own := in.Stream.Frequencies([]int{i}, 0, 8)
			// the least gain in the first class, and the most in the second
			least, most := math.Inf(1), math.Inf(-1)
			for j, class := range node.Classes {
				room := in.Nodes[i].Capacity[j]
				for _, k := range class {
					room -= size(int(k))
					gain := float64(own[k]) * local
					if p.OwnerOf(int(k)) == i {
						gain += float64(all[k]-own[k]) * peer
					}
					if j == 0 {
						least = min(least, gain)
					} else {
						most = max(most, gain)
					}
				}
				if room < 0 {
					t.Fatalf("class %d of node %d exceeds its capacity by %d bytes", j+1, i, -room)
				}
			}
			if even && most > least*(1+1e-6) {
				t.Fatalf("node %d has a sample in its slower class that would gain %v in the "+
					"faster one, which has a sample that gains %v", i, most, least)
			}
		}
	})
}

// gains returns the seconds per MB that a sample in class 1 instead of class 2 saves a read by the
// node itself, and by another node.
func gains(e *model.Environment) (local, peer float64) {
	source := 1 / e.SourceRate(1)
	return min(source, e.FetchLocal(1, 2)) - min(source, e.FetchLocal(1, 1)),
		min(source, e.FetchPeer(1, 2)) - min(source, e.FetchPeer(1, 1))
}

// TestNodesCacheForThemselvesOnSlowNetworks: if the network is hardly faster than the source, nodes
// cache what they read most often themselves, if and only if that reduces the sum of the fetch
// times.
func TestNodesCacheForThemselvesOnSlowNetworks(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{
				Samples:     4000,
				Seed:        7,
				Epochs:      10,
				WorldSize:   4,
				GlobalBatch: 160,
				Shuffle:     access.Feistel,
			}),
		Nodes: policytest.Nodes(4, 1000*1000), Size: func(int) int64 { return 1000 },
	}
	for name, c := range map[string]struct {
		network float64
		covers  bool // the dataset
	}{
		"hardly faster than the source":                    {10.1, false},
		"faster, and slower than memory by more than that": {18, true},
		"fast": {1000, true},
	} {
		in.Env = machine(10, c.network, 1000)
		if covered, local := measure(in,
			policytest.Plan(t, Cooperative{}, in)); (covered == 1) != c.covers ||
			!c.covers && local < 0.425 {
			t.Errorf("a network that is %s: %.3f of the dataset are covered, %.3f of the "+
				"reads are local", name, covered, local)
		}
	}
}

// TestLatencyMakesSmallSamplesWorthMore: if reads from the source have a latency, small samples
// gain more per byte and are cached first.
func TestLatencyMakesSmallSamplesWorthMore(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: 200, Seed: 7, Epochs: 3, WorldSize: 1, GlobalBatch: 10}),
		Nodes: policytest.Nodes(1, 100*1000),
		Size:  func(k int) int64 { return 1000 + 8000*int64(k%2) },
		Env:   machine(10, 1000, 1000),
	}
	in.Env.SourceLatency = 0.01
	kept := policytest.Plan(t, Cooperative{}, in).Nodes[0].Classes[0]
	if large := slices.IndexFunc(kept, func(k int32) bool { return k%2 == 1 }); len(kept) != 100 ||
		large >= 0 {
		t.Errorf("kept are %v, want the 100 small samples", kept)
	}
}

// ranks returns 0 to n-1.
func ranks(n int) (list []int) {
	for r := range n {
		list = append(list, r)
	}
	return list
}
