package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/proctest"
)

// answering forms a cluster whose nodes answer a question with their number and the question. The
// answer to "nothing" is nil, that to "long" is too long, and "wait" is answered when stop is
// closed or the node's cluster ends.
func answering(t *testing.T, l *lab) (clusters []*Cluster, stop chan struct{}) {
	t.Helper()
	stop = make(chan struct{})
	clusters, errs := l.form(t.Context(), upTo(l.nodes), func(o *Options) {
		node := o.Node
		o.Answer = func(ctx context.Context, what string) []byte {
			switch what {
			case "nothing":
				return nil
			case "long":
				return make([]byte, MaxAnswer+1)
			case "empty":
				return []byte{}
			case "wait":
				select {
				case <-stop:
				case <-ctx.Done():
				}
			}
			return fmt.Appendf(nil, "%d: %s", node, what)
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return clusters, stop
}

// TestAskReturnsEveryNodesAnswer: under the node's number, for any asking node and many questions
// at a time.
func TestAskReturnsEveryNodesAnswer(t *testing.T) {
	clusters, _ := answering(t, newLab(t, 4))
	asked := make(chan error)
	for i, c := range clusters {
		for round := range 10 {
			go func() {
				what := fmt.Sprintf("question %d of node %d", round, i)
				for n, answer := range c.Ask(t.Context(), what) {
					want := fmt.Sprintf("%d: %s", n, what)
					if n == i {
						want = ""
					}
					if string(answer) != want {
						asked <- fmt.Errorf("node %d got of node %d %q, want %q", i, n, answer,
							want)
						return
					}
				}
				asked <- nil
			}()
		}
	}
	for range 40 {
		if err := <-asked; err != nil {
			t.Error(err)
		}
	}
	for _, what := range []string{"nothing", "long"} {
		if answers := clusters[1].Ask(t.Context(), what); len(answers) != 4 ||
			len(bytes.Join(answers, nil)) != 0 || answers[0] != nil {
			t.Errorf("%s: %q", what, answers)
		}
	}
	if answers := clusters[1].Ask(t.Context(), "empty"); answers[0] == nil || answers[1] != nil ||
		answers[3] == nil {
		t.Errorf("an empty answer was taken for none: %q", answers)
	}
	for _, c := range clusters {
		c.agent.mu.Lock()
		if n := len(c.agent.queries); n > 0 {
			t.Errorf("%d questions are left", n)
		}
		c.agent.mu.Unlock()
	}
}

// TestAskDoesNotWaitForSilentNodes: a node that does not answer delays Ask at most until ctx ends,
// a dead node not at all, and a late answer does no harm.
func TestAskDoesNotWaitForSilentNodes(t *testing.T) {
	clusters, stop := answering(t, newLab(t, 3))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if answers := clusters[1].Ask(ctx, "wait"); answers[0] != nil || answers[2] != nil {
		t.Errorf("it was answered: %q", answers)
	}
	heard := make(chan [][]byte, 1)
	go func() { heard <- clusters[1].Ask(t.Context(), "wait") }()
	proctest.Until(t, "node 2 is asked", func() bool {
		clusters[2].agent.mu.Lock()
		defer clusters[2].agent.mu.Unlock()
		return clusters[2].agent.replies == 2
	})
	clusters[2].kill()
	proctest.Until(t, "node 1 waits for node 0 alone", func() bool {
		clusters[1].agent.mu.Lock()
		defer clusters[1].agent.mu.Unlock()
		for _, q := range clusters[1].agent.queries {
			return len(q.waits) == 1 && q.waits[0]
		}
		return false
	})
	close(stop)
	if answers := <-heard; string(answers[0]) != "0: wait" || answers[2] != nil {
		t.Errorf("after a death: %q", answers)
	}
	if answers := clusters[0].Ask(t.Context(), "again"); string(answers[1]) != "1: again" ||
		answers[2] != nil {
		t.Errorf("with a dead node: %q", answers)
	}
	clusters[0].kill()
	proctest.Until(t, "node 1 has lost node 0", func() bool {
		clusters[1].agent.mu.Lock()
		defer clusters[1].agent.mu.Unlock()
		return clusters[1].agent.up == nil
	})
	for n, answer := range clusters[1].Ask(t.Context(), "a question") {
		if answer != nil {
			t.Errorf("node %d answers %q without node 0", n, answer)
		}
	}
}

// TestConcurrentQuestionsAreLimited: questions over the limit get no answer.
func TestConcurrentQuestionsAreLimited(t *testing.T) {
	clusters, stop := answering(t, newLab(t, 2))
	heard := make(chan []byte)
	most := clusters[1].agent.o.maxQuestions()
	for range most + 1 {
		go func() { heard <- clusters[0].Ask(t.Context(), "wait")[1] }()
	}
	if first := <-heard; first != nil {
		t.Errorf("a question over the limit was answered: %q", first)
	}
	close(stop)
	for range most {
		if string(<-heard) != "1: wait" {
			t.Error("a question was not answered")
		}
	}
}

// TestHubChecksQuestionsAndAnswers: before all nodes have joined there are no answers, long answers
// are refused, and answers to nodes that are not connected are dropped.
func TestHubChecksQuestionsAndAnswers(t *testing.T) {
	d := newHarness(3)
	participants := []*participant{
		d.participant(0, "x", 3), d.participant(1, "a", 3),
		d.participant(2, "b", 3),
	}
	question := &pb.Message{Kind: &pb.Message_Question{Question: &pb.Question{Id: 5, What: "w"}}}
	for _, p := range participants[:2] {
		d.hub.attach(p)
	}
	if err := d.hub.receive(participants[1], question); err != nil {
		t.Error(err)
	}
	if got := participants[1].link.(*recordingLink).got; len(got) != 3 ||
		!got[1].GetAnswer().GetNone() || !got[2].GetAnswer().GetNone() {
		t.Errorf("before all are there: %v", got)
	}
	long := &pb.Message{
		Kind: &pb.Message_Answer{
			Answer: &pb.Answer{Id: 5, Node: 1, Data: []byte(strings.Repeat("x", MaxAnswer+1))},
		},
	}
	if err := d.hub.receive(participants[0], long); !errors.As(err, new(*LimitError)) {
		t.Errorf("an answer that is too long: %v", err)
	}
	// itself, a node that is not connected, and ones that do not exist
	for _, node := range []uint32{0, 2, 7, 1<<32 - 1} {
		said := len(d.said)
		if err := d.hub.receive(participants[0],
			&pb.Message{
				Kind: &pb.Message_Answer{Answer: &pb.Answer{Id: 5, Node: node}},
			}); err != nil || len(d.said) != said {
			t.Errorf("an answer to node %d: %v, %v", node, err, d.said[said:])
		}
	}
}
