package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
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
			switch word, _, _ := strings.Cut(what, " "); word {
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
		if n := len(c.agent.calls) + len(c.agent.rounds); n > 0 {
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
	// The same question would get the first one's answers, if node 0 still waits for these.
	go func() { heard <- clusters[1].Ask(t.Context(), "wait longer") }()
	testkit.Until(t, "node 2 is asked", func() bool {
		clusters[2].agent.mu.Lock()
		defer clusters[2].agent.mu.Unlock()
		return clusters[2].agent.replies == 2
	})
	clusters[2].kill()
	testkit.Until(t, "node 2 is not waited for", func() bool {
		hub := clusters[0].agent.hub
		hub.mu.Lock()
		defer hub.mu.Unlock()
		for _, q := range hub.polls {
			return len(q.waits) == 2 && !q.waits[2]
		}
		return false
	})
	close(stop)
	if answers := <-heard; string(answers[0]) != "0: wait longer" || answers[2] != nil {
		t.Errorf("after a death: %q", answers)
	}
	if answers := clusters[0].Ask(t.Context(), "again"); string(answers[1]) != "1: again" ||
		answers[2] != nil {
		t.Errorf("with a dead node: %q", answers)
	}
	clusters[0].kill()
	testkit.Until(t, "node 1 has lost node 0", func() bool {
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
	for i := range most + 1 {
		go func() { heard <- clusters[0].Ask(t.Context(), fmt.Sprint("wait ", i))[1] }()
	}
	if first := <-heard; first != nil {
		t.Errorf("a question over the limit was answered: %q", first)
	}
	close(stop)
	for range most {
		if answer := <-heard; !strings.HasPrefix(string(answer), "1: wait ") {
			t.Errorf("a question was answered %q", answer)
		}
	}
}

// TestHubChecksQuestionsAndAnswers: before all nodes have joined there are no answers, long answers
// are refused, and answers to a question that is not asked are dropped.
func TestHubChecksQuestionsAndAnswers(t *testing.T) {
	d := newHarness(3)
	zero, one := d.participant(0, "x", 3), d.participant(1, "a", 3)
	question := &pb.Message{Kind: &pb.Message_Question{Question: &pb.Question{Id: 5, What: "w"}}}
	for _, p := range []*participant{zero, one} {
		d.hub.attach(p)
	}
	d.said = nil
	if err := d.hub.receive(one, question); err != nil {
		t.Error(err)
	}
	d.expect(t, "before all are there", "1.a <- Gathered missing [0 1 2]")
	if err := d.hub.receive(zero, answerOf(5, strings.Repeat("x", MaxAnswer+1))); !errors.As(err,
		new(*LimitError)) {
		t.Errorf("an answer that is too long: %v", err)
	}
	for _, round := range []uint64{0, 5, 1<<64 - 1} {
		if err := d.hub.receive(zero, answerOf(round, "x")); err != nil {
			t.Error(err)
		}
	}
	d.expect(t, "answers to no question")
}

func answerOf(round uint64, data string) *pb.Message {
	return &pb.Message{Kind: &pb.Message_Answer{
		Answer: &pb.Answer{Round: round, Data: []byte(data)},
	}}
}

// TestNodesThatAskTheSameShareTheAnswers: each node is asked once, and the answers are sent to each
// asking node once, however often it asks; a node that is gone, and one that answers after the time
// of the first question, has none.
func TestNodesThatAskTheSameShareTheAnswers(t *testing.T) {
	d, nodes := runningHarness(t, 3)
	ask := func(p *participant, id uint64) {
		_ = d.hub.receive(p, &pb.Message{Kind: &pb.Message_Question{
			Question: &pb.Question{Id: id, What: "w", WithinMs: 1000},
		}})
	}
	ask(nodes[1], 7)
	d.expect(t, "the first", "0.x <- Question", "1.a <- Question", "2.a <- Question")
	ask(nodes[0], 4)
	ask(nodes[1], 8)
	d.expect(t, "others ask the same")
	round := last(nodes[2]).GetQuestion().GetId()
	_ = d.hub.receive(nodes[0], answerOf(round, "zero's"))
	_ = d.hub.receive(nodes[1], answerOf(round, "one's"))
	_ = d.hub.receive(nodes[1], answerOf(round, "another"))
	d.expect(t, "two of three answer")
	d.hub.down(2, "a")
	d.expect(t, "the third is gone", "0.x <- Down 2.a", "1.a <- Down 2.a", "2.a <- Down 2.a",
		"1.a <- Part", "1.a <- Part", "1.a <- Gathered missing [2]",
		"0.x <- Part", "0.x <- Part", "0.x <- Gathered missing [2]")
	if ids := last(nodes[1]).GetGathered().GetIds(); !slices.Equal(ids, []uint64{7, 8}) {
		t.Errorf("node 1 gets the answers to its questions %d", ids)
	}
	ask(nodes[1], 9)
	d.said = nil
	_ = d.hub.receive(nodes[1], answerOf(last(nodes[1]).GetQuestion().GetId(), "one's"))
	d.fireTimers()
	d.expect(t, "node 0 is late", "1.a <- Part", "1.a <- Gathered missing [0 2]")
}

// TestNodeThatConnectsAgainIsNotWaitedFor: it was asked and told on its former stream, on which
// nothing comes any more. Later questions go to its new one.
func TestNodeThatConnectsAgainIsNotWaitedFor(t *testing.T) {
	d, nodes := runningHarness(t, 3)
	question := &pb.Message{Kind: &pb.Message_Question{Question: &pb.Question{Id: 7, What: "w"}}}
	_ = d.hub.receive(nodes[1], question)
	round := last(nodes[2]).GetQuestion().GetId()
	_ = d.hub.receive(nodes[1], &pb.Message{Kind: &pb.Message_Tell{Tell: &pb.Tell{Id: 8}}})
	d.hub.mu.Lock()
	d.hub.spread()
	d.hub.mu.Unlock()
	for _, p := range nodes[:2] {
		_ = d.hub.receive(p, answerOf(round, "x"))
		_ = d.hub.receive(p, &pb.Message{Kind: &pb.Message_Heard{
			Heard: &pb.Heard{Round: round + 1},
		}})
	}
	d.said = nil
	again := d.participant(2, "a", 3)
	d.hub.attach(again)
	d.expect(t, "node 2 connects again", "1.a <- Part", "1.a <- Gathered missing [2]",
		"1.a <- Gathered missing [2]", "2.a <- Accepted", "2.a <- Welcome",
		"2.a <- Member 0.x down=false", "2.a <- Member 1.a down=false",
		"2.a <- Member 2.a down=true", "2.a <- Complete")
	d.hub.detach(nodes[2])
	_ = d.hub.receive(again, readyMessage)
	d.said = nil
	_ = d.hub.receive(nodes[1], question)
	d.expect(t, "the same question", "0.x <- Question", "1.a <- Question", "2.a <- Question")
}

// TestAskersOfAQuestionAreLimited: as questions are.
func TestAskersOfAQuestionAreLimited(t *testing.T) {
	d, nodes := runningHarness(t, 2)
	for id := range maxQuestions(2) {
		_ = d.hub.receive(nodes[1], &pb.Message{Kind: &pb.Message_Question{
			Question: &pb.Question{Id: uint64(id), What: "w"},
		}})
	}
	d.said = nil
	_ = d.hub.receive(nodes[0], &pb.Message{Kind: &pb.Message_Question{
		Question: &pb.Question{Id: 1, What: "w"},
	}})
	d.expect(t, "one more", "0.x <- Question", "1.a <- Question")
}
