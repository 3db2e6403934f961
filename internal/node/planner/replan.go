package planner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/replan"
)

// rounds decides in rounds, together with the other nodes, whether the job is to follow another
// plan, and adopts it.
//
// Round i belongs to the beginning of the epoch 2^i after the one that the job began with: changes
// are noticed before the job has run twice as long, and a job of E epochs has log E rounds. A round
// runs beside the batches, which never wait for it:
//
//  1. When the first rank of this node begins that epoch, or a later one, the node sends to the
//     others what is known of its tiers now, its capacities, and how far its ranks are (Report).
//  2. From the reports of all nodes each decides alike (replan.Decide), and makes the new plan.
//  3. The nodes vote. Only if all would adopt the same plan, and no node is known to be gone, it
//     is adopted: when the first rank of the node begins the epoch after the last that any node had
//     begun at 1, or at once if it has begun already.
//
// If a node is gone or does not answer, there is no new plan in this round. A node that is cut off
// between 2 and 3 may remain with the old plan, or adopt the new one alone. That costs reads from
// the source, no sample; the next round finds that nodes follow different plans, and has all adopt
// the new one.
type rounds struct {
	planner *Planner
	policy  plan.Policy
	cancel  context.CancelFunc
	ended   chan struct{} // closed when run has returned
	news    chan struct{} // receives a token when a rank has begun a later epoch

	mu    sync.Mutex // guards the following
	first int        // the epoch that the job began with; none: no rank has begun
	begun int        // the last epoch that a rank has begun
	since int        // the epoch from which on the plan in force has been followed
	asked int        // the last epoch that had begun at the last round
	// What an epoch took with the plan before the one in force, by what all nodes reported, and with
	// the last one from which the job returned.
	before, failed replan.Tried
	sparesReads    bool // whether the plan in force was adopted for fewer reads of the source alone
	done           []plan.Replanning
}

const (
	none = -1 // no epoch
	// settleEpochs is after how many epochs with the same plan caches are filled, and an epoch was
	// measured with filled ones.
	settleEpochs = 2
)

// startRounds starts re-planning if another plan could ever be better: if the policy plans by what
// is read in the epochs to come and by the environment, which must be known. Other policies keep
// what is read first, or nothing.
func (p *Planner) startRounds(policy plan.Policy) {
	if !p.about.CountsReads || p.o.Turns || p.o.Stream.Spec().Shuffle == access.Given ||
		p.o.Known == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.rounds = &rounds{
		planner: p, policy: policy, cancel: cancel, ended: make(chan struct{}),
		news: make(chan struct{}, 1), first: none, begun: none,
	}
	go func() {
		defer close(p.rounds.ended)
		p.rounds.run(ctx)
	}()
}

func (r *rounds) close() {
	r.cancel()
	<-r.ended
}

// Reached records that a rank of this node has begun an epoch. It does not block.
func (p *Planner) Reached(epoch int) {
	if p.rounds != nil {
		p.rounds.reached(epoch)
	}
}

// Replanned returns the outcomes of the rounds of re-planning, oldest first.
func (p *Planner) Replanned() []plan.Replanning {
	if p.rounds == nil {
		return nil
	}
	p.rounds.mu.Lock()
	defer p.rounds.mu.Unlock()
	return slices.Clone(p.rounds.done)
}

func (r *rounds) reached(epoch int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == none {
		r.first, r.since = epoch, epoch
	}
	if epoch <= r.begun {
		return
	}
	r.begun = epoch
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// await waits until a rank of this node has begun an epoch, or a later one, which is given by the
// epoch that the job began with. It reports whether ctx is not done.
func (r *rounds) await(ctx context.Context, epoch func(first int) int) bool {
	for ctx.Err() == nil {
		r.mu.Lock()
		there := r.first != none && r.begun >= epoch(r.first)
		r.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-r.news:
		case <-ctx.Done():
		}
	}
	return false
}

// run runs the rounds, one after the other.
func (r *rounds) run(ctx context.Context) {
	for i := 0; r.await(ctx, func(first int) int { return first + 1<<i }); i++ {
		out, plan, in := r.round(ctx, i)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.done = append(r.done, out)
		r.mu.Unlock()
		if plan == nil {
			continue
		}
		why := "what was measured differs from what the plan in force was made with"
		if out.Why != "" {
			why = out.Why
		}
		r.planner.o.Log.Info("following another plan from the next epoch on", "why", why, "epoch",
			out.From, "epoch_seconds", out.Takes(), "new_epoch_seconds", out.New, "move_bytes",
			out.Bytes, "move_seconds", out.Move)
		if !r.await(ctx, func(int) int { return out.From }) {
			return
		}
		previous := r.planner.Plan()
		r.planner.change(plan, in)
		r.mu.Lock()
		r.since, r.before = out.From, replan.Tried{Plan: previous, Seconds: out.Took}
		r.sparesReads = out.Spared > 0
		if out.Why == replan.Wrong { // it is the one before
			r.before, r.failed = replan.Tried{}, r.before
		}
		r.mu.Unlock()
	}
}

