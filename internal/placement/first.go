package placement

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/access"
)

// Lead is the part of the stream that the ranks may have come through before there is a plan: global batches, counted
// from one of an epoch.
type Lead struct {
	Epoch, Step int
	Steps       int // at most as many as an epoch has
}

// Starter is a policy whose plan takes a pass over the whole stream or more, and that knows what nodes may do meanwhile.
//
// In an epoch each sample is needed by one node, but for what padding repeats. So until there is a plan each node
// reads from the source what it needs itself, and where nodes share their caches answers for it: all nodes know that from the
// stream, hardly anybody has to ask anybody, and nothing is read twice. What is read so is kept where it was read, or with the node
// that has most room where it does not fit, and
// Resume tells Plan that it is there: a plan leaves samples where they are. The longer the lead, the more samples lie with the
// node that needed them first instead of the one that needs them most often. That costs local hits, and no read from the source.
type Starter interface {
	Policy
	// First returns what nodes do in the lead: what they hold already, then, in the order in which it is read, what they keep of it.
	// It takes one pass over the lead.
	First(in Input, lead Lead) (*Plan, error)
}

// Resume returns the input for the plan that follows First: nodes hold what they have, and what they kept or will have kept at the
// end of their leads. leads are by node; mostly all are the same.
func Resume(p Starter, in Input, leads []Lead) (Input, error) {
	if len(leads) != len(in.Nodes) {
		return in, fmt.Errorf("placement: %d leads for %d nodes", len(leads), len(in.Nodes))
	}
	made := map[Lead]*Plan{}
	nodes := make([]Node, len(in.Nodes))
	in.From = leads[0].Epoch
	for n, lead := range leads {
		first := made[lead]
		if first == nil {
			var err error
			if first, err = p.First(in, lead); err != nil {
				return in, err
			}
			made[lead] = first
		}
		nodes[n] = in.Nodes[n]
		nodes[n].Held = first.Nodes[n].Classes
	}
	for _, lead := range leads {
		in.From = min(in.From, lead.Epoch)
	}
	in.Nodes = nodes
	return in, nil
}

// First lets each node keep and answer for what it reads first.
func (c Cooperative) First(in Input, lead Lead) (*Plan, error) {
	b, err := newLead(&in, lead)
	if err != nil {
		return nil, err
	}
	b.ownKept()
	b.keepFirst(lead, true)
	p := b.finishInOrder(c.Name(), true)
	p.ReadOnce = b.peer < b.source
	return p, in.ended()
}

// First lets each node keep what it reads first, as the plan does.
func (p Partitioned) First(in Input, lead Lead) (*Plan, error) {
	b, err := newLead(&in, lead)
	if err != nil {
		return nil, err
	}
	b.keepFirst(lead, false)
	plan := b.finishInOrder(p.Name(), true)
	plan.OnRead, plan.CacheFirst = true, true
	return plan, in.ended()
}

// First lets each node keep what it reads, as the plan does.
func (m MinIO) First(in Input, lead Lead) (*Plan, error) {
	b, err := newLead(&in, lead)
	if err != nil {
		return nil, err
	}
	b.keepAsRead(lead)
	p := b.finishInOrder(m.Name(), false)
	p.CacheFirst = true
	return p, in.ended()
}

// First lets several nodes keep nothing: which samples a node reads most often does not show in its first reads. One
// node reads all equally often, and keeps what it reads.
func (f Frequency) First(in Input, lead Lead) (*Plan, error) {
	b, err := newLead(&in, lead)
	if err != nil {
		return nil, err
	}
	if len(in.Nodes) == 1 {
		b.keepFirst(lead, false)
	}
	return b.finishInOrder(f.Name(), true), in.ended()
}

// newLead is newBuilder for the epochs of a lead. Whoever holds a sample already answers for it.
func newLead(in *Input, lead Lead) (*builder, error) {
	steps := in.Stream.Steps()
	if lead.Epoch < 0 || lead.Step < 0 || lead.Step > steps || lead.Steps < 0 || lead.Steps > steps {
		return nil, fmt.Errorf("placement: a lead of %d steps from step %d of epoch %d; an epoch has %d", lead.Steps, lead.Step, lead.Epoch, steps)
	}
	in.From = lead.Epoch
	b, err := newBuilder(in)
	if err != nil {
		return nil, err
	}
	b.ownHeld()
	return b, nil
}

// ownHeld makes who holds a sample already answer for it; of several the first.
func (b *builder) ownHeld() {
	for i := range b.copies {
		if c := &b.copies[i]; b.owner[c.k] < 0 {
			b.owner[c.k] = int32(c.node)
		}
	}
}

// keepFirst gives every node what it reads first in the lead and nobody holds, as far as it fits; what does not, goes to the
// node that has most room, if so wanted. Where all nodes read everything they take turns.
func (b *builder) keepFirst(lead Lead, elsewhere bool) {
	b.expect(len(b.head))
	b.walk(lead, func(_ int, ids []int32, nodes []uint16) bool {
		for i, k := range ids {
			if b.owner[k] >= 0 {
				continue
			}
			node := int(k) % len(b.in.Nodes)
			if nodes != nil {
				node = int(nodes[i])
			}
			if !b.keep(node, noClass, k, 0) && elsewhere {
				b.keep(b.open.node(), noClass, k, 0)
			}
		}
		return b.open.most() >= b.least
	})
}

// walk goes over the steps of a lead, as far as the horizon goes, until f returns false. nodes says who reads each sample; nil:
// every node reads all.
func (b *builder) walk(lead Lead, f func(epoch int, ids []int32, nodes []uint16) bool) {
	var epoch *access.Epoch
	step, left := lead.Step, lead.Steps
	for e := lead.Epoch; left > 0 && e < b.to && b.in.ended() == nil; e++ {
		epoch = b.in.Stream.EpochInto(epoch, e)
		for ids, nodes := range b.stepsFrom(epoch, step) {
			if left--; !f(e, ids, nodes) || left == 0 {
				return
			}
		}
		step = 0
	}
}
