package planner

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/placement"
)

const (
	// patience is how long planning waits for the first batches, which are wanted more urgently.
	patience = 5 * time.Second
	// margin is how many times the estimate planning may take before ranks have to wait for it.
	margin = 8
)

// meanwhile makes a job's plan while batches flow already (placement.Starter).
//
// Where the first rank of a node begins to read, begin lets the node follow the policy's First for
// an epoch from there: the node reads itself what its ranks need, and keeps it. No node has to ask
// another for that. Once every rank of the node has a batch, or patience is over, run tells the
// other nodes where this one began and how far it will have come at the most when the plan is
// there: its lead. From all leads each node knows what each will have kept (placement.Resume), and
// plans with it, so nothing that was read in the leads is read again. When all nodes have their
// plans all follow them: if some did so sooner they would ask others for samples that these do not
// know they are to keep.
//
// A lead ends early enough to leave most of the plan its freedom, and late enough that the plan
// should be there by then. Where it is not, because ranks come through the stream faster than could
// be told from their first batches, they wait for it at the end of the lead (may): nothing is read
// that the plan does not count with, but under frequency, which keeps nothing before.
type meanwhile struct {
	planner *Planner
	policy  placement.Starter
	in      placement.Input

	once  sync.Once      // begin sets what follows
	fixed *access.Stream // the job's, with the epochs that are known; nil once there is a plan
	lead  placement.Lead
	began time.Time
	err   error
	begun chan struct{} // closed when it has

	mu      sync.Mutex    // guards what follows
	fed     map[int]bool  // ranks of the node that have a batch
	flowing chan struct{} // closed when all have
	// behind the last step that may be staged so far; steps count through all epochs here
	reached int
	end     int // of the lead

	cancel context.CancelFunc
}

// startMeanwhile begins to make a plan; close ends that.
func startMeanwhile(planner *Planner, policy placement.Starter, in placement.Input) *meanwhile {
	ctx, cancel := context.WithCancel(context.Background())
	in.Context, in.Stream = ctx, planner.o.Stream // which may forget epochs
	p := &meanwhile{
		planner: planner, policy: policy, in: in,
		begun: make(chan struct{}), fed: map[int]bool{}, flowing: make(chan struct{}),
		cancel: cancel,
	}
	go func() {
		defer close(planner.done)
		if err := p.run(ctx); err != nil && ctx.Err() == nil {
			planner.o.Fail(fmt.Errorf("plan who caches what: %w", err))
		}
		p.fixed = nil // so that epochs can be forgotten
	}()
	return p
}

func (p *meanwhile) close() {
	p.cancel()
	<-p.planner.done
}

// begin makes the node read from a step on as long as there is no plan; only the first call counts.
func (p *meanwhile) begin(epoch, step int) error {
	p.once.Do(func() {
		defer close(p.begun)
		p.began, p.fixed = time.Now(), p.planner.o.Stream.Fixed()
		if known := p.fixed.GivenEpochs(); known != nil && !p.fixed.Given(epoch) {
			epoch, step = known[0], 0 // the process has begun another one just now
		}
		p.lead = placement.Lead{Epoch: epoch, Step: step, Steps: p.in.Stream.Steps()}
		var first *placement.Plan
		if first, p.err = p.policy.First(p.from(epoch), p.lead); p.err == nil {
			p.planner.adopt(first)
			p.extend(p.lead)
		}
	})
	return p.err
}

// from is the planner's input with its horizon counted from an epoch, where the stream has no end.
// begin must have been called.
func (p *meanwhile) from(epoch int) placement.Input {
	in := p.in
	in.Stream = p.fixed
	in.Epochs += epoch
	return in
}

// feeds notes that a rank has got a batch.
func (p *meanwhile) feeds(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := len(p.in.Nodes[p.planner.o.Me].Ranks); len(p.fed) < want {
		if p.fed[rank] = true; len(p.fed) == want {
			close(p.flowing)
		}
	}
}

// may lets a batch be staged, if it is in the lead or there is a plan; else it waits for that.
func (p *meanwhile) may(ctx context.Context, epoch, step int) error {
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

// run makes the plan, and follows it.
func (p *meanwhile) run(ctx context.Context) error {
	o := &p.planner.o
	timeout := time.NewTimer(patience)
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
	lead := p.settle()
	leads := []placement.Lead{lead}
	last := lead.Epoch
	if o.Nodes != nil {
		var err error
		if leads, err = o.Nodes.Leads(ctx, lead, p.in.Stream.Steps()); err != nil {
			return err
		}
		for _, l := range leads {
			last, lead.Steps = max(last, l.Epoch), max(lead.Steps, l.Steps)
		}
		for n := range leads { // so that it is one plan that they follow
			leads[n].Steps = lead.Steps
		}
		p.extend(lead)
	}
	in, err := placement.Resume(p.policy, p.from(last), leads)
	if err != nil {
		return err
	}
	first := *p.planner.plan.Load()
	first.Nodes = make([]placement.NodePlan, len(in.Nodes))
	for n := range in.Nodes {
		first.Nodes[n].Classes = in.Nodes[n].Held // and no more
	}
	p.planner.adopt(&first)
	plan, err := p.policy.Plan(in)
	if err != nil {
		return err
	}
	if o.Nodes != nil {
		between := *plan // kept as the plan has it, and asked for as before
		between.Owner = first.Owner
		p.planner.adopt(&between)
		if err := o.Nodes.Planned(ctx); err != nil {
			return err
		}
	}
	p.planner.follow(plan)
	o.Log.Debug("planned", "policy", plan.Policy, "lead", lead.Steps, "seconds",
		time.Since(p.began).Seconds())
	return nil
}

// settle says where the lead ends: behind what has been staged, what may be staged ahead of that,
// and what is read in margin times the estimated time at the rate until now; but not after an
// epoch, in which everything was needed once.
func (p *meanwhile) settle() placement.Lead {
	lead, staged := p.lead, p.planner.o.Staged()
	rate := float64(staged) / time.Since(p.began).Seconds()
	ahead := p.planner.o.Ahead +
		int(math.Ceil(min(margin*rate*planTime(p.in).Seconds(), float64(lead.Steps))))
	p.mu.Lock()
	defer p.mu.Unlock()
	begin := lead.Epoch*p.in.Stream.Steps() + lead.Step
	// otherwise nothing is known of the rate, or it makes no difference
	if staged > 0 && len(p.in.Nodes) > 1 {
		lead.Steps = min(lead.Steps, max(p.reached-begin, 0)+ahead)
	}
	p.end = p.endOf(lead)
	return lead
}

// extend lets the lead end later.
func (p *meanwhile) extend(lead placement.Lead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = max(p.end, p.endOf(lead))
}

// endOf returns the step before which ranks may read by the lead: none has to wait if it is a whole
// epoch. Who keeps what is settled then, but for what that epoch drops; where ranks give their
// parts of epochs, a later one may have anything.
func (p *meanwhile) endOf(lead placement.Lead) int {
	steps := p.in.Stream.Steps()
	if lead.Step == 0 && lead.Steps == steps && !p.planner.o.Turns {
		return math.MaxInt
	}
	return lead.Epoch*steps + lead.Step + lead.Steps
}
