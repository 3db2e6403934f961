package script

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// ordering returns the policies under which ranks read in an order of the policy, and others with
// options, which matter to few samples.
func ordering() []plan.Policy {
	return []plan.Policy{
		policies.PyTorch{Workers: 1, PrefetchFactor: 1},
		policies.PyTorch{Workers: 2},
		policies.TFData{},
		policies.TFData{Buffer: 1},
		policies.TFData{Buffer: 7, File: 2000},
		policies.Sharded{},
		policies.Locality{},
		policies.Locality{Copies: 2},
		policies.Locality{Copies: 3},
		policies.DeepIO{Opportunistic: true},
	}
}

// Orders reports whether the policy may have an order of its own.
func (s *Script) Orders() bool {
	return slices.ContainsFunc(policies.Engine(), func(p plan.Policy) bool {
		_, orders := p.(plan.Orderer)
		return orders && p.Name() == plan.Base(s.Policy)
	})
}

// Ordered returns the stream of a launch under a policy that orders it; nil: ranks read what the
// script asks for. The order follows from what is configured, whatever befalls the job. The error
// says why the policy cannot order it.
func (s *Script) Ordered(l Launch) (*access.Stream, error) {
	if !s.Orders() {
		return nil, nil
	}
	p, err := policies.ByName(s.Policy)
	if err != nil {
		return nil, err
	}
	spec := access.Spec{
		Samples: s.Samples, Seed: s.Seed, Epochs: s.Epochs, WorldSize: l.WorldSize(),
		GlobalBatch: s.Batch, DropLast: s.DropLast, Shuffle: access.Shuffle(s.Shuffle),
		Scheme: access.Scheme(s.Scheme), Tail: access.Tail(s.Tail),
	}
	for _, id := range s.Chosen() {
		spec.Subset = append(spec.Subset, int32(id))
	}
	in := plan.Input{Epochs: 1, Size: func(id int) int64 { return int64(s.Size(id)) }}
	if in.Stream, err = access.New(spec); err != nil {
		return nil, err
	}
	for n := range l.Nodes {
		node := plan.Node{}
		for r := range l.Ranks {
			node.Ranks = append(node.Ranks, n*l.Ranks+r)
		}
		memory, disk := s.Caches(n)
		for _, bytes := range []int{memory, disk} {
			if bytes > 0 {
				node.Capacity = append(node.Capacity, int64(bytes))
			}
		}
		in.Nodes = append(in.Nodes, node)
	}
	in, err = plan.Ordered(p, in)
	if in.Stream.Order() == nil {
		return nil, err
	}
	return in.Stream, err
}

// InTurn reports whether the policy reads the samples of a batch one after another.
func (s *Script) InTurn() bool { return plan.Base(s.Policy) == policies.PyTorch{}.Name() }

// checkOrder checks that the policy's order can be made, and that all launches have it.
func (s *Script) checkOrder() error {
	for i, l := range s.Launches {
		stream, err := s.Ordered(l)
		switch {
		case err != nil:
			return fmt.Errorf("policy: %q; launches[%d] cannot have it: %w", s.Policy, i, err)
		case !s.Orders():
			continue
		case s.Differs == ThePolicy || len(s.Members) > 0:
			return fmt.Errorf("policy: %q; allowed only without members and other policies", s.Policy)
		case stream == nil, stream.Order().Draw == nil:
			continue
		}
		if one := s.Launches[0]; l.Nodes != one.Nodes || l.Ranks != one.Ranks {
			return fmt.Errorf("policy: %q; all launches must have as many nodes and ranks, on which "+
				"its order depends", s.Policy)
		}
	}
	return nil
}

// order has some jobs read in the order of a policy.
func (r *chance) order(s *Script) {
	c := s.clone()
	c.Policy = pick(r, ordering()...).Name()
	c.DropLast = c.DropLast && r.percent(50)
	if c.Memory+c.Disk == 0 {
		c.Memory = pick(r, c.Bytes()/2, c.Bytes()) + c.Largest
	}
	if plan.Base(c.Policy) != (policies.Locality{}).Name() { // it draws epochs of its own
		c.Subset = 0
		if c.Shuffle == "none" {
			c.Shuffle = "torch"
		}
		if c.Scheme == "whole" {
			c.Scheme = "strided"
		}
		one := c.Launches[0]
		for i := range c.Launches {
			c.Launches[i].Nodes = one.Nodes
			c.Launches[i].Ranks = one.Ranks
			c.Launches[i].Late = nil
		}
	}
	if r.percent(15) && c.valid() {
		*s = c
	}
}
