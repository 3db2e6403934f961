package agent

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// Ask sends a question to all other nodes, through node 0, and returns what their Options.Answer
// returned, by number. The entry is nil for this node, and for nodes that are gone, have no answer,
// or did not answer in nine tenths of the time until ctx ends. Nodes that ask the same while a
// question waits for answers share these, and its time.
func (a *Agent) Ask(ctx context.Context, what string) [][]byte {
	within := cluster.MaxQuestionTime
	if end, ok := ctx.Deadline(); ok {
		within = min(time.Until(end)*9/10, within) // so that answers that come in time are not lost
	}
	a.mu.Lock()
	id, c := a.begin("", func(id uint64) *pb.Message {
		return &pb.Message{Kind: &pb.Message_Question{Question: &pb.Question{
			Id: id, What: what, WithinMs: uint32(max(0, within.Milliseconds())),
		}}}
	})
	a.mu.Unlock()
	if c == nil || !a.await(ctx, id, c) || c.err != nil {
		return make([][]byte, a.o.Nodes)
	}
	c.parts[a.o.Node] = nil
	return c.parts
}

// reply answers a question in its own goroutine; mu is held.
func (a *Agent) reply(q *pb.Question) {
	send := func(up uplink, data []byte) {
		m := &pb.Answer{Round: q.GetId(), Data: data, None: data == nil}
		if len(data) > cluster.MaxAnswer {
			m.Data, m.None = nil, true
		}
		up.Send(&pb.Message{Kind: &pb.Message_Answer{Answer: m}})
	}
	if !a.respond(a.o.Answer != nil, func(up uplink) {
		send(up, a.o.Answer(a.life, q.GetWhat()))
	}) {
		send(a.up, nil)
	}
}

// respond calls f with the link to node 0 in a goroutine, if this node can respond and does not do
// so to too many already; otherwise it returns false. mu is held, and node 0 connected.
func (a *Agent) respond(can bool, f func(up uplink)) bool {
	if !can || a.closed || a.replies == cluster.MaxQuestions(a.o.Nodes) {
		return false
	}
	up := a.up
	a.replies++
	a.tasks.Go(func() {
		f(up)
		a.mu.Lock()
		a.replies--
		a.mu.Unlock()
	})
	return true
}
