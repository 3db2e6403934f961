package plan_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestEverySampleThatFitsHasOneOwnerAfterTakeOver: whichever nodes fail, each sample that a
// remaining node can hold has exactly one owner, and no class exceeds its capacity.
func TestEverySampleThatFitsHasOneOwnerAfterTakeOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "nodes")
		samples := rapid.IntRange(2*n, 300).Draw(t, "samples")
		size := func(id int) int64 { return int64(1 + id%7) }
		in := plan.Input{
			Stream: policytest.Stream(t,
				access.Spec{
					Samples:     samples,
					Seed:        3,
					Epochs:      3,
					WorldSize:   n,
					GlobalBatch: 2 * n,
					Shuffle:     access.Torch,
					Scheme:      access.Strided,
				}),
			Size: size,
		}
		for i := range n {
			in.Nodes = append(in.Nodes, plan.Node{Ranks: []int{i}, Capacity: []int64{
				int64(rapid.IntRange(0, 2000).Draw(t, "memory")),
				int64(rapid.IntRange(0, 1000).Draw(t, "file")),
			}})
		}
		policy := rapid.SampledFrom(policies.Engine()).Draw(t, "policy")
		p, err := policy.Plan(in)
		if no := (*plan.Unsupported)(nil); errors.As(err, &no) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := clone(p)
		gone := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "gone")
		there := func(i int) bool { return !gone[i] }
		after := p.TakeOver(there, in.Nodes, size)

		holders := make([][]int, samples)
		room := int64(0) // the largest free capacity of a class
		for i, node := range after.Nodes {
			for j, class := range node.Classes {
				left := in.Nodes[i].Capacity[j]
				for _, k := range class {
					left -= size(int(k))
					holders[k] = append(holders[k], i)
				}
				if left < 0 {
					t.Fatalf("class %d of node %d exceeds its capacity by %d bytes", j+1, i, -left)
				}
				if there(i) {
					room = max(room, left)
				}
				if !slices.Equal(class[:len(p.Nodes[i].Classes[j])], p.Nodes[i].Classes[j]) {
					t.Fatalf("class %d of node %d lost samples", j+1, i)
				}
			}
		}
		if !p.ReadOnce &&
			!slices.EqualFunc(after.Nodes, p.Nodes, func(a, b plan.NodePlan) bool {
				return slices.EqualFunc(a.Classes, b.Classes, slices.Equal[[]int32])
			}) {
			t.Fatalf("%s: nodes keep samples that they do not own", policy.Name())
		}
		for k := range samples {
			was, is := p.OwnerOf(k), after.OwnerOf(k)
			switch {
			case was < 0 || there(was):
				if is != was {
					t.Fatalf("sample %d of node %d, which is available, moved to node %d", k, was,
						is)
				}
			case is >= 0:
				if !there(is) || !slices.Contains(holders[k], is) {
					t.Fatalf("node %d took over sample %d; it is available: %v; the sample's "+
						"holders: %v", is, k, there(is), holders[k])
				}
			case p.ReadOnce && room >= size(k):
				t.Fatalf("no node took over sample %d of %d bytes, although %d fit", k,
					size(k), room)
			}
		}
		if !slices.EqualFunc(before.Nodes, p.Nodes, func(a, b plan.NodePlan) bool {
			return slices.EqualFunc(a.Classes, b.Classes, slices.Equal[[]int32])
		}) || !slices.Equal(before.Owner, p.Owner) {
			t.Fatal("the plan itself was changed")
		}
		if back := p.TakeOver(func(int) bool { return true }, in.Nodes, size); back != p {
			t.Fatal("the plan differs with all nodes available")
		}
	})
}

func clone(p *plan.Plan) *plan.Plan {
	c := *p
	c.Owner = slices.Clone(p.Owner)
	c.Nodes = slices.Clone(p.Nodes)
	for i := range c.Nodes {
		c.Nodes[i].Classes = slices.Clone(c.Nodes[i].Classes)
		for j := range c.Nodes[i].Classes {
			c.Nodes[i].Classes[j] = slices.Clone(c.Nodes[i].Classes[j])
		}
	}
	return &c
}

// TestTakenOverSamplesAreBalanced: the samples of a failed node go to all others in about equal
// parts, and stay there when another node fails.
func TestTakenOverSamplesAreBalanced(t *testing.T) {
	const samples, n = 20000, 5
	size := func(int) int64 { return 1 }
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{
				Samples:     samples,
				Seed:        3,
				Epochs:      2,
				WorldSize:   n,
				GlobalBatch: 2 * n,
				Shuffle:     access.Torch,
				Scheme:      access.Strided,
			}),
		Nodes: policytest.Nodes(n, 2*samples), Size: size,
	}
	p := &plan.Plan{Remote: true, ReadOnce: true, Nodes: make([]plan.NodePlan, n)}
	for i := range p.Nodes {
		p.Nodes[i].Classes = make([][]int32, 1)
	}
	for k := range int32(samples) {
		p.Owner = append(p.Owner, k%n)
		p.Nodes[k%n].Classes[0] = append(p.Nodes[k%n].Classes[0], k)
	}
	one := p.TakeOver(func(i int) bool { return i != 2 }, in.Nodes, size)
	two := p.TakeOver(func(i int) bool { return i != 2 && i != 4 }, in.Nodes, size)
	count := make([]int, n)
	for k := range samples {
		if p.OwnerOf(k) == 2 {
			count[one.OwnerOf(k)]++
			if heir := one.OwnerOf(k); heir != 4 && two.OwnerOf(k) != heir {
				t.Fatalf("sample %d moved from node %d to node %d because node 4 failed", k, heir,
					two.OwnerOf(k))
			}
		}
	}
	for i, c := range count {
		if want := samples / n / (n - 1); i != 2 && (c < want*9/10 || c > want*11/10) {
			t.Errorf("node %d took over %d samples; its equal part is %d", i, c, want)
		}
	}
}

// TestCopiesWithTheHighestHashTakeOver checks that of the nodes that hold a sample of one that is
// gone, that with the highest hash owns it, and that the plan in force is left as it is.
func TestCopiesWithTheHighestHashTakeOver(t *testing.T) {
	const samples = 50
	var all []int32
	for k := range samples {
		all = append(all, int32(k))
	}
	class := func(ids []int32) plan.NodePlan { // with room for more
		return plan.NodePlan{Classes: [][]int32{slices.Grow(slices.Clone(ids), samples)}}
	}
	p := &plan.Plan{
		ReadOnce: true, Owner: make([]int32, samples), // node 0 owns all, and the others hold half
		Nodes: []plan.NodePlan{class(all), class(all[:25]), class(all[:25])},
	}
	nodes := slices.Repeat([]plan.Node{{Capacity: []int64{100}}}, 3)
	after := p.TakeOver(func(n int) bool { return n > 0 }, nodes, func(int) int64 { return 1 })
	for k := range samples {
		want := int32(1)
		if access.Mix(2, k) > access.Mix(1, k) {
			want = 2
		}
		if after.Owner[k] != want {
			t.Errorf("sample %d is owned by node %d, want %d", k, after.Owner[k], want)
		}
	}
	for n, node := range p.Nodes[1:] {
		beyond := node.Classes[0][:cap(node.Classes[0])][len(node.Classes[0]):]
		if slices.Max(beyond) > 0 {
			t.Errorf("what node %d takes over was written to the plan in force", n+1)
		}
	}
}
