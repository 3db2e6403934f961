package planner

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

const (
	// firstBatchTimeout is how long planning waits for the ranks' first batches, which are more
	// urgent.
	firstBatchTimeout = 5 * time.Second
	// planTimeFactor is how many times its estimate planning may take before ranks have to wait for
	// it.
	planTimeFactor = 8
)

// bootstrap makes a job's plan while batches already flow (plan.Starter).
//
// When the first rank of a node begins to read, begin makes the node follow the policy's First for
// one epoch from there: the node itself reads what its ranks need, and keeps it. No node has to ask
// another one for that. Once every rank of the node has a batch, or patience has run out, run sends
// to the other nodes where this node began and how far it will have read at most when the plan is
// ready: its plan.BootstrapWindow. From all windows each node derives what every node will have
// kept (plan.Resume), and plans with it, so nothing that was read in the windows is read again. The
// nodes switch to their plans when all have one: a node that did so earlier would ask others for
// samples before these have the plan by which they are to keep them.
//
// A window ends early enough to leave most of the plan its freedom, and late enough that the plan
// should be ready by then. If it is not, because ranks read faster than their first batches
// suggested, they wait for the plan at the end of the window (gate). So nothing is read that the
// plan does not account for, except under policy frequency, which keeps nothing before it has a
// plan.
type bootstrap struct {
	planner *Planner
	policy  plan.Starter
	in      plan.Input

	once sync.Once // guards begin, which sets the following
	// fixed is the job's stream with the epochs known at begin; nil once there is a plan
	fixed  *access.Stream
	window plan.BootstrapWindow
	began  time.Time
	err    error
	begun  chan struct{} // closed when begin has run

	mu      sync.Mutex    // guards the following
	fed     map[int]bool  // ranks of this node that have a batch
	flowing chan struct{} // closed when all of them have
	reached int           // one after the last step that was allowed; counts over all epochs
	end     int           // of the window; counts over all epochs

	cancel context.CancelFunc
}

// startBootstrap starts planning in the background. close ends it.
func startBootstrap(planner *Planner, policy plan.Starter, in plan.Input) *bootstrap {
	ctx, cancel := context.WithCancel(context.Background())
	in.Context, in.Stream = ctx, planner.o.Stream // o.Stream may forget epochs
	p := &bootstrap{
		planner: planner, policy: policy, in: in,
		begun: make(chan struct{}), fed: map[int]bool{}, flowing: make(chan struct{}),
		cancel: cancel,
	}
	go func() {
		defer close(planner.done)
		if err := p.run(ctx); err != nil && ctx.Err() == nil {
			planner.o.Fail(fmt.Errorf("make the placement plan: %w", err))
		}
		p.fixed = nil // lets epochs be forgotten
	}()
	return p
}

func (p *bootstrap) close() {
	p.cancel()
	<-p.planner.done
}

// begin makes the node read from a step on until there is a plan. Only the first call has an
// effect.
func (p *bootstrap) begin(epoch, step int) error {
	p.once.Do(func() {
		defer close(p.begun)
		p.began, p.fixed = time.Now(), p.planner.o.Stream.Fixed()
		if known := p.fixed.GivenEpochs(); known != nil && !p.fixed.Given(epoch) {
			epoch, step = known[0], 0 // the process has just moved on to another epoch
		}
		p.window = plan.BootstrapWindow{Epoch: epoch, Step: step, Steps: p.in.Stream.Steps()}
		var first *plan.Plan
		if first, p.err = p.policy.First(p.from(epoch), p.window); p.err == nil {
			p.planner.adopt(first)
			p.extend(p.window)
		}
	})
	return p.err
}

// from returns the planner's input with its horizon counted from an epoch, for streams without an
// end. begin must have been called.
func (p *bootstrap) from(epoch int) plan.Input {
	in := p.in
	in.Stream = p.fixed
	in.Epochs += epoch
	return in
}

// feeds records that a rank has a batch.
func (p *bootstrap) feeds(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := len(p.in.Nodes[p.planner.o.Me].Ranks); len(p.fed) < want {
		if p.fed[rank] = true; len(p.fed) == want {
			close(p.flowing)
		}
	}
}

