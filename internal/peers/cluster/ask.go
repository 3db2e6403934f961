package cluster

import (
	"context"
	"fmt"
	"time"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

const (
	// MaxAnswer is the largest answer, in bytes.
	MaxAnswer = 1 << 20
	// longestQuestion is how long a question can wait for answers.
	longestQuestion = 10 * time.Minute
)

// maxQuestions is how many questions and news of other nodes a node handles at a time, and how many
// questions node 0 puts to the nodes; further ones get no answer.
func (o *Options) maxQuestions() int { return maxQuestions(o.Nodes) }

func maxQuestions(nodes int) int { return 64 + 4*nodes }

// poll is a question to all nodes at node 0, and those who ask it: nodes that ask the same while
// the first waits for answers get the same ones. So it makes no difference to the number of
// messages whether one node asks or each does. It ends when all nodes have answered or are lost,
// and at the latest when the first that asked wants a reply.
type poll struct {
	round   uint64
	what    string
	askers  []caller
	answers map[int][]byte
	waits   nodeSet // nodes that have not answered
}

// nodeSet is a set of nodes.
type nodeSet map[int]bool

func (s nodeSet) drop(n int) { delete(s, n) }

// connected returns the nodes that have a stream and are not known to be gone.
func (h *hub) connected() nodeSet {
	all := nodeSet{}
	for n := range h.participants {
		if !h.members[n].GetDown() {
			all[n] = true
		}
	}
	return all
}

func (h *hub) ask(p *participant, q *pb.Question) {
	asker := caller{p, q.GetId()}
	for _, other := range h.polls {
		if other.what == q.GetWhat() && len(other.askers) < maxQuestions(h.nodes()) {
			other.askers = append(other.askers, asker)
			return
		}
	}
	if h.phase != running || len(h.polls) == maxQuestions(h.nodes()) {
		h.give(0, nil, []caller{asker})
		return
	}
	h.lastRound++
	poll := &poll{
		round: h.lastRound, what: q.GetWhat(), askers: []caller{asker}, answers: map[int][]byte{},
		waits: h.connected(),
	}
	h.polls[poll.round] = poll
	h.all(&pb.Message{
		Kind: &pb.Message_Question{Question: &pb.Question{Id: poll.round, What: poll.what}},
	}, nil)
	within := min(time.Duration(q.GetWithinMs())*time.Millisecond, longestQuestion)
	h.after(within, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finish(poll)
	})
}

// answer takes in p's answer.
func (h *hub) answer(p *participant, a *pb.Answer) error {
	if len(a.GetData()) > MaxAnswer {
		return &LimitError{
			fmt.Sprintf("answer of node %d", p.node()), int64(len(a.GetData())),
			MaxAnswer,
		}
	}
	if q := h.polls[a.GetRound()]; q != nil && q.waits[p.node()] {
		data := a.GetData()
		if data == nil && !a.GetNone() {
			data = []byte{} // answered, but empty
		}
		h.answered(q, p.node(), data)
	}
	return nil
}

// answered notes a node's answer, nil for none; the last one completes the poll.
func (h *hub) answered(q *poll, n int, data []byte) {
	if data != nil {
		q.answers[n] = data
	}
	if q.waits.drop(n); len(q.waits) == 0 {
		h.finish(q)
	}
}

func (h *hub) finish(q *poll) {
	if h.polls[q.round] == q {
		delete(h.polls, q.round)
		h.give(q.round, q.answers, q.askers)
	}
}

func (a *agent) ask(ctx context.Context, what string) [][]byte {
	within := longestQuestion
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
func (a *agent) reply(q *pb.Question) {
	send := func(up uplink, data []byte) {
		m := &pb.Answer{Round: q.GetId(), Data: data, None: data == nil}
		if len(data) > MaxAnswer {
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
func (a *agent) respond(can bool, f func(up uplink)) bool {
	if !can || a.closed || a.replies == a.o.maxQuestions() {
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
