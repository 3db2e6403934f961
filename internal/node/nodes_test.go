package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// nodes are several nodes in this process, each with its own memory class, which reach each other
// over loopback, or a network in memory.
type nodes struct {
	t       *testing.T
	worlds  []*world
	list    []*Node
	reads   [samples]atomic.Int32 // from the source, over all nodes
	network *networktest.Network  // nil: loopback
}

// newNodes returns n nodes. If background is set, no plan is made at once.
func newNodes(t *testing.T, n int, background bool) *nodes {
	c := &nodes{t: t}
	for range n {
		w := &world{read: func(_ context.Context, id int) error { c.reads[id].Add(1); return nil }}
		node := w.node()
		if background {
			node.options.Strategy.AtOnce = -1
		}
		c.worlds, c.list = append(c.worlds, w), append(c.list, node)
	}
	return c
}

// newVirtualNodes is newNodes in virtual time, with a network in memory: node k has the address
// 10.0.0.(k+1).
func newVirtualNodes(t *testing.T, n int, background bool) *nodes {
	c := newNodes(t, n, background)
	c.network = networktest.New()
	for i, node := range c.list {
		node.options.Network = c.network.Host(fmt.Sprintf("10.0.0.%d", i+1))
	}
	return c
}

// address returns an address where node 0 of a job can listen.
func (c *nodes) address() string {
	if c.network != nil {
		return "10.0.0.1:6000"
	}
	return testkit.Address(c.t)
}

// openUntil is openParts until ctx ends. failed is called when a rank cannot open the job.
func (c *nodes) openUntil(ctx context.Context, failed func(), each int,
	change func(rank int) []func(*request.Open),
) ([]*Rank, []error) {
	world := each * len(c.list)
	ranks, errs := make([]*Rank, world), make([]error, world)
	address := c.address()
	var all sync.WaitGroup
	for r := range world {
		all.Go(func() {
			m := message(r, world, append(change(r), onNodes(len(c.list), each, address))...)
			ranks[r], errs[r] = c.list[r/each].Open(ctx, m, nil, func(request.Step) {})
			if errs[r] != nil {
				failed()
			}
		})
	}
	all.Wait()
	return ranks, errs
}

// open opens a job with a rank on every node.
func (c *nodes) open(change ...func(*request.Open)) []*Rank {
	c.t.Helper()
	each := func(int) []func(*request.Open) { return slices.Clone(change) }
	ranks, errs := c.openUntil(c.t.Context(), func() {}, 1, each)
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
	return ranks
}

// epochs runs all ranks through epochs [from, to), each epoch together, as in training, and
// compares what they get with the stream.
func (c *nodes) epochs(ranks []*Rank, from, to int) {
	c.t.Helper()
	for e := from; e < to; e++ {
		together(ranks, func(r *Rank) {
			r.Wait() // before policy naive reads anything
			for here, ids := range consume(c.t, r, at{e, 0}, at{e + 1, 0}) {
				epoch := r.entry.open.Order.Stream().Epoch(here.epoch)
				if want := epoch.Batch(nil, r.Number(), here.step); !slices.Equal(ids, want) {
					c.t.Errorf("rank %d, %+v: samples %v, want %v", r.Number(), here, ids, want)
				}
			}
		})
	}
}

func (c *nodes) read() (total, most int) {
	for k := range c.reads {
		n := int(c.reads[k].Load())
		total, most = total+n, max(most, n)
	}
	return total, most
}

func (c *nodes) close() {
	c.t.Helper()
	for n, w := range c.worlds {
		w.close(c.t, c.list[n])
	}
	if c.network != nil {
		// Let a probe of the failure detection that is in progress end inside the bubble.
		time.Sleep(time.Minute)
	}
}

func closeAll(ranks []*Rank) { together(ranks, (*Rank).Close) }

