package policytest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// DrawWindow draws a window within the input's horizon.
func DrawWindow(t *rapid.T, in plan.Input) plan.BootstrapWindow {
	steps, epochs := in.Stream.Steps(), in.Stream.Spec().Epochs
	window := plan.BootstrapWindow{
		Step:  rapid.IntRange(0, steps-1).Draw(t, "step"),
		Steps: rapid.IntRange(0, steps).Draw(t, "steps"),
	}
	if known := in.Stream.GivenEpochs(); known != nil {
		window.Epoch = rapid.SampledFrom(known).Draw(t, "epoch")
	} else {
		window.Epoch = rapid.IntRange(0, epochs-1).Draw(t, "epoch")
	}
	return window
}

// starts checks that what nodes keep before there is a plan fits, that a longer window only adds to
// it, and that the plan that follows leaves it in place.
func starts(t *testing.T, policy plan.Starter) {
	rapid.Check(t, func(t *rapid.T) {
		in := DrawInput(t)
		window := DrawWindow(t, in)
		first, err := policy.First(in, window)
		if err != nil {
			t.Fatal(err)
		}
		longer, err := policy.First(in,
			plan.BootstrapWindow{Epoch: window.Epoch, Step: window.Step, Steps: in.Stream.Steps()})
		if err != nil {
			t.Fatal(err)
		}
		resumed, err := plan.Resume(policy, in,
			slices.Repeat([]plan.BootstrapWindow{window}, len(in.Nodes)))
		if err != nil {
			t.Fatal(err)
		}
		p := Plan(t, policy, resumed)
		read := readIn(in.Stream, window)
		for n, node := range first.Nodes {
			for j, class := range node.Classes {
				var sum int64
				if had := longer.Nodes[n].Classes[j]; len(had) < len(class) ||
					!slices.Equal(had[:len(class)], class) {
					t.Fatalf("class %d of node %d has %v after a window of %+v, but %v "+
						"after an epoch", j+1, n, class, window, had)
				}
				for _, k := range class {
					sum += in.Size(int(k))
					if !slices.Contains(p.Nodes[n].Classes[j], k) {
						t.Fatalf("the plan lacks sample %d in class %d of node %d", k,
							j+1, n)
					}
					if !read[k] && !slices.Contains(in.Nodes[n].Held[j], k) {
						t.Fatalf("node %d keeps sample %d, which no node reads in the window %+v", n,
							k, window)
					}
				}
				if sum > in.Nodes[n].Capacity[j] {
					t.Fatalf("class %d of node %d takes %d bytes of %d", j+1, n, sum,
						in.Nodes[n].Capacity[j])
				}
			}
		}
		for k := range in.Stream.Spec().Samples {
			if owner := first.OwnerOf(k); owner >= 0 &&
				!slices.ContainsFunc(first.Nodes[owner].Classes, func(ids []int32) bool {
					return slices.Contains(ids, int32(k))
				}) {
				t.Fatalf("node %d owns sample %d, which it does not keep", owner, k)
			}
		}
	})
}

// readIn returns the samples that are read in a window.
func readIn(s *access.Stream, window plan.BootstrapWindow) map[int32]bool {
	read := map[int32]bool{}
	epoch, step := window.Epoch, window.Step
	for range window.Steps {
		if step == s.Steps() {
			epoch, step = epoch+1, 0
		}
		if epoch == s.Spec().Epochs || !s.Given(epoch) {
			break
		}
		for _, k := range s.Epoch(epoch).Global(nil, step) {
			read[k] = true
		}
		step++
	}
	return read
}

func refusesWindows(t *testing.T, policy plan.Starter) {
	in := several(t)
	for _, window := range []plan.BootstrapWindow{
		{Epoch: -1},
		{Epoch: 4},
		{Step: -1},
		{Step: 11},
		{Steps: -1},
		{Steps: 11},
	} {
		if _, err := policy.First(in, window); err == nil {
			t.Errorf("%+v is accepted", window)
		}
	}
	if _, err := plan.Resume(policy, in, make([]plan.BootstrapWindow, 2)); err == nil {
		t.Error("two windows for three nodes are accepted")
	}
}
