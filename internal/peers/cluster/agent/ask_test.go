package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// answering forms a cluster whose nodes answer a question with their number and the question. The
// answer to "nothing" is nil, that to "long" is too long, and "wait" is answered when stop is
// closed or the node's cluster ends.
func answering(t *testing.T, l *lab) (clusters []*Agent, stop chan struct{}) {
	t.Helper()
	stop = make(chan struct{})
	clusters, errs := l.form(t.Context(), upTo(l.nodes), func(o *cluster.Options) {
		node := o.Node
		o.Answer = func(ctx context.Context, what string) []byte {
			switch word, _, _ := strings.Cut(what, " "); word {
			case "nothing":
				return nil
			case "long":
				return make([]byte, cluster.MaxAnswer+1)
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
		c.mu.Lock()
		if n := len(c.calls) + len(c.rounds); n > 0 {
			t.Errorf("%d questions are left", n)
		}
		c.mu.Unlock()
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
		clusters[2].mu.Lock()
		defer clusters[2].mu.Unlock()
		return clusters[2].replies == 2
	})
	clusters[2].kill()
	// Its stream has ended before, so node 0 does not wait for it.
	testkit.Until(t, "node 2 is gone", func() bool { return !clusters[0].Alive(2) })
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
		clusters[1].mu.Lock()
		defer clusters[1].mu.Unlock()
		return clusters[1].up == nil
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
	most := cluster.MaxQuestions(2)
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
