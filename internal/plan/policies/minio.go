package policies

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
)

// MinIO keeps, on each node independently, the first samples that fit, in the order in which the
// node reads them, and never evicts (CoorDL 4.1).
type MinIO struct{}

// Name returns "minio".
func (MinIO) Name() string { return "minio" }

// About describes the policy.
func (MinIO) About() plan.About {
	return plan.About{
		Does:   "has each node keep what it reads first, for itself, as CoorDL",
		Engine: true,
		Stages: true,
		Needs:  plan.SomeClass,
		Copies: plan.OwnReads,
		Line:   plan.Line{Colour: 0x8a8a00},
	}
}

// Plan goes through the epochs until every node is full.
func (m MinIO) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	b.KeepAsRead(b.From(in.From))
	b.KeepLaterAlone()
	p := b.FinishInOrder(m.Name(), false)
	p.CacheFirst = true
	return p, in.Ended()
}

// First makes each node keep what it reads, as the plan does.
func (m MinIO) First(in plan.Input,
	window plan.BootstrapWindow,
) (*plan.Plan, error) {
	b, err := builder.NewWindow(&in, window)
	if err != nil {
		return nil, err
	}
	b.KeepAsRead(window)
	p := b.FinishInOrder(m.Name(), false)
	p.CacheFirst = true
	return p, in.Ended()
}