// gate returns when a batch may be staged: at once if it is in the window, else when there is a
// plan.
func (p *bootstrap) gate(ctx context.Context, epoch, step int) error {
	at := epoch*p.in.Stream.Steps() + step
	p.mu.Lock()
	free := at < p.end
	if free {
		p.reached = max(p.reached, at+1)
	}
	p.mu.Unlock()
	if free {
		return nil
	}
	select {
	case <-p.planner.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run makes the plan, and switches to it:
//
//  1. wait until every rank of this node has a batch, or for firstBatchTimeout;
//  2. settle this node's window, and exchange windows with the other nodes;
//  3. adopt what all windows keep (Resume), and make the plan;
//  4. keep what the plan assigns, but ask for samples as before, until all nodes have plans;
//  5. follow the plan.
func (p *bootstrap) run(ctx context.Context) error {
	o := &p.planner.o
	timeout := time.NewTimer(firstBatchTimeout)
	defer timeout.Stop()
	select {
	case <-p.flowing:
	case <-timeout.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.begin(p.in.From, 0); err != nil {
		return err
	}
	window := p.settle()
	windows := []plan.BootstrapWindow{window}
	last := window.Epoch
	if o.Nodes != nil {
		var err error
		if windows, err = o.Nodes.BootstrapWindows(ctx, window, p.in.Stream.Steps()); err != nil {
			return err
		}
		for _, w := range windows {
			last, window.Steps = max(last, w.Epoch), max(window.Steps, w.Steps)
		}
		for n := range windows { // all nodes must resume from the same windows
			windows[n].Steps = window.Steps
		}
		p.extend(window)
	}
	in, err := plan.Resume(p.policy, p.from(last), windows)
	if err != nil {
		return err
	}
	first := *p.planner.plan.Load()
	first.Nodes = make([]plan.NodePlan, len(in.Nodes))
	for n := range in.Nodes {
		first.Nodes[n].Classes = in.Nodes[n].Held // and no more than that
	}
	p.planner.adopt(&first)
	plan, err := p.policy.Plan(in)
	if err != nil {
		return err
	}
	if o.Nodes != nil {
		between := *plan // keep by the new plan, ask owners by the old one
		between.Owner = first.Owner
		p.planner.adopt(&between)
		if err := o.Nodes.Planned(ctx); err != nil {
			return err
		}
	}
	p.planner.follow(plan)
	o.Log.Debug("planned", "policy", plan.Policy, "window", window.Steps, "seconds",
		time.Since(p.began).Seconds())
	return nil
}

// settle fixes the end of the window: after what has been staged, what may be staged ahead of that,
// and what is read in planTimeFactor times the estimated planning time at the rate so far; but at
// most one epoch, in which everything is needed once.
func (p *bootstrap) settle() plan.BootstrapWindow {
	window, staged := p.window, p.planner.o.Staged()
	rate := float64(staged) / time.Since(p.began).Seconds()
	ahead := p.planner.o.Ahead +
		int(math.Ceil(min(planTimeFactor*rate*planTime(p.in).Seconds(), float64(window.Steps))))
	p.mu.Lock()
	defer p.mu.Unlock()
	begin := window.Epoch*p.in.Stream.Steps() + window.Step
	// Otherwise nothing is known of the rate, or the window makes no difference.
	if staged > 0 && len(p.in.Nodes) > 1 {
		window.Steps = min(window.Steps, max(p.reached-begin, 0)+ahead)
	}
	p.end = p.endOf(window)
	return window
}

// extend moves the end of the node's window to that of window if it is later.
func (p *bootstrap) extend(window plan.BootstrapWindow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = max(p.end, p.endOf(window))
}

// endOf returns the step before which ranks may read in the window. After a whole epoch no rank has
// to wait: which node keeps what is then settled, except for what that epoch drops. That does not
// hold if ranks supply their parts of epochs, or if these mix datasets, because a later one may
// have other samples.
func (p *bootstrap) endOf(window plan.BootstrapWindow) int {
	steps := p.in.Stream.Steps()
	varies := p.planner.o.Turns || p.in.Stream.Spec().Mixture != nil
	if window.Step == 0 && window.Steps == steps && !varies {
		return math.MaxInt
	}
	return window.Epoch*steps + window.Step + window.Steps
}
