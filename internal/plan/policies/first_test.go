package policies

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestFirstKeepsEachSampleOnOneNode: with cold caches that hold the dataset, every sample of the
// window is kept by one node, its first reader if it fits there.
func TestFirstKeepsEachSampleOnOneNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "nodes")
		in := plan.Input{
			Stream: policytest.Stream(t, access.Spec{
				Samples: rapid.IntRange(n, 100).Draw(t, "samples"), Seed: 1, Epochs: 3,
				WorldSize: n, GlobalBatch: n,
				Tail: rapid.SampledFrom([]access.Tail{access.Pad, access.Keep}).Draw(t, "tail"),
			}),
			Size: func(int) int64 { return 1 },
		}
		in.Nodes = policytest.Nodes(n, int64((in.Stream.Spec().Samples+n-1)/n))
		window := policytest.DrawWindow(t, in)
		first, err := Cooperative{}.First(in, window)
		if err != nil {
			t.Fatal(err)
		}
		count := make([]int, in.Stream.Spec().Samples)
		for _, node := range first.Nodes {
			for _, k := range node.Classes[0] {
				count[k]++
			}
		}
		epoch, step := window.Epoch, window.Step
		for range window.Steps {
			if step == in.Stream.Steps() {
				epoch, step = epoch+1, 0
			}
			if epoch == 3 {
				break
			}
			for _, k := range in.Stream.Epoch(epoch).Global(nil, step) {
				if count[k] != 1 {
					t.Fatalf("%d nodes keep sample %d of step %d", count[k], k, step)
				}
			}
			step++
		}
		if window.Steps > 0 {
			if reader, k := 0, int(in.Stream.Epoch(window.Epoch).Batch(nil, 0,
				window.Step)[0]); first.OwnerOf(k) != reader {
				t.Fatalf("node %d owns sample %d, which node %d reads first",
					first.OwnerOf(k), k, reader)
			}
		}
	})
}

// TestResumePlansFromTheEarliestWindow: the plan begins with the earliest epoch in which any node's
// window begins.
func TestResumePlansFromTheEarliestWindow(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: 60, Epochs: 4, WorldSize: 3, GlobalBatch: 6}),
		Nodes: policytest.Nodes(3, 15), Size: func(int) int64 { return 1 },
	}
	for _, epochs := range [][]int{{2, 1, 3}, {1, 2, 3}, {3, 2, 1}, {1, 1, 1}} {
		var windows []plan.BootstrapWindow
		for _, e := range epochs {
			windows = append(windows, plan.BootstrapWindow{Epoch: e, Steps: 2})
		}
		if resumed, err := plan.Resume(Cooperative{}, in, windows); err != nil ||
			resumed.From != 1 {
			t.Errorf("windows from epochs %v: the plan begins with epoch %d, %v", epochs,
				resumed.From, err)
		}
	}
}
