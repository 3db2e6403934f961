package cluster

import (
	"context"
	"fmt"
	"time"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

const (
	// tellPause is how long news waits at node 0 for that of other nodes, with which it is sent on:
	// when ranks fail, those of all nodes often do at the same time.
	tellPause = 2 * time.Millisecond
	// tellBytes is how much news waits at most.
	tellBytes = 1 << 20
	// hearTime is how long node 0 waits for nodes to confirm that they have the news.
	hearTime = 1500 * time.Millisecond
)

// told is what a node tells the others.
type told struct {
	caller
	what []byte
}

// telling is a round of news at node 0, until all nodes have confirmed it, are lost, or hearTime
// has passed.
type telling struct {
	round   uint64
	items   []told
	waits   nodeSet
	heard   nodeSet
	refused map[int][]uint32 // by item, the nodes that refused it
}

func (h *hub) tell(p *participant, t *pb.Tell) error {
	if len(t.GetWhat()) > MaxPayload {
		return &LimitError{
			fmt.Sprintf("news of node %d", p.node()), int64(len(t.GetWhat())), MaxPayload,
		}
	}
	if h.phase != running {
		h.give(0, nil, []caller{{p, t.GetId()}})
		return nil
	}
	if h.pending = append(h.pending, told{caller{p, t.GetId()}, t.GetWhat()}); len(h.pending) == 1 {
		h.after(tellPause, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.spread()
		})
	}
	bytes := 0
	for _, item := range h.pending {
		bytes += len(item.what)
	}
	if bytes > tellBytes {
		h.spread()
	}
	return nil
}

// spread sends all nodes the news that waits.
func (h *hub) spread() {
	if len(h.pending) == 0 {
		return
	}
	h.lastRound++
	t := &telling{
		round: h.lastRound, items: h.pending, waits: h.connected(), heard: nodeSet{},
		refused: map[int][]uint32{},
	}
	h.pending = nil
	h.tells[t.round] = t
	news := &pb.News{Round: t.round}
	for _, item := range t.items {
		news.Items = append(news.Items, &pb.News_Item{Node: uint32(item.node()), What: item.what})
	}
	packed := newPack(&pb.Message{Kind: &pb.Message_News{News: news}})
	for n := range t.waits {
		h.participants[n].SendPack(packed)
	}
	h.after(hearTime, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		clear(t.waits)
		h.endRound(t)
	})
	h.endRound(t)
}

// heard notes that p has the news of a round.
func (h *hub) heard(p *participant, m *pb.Heard) {
	t := h.tells[m.GetRound()]
	if t == nil || !t.waits[p.node()] {
		return
	}
	t.heard[p.node()] = true
	t.waits.drop(p.node())
	for _, i := range m.GetRefused() {
		if int(i) < len(t.items) {
			t.refused[int(i)] = append(t.refused[int(i)], uint32(p.node()))
		}
	}
	h.endRound(t)
}

// endRound ends a round of news that waits for no node.
func (h *hub) endRound(t *telling) {
	if len(t.waits) > 0 || h.tells[t.round] != t {
		return
	}
	delete(h.tells, t.round)
	var deaf []uint32
	for n := range h.nodes() {
		if !t.heard[n] {
			deaf = append(deaf, uint32(n))
		}
	}
	for i, item := range t.items {
		if h.participants[item.node()] == item.participant {
			item.Send(&pb.Message{Kind: &pb.Message_Gathered{Gathered: &pb.Gathered{
				Ids: []uint64{item.id}, Missing: append(deaf[:len(deaf):len(deaf)], t.refused[i]...),
			}}})
		}
	}
}

func (a *agent) tell(ctx context.Context, what []byte) (heard []bool) {
	heard = make([]bool, a.o.Nodes)
	if len(what) > MaxPayload {
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
func (a *agent) news(m *pb.News) {
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
