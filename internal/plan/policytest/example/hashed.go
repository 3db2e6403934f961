// Package example is the policy that docs/CONTRIBUTING.md adds as an example. It is in no table.
package example

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
)

// Hashed keeps each sample on the node with the highest hash of both, as object caches do: a node
// can locate a sample without the stream, and how often nodes read it does not matter.
type Hashed struct{}

// Name returns "hashed".
func (Hashed) Name() string { return "hashed" }

// About describes the policy.
func (Hashed) About() plan.About {
	return plan.About{
		Does:   "keeps each sample on the node that a hash selects",
		Engine: true,
		Stages: true,
		Needs:  plan.SomeClass,
		Copies: plan.OnePerSample,
		Line:   plan.Line{Colour: 0x5d3fd3},
	}
}

// Plan assigns each sample that is read to the node with the highest hash or, if it does not fit
// there, to the next node where it does.
func (h Hashed) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	b.OwnHeld()
	for k, reads := range b.Frequencies() {
		if reads == 0 {
			continue
		}
		best := 0
		for n := range in.Nodes {
			if access.Mix(n, k) > access.Mix(best, k) {
				best = n
			}
		}
		for n := range in.Nodes {
			if b.Keep((best+n)%len(in.Nodes), k) {
				break
			}
		}
	}
	b.KeepLater() // samples that no known epoch reads
	p := b.Finish(h.Name(), true, true)
	p.ReadOnce = b.PeersPay()
	return p, in.Ended()
}
