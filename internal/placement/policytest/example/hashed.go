// Package example is the policy that docs/CONTRIBUTING.md adds. No table has it.
package example

import (
	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
)

// Hashed keeps each sample on the node that a hash of both names, as object caches do: a node need
// not know the stream to know where a sample is, and how often anyone reads it does not count.
type Hashed struct{}

// Name is "hashed".
func (Hashed) Name() string { return "hashed" }

// About describes it.
func (Hashed) About() placement.About {
	return placement.About{
		Does:   "keeps each sample on the node that its hash names",
		Engine: true,
		Stages: true,
		Needs:  placement.SomeClass,
		Copies: placement.OnePerSample,
		Line:   placement.Line{Colour: 0x5d3fd3},
	}
}

// Plan gives each sample that is read to the node with the highest hash, and what does not fit
// there to the next that has room.
func (h Hashed) Plan(in placement.Input) (*placement.Plan, error) {
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
	b.KeepLater() // what no epoch reads that is known yet
	p := b.Finish(h.Name(), true, true)
	p.ReadOnce = b.PeersPay()
	return p, in.Ended()
}
