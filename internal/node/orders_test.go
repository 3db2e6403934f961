package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// order returns the order into which a policy puts a stream; nil: none.
func orderOf(p plan.Policy) *access.Order {
	s, err := access.New(access.Spec{Samples: 8, Epochs: 2, WorldSize: 2, GlobalBatch: 4})
	if err != nil {
		panic(err)
	}
	in, err := plan.Ordered(p, plan.Input{
		Stream: s, Size: func(int) int64 { return 1 },
		Nodes: []plan.Node{
			{Ranks: []int{0}, Capacity: []int64{9}}, {Ranks: []int{1}, Capacity: []int64{9}},
		},
	})
	if err != nil {
		panic(err)
	}
	return in.Stream.Order()
}

// drawsOrder reports whether ranks read other global batches under the policy.
func drawsOrder(p plan.Policy) bool {
	o := orderOf(p)
	return o != nil && o.Draw != nil
}

// keepingOrder returns the policies of the engine under which ranks read what was asked for.
func keepingOrder() []plan.Policy {
	return slices.DeleteFunc(policies.Engine(), func(p plan.Policy) bool { return orderOf(p) != nil })
}

// TestOrdersDependOnWhatIsNominal: under a policy with an order of its own, ranks read what the
// policy makes of the stream, of the nodes and of the configured capacities; and the same again
// with what the caches hold then, and when they begin in the middle.
func TestOrdersDependOnWhatIsNominal(t *testing.T) {
	for _, policy := range policies.Engine() {
		order := orderOf(policy)
		if order == nil {
			continue
		}
		t.Run(policy.Name(), func(t *testing.T) {
			c := newNodes(t, 3, false)
			change := []func(*request.Open){set("policy", policy.Name()), set("memory", "10000B")}
			ranks := c.open(change...)
			stream := ranks[0].entry.open.Order.Stream()
			spec := stream.Spec()
			want := plan.Input{
				Stream: stream.Original(), Size: func(int) int64 { return sampleSize },
			}
			for n := range 3 {
				want.Nodes = append(want.Nodes,
					plan.Node{Ranks: []int{n}, Capacity: []int64{10000}})
			}
			want, err := plan.Ordered(policy, want)
			if err != nil {
				t.Fatal(err)
			}
			check := func(ranks []*Rank, from at, to at) {
				together(ranks, func(r *Rank) {
					for here, ids := range consume(t, r, from, to) {
						epoch := want.Stream.Epoch(here.epoch)
						if w := epoch.Batch(nil, r.Number(), here.step); !slices.Equal(ids, w) {
							t.Errorf("rank %d, %+v: %v, want %v", r.Number(), here, ids, w)
						}
					}
				})
			}
			check(ranks, at{0, 0}, at{2, 0})
			for _, r := range ranks {
				if a, err := r.Audit(t.Context(), 1); err != nil || !a.Complete {
					t.Errorf("audit %+v, %v", a, err)
				}
				x, err := r.Explain(1, 0, -1)
				if w := want.Stream.Epoch(1).Batch(nil, r.Number(), 0); err != nil ||
					!slices.Equal(x.IDs, w) {
					t.Errorf("explained %+v, %v; want %v", x, err, w)
				}
				o := r.Report().Reordered
				if o == nil || o.Batches != (order.Deal != nil) ||
					!slices.EqualFunc(o.Configured, slices.Repeat([][]int64{{10000}}, 3), slices.Equal) {
					t.Errorf("order %+v in the report", o)
				}
				if name := r.Opened().Order; (name != "") != (order.Draw != nil) ||
					!strings.HasPrefix(name, policy.Name()) && name != "" {
					t.Errorf("the order's name is %q", name)
				}
			}
			other := c.open(append(change, func(m *request.Open) { m.Job = "other" })...)
			check(other, at{1, 1}, at{3, 0})
			closeAll(other)
			closeAll(ranks)
			c.close()
			if order.Draw != nil && spec.Samples == samples {
				return
			}
			for e := range 3 {
				was, is := want.Stream.Original().Epoch(e), want.Stream.Epoch(e)
				for step := range stream.Steps() {
					a, b := was.Global(nil, step), is.Global(nil, step)
					slices.Sort(a)
					slices.Sort(b)
					if !slices.Equal(a, b) {
						t.Errorf("epoch %d, step %d: %v, and %v before", e, step, b, a)
					}
				}
			}
		})
	}
}

// TestCachesAreFilledBeforeTraining: policies that preload have read all that they keep when the
// job is open, and nothing that they keep later.
func TestCachesAreFilledBeforeTraining(t *testing.T) {
	for _, name := range []string{"deepio_ordered", "lbann_preloading", "sharded"} {
		t.Run(name, func(t *testing.T) {
			c := newNodes(t, 3, false)
			ranks := c.open(set("policy", name), set("memory", "14000B"))
			if total, most := c.read(); total != samples || most != 1 {
				t.Errorf("%d samples were read before training, one %d times; want %d", total, most,
					samples)
			}
			c.epochs(ranks, 0, 3)
			if total, _ := c.read(); total != samples {
				t.Errorf("%d samples were read; want %d", total, samples)
			}
			for _, r := range ranks {
				if s := r.Report().BeforeTraining; s < 0 {
					t.Errorf("%v s before training", s)
				}
			}
			closeAll(ranks)
			c.close()
		})
	}
}

// TestSamplesAreReadOnDemand: under ordered DeepIO what is in no memory is not read before training
// asks for its batch.
func TestSamplesAreReadOnDemand(t *testing.T) {
	w := world{}
	n := w.node()
	r := open(t, n, message(0, 1, set("policy", "deepio_ordered"),
		set("memory", fmt.Sprintf("%dB", 10*sampleSize))))
	due := int64(10 * sampleSize) // what may have been read when the process has asked for a batch
	r.Wait()
	err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
		if b.Epoch > 0 {
			return errEnough
		}
		for _, id := range b.IDs {
			if id >= 10 {
				due += sampleSize
			}
		}
		if got := w.bytes.Load(); got != due {
			t.Errorf("at step %d %d bytes were read, want %d", b.Step, got, due)
		}
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, 0)
		r.Wait()
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
	r.Close()
	w.close(t, n)
}

// TestPoliciesThatCannotRunSayWhy: before anything is read.
func TestPoliciesThatCannotRunSayWhy(t *testing.T) {
	w := world{}
	n := w.node()
	for name, c := range map[string]struct {
		memory int
		change func(*request.Open)
		want   string
	}{
		"lbann_dynamic": {10, func(*request.Open) {}, "it must hold the dataset"},
		"sharded": {
			50, func(m *request.Open) { m.Stream.Shuffle = "none" }, "without a shuffle",
		},
		"tfdata": {
			50, over(t, []int32{1, 2, 3, 4, 5}), "a part of it is to be read",
		},
	} {
		m := message(0, 1, set("policy", name), set("memory",
			fmt.Sprintf("%dB", c.memory*sampleSize)), c.change)
		_, err := n.Open(t.Context(), m, nil, func(request.Step) {})
		if err == nil || !strings.Contains(err.Error(), "policy = "+name+" cannot run this job") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := w.bytes.Load(); got != 0 {
		t.Errorf("%d bytes were read", got)
	}
	w.close(t, n)
}