// TestPoliciesDeliverTheStreamOverNodes checks that each policy delivers the stream over several
// nodes, with a plan made at once and in the background, and that policies that read once do so if
// the caches together hold the dataset.
func TestPoliciesDeliverTheStreamOverNodes(t *testing.T) {
	for _, policy := range policies.Engine() {
		for _, background := range []bool{false, true} {
			for _, scheme := range []string{"strided", "whole"} {
				if scheme == "whole" && (!background || drawsOrder(policy)) {
					continue
				}
				t.Run(fmt.Sprintf("%s/background=%v/%s", policy.Name(), background, scheme),
					func(t *testing.T) {
						c := newNodes(t, 3, background)
						ranks := c.open(set("policy", policy.Name()), set("memory", "14000B"),
							func(m *request.Open) {
								m.Stream.Scheme = scheme
							})
						c.epochs(ranks, 0, 4)
						total, most := c.read()
						if policy.Name() == "cooperative" && (total != samples || most != 1) {
							t.Errorf("the source was read %d times, one sample %d times; "+
								"want %d, and 1", total, most, samples)
						}
						closeAll(ranks)
						c.close()
					})
			}
		}
	}
}

// TestJobMayBeginAmidAnEpoch checks that nothing is read twice if the job begins in the middle
// of an epoch, and that the report says whether there is a plan.
func TestJobMayBeginAmidAnEpoch(t *testing.T) {
	c := newNodes(t, 3, true)
	ranks := c.open(set("memory", "14000B"))
	for _, r := range ranks {
		if p := r.Report(); !p.Planning {
			t.Error("no rank has begun, but the report says that there is a plan")
		}
	}
	together(ranks, func(r *Rank) { consume(t, r, at{1, 2}, at{2, 0}) })
	for _, r := range ranks {
		<-r.entry.open.Job.Planner().Done()
		if r.Report().Planning {
			t.Error("there is a plan, but the report says that there is none")
		}
	}
	c.epochs(ranks, 2, 4)
	if total, most := c.read(); total != samples || most != 1 {
		t.Errorf("the source was read %d times, one sample %d times; want %d, and 1", total, most,
			samples)
	}
	closeAll(ranks)
	c.close()
}

// TestJobsShareACache checks that a job that joins another one's caches finds what they hold, and
// continues when the other one ends: it still asks the other nodes for what they hold.
func TestJobsShareACache(t *testing.T) {
	for _, background := range []bool{false, true} {
		c := newNodes(t, 2, background)
		first := c.open(set("memory", "22000B"))
		c.epochs(first, 0, 1)
		second := c.open(set("memory", "22000B"), func(m *request.Open) { m.Job = "second" })
		c.epochs(second, 0, 1)
		c.epochs(first, 1, 2)
		closeAll(first)
		c.epochs(second, 1, 4)
		if total, most := c.read(); total != samples || most != 1 {
			t.Errorf("background=%v: the source was read %d times, one sample %d times; want %d, "+
				"and 1", background, total, most, samples)
		}
		closeAll(second)
		c.close()
	}
}

// TestJobsOpenedAtOnce checks that jobs that are opened in any order on two nodes do not wait for
// each other.
func TestJobsOpenedAtOnce(t *testing.T) {
	c := newNodes(t, 2, false)
	var all sync.WaitGroup
	for j := range 4 {
		all.Go(func() {
			ranks := c.open(func(m *request.Open) { m.Job = fmt.Sprintf("job %d", j) })
			c.epochs(ranks, 0, 1)
			closeAll(ranks)
		})
	}
	all.Wait()
	c.close()
}

// held is a policy whose Plan waits for the test, and fails with err if that is set.
type held struct {
	policies.Cooperative
	free chan struct{}
	err  error
}

func (h held) Plan(in plan.Input) (*plan.Plan, error) {
	<-h.free
	if h.err != nil {
		return nil, h.err
	}
	return h.Cooperative.Plan(in)
}

