package agent

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// Tell sends all other nodes news, through node 0, and returns which of them have taken it in
// (Options.Hear), by number; this node counts as one. It takes 1.5 s if a node does not respond.
// News of more than MaxPayload bytes is not sent.
func (a *Agent) Tell(ctx context.Context, what []byte) (heard []bool) {
	heard = make([]bool, a.o.Nodes)
	if len(what) > cluster.MaxPayload {
		return heard
	}
	a.mu.Lock()
	id, c := a.begin("", func(id uint64) *pb.Message {
		return &pb.Message{Kind: &pb.Message_Tell{Tell: &pb.Tell{Id: id, What: what}}}
	})
	a.mu.Unlock()
	if c == nil || !a.await(ctx, id, c) || c.err != nil {
		return heard
	}
	for n := range heard {
		heard[n] = true
	}
	for _, n := range c.missing {
		if int(n) < len(heard) {
			heard[n] = false
		}
	}
	return heard
}

// news takes in a round of news, in its own goroutine; mu is held.
func (a *Agent) news(m *pb.News) {
	send := func(up uplink, hear func(what []byte) bool) {
		heard := &pb.Heard{Round: m.GetRound()}
		for i, item := range m.GetItems() {
			if int(item.GetNode()) != a.o.Node && !hear(item.GetWhat()) {
				heard.Refused = append(heard.Refused, uint32(i))
			}
		}
		up.Send(&pb.Message{Kind: &pb.Message_Heard{Heard: heard}})
	}
	if !a.respond(a.o.Hear != nil, func(up uplink) { send(up, a.o.Hear) }) {
		send(a.up, func([]byte) bool { return false })
	}
}
