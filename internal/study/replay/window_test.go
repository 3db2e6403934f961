package replay

import (
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// TestTrainingBeginsWhenClassesAreFilled: where the policy fills them before, on the node that is
// the last.
func TestTrainingBeginsWhenClassesAreFilled(t *testing.T) {
	j := shape{2, 80, 4, 2, memory, 40}.job(t)
	j.Plan.Preload, j.Plan.CacheFirst = true, true
	j.Nodes[1].Start = 0.1
	for n := range j.Nodes {
		j.Nodes[n].InForce[0].Pause = 0.05
		j.Nodes[n].Staging = append(j.Nodes[n].Staging, Change{At: 0.2, To: 2000})
	}
	got := run(t, j)
	// 80 MB at 100 MB/s, and twice 10 steps of 10 ms
	if math.Abs(got.BeforeTraining-0.8) > 1e-9 || got.Source != 80 {
		t.Errorf("%v s and %v MB before training, want 0.8 and 80", got.BeforeTraining, got.Source)
	}
	if want := 0.8 + 2*(0.05+0.1); math.Abs(got.Runtime-want) > 0.01 {
		t.Errorf("it takes %v s, want %v", got.Runtime, want)
	}
	for e, delivered := range got.DeliveredIn {
		if all := delivered["memory"] + delivered["peer"]; math.Abs(all-80) > 1e-6 {
			t.Errorf("epoch %d: %v", e, delivered)
		}
	}
	for n := range j.Nodes { // nothing is left to fill
		j.Nodes[n].Classes[0].Held = j.Plan.Nodes[n].Classes[0]
	}
	j.Nodes[0].Start, j.Nodes[1].Start = 0, 0
	if held := run(t, j); held.Source != 0 || math.Abs(held.Runtime-2*(0.05+0.1)) > 0.01 {
		t.Errorf("with full classes %v MB, %v s", held.Source, held.Runtime)
	}
}

// TestSamplesAreReadOnDemand: those without an owner, once the process waits for their batch.
func TestSamplesAreReadOnDemand(t *testing.T) {
	j := shape{nodes: 1, samples: 40, batch: 4, epochs: 2, class: memory, cached: 20}.job(t)
	j.Plan.Preload, j.Plan.Demand = true, true
	got := run(t, j)
	if math.Abs(got.BeforeTraining-0.2) > 1e-9 || math.Abs(got.Source-60) > 1e-6 {
		t.Errorf("%v s before training, %v MB; want 0.2 and 60", got.BeforeTraining, got.Source)
	}
	for e, seconds := range got.Epochs {
		if want := 20./100 + 10*0.01; math.Abs(seconds-want) > 1e-9 {
			t.Errorf("epoch %d takes %v s, want %v", e, seconds, want)
		}
	}
}

// TestTorchsWindow: each worker brings a batch, one sample after the other, and there are only as
// many batches as the workers may have, or as prefetch_batches allows.
func TestTorchsWindow(t *testing.T) {
	for most, batches := range map[int]int{50: 6, 4: 4} {
		window(t, most, batches)
	}
}

func window(t *testing.T, most, batches int) {
	j := shape{nodes: 1, samples: 80, batch: 4, epochs: 2}.job(t)
	j.Nodes[0].Streams[0].To = 16
	j.Nodes[0].InForce[0].Ahead = most
	j.Steps[0] = 0.02 // less than the batch takes
	j.Plan.Window = &plan.Window{Workers: 3, Prefetch: 2}
	c := newCluster(j)
	reads, ahead := 0, 0
	for !c.over() && c.events.next() {
		reads = max(reads, c.nodes[0].gate.inside)
		ahead = max(ahead, c.ranks[0].laid-c.ranks[0].taken)
	}
	if !c.over() || reads != 3 || ahead != batches {
		t.Errorf("%d samples were read at the same time, for %d batches; want 3 and %d", reads, ahead,
			batches)
	}
	if got := c.finish(); math.Abs(got.Source-160) > 1e-6 {
		t.Errorf("%v MB from the source, want 160", got.Source)
	}
}

// TestCachesComeFirst: where the policy says so, a slow class and a slow owner are read all the
// same.
func TestCachesComeFirst(t *testing.T) {
	disk := shape{1, 40, 4, 2, Class{Name: "file", Rate: 200}, 40}.job(t)
	disk.Nodes[0].Classes[0].Held = disk.Plan.Nodes[0].Classes[0]
	disk.Nodes[0].InForce[0].Ahead, disk.Known.Source = 4, model.GivenRate(100, 0)
	owner := shape{2, 80, 4, 2, memory, 40}.job(t)
	owner.Link = 5
	for n := range owner.Nodes {
		owner.Nodes[n].Classes[0].Held = owner.Plan.Nodes[n].Classes[0]
	}
	for name, j := range map[string]*Job{"class": disk, "owner": owner} {
		if got := run(t, j); got.Direct == 0 {
			t.Errorf("%s: the source is not read, although it is faster", name)
		}
		j.Plan.CacheFirst = true
		if got := run(t, j); got.Source != 0 {
			t.Errorf("%s: %v MB from the source", name, got.Source)
		}
	}
}

// TestOwnersReadForOthersWhereSamplesAreReadOnce: otherwise they answer that they do not hold them.
func TestOwnersReadForOthersWhereSamplesAreReadOnce(t *testing.T) {
	for _, once := range []bool{true, false} {
		j := shape{2, 80, 4, 1, memory, 40}.job(t)
		j.Plan.OnRead, j.Plan.CacheFirst = true, true
		j.Plan.ReadOnce = once
		got := run(t, j)
		if fromOwners := got.Delivered["peer"]; (fromOwners > 10) != once || got.Source != 80 {
			t.Errorf("read once %v: %v MB from other nodes, %v MB from the source", once,
				fromOwners, got.Source)
		}
	}
}
