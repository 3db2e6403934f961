package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
)

const maxGathers = 64 // open at a time

// round is one gather at node 0: open from the first contribution until every node that is up and
// has a stream has contributed. Nodes that are down are not waited for, unless they rejoin before
// the end. INVARIANT: parts and ids have the same keys, except for nodes that were lost after they
// contributed.
type round struct {
	parts map[int][]byte
	ids   map[int]uint64 // of the calls to answer
	bytes int            // of all parts
}

func (h *hub) contribute(p *participant, c *pb.Contribution) error {
	n, what := p.node(), c.GetWhat()
	r := h.gathers[what]
	if r == nil {
		r = &round{parts: map[int][]byte{}, ids: map[int]uint64{}}
	}
	var err error
	switch {
	case h.phase != running:
		err = &GatherError{what, h.missing(), "not all nodes have joined"}
	case len(c.GetData()) > MaxPayload:
		return &LimitError{
			fmt.Sprintf("gather %q of node %d", what, n), int64(len(c.GetData())),
			MaxPayload,
		}
	case r.bytes+len(c.GetData()) > MaxTotal:
		err = &LimitError{
			fmt.Sprintf("gather %q of all nodes together", what),
			int64(r.bytes + len(c.GetData())), MaxTotal,
		}
	case h.gathers[what] == nil && len(h.gathers) == maxGathers:
		err = &GatherError{what, []int{n}, fmt.Sprintf("%d gathers are open already", maxGathers)}
	}
	if err != nil {
		p.Send(&pb.Message{
			Kind: &pb.Message_Gathered{
				Gathered: &pb.Gathered{Id: c.GetId(), Failure: encodeFailure(err)},
			},
		})
		return nil
	}
	h.gathers[what] = r
	r.bytes += len(c.GetData()) - len(r.parts[n])
	r.parts[n], r.ids[n] = c.GetData(), c.GetId()
	h.settleOne(what, r)
	return nil
}

func (h *hub) withdraw(p *participant, w *pb.Withdraw) {
	n := p.node()
	if r := h.gathers[w.GetWhat()]; r != nil && r.ids[n] == w.GetId() {
		r.bytes -= len(r.parts[n])
		delete(r.parts, n)
		delete(r.ids, n)
		if len(r.ids) == 0 {
			delete(h.gathers, w.GetWhat())
		}
	}
}

// settle completes the rounds that no longer wait for any node.
func (h *hub) settle() {
	for what, r := range h.gathers {
		h.settleOne(what, r)
	}
}

func (h *hub) settleOne(what string, r *round) {
	for n := range h.participants {
		if _, gave := r.parts[n]; !gave && !h.members[n].GetDown() {
			return
		}
	}
	delete(h.gathers, what)
	var missing []uint32
	for n := range h.nodes() {
		if _, gave := r.parts[n]; !gave {
			missing = append(missing, uint32(n))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(r.ids)) {
		p, id := h.participants[n], r.ids[n]
		if p == nil {
			continue
		}
		for _, from := range slices.Sorted(maps.Keys(r.parts)) {
			p.Send(&pb.Message{
				Kind: &pb.Message_Part{
					Part: &pb.Part{Id: id, Node: uint32(from), Data: r.parts[from]},
				},
			})
		}
		p.Send(&pb.Message{
			Kind: &pb.Message_Gathered{Gathered: &pb.Gathered{Id: id, Missing: missing}},
		})
	}
}

// call is one gather of this node's. Its fields are guarded by the agent's mu until done is closed.
type call struct {
	what  string
	parts [][]byte
	err   error
	done  chan struct{}
}

func (a *agent) gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	if len(mine) > MaxPayload {
		return nil, &LimitError{fmt.Sprintf("gather %q", what), int64(len(mine)), MaxPayload}
	}
	if a.o.Nodes == 1 {
		return [][]byte{mine}, ctx.Err()
	}
	a.mu.Lock()
	switch {
	case a.closed:
		a.mu.Unlock()
		return nil, ErrClosed
	case a.up == nil:
		a.mu.Unlock()
		return nil,
			&GatherError{what, []int{0}, "node 0 is not connected, and gathers go through it"}
	}
	for _, c := range a.calls {
		if c.what == what {
			a.mu.Unlock()
			return nil, &GatherError{
				what,
				[]int{a.o.Node},
				"this node has a gather of that name in progress",
			}
		}
	}
	a.lastCall++
	id := a.lastCall
	c := &call{what: what, parts: make([][]byte, a.o.Nodes), done: make(chan struct{})}
	a.calls[id] = c
	a.up.Send(&pb.Message{
		Kind: &pb.Message_Contribution{
			Contribution: &pb.Contribution{Id: id, What: what, Data: mine},
		},
	})
	a.mu.Unlock()

	select {
	case <-c.done:
		return c.parts, c.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-c.done:
		return c.parts, c.err
	default:
	}
	delete(a.calls, id)
	if a.up != nil {
		a.up.Send(&pb.Message{
			Kind: &pb.Message_Withdraw{Withdraw: &pb.Withdraw{Id: id, What: what}},
		})
	}
	return nil, fmt.Errorf("gather %q: %w", what, ctx.Err())
}

// part stores one node's part, and gathered the end of a gather; both hold mu.
func (a *agent) part(p *pb.Part) {
	if c := a.calls[p.GetId()]; c != nil && int(p.GetNode()) < len(c.parts) {
		c.parts[p.GetNode()] = p.GetData()
		if p.GetData() == nil {
			c.parts[p.GetNode()] = []byte{} // contributed, but empty
		}
	}
}

func (a *agent) gathered(g *pb.Gathered) {
	c := a.calls[g.GetId()]
	if c == nil {
		return
	}
	delete(a.calls, g.GetId())
	switch {
	case g.GetFailure() != nil:
		c.parts, c.err = nil, decodeFailure(g.GetFailure())
	case len(g.GetMissing()) > 0:
		c.err = &GatherError{c.what, toInts(g.GetMissing()), "not alive"}
	}
	close(c.done)
}

// endCalls fails all gathers in progress; mu is held.
func (a *agent) endCalls(why func(what string) error) {
	for id, c := range a.calls {
		delete(a.calls, id)
		c.parts, c.err = nil, why(c.what)
		close(c.done)
	}
}