// change adopts a plan that replaces another one.
func (p *Planner) change(plan *plan.Plan, in plan.Input) {
	p.env.Store(in.Env)
	p.adopt(plan, capacities(in.Nodes))
	p.o.Use.Release()
	p.fill(plan)
}

// round runs round i. It returns the outcome, and, if there is a plan to adopt, the plan and what
// it was made from.
func (r *rounds) round(ctx context.Context, i int) (out plan.Replanning, planned *plan.Plan,
	in plan.Input,
) {
	mine := r.report()
	reports := []plan.Report{mine}
	out.Epoch = mine.Epoch
	nodes, err := r.planner.o.Nodes, error(nil)
	if nodes != nil {
		if reports, err = nodes.Reassess(ctx, i, mine); err != nil {
			out.Why = err.Error()
			return out, nil, in
		}
	}
	out, planned, in, err = r.decide(ctx, reports)
	vote := plan.Vote{}
	switch {
	case err != nil:
		vote.Why = err.Error()
	case !r.planner.failover.complete():
		vote.Why = "a node is gone"
	case planned != nil:
		vote.Plan = planned.Fingerprint()
	}
	votes := []plan.Vote{vote}
	if nodes != nil {
		if votes, err = nodes.Vote(ctx, i, vote); err != nil {
			out.Adopted, out.Why = false, err.Error()
			return out, nil, in
		}
	}
	for n, v := range votes {
		if v != vote || v.Why != "" {
			out.Adopted, out.Why = false, fmt.Sprintf("node %d cannot follow it: %.300q", n, v.Why)
			if v.Why == "" {
				out.Why = fmt.Sprintf("node %d decided otherwise", n)
			}
			return out, nil, in
		}
	}
	return out, planned, in
}

// report returns this node's report.
func (r *rounds) report() plan.Report {
	p, o := r.planner, &r.planner.o
	classes := o.Classes
	if o.Now != nil {
		classes = o.Now()
	}
	mine := plan.Report{Node: p.node(classes)}
	mine.Node.Held = nil // the plan has it
	r.mu.Lock()
	mine.Epoch, mine.Since = r.begun, r.since
	from := max(r.since+settleEpochs-1, r.asked)
	r.asked = r.begun
	r.mu.Unlock()
	mine.Took = r.took(from, mine.Epoch)
	if plan := p.Plan(); plan != nil && !p.Planning() {
		mine.Plan = plan.Fingerprint()
	}
	if o.Transformers != nil {
		mine.Transformers = o.Transformers()
	}
	return mine
}

// took returns how long an epoch of [from, to) took on this node, the median, in seconds; 0: not
// known.
func (r *rounds) took(from, to int) float64 {
	var all []float64
	for epoch := from; r.planner.o.Took != nil && epoch < to; epoch++ {
		if seconds, ok := r.planner.o.Took(epoch); ok {
			all = append(all, seconds)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

// decide decides by the reports of all nodes. It is a pure function of them, the job and the plan
// in force.
func (r *rounds) decide(ctx context.Context, reports []plan.Report) (out plan.Replanning,
	planned *plan.Plan, in plan.Input, err error,
) {
	p := r.planner
	r.mu.Lock()
	q := replan.Question{
		Policy: r.policy, Plan: p.Plan(), SparesReads: r.sparesReads,
		Before: r.before, Failed: r.failed,
	}
	r.mu.Unlock()
	var nodes []plan.Node
	least, since := math.MaxInt, 0
	for n, report := range reports {
		out.Epoch, least = max(out.Epoch, report.Epoch), min(least, report.Epoch)
		since, q.Took = max(since, report.Since), max(q.Took, report.Took)
		nodes, q.Transformers = append(nodes, report.Node), append(q.Transformers, report.Transformers)
		switch {
		case report.Plan == 0:
			out.Why = fmt.Sprintf("node %d is still making its first plan", n)
			return out, nil, in, nil
		case report.Plan != reports[0].Plan:
			q.Plan = nil
		}
	}
	in = p.input(out.Epoch+1, nodes)
	in.Context = ctx
	in.Agree()
	q.Input, q.Settled = in, least >= since+settleEpochs
	// The two plans that are compared, and the one in force.
	if err := p.o.Admit(2 * policies.Memory(in)); err != nil {
		return out, nil, in, err
	}
	if !q.Settled {
		q.Took = 0
	}
	epoch := out.Epoch
	out, planned, err = replan.Decide(q)
	out.Epoch = epoch
	return out, planned, in, err
}