// hold gives nodes a policy whose plan waits until free is closed.
func hold(err error, nodes ...*Node) (free chan struct{}) {
	free = make(chan struct{})
	for _, n := range nodes {
		n.options.Strategy.AtOnce = -1
		n.options.Strategy.Policy = func(string) (plan.Policy, error) {
			return held{free: free, err: err}, nil
		}
	}
	return free
}

// TestBatchesFlowWithoutAPlan checks that batches flow while there is no plan, on one node and on
// several, and that each sample is still read only once.
func TestBatchesFlowWithoutAPlan(t *testing.T) {
	for n := 1; n <= 3; n += 2 {
		c := newNodes(t, n, true)
		free := hold(nil, c.list...)
		ranks := c.open(set("memory", fmt.Sprintf("%dB", 42000/n)))
		c.epochs(ranks, 0, 2)
		if !ranks[0].Report().Planning ||
			!strings.Contains(ranks[0].Report().Sentence, "still being made") {
			t.Errorf("%d nodes: the report says that there is a plan", n)
		}
		close(free)
		c.epochs(ranks, 2, 4)
		for _, r := range ranks {
			<-r.entry.open.Job.Planner().Done()
		}
		if total, most := c.read(); total != samples || most != 1 {
			t.Errorf("%d nodes: the source was read %d times, one sample %d times; want %d, and 1",
				n, total, most, samples)
		}
		closeAll(ranks)
		c.close()
	}
}

// unable is a policy whose First fails.
type unable struct{ held }

func (unable) First(plan.Input, plan.BootstrapWindow) (*plan.Plan, error) {
	return nil, errors.New("no first plan")
}

// TestRanksGetTheErrorOfTheFirstPlan checks that ranks get the error if a policy's First fails, and
// that the job can still be reported.
func TestRanksGetTheErrorOfTheFirstPlan(t *testing.T) {
	var w world
	n := w.node()
	n.options.Strategy.AtOnce = -1
	n.options.Strategy.Policy = func(string) (plan.Policy, error) { return unable{}, nil }
	r := open(t, n, message(0, 1))
	if _, err := take(r, at{0, 0}, end); err == nil ||
		!strings.Contains(err.Error(), "no first plan") {
		t.Errorf("got %v", err)
	}
	r.entry.open.Job.Planner().Close()
	if p := r.Report(); p.Planning || p.Source.Samples != 0 {
		t.Errorf("reported as %+v", p)
	}
	r.Close()
	w.close(t, n)
}

// TestRanksGetTheErrorOfThePlan checks that ranks that wait for batches get the error if the plan
// cannot be made.
func TestRanksGetTheErrorOfThePlan(t *testing.T) {
	var w world
	n := w.node()
	free := hold(errors.New("no memory"), n)
	ranks := []*Rank{open(t, n, message(0, 2)), open(t, n, message(1, 2))}
	together(ranks, func(r *Rank) { consume(t, r, at{0, 0}, at{2, 0}) })
	close(free)
	<-ranks[0].entry.life.Done()
	together(ranks, func(r *Rank) {
		if _, err := take(r, at{2, 0}, end); err == nil ||
			!strings.Contains(err.Error(), "no memory") {
			t.Errorf("rank %d: %v", r.Number(), err)
		}
	})
	closeAll(ranks)
	w.close(t, n)
}

// TestPlanTooLargeForMemoryIsRefused checks that a plan that does not fit in memory is refused
// before it is begun.
func TestPlanTooLargeForMemoryIsRefused(t *testing.T) {
	w := world{available: func() (int64, error) { return 500 + 64<<10 + 1000, nil }}
	n := w.node()
	e := refusal(t, n, message(0, 1, set("memory", "500B")))
	if e.Kind != failure.Limit || !strings.Contains(e.Message, "placement plan") {
		t.Errorf("refused as %+v", e)
	}
	w.close(t, n)
}
