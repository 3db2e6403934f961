package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/agent"
)

// asked is nodes in memory and in virtual time, which take in all news, and answer questions with
// their number: "wait" once the test lets them.
type asked struct {
	t        *testing.T
	network  *networktest.Network
	hosts    []*networktest.Host
	clusters []*agent.Agent
	answers  chan struct{} // closed when "wait" is to be answered
}

// formAsked forms a cluster over a network. It must be called in a synctest bubble.
func formAsked(t *testing.T, network *networktest.Network, nodes int) *asked {
	t.Helper()
	a := &asked{t: t, network: network, answers: make(chan struct{})}
	secret := auth.Secret(auth.Nonce())
	a.hosts, a.clusters = make([]*networktest.Host, nodes), make([]*agent.Agent, nodes)
	var all sync.WaitGroup
	for n := range nodes {
		a.hosts[n] = network.Host(ip(n))
		o := cluster.Options{
			Job: "job", Node: n, Nodes: nodes, WorldSize: nodes, Ranks: []int{n}, Secret: secret,
			Network: a.hosts[n], Exchange: ip(n) + ":7000", Join: ip(0) + ":6000",
			Listen: ip(0) + ":6000",
			Hear:   func([]byte) bool { return true },
			Answer: func(ctx context.Context, what string) []byte {
				if what == "wait" {
					select {
					case <-a.answers:
					case <-ctx.Done():
					}
				}
				return fmt.Append(nil, n)
			},
		}
		all.Go(func() {
			var err error
			if a.clusters[n], err = agent.Form(t.Context(), o); err != nil {
				t.Errorf("node %d: %v", n, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return a
}

func (a *asked) close() {
	var all sync.WaitGroup
	for _, c := range a.clusters {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
	time.Sleep(time.Minute) // until a probe in progress has ended
}

// during runs calls of several nodes, and, once they all wait, f. It returns how long the calls
// then take.
func during(f func(), calls ...func()) time.Duration {
	var all sync.WaitGroup
	for _, call := range calls {
		all.Go(call)
	}
	synctest.Wait()
	began := time.Now()
	f()
	all.Wait()
	return time.Since(began)
}

// ask has a node ask a question, which these nodes answer.
func (a *asked) ask(node int, what string, answer ...int) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n, text := range a.clusters[node].Ask(ctx, what) {
		if slices.Contains(answer, n) != (string(text) == fmt.Sprint(n)) {
			a.t.Errorf("%q, asked by node %d, is answered by node %d: %q; it should be by %v", what,
				node, n, text, answer)
		}
	}
}

// tell has a node tell news, which these nodes hear.
func (a *asked) tell(node int, hear ...int) {
	a.t.Helper()
	for n, heard := range a.clusters[node].Tell(context.Background(), []byte("news")) {
		if slices.Contains(hear, n) != heard {
			a.t.Errorf("node %d, told by node %d, hears it: %v", n, node, heard)
		}
	}
}

// TestBrokenConnectionEndsCalls: a connection breaks between a question and the answers. If it is
// that of the node that asks, this gets none at once; if it is another's, that one alone has none.
// Questions and news reach both again when they have connected again.
func TestBrokenConnectionEndsCalls(t *testing.T) {
	for broken, answers := range map[int][]int{1: nil, 2: {0}} {
		synctest.Test(t, func(t *testing.T) {
			a := formAsked(t, networktest.New(), 3)
			defer a.close()
			took := during(func() {
				a.network.Reset(ip(0), ip(broken))
				synctest.Wait()
				close(a.answers)
			}, func() { a.ask(1, "wait", answers...) })
			if took > time.Second {
				t.Errorf("the connection of node %d breaks, and the question takes %v", broken, took)
			}
			time.Sleep(10 * time.Second)
			a.ask(1, "again", 0, 2)
			a.ask(2, "again", 0, 1)
			a.tell(broken, 0, 1, 2)
		})
	}
}

// TestNode0DiesWithCallsInProgress: gathers, questions and news of other nodes end at once, and all
// later ones.
func TestNode0DiesWithCallsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := formAsked(t, networktest.New(), 3)
		defer a.close()
		gather := func(node int) {
			var missing *cluster.GatherError
			_, err := a.clusters[node].Gather(context.Background(), "what", []byte("x"))
			if !errors.As(err, &missing) || !slices.Equal(missing.Missing, []int{0}) {
				t.Errorf("node %d gathers: %v", node, err)
			}
		}
		calls := []func(){
			func() { gather(1) },
			func() { gather(2) },
			func() { a.ask(1, "wait") },
			func() { a.ask(2, "wait") },
		}
		if took := during(func() { a.network.Kill(a.hosts[0]) }, calls...); took > time.Second {
			t.Errorf("calls in progress end after %v", took)
		}
		calls = append(calls, func() { a.tell(2) })
		if took := during(func() {}, calls...); took > time.Second {
			t.Errorf("later calls end after %v", took)
		}
		time.Sleep(10 * time.Second)
		for n := 1; n < 3; n++ {
			if a.clusters[n].Alive(0) || !a.clusters[n].Alive(3-n) {
				t.Errorf("node %d knows wrong nodes as alive", n)
			}
		}
	})
}

// TestLeavingNodeIsNotWaitedFor: a node that leaves while it is asked, or that asks, and node 0, do
// not keep others waiting.
func TestLeavingNodeIsNotWaitedFor(t *testing.T) {
	for leaves, answers := range map[int][]int{0: nil, 1: nil, 2: {0}} {
		synctest.Test(t, func(t *testing.T) {
			a := formAsked(t, networktest.New(), 3)
			defer a.close()
			took := during(func() {
				go a.clusters[leaves].Close() // it waits for what its Answer returns
				time.Sleep(time.Second)
				close(a.answers)
			}, func() { a.ask(1, "wait", answers...) })
			if took > 2*time.Second {
				t.Errorf("node %d leaves, and the question takes %v", leaves, took)
			}
			a.ask(leaves, "after it has left")
		})
	}
}

// TestFormingGoesRoundABrokenLink: a node that cannot reach the one through which it would join
// failure detection joins it through node 0.
func TestFormingGoesRoundABrokenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := networktest.New()
		network.Set(ip(9), ip(1), networktest.Link{Cut: true})
		network.Set(ip(1), ip(9), networktest.Link{Cut: true})
		began := time.Now()
		a := formAsked(t, network, 10)
		defer a.close()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it takes %v", took)
		}
		time.Sleep(time.Minute)
		if !a.clusters[1].Alive(9) || !a.clusters[9].Alive(1) {
			t.Error("nodes that other nodes can reach are gone")
		}
	})
}
