package hub

import (
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// Own is the link of node 0's own agent to the hub.
type Own struct {
	hub         *Hub
	participant *participant
}

// Send passes a message to the hub.
func (o *Own) Send(m *pb.Message) { _ = o.hub.receive(o.participant, m) }

// Close does nothing: the link ends with the hub.
func (o *Own) Close() {}

// AttachOwn makes node 0's own agent the first participant; listen is where node 0 listens.
func (h *Hub) AttachOwn(l Link, listen string) *Own {
	p := &participant{Link: l, seen: listen, reg: h.own}
	h.attach(p)
	return &Own{h, p}
}

// Attend serves a node's session until it ends.
func (h *Hub) Attend(c *session.Accepted) {
	p := &participant{Link: c, seen: c.Seen, local: c.Local, reg: c.Register}
	h.attach(p)
	c.Run(func(m *pb.Message) error { return h.receive(p, m) }, func() { h.detach(p) })
}

// CloseLinks closes all links, so that streams end after what was sent was flushed.
func (h *Hub) CloseLinks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.participants {
		p.Close()
	}
	for _, p := range h.contest {
		p.Close()
	}
}
