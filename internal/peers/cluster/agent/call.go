package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// call is a gather, question or tell of this node's. Its fields are guarded by the agent's mu until
// done is closed.
type call struct {
	gathers string // the name of a gather; "": it is none
	parts   [][]byte
	missing []uint32
	err     error
	done    chan struct{}
}

// maxRounds limits the rounds whose parts have come and whose end has not.
const maxRounds = 1024

// part stores what nodes gave in a round; mu is held.
func (a *Agent) part(p *pb.Part) error {
	parts := a.rounds[p.GetRound()]
	if parts == nil {
		if len(a.rounds) == maxRounds {
			return session.ErrHandshake
		}
		parts = make([][]byte, a.o.Nodes)
		a.rounds[p.GetRound()] = parts
	}
	data := p.GetData()
	if data == nil {
		data = []byte{} // given, but empty
	}
	for _, n := range p.GetNodes() {
		if int(n) < len(parts) {
			parts[n] = data
		}
	}
	return nil
}

// gathered ends calls; mu is held.
func (a *Agent) gathered(g *pb.Gathered) {
	parts := a.rounds[g.GetRound()]
	delete(a.rounds, g.GetRound())
	for _, id := range g.GetIds() {
		c := a.calls[id]
		if c == nil {
			continue
		}
		delete(a.calls, id)
		c.missing = g.GetMissing()
		switch {
		case g.GetFailure() != nil:
			c.err = session.DecodeFailure(g.GetFailure())
		case parts == nil:
			c.parts = make([][]byte, a.o.Nodes)
		default:
			c.parts = slices.Clone(parts)
		}
		close(c.done)
	}
}

// begin sends a message with the ID that message is called with, and returns its call; nil: node 0
// is not connected. mu is held.
func (a *Agent) begin(gathers string, message func(id uint64) *pb.Message) (id uint64, c *call) {
	if a.closed || a.up == nil {
		return 0, nil
	}
	a.lastCall++
	c = &call{gathers: gathers, done: make(chan struct{})}
	a.calls[a.lastCall] = c
	a.up.Send(message(a.lastCall))
	return a.lastCall, c
}

// await waits for the end of a call. It reports whether the call ended, or gives it up because ctx
// did.
func (a *Agent) await(ctx context.Context, id uint64, c *call) (ended bool) {
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-c.done:
		return true
	default:
	}
	delete(a.calls, id)
	return false
}

// endCalls fails all calls in progress; mu is held.
func (a *Agent) endCalls(why func(what string) error) {
	for id, c := range a.calls {
		delete(a.calls, id)
		c.err = why(c.gathers)
		close(c.done)
	}
	clear(a.rounds)
}

// Gather is collective: every node calls it with the same name and its own bytes, and gets the
// bytes of all nodes, by number. A name should not be reused ("audit of epoch 3"), and a node can
// have only one gather of a name in progress. A node's bytes may count for the others even if its
// own ctx ended first.
//
// If nodes are missing, Gather returns a *GatherError together with what the others gave; the
// entries of the missing nodes are nil.
func (a *Agent) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	if len(mine) > cluster.MaxPayload {
		return nil, &cluster.LimitError{
			What:  fmt.Sprintf("gather %q", what),
			Size:  int64(len(mine)),
			Limit: cluster.MaxPayload,
		}
	}
	if a.o.Nodes == 1 {
		return [][]byte{mine}, ctx.Err()
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil, cluster.ErrClosed
	}
	for _, c := range a.calls {
		if c.gathers == what {
			a.mu.Unlock()
			return nil, &cluster.GatherError{
				What:    what,
				Missing: []int{a.o.Node},
				Why:     "this node has a gather of that name in progress",
			}
		}
	}
	id, c := a.begin(what, func(id uint64) *pb.Message {
		return &pb.Message{
			Kind: &pb.Message_Contribution{
				Contribution: &pb.Contribution{Id: id, What: what, Data: mine},
			},
		}
	})
	a.mu.Unlock()
	if c == nil {
		return nil, &cluster.GatherError{
			What:    what,
			Missing: []int{0},
			Why:     "node 0 is not connected, and gathers go through it",
		}
	}
	if !a.await(ctx, id, c) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.up != nil {
			a.up.Send(&pb.Message{
				Kind: &pb.Message_Withdraw{Withdraw: &pb.Withdraw{Id: id, What: what}},
			})
		}
		return nil, fmt.Errorf("gather %q: %w", what, ctx.Err())
	}
	if c.err == nil && len(c.missing) > 0 {
		c.err = &cluster.GatherError{
			What:    what,
			Missing: toInts(c.missing),
			Why:     "not alive",
		}
	}
	return c.parts, c.err
}
