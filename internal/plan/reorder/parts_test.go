package reorder_test

import (
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/reorder"
)

// job returns a job on nodes with a rank each, of which each takes so many samples of a batch.
// Their caches hold the dataset once.
func job(t testing.TB, samples, nodes, each, epochs int) *plan.Input {
	t.Helper()
	s, err := access.New(access.Spec{
		Samples: samples, Seed: 5, Epochs: epochs, WorldSize: nodes, GlobalBatch: nodes * each,
		DropLast: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	in := &plan.Input{Stream: s, Size: func(int) int64 { return 1 }}
	for n := range nodes {
		in.Nodes = append(in.Nodes, plan.Node{
			Ranks: []int{n}, Capacity: []int64{int64((samples + nodes - 1) / nodes)},
		})
	}
	return in
}

// TestDealtEpochsHaveWhatTheyHad: a sample that the tail of an epoch drops may be substituted in
// it, as without the policy, if the order only deals samples; an order that is drawn has its own.
func TestDealtEpochsHaveWhatTheyHad(t *testing.T) {
	in := job(t, 41, 4, 5, 2)
	drops := in.Stream.Reordered(reorder.Regrouped(in, "", reorder.PartsOf(in), 1)).Epoch(1)
	part := reorder.Shuffled(in, "", [][]int32{{3, 4, 5, 6, 7}})
	draws := in.Stream.Reordered(part).Epoch(1)
	for id := range 41 {
		if !drops.Has(id) {
			t.Errorf("an epoch that is dealt does not have sample %d", id)
		}
		if want := id >= 3 && id < 8; draws.Has(id) != want {
			t.Errorf("an epoch of 5 samples has sample %d: %v", id, !want)
		}
	}
}

// fromOthers returns which share of what nodes read over all epochs has to come from other nodes.
func fromOthers(in *plan.Input, has func(node int, id int32) bool) float64 {
	var others, all float64
	var ids []int32
	for e := range in.Stream.Spec().Epochs {
		epoch := in.Stream.Epoch(e)
		for step := range in.Stream.Steps() {
			for n := range in.Nodes {
				ids = epoch.Batch(ids[:0], n, step)
				for _, id := range ids {
					all++
					if !has(n, id) {
						others++
					}
				}
			}
		}
	}
	return others / all
}

// TestLocalityLeavesLittleToOthers: on 8 nodes with a copy of the dataset between them, what comes
// from other nodes falls with the root of a node's part L of a batch. A node owns about L samples
// of a batch, in a normal distribution with a standard deviation of sqrt(L (1-1/N)); what it owns
// beyond L, 0.399 of that on average, is what others read from it (Regrouped in parts.go): at most
// 0.399/sqrt(L) of all, the bound for many nodes. A second copy, on the next node, leaves two
// thirds of it. Under the default policy, which keeps the order, it is more than a half, whatever L
// is, and more over more epochs.
func TestLocalityLeavesLittleToOthers(t *testing.T) {
	const nodes = 8
	for _, c := range []struct {
		each, epochs                 int
		locality, twice, cooperative float64 // %
	}{
		{32, 3, 6.58, 4.26, 54.6},
		{64, 3, 4.62, 2.98, 54.6},
		{128, 3, 3.24, 2.10, 54.6},
		{128, 10, 3.24, 2.10, 69.8},
	} {
		in := job(t, 300*nodes*32, nodes, c.each, c.epochs)
		var got [3]float64
		for copies := 1; copies <= 2; copies++ {
			parts := reorder.PartsOf(in)
			dealt := *in
			dealt.Stream = in.Stream.Reordered(reorder.Regrouped(in, "", parts, copies))
			got[copies-1] = 100 * fromOthers(&dealt, func(node int, id int32) bool {
				for copy := range copies {
					if parts.Copy(id, copy) == node {
						return true
					}
				}
				return false
			})
		}
		planned, err := policies.Default().Plan(*in)
		if err != nil {
			t.Fatal(err)
		}
		got[2] = 100 * fromOthers(in, func(node int, id int32) bool {
			return planned.OwnerOf(int(id)) == node
		})
		bound := 100 * 0.399 / math.Sqrt(float64(c.each))
		closed := bound * math.Sqrt(1-1./nodes)
		t.Logf("%d per node: %.2f %% from other nodes (closed form %.2f, for many nodes %.2f), with "+
			"two copies %.2f, by the default %.1f", c.each, got[0], closed, bound, got[1], got[2])
		for i, want := range []float64{c.locality, c.twice, c.cooperative} {
			if math.Abs(got[i]-want) > 0.02*want {
				t.Errorf("%d per node: %.3f %%, want %.2f", c.each, got[i], want)
			}
		}
		if math.Abs(got[0]-closed) > 0.03*closed || got[0] > bound {
			t.Errorf("%d per node: %.2f %%, by the closed form %.2f, at most %.2f", c.each, got[0],
				closed, bound)
		}
	}
}

// BenchmarkDeal deals an epoch of 1.28 million samples, as many as ImageNet has, on 8 nodes, and
// draws it as it is for comparison. It reports the processor's time as well, for machines that are
// shared.
func BenchmarkDeal(b *testing.B) {
	for _, each := range []int{32, 256} {
		in := job(b, 1_281_167, 8, each, 3)
		order := reorder.Regrouped(in, "", reorder.PartsOf(in), 1)
		for name, s := range map[string]*access.Stream{
			"as it is": in.Stream, "dealt": in.Stream.Reordered(order),
		} {
			b.Run(fmt.Sprintf("%d per node/%s", each, name), func(b *testing.B) {
				e, before := 0, processorTime(b)
				for b.Loop() {
					s.Epoch(e)
					e++
				}
				b.ReportMetric((processorTime(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
