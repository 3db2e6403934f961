package hub

import (
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
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

// News of a node for the others.
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

func (h *Hub) tell(p *participant, t *pb.Tell) error {
	if len(t.GetWhat()) > cluster.MaxPayload {
		return &cluster.LimitError{
			What:  fmt.Sprintf("news of node %d", p.node()),
			Size:  int64(len(t.GetWhat())),
			Limit: cluster.MaxPayload,
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
func (h *Hub) spread() {
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
	packed := session.NewPack(&pb.Message{Kind: &pb.Message_News{News: news}})
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
func (h *Hub) heard(p *participant, m *pb.Heard) {
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
func (h *Hub) endRound(t *telling) {
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
