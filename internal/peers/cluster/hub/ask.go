package hub

import (
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// poll is a question to all nodes at node 0, and those who ask it: nodes that ask the same while
// the first waits for answers get the same ones. So it makes no difference to the number of
// messages whether one node asks or each does. It ends when all nodes have answered or are lost,
// and at the latest at the end of the time of the first that asked.
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
func (h *Hub) connected() nodeSet {
	all := nodeSet{}
	for n := range h.participants {
		if !h.members[n].GetDown() {
			all[n] = true
		}
	}
	return all
}

func (h *Hub) ask(p *participant, q *pb.Question) {
	asker := caller{p, q.GetId()}
	for _, other := range h.polls {
		if other.what == q.GetWhat() && len(other.askers) < cluster.MaxQuestions(h.nodes()) {
			other.askers = append(other.askers, asker)
			return
		}
	}
	if h.phase != running || len(h.polls) == cluster.MaxQuestions(h.nodes()) {
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
	within := min(time.Duration(q.GetWithinMs())*time.Millisecond, cluster.MaxQuestionTime)
	h.after(within, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finish(poll)
	})
}

// answer takes in p's answer.
func (h *Hub) answer(p *participant, a *pb.Answer) error {
	if len(a.GetData()) > cluster.MaxAnswer {
		return &cluster.LimitError{
			What: fmt.Sprintf("answer of node %d", p.node()), Size: int64(len(a.GetData())),
			Limit: cluster.MaxAnswer,
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
func (h *Hub) answered(q *poll, n int, data []byte) {
	if data != nil {
		q.answers[n] = data
	}
	if q.waits.drop(n); len(q.waits) == 0 {
		h.finish(q)
	}
}

func (h *Hub) finish(q *poll) {
	if h.polls[q.round] == q {
		delete(h.polls, q.round)
		h.give(q.round, q.answers, q.askers)
	}
}
