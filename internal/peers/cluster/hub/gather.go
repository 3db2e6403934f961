package hub

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

const maxGathers = 64 // open at a time

// round is one gather at node 0: open from the first contribution until every node that is up and
// has a stream has contributed. Nodes that are down are not waited for, unless they rejoin before
// the end. INVARIANT: parts and ids have the same keys, except for nodes that were lost after they
// contributed.
type round struct {
	number uint64
	parts  map[int][]byte
	ids    map[int]uint64 // of the calls to answer
	bytes  int            // of all parts
}

func (h *Hub) contribute(p *participant, c *pb.Contribution) error {
	n, what := p.node(), c.GetWhat()
	r := h.gathers[what]
	if r == nil {
		h.lastRound++
		r = &round{number: h.lastRound, parts: map[int][]byte{}, ids: map[int]uint64{}}
	}
	var err error
	switch {
	case h.phase != running:
		err = &cluster.GatherError{
			What:    what,
			Missing: h.missing(),
			Why:     "not all nodes have joined",
		}
	case len(c.GetData()) > cluster.MaxPayload:
		return &cluster.LimitError{
			What: fmt.Sprintf("gather %q of node %d", what, n), Size: int64(len(c.GetData())),
			Limit: cluster.MaxPayload,
		}
	case r.bytes+len(c.GetData()) > cluster.MaxTotal:
		err = &cluster.LimitError{
			What: fmt.Sprintf("gather %q of all nodes together", what),
			Size: int64(r.bytes + len(c.GetData())), Limit: cluster.MaxTotal,
		}
	case h.gathers[what] == nil && len(h.gathers) == maxGathers:
		err = &cluster.GatherError{
			What:    what,
			Missing: []int{n},
			Why:     fmt.Sprintf("%d gathers are open already", maxGathers),
		}
	}
	if err != nil {
		p.Send(&pb.Message{
			Kind: &pb.Message_Gathered{
				Gathered: &pb.Gathered{Ids: []uint64{c.GetId()}, Failure: session.EncodeFailure(err)},
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

func (h *Hub) withdraw(p *participant, w *pb.Withdraw) {
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

// settle completes what no longer waits for any node, after a node was lost.
func (h *Hub) settle(lost int) {
	for what, r := range h.gathers {
		h.settleOne(what, r)
	}
	h.unheard(lost)
}

// unheard ends the waits for a node's answers and confirmations: its stream, on which they would
// have come, has ended.
func (h *Hub) unheard(n int) {
	for _, q := range h.polls {
		h.answered(q, n, nil)
	}
	for _, t := range h.tells {
		t.waits.drop(n)
		h.endRound(t)
	}
}

func (h *Hub) settleOne(what string, r *round) {
	for n := range h.participants {
		if _, gave := r.parts[n]; !gave && !h.members[n].GetDown() {
			return
		}
	}
	delete(h.gathers, what)
	var calls []caller
	for _, n := range slices.Sorted(maps.Keys(r.ids)) {
		if p := h.participants[n]; p != nil {
			calls = append(calls, caller{p, r.ids[n]})
		}
	}
	h.give(r.number, r.parts, calls)
}

// caller is a node's gather, question or tell.
type caller struct {
	*participant
	id uint64
}

// give ends calls with what nodes gave in a round. The callers are first sent which nodes are gone.
func (h *Hub) give(round uint64, parts map[int][]byte, calls []caller) {
	h.sayDowns()
	var missing []uint32
	for n := range h.nodes() {
		if _, gave := parts[n]; !gave {
			missing = append(missing, uint32(n))
		}
	}
	ids := map[*participant][]uint64{}
	for _, c := range calls {
		ids[c.participant] = append(ids[c.participant], c.id)
	}
	var results *session.Pack
	if len(parts) > 0 {
		results = partsOf(round, parts)
	}
	for _, c := range calls {
		if ids[c.participant] == nil || h.participants[c.node()] != c.participant {
			continue
		}
		if results != nil {
			c.SendPack(results)
		}
		c.Send(&pb.Message{Kind: &pb.Message_Gathered{
			Gathered: &pb.Gathered{Ids: ids[c.participant], Missing: missing, Round: round},
		}})
		ids[c.participant] = nil
	}
}

// mostEqual is the size up to which parts are compared, to send equal ones once.
const mostEqual = 16 << 10

// partsOf returns the messages with what nodes gave in a round.
func partsOf(round uint64, parts map[int][]byte) *session.Pack {
	var all []*pb.Message
	equal := map[string]*pb.Part{}
	for _, n := range slices.Sorted(maps.Keys(parts)) {
		data := parts[n]
		part := equal[string(data)]
		if part == nil {
			part = &pb.Part{Round: round, Data: data}
			all = append(all, &pb.Message{Kind: &pb.Message_Part{Part: part}})
			if len(data) <= mostEqual {
				equal[string(data)] = part
			}
		}
		part.Nodes = append(part.Nodes, uint32(n))
	}
	return session.NewPack(all...)
}
