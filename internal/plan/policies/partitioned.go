package policies

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
)

// Partitioned is CoorDL's partitioned cache (4.2): each node keeps what it reads in the first
// epoch, as far as it fits, and never evicts; what it does not hold it reads from the node that
// does. In the remaining capacity, nodes keep further copies of what they read later.
type Partitioned struct{}

// Name returns "partitioned".
func (Partitioned) Name() string { return "partitioned" }

// About describes the policy.
func (Partitioned) About() plan.About {
	return plan.About{
		Does:   "has each node keep what it reads in the first epoch, for all, as CoorDL",
		Engine: true,
		Stages: true,
		Needs:  plan.SomeClass,
		Copies: plan.OwnReads,
		Line:   plan.Line{Colour: 0x8a8a00, Dashed: true},
	}
}

// Plan goes through the epochs until every node is full.
func (p Partitioned) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	b.OwnHeld()
	b.KeepFirstEpoch(builder.AllClasses)
	b.KeepAsRead(b.From(in.From + 1))
	b.KeepLater()
	plan := b.FinishInOrder(p.Name(), true)
	p.once(plan)
	return plan, in.Ended()
}

// First makes each node keep what it reads first, as the plan does.
func (p Partitioned) First(in plan.Input,
	window plan.BootstrapWindow,
) (*plan.Plan, error) {
	b, err := builder.NewWindow(&in, window)
	if err != nil {
		return nil, err
	}
	b.KeepFirst(window, false)
	plan := b.FinishInOrder(p.Name(), true)
	p.once(plan)
	return plan, in.Ended()
}

// once makes a plan one whose samples are read from the source once. At the end of the first epoch,
// nodes read ahead for the second one what others are still to read in the first: an owner that is
// asked for such a sample reads it then, and keeps it for its own training.
func (Partitioned) once(p *plan.Plan) {
	p.OnRead, p.ReadOnce = true, true
	p.CacheFirst = true
}
