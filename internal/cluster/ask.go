package cluster

import (
	"context"
	"fmt"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
)

// MaxAnswer is the largest answer, in bytes.
const MaxAnswer = 1 << 20

// maxQuestions is how many questions of other nodes a node answers at a time; further ones get no
// answer.
func (o *Options) maxQuestions() int { return 64 + 4*o.Nodes }

// ask forwards p's question. The hub keeps no state of it: an answer names the node that asked.
func (h *hub) ask(p *participant, q *pb.Question) {
	for n := range h.nodes() {
		other := h.participants[n]
		switch {
		case other == p:
		case other == nil || h.phase != running:
			p.Send(&pb.Message{
				Kind: &pb.Message_Answer{
					Answer: &pb.Answer{Id: q.GetId(), Node: uint32(n), None: true},
				},
			})
		default:
			other.Send(&pb.Message{
				Kind: &pb.Message_Question{
					Question: &pb.Question{
						Id:   q.GetId(),
						Node: uint32(p.node()),
						What: q.GetWhat(),
					},
				},
			})
		}
	}
}

// answer forwards p's answer to the node that asked, if it is still connected.
func (h *hub) answer(p *participant, a *pb.Answer) error {
	if len(a.GetData()) > MaxAnswer {
		return &LimitError{
			fmt.Sprintf("answer of node %d", p.node()), int64(len(a.GetData())),
			MaxAnswer,
		}
	}
	if asked := h.participants[int(a.GetNode())]; asked != nil && asked != p {
		asked.Send(&pb.Message{
			Kind: &pb.Message_Answer{
				Answer: &pb.Answer{
					Id:   a.GetId(),
					Node: uint32(p.node()),
					Data: a.GetData(),
					None: a.GetNone(),
				},
			},
		})
	}
	return nil
}

// query is one question of this node's. Its fields are guarded by the agent's mu until done is
// closed.
type query struct {
	answers [][]byte
	waits   map[int]bool // nodes that have not answered
	done    chan struct{}
}

func (a *agent) ask(ctx context.Context, what string) [][]byte {
	q := &query{
		answers: make([][]byte, a.o.Nodes),
		waits:   map[int]bool{},
		done:    make(chan struct{}),
	}
	a.mu.Lock()
	if a.closed || a.up == nil {
		a.mu.Unlock()
		return q.answers
	}
	for n := range a.o.Nodes {
		if n != a.o.Node {
			q.waits[n] = true
		}
	}
	a.lastCall++
	id := a.lastCall
	a.queries[id] = q
	a.up.Send(&pb.Message{Kind: &pb.Message_Question{Question: &pb.Question{Id: id, What: what}}})
	a.mu.Unlock()

	select {
	case <-q.done:
		return q.answers
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.queries, id)
	return q.answers
}

// answered handles a node's answer; mu is held.
func (a *agent) answered(m *pb.Answer) {
	if q := a.queries[m.GetId()]; q != nil {
		data := m.GetData()
		if data == nil && !m.GetNone() {
			data = []byte{} // answered, but empty
		}
		a.settle(m.GetId(), int(m.GetNode()), data)
	}
}

// settle stores a node's answer to a query, nil for none; the last one completes it. mu is held.
func (a *agent) settle(id uint64, n int, data []byte) {
	q := a.queries[id]
	if !q.waits[n] {
		return
	}
	q.answers[n] = data
	delete(q.waits, n)
	if len(q.waits) == 0 {
		delete(a.queries, id)
		close(q.done)
	}
}

// unanswered gives up waiting for the answers of the nodes for which gone is true; mu is held.
func (a *agent) unanswered(gone func(n int) bool) {
	for id, q := range a.queries {
		for n := range q.waits {
			if gone(n) {
				a.settle(id, n, nil)
			}
		}
	}
}

// reply answers a question in its own goroutine; mu is held.
func (a *agent) reply(q *pb.Question) {
	up := a.up
	if up == nil {
		return
	}
	send := func(m *pb.Answer) {
		m.Id, m.Node = q.GetId(), q.GetNode()
		up.Send(&pb.Message{Kind: &pb.Message_Answer{Answer: m}})
	}
	if a.closed || a.o.Answer == nil || a.replies == a.o.maxQuestions() {
		send(&pb.Answer{None: true})
		return
	}
	a.replies++
	a.tasks.Go(func() {
		data := a.o.Answer(a.life, q.GetWhat())
		if data == nil || len(data) > MaxAnswer {
			send(&pb.Answer{None: true})
		} else {
			send(&pb.Answer{Data: data})
		}
		a.mu.Lock()
		a.replies--
		a.mu.Unlock()
	})
}
