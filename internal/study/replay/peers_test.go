package replay

import (
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
)

// TestSlowSourceIsReadOnce: a request to another node, which reads the sample, is given up when it
// has taken much longer than the source takes, as known then: that was a guess when the job began.
func TestSlowSourceIsReadOnce(t *testing.T) {
	j := shape{4, 320, 4, 1, memory, 80}.job(t)
	j.Source = 50 // which takes 1.28 s for the 64 reads that nodes have in progress
	for n := range j.Nodes {
		j.Nodes[n].Streams = []Change{{To: 16}}
	}
	if got := run(t, j); math.Abs(got.Source-320) > 1e-6 {
		t.Errorf("%v MB were read of 320", got.Source)
	}
}

// TestNodesAnswerOnceTheyHaveBegun: a node that asks another one which begins later waits for it.
func TestNodesAnswerOnceTheyHaveBegun(t *testing.T) {
	j := shape{2, 8, 1, 1, memory, 4}.job(t)
	j.Nodes[1].Start = 0.5
	j.Free = true
	if got := run(t, j).Epochs[0]; got < 0.5 || got > 0.6 {
		t.Errorf("the epoch takes %v s, want 0.5 and little more", got)
	}
}

// TestWorkersAreNotHeldByOtherNodes checks that more is read from the source while another node
// keeps as many requests waiting as there are workers.
func TestWorkersAreNotHeldByOtherNodes(t *testing.T) {
	j := shape{nodes: 2, samples: 1600, batch: 100, epochs: 2, class: memory, cached: 800}.job(t)
	for k := range j.Sizes {
		j.Sizes[k] = 1e5 // of larger ones, buffers take so much that fewer others work instead
	}
	j.Source = 1000
	j.Link = 200
	j.Steps = []float64{0}
	j.Known.Source = model.GivenRate(1000, 0)
	for n := range j.Nodes {
		j.Nodes[n].InForce[0].Ahead = 400
		j.Nodes[n].Classes[0].Held = j.Plan.Nodes[n].Classes[0]
	}
	got := run(t, j)
	// 400 samples are another node's: with 20 requests at a time, they took 0.2 s from there.
	if seconds := got.Epochs[1]; seconds > 0.1 {
		t.Errorf("an epoch takes %.3f s", seconds)
	}
}
