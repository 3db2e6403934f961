package replan

import (
	"errors"
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// two returns a question of 2 nodes with a memory class of 1 MB and a file class of 39 MB, and what
// nodes hold by a plan with these samples in the classes of node 0, which owns all samples, and in
// the memory of node 1.
func two(t *testing.T, memory, file []int32, other ...int32) (Question, *holding) {
	t.Helper()
	q := question(t, 2, 1, nil, machine{network: 10, class: 50, source: 8, compute: 1e6})
	env := *q.Input.Env
	env.Classes = append(env.Classes, model.Class{
		Threads: 2, Read: model.Constant(20), Write: model.Constant(5), Capacity: 39,
	})
	q.Input.Env, q.mean = &env, q.Input.MeanSize()
	for n := range q.Input.Nodes {
		q.Input.Nodes[n].Capacity = []int64{1e6, 39e6}
	}
	h, err := newHolding(&q.Input, &plan.Plan{
		Remote: true, Owner: make([]int32, samples), Nodes: []plan.NodePlan{
			{Classes: [][]int32{memory, file}}, {Classes: [][]int32{other, nil}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return q, h
}

func ids(from, to int32) (ids []int32) {
	for k := from; k < to; k++ {
		ids = append(ids, k)
	}
	return ids
}

// TestHoldingEndsWithTheCapacity checks that what a plan has beyond a class's capacity is not held,
// that what fits exactly is, and that what nodes keep besides counts for the slowest class.
func TestHoldingEndsWithTheCapacity(t *testing.T) {
	_, h := two(t, ids(0, 11), ids(20, 30))
	tenth, next := h.class(0, 9), h.class(0, 10)
	if other := h.class(0, 20); tenth != 0 || next != none || other != 1 {
		t.Errorf("the tenth sample of 100 kB is in class %d of 1 MB, the next in %d; one in %d", tenth,
			next, other)
	}
	if h.class(1, 9) != none || h.class(none, 9) != none {
		t.Error("another node holds it")
	}
	q, _ := two(t, nil, nil)
	q.Input.Nodes[1].Kept = ids(0, 2)
	plan := &plan.Plan{Owner: make([]int32, samples), Nodes: []plan.NodePlan{
		{Classes: [][]int32{nil}}, {Classes: [][]int32{ids(1, 2)}},
	}}
	h, err := newHolding(&q.Input, plan)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := h.class(1, 0), h.class(1, 1); a != 1 || b != 0 {
		t.Errorf("a sample that is kept is in class %d, one that is planned as well in %d", a, b)
	}
	if h.owner(0) != none {
		t.Error("samples are read from their owner, although the plan has none asked")
	}
	q.Input.Nodes = nil
	if _, err := newHolding(&q.Input, plan); err == nil {
		t.Error("a job of no nodes holds something")
	}
}

// TestMovesBetweenClasses checks which tier is busy for how long: reads of the class that a sample
// was in, writes of the one that it goes to, and the source if the owner does not hold it.
func TestMovesBetweenClasses(t *testing.T) {
	_, nothing := two(t, nil, nil)
	_, memory := two(t, ids(0, 10), nil)
	_, file := two(t, nil, ids(0, 10))
	_, other := two(t, nil, nil, ids(0, 10)...)
	for name, c := range map[string]struct {
		to, from *holding
		bytes    int64
		seconds  float64
	}{
		"nothing":             {memory, memory, 0, 0},
		"dropped":             {nothing, memory, 0, 0},
		"from memory to file": {file, memory, 1e6, 1 / 5.0}, // written
		"from the source":     {memory, nothing, 1e6, 1 / 4.0},
		"from file to memory": {memory, file, 1e6, 1 / 20.0}, // read
		"from the owner":      {other, file, 1e6, 1 / 10.0},
		"not from the owner":  {other, nothing, 1e6, 1 / 4.0}, // which does not hold it
	} {
		bytes, seconds := c.to.move(c.from)
		if bytes != c.bytes || math.Abs(seconds-c.seconds) > 1e-9 {
			t.Errorf("%s: %d bytes in %v s, want %d in %v", name, bytes, seconds, c.bytes, c.seconds)
		}
	}
}

// TestModelParallelRanksReadAll checks that each rank of a node reads the whole epoch if the job is
// model parallel, and what classes serve of that.
func TestModelParallelRanksReadAll(t *testing.T) {
	q := question(t, 2, 1, nil, machine{network: 10, class: 50, source: 8, compute: 1e6})
	spec := q.Input.Stream.Spec()
	spec.Scheme, spec.WorldSize = access.Whole, 3
	q.Input.Stream = policytest.Stream(t, spec)
	q.Input.Nodes[0].Ranks, q.Input.Nodes[1].Ranks = []int{0, 1}, []int{2}
	h, err := newHolding(&q.Input, &plan.Plan{
		Remote: true, Owner: make([]int32, samples),
		Nodes: []plan.NodePlan{{Classes: [][]int32{ids(0, 100)}}, {Classes: [][]int32{nil}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := h.served(2, 30)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []served{
		{80, model.Hits{Own: []float64{20}, All: []float64{20}, Cached: 20}},
		{40, model.Hits{Own: []float64{0}, All: []float64{10}, Cached: 10}},
	} {
		s := all[n]
		for _, d := range []float64{
			s.reads - want.reads, s.Own[0] - want.Own[0], s.All[0] - want.All[0],
			s.Cached - want.Cached,
		} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("node %d: %+v, want %+v", n, s, want)
				break
			}
		}
	}
}

// TestMeanOverNodes checks what an epoch's reads are in the mean, and that its time is the slowest
// node's.
func TestMeanOverNodes(t *testing.T) {
	q, h := two(t, ids(0, 10), nil)
	m, err := q.measure(h.plan)
	if err != nil || math.Abs(m.reads-20) > 1e-9 {
		t.Errorf("2 nodes read %v MB each of 40 MB, %v", m.reads, err)
	}
	q.Input.Nodes[0].Ranks = nil
	if _, err := q.measure(h.plan); err == nil {
		t.Error("measured with a rank on no node")
	}
}

// scripted is a policy with the given plans, one after another.
type scripted struct {
	policies.Cooperative
	plans *[]*plan.Plan // nil: an error
}

var errPlan = errors.New("no plan")

func (s scripted) Plan(plan.Input) (*plan.Plan, error) {
	plan := (*s.plans)[0]
	*s.plans = (*s.plans)[1:]
	if plan == nil {
		return nil, errPlan
	}
	return plan, nil
}

// TestBetterCandidateWins checks that of a plan that only fills and one from scratch that is
// adopted which saves more after what moving takes, and that an error of either is returned.
func TestBetterCandidateWins(t *testing.T) {
	from := func(held []int32) *plan.Plan {
		owner := make([]int32, samples)
		return &plan.Plan{Owner: owner, Nodes: []plan.NodePlan{
			{Classes: [][]int32{held}},
		}}
	}
	better, worse := from(ids(0, 400)), from(ids(0, 200))
	for name, c := range map[string]struct {
		plans []*plan.Plan
		want  *plan.Plan
	}{
		"the first is better":  {[]*plan.Plan{better, worse}, better},
		"the second is better": {[]*plan.Plan{worse, better}, better},
		"they are alike":       {[]*plan.Plan{better, from(ids(0, 400))}, better},
		"the first fails":      {[]*plan.Plan{nil, better}, nil},
		"the second fails":     {[]*plan.Plan{better, nil}, nil},
	} {
		q := question(t, 1, 1, nil, machine{network: 100, class: 400, source: 8, compute: 1e6})
		q.Policy, q.Plan = scripted{plans: &c.plans}, from(ids(0, 100))
		out, plan, err := Decide(q)
		if plan != c.want || (err != nil) != (c.want == nil) || out.Adopted != (c.want != nil) {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if c.want == nil && !errors.Is(err, errPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// counting counts the plans that a policy makes.
type counting struct {
	plan.Policy
	plans int
}

func (c *counting) Plan(in plan.Input) (*plan.Plan, error) {
	c.plans++
	return c.Policy.Plan(in)
}

// TestNoPlanIsMadeToFillWhatIsFull checks that a plan that only fills free capacity is made only if
// there is any, and one from scratch only if what is known has settled.
func TestNoPlanIsMadeToFillWhatIsFull(t *testing.T) {
	m := machine{1000, 100, 50, 1e6}
	for _, c := range []struct {
		name    string
		more    int64 // bytes that a class of node 1 can hold besides
		settled bool
		want    int
	}{
		{"full, settled", 0, true, 1},
		{"full, not settled", 0, false, 0},
		{"a byte less than a sample", bytes - 1, false, 0},
		{"room for a sample", bytes, false, 1},
		{"room for a sample, settled", bytes, true, 2},
	} {
		q := question(t, 2, 0.5, &m, m)
		same(&q) // so that others would be better
		policy := &counting{Policy: q.Policy}
		q.Policy, q.Settled = policy, c.settled
		q.Input.Nodes[1].Capacity[0] += c.more
		out, plan, err := Decide(q)
		if err != nil || (plan != nil) != c.settled || policy.plans != c.want {
			t.Errorf("%s: %d plans, want %d; %+v, %v", c.name, policy.plans, c.want, out, err)
		}
	}
}

// TestOthersOwnWhatANodeGaveBack checks that a plan that only makes other nodes the owners of
// samples which their owner dropped is adopted, though all classes are full.
func TestOthersOwnWhatANodeGaveBack(t *testing.T) {
	m := machine{200, 10000, 20, 1e6}
	q := question(t, 3, 1, &m, m)
	q.Settled = false
	q.Input.Nodes[0].Capacity[0] = samples / 2 * bytes
	out, plan, err := Decide(q)
	if err != nil || plan == nil || out.Bytes != 0 || out.New > 0.95*out.Seconds {
		t.Errorf("%+v, %v", out, err)
	}
}
