package hub

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

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
	long := answerOf(5, strings.Repeat("x", cluster.MaxAnswer+1))
	if err := d.hub.receive(zero, long); !errors.As(err, new(*cluster.LimitError)) {
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
	d.hub.Down(2, "a")
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

// TestNodeThatConnectsAgainIsNotWaitedFor: a question and news went to its former stream, on which
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
	for id := range cluster.MaxQuestions(2) {
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
