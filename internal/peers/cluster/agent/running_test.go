package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// kill ends a node as kill -9 does: it sends no message.
func (a *Agent) kill() {
	a.once.Do(func() {
		a.gossip.Close()
		a.mu.Lock()
		a.up = nil
		a.mu.Unlock()
		a.halt()
		a.release()
	})
}

// watch collects the events of Notify.
func watch(c *Agent) func() []event {
	var mu sync.Mutex
	var seen []event
	c.Notify(func(n int, alive bool) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, event{n, alive})
	})
	return func() []event {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// TestKilledNodeIsMissedAndRejoins: its end is noticed soon; a gather names it as missing and
// returns the rest; the node rejoins under its number, with a new address.
func TestKilledNodeIsMissedAndRejoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVirtualLab(t, 3)
		clusters := l.formed()
		seen := watch(clusters[1])
		waits := make(chan error, 1)
		go func() {
			_, err := clusters[0].Gather(t.Context(), "waits", nil)
			waits <- err
		}()
		started := time.Now()
		clusters[2].kill()
		for i, c := range clusters[:2] {
			testkit.Until(t, "node 2 is dead", func() bool { return !c.Alive(2) })
			t.Logf("node %d knew after %v", i, time.Since(started))
		}
		if d := time.Since(started); d > 3*time.Second {
			t.Errorf("it took %v", d)
		}
		_, err := clusters[1].Gather(t.Context(), "waits", nil)
		for _, err := range []error{err, <-waits} {
			var g *cluster.GatherError
			if !errors.As(err, &g) || !slices.Equal(g.Missing, []int{2}) {
				t.Error(err)
			}
		}
		out, errs := gatherAll(t.Context(), clusters[:2], "stats", func(i int) []byte {
			return []byte{byte(i)}
		})
		for i := range out {
			if errs[i] == nil || !bytes.Equal(out[i][0], []byte{0}) ||
				!bytes.Equal(out[i][1], []byte{1}) || out[i][2] != nil {
				t.Error(out[i], errs[i])
			}
		}

		again, errs := l.form(t.Context(), []int{2}, func(o *cluster.Options) { o.Exchange = ":9999" })
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		clusters[2] = again[0]
		for _, c := range clusters {
			testkit.Until(t, "node 2 is back", func() bool {
				return c.Alive(2) && c.Members()[2].Exchange == "127.0.0.1:9999"
			})
		}
		if string(again[0].Broadcast()) != "seed" {
			t.Error("another broadcast")
		}
		if _, errs := gatherAll(t.Context(), clusters, "all", noData); errors.Join(errs...) != nil {
			t.Error(errs)
		}
		testkit.Until(t, "both events came", func() bool {
			return slices.Equal(seen(), []event{{2, false}, {2, true}})
		})

		_ = clusters[2].Close() // this time without a kill
		testkit.Until(t, "the third event came", func() bool {
			return slices.Equal(seen(), []event{{2, false}, {2, true}, {2, false}})
		})
	})
}

// TestNodeUnknownToGossipIsGoneAfterAWhile: a node that gossip has not seen, because a link was
// cut too early, counts as gone after some time, and as alive as soon as gossip sees it.
func TestNodeUnknownToGossipIsGoneAfterAWhile(t *testing.T) {
	clusters := newLab(t, 3).formed()
	for _, c := range clusters {
		testkit.Until(t, "all know each other", func() bool {
			return len(c.gossip.Known()) == 3
		})
	}
	a := clusters[1]
	seen := watch(clusters[1])
	now := time.Now()
	if unseen, lost := a.lostNodes(now.Add(time.Hour)); len(unseen)+len(lost)+len(seen()) > 0 {
		t.Fatalf("%v, %v, %v are missed, although all are known", unseen, lost, seen())
	}
	a.mu.Lock()
	other := *a.nodes[2]
	a.learn(&pb.Member{
		Node:     2,
		Instance: "another",
		Gossip:   other.gossip,
		Exchange: other.Exchange,
	})
	a.mu.Unlock()
	at := []string{other.gossip}
	if unseen, lost := a.lostNodes(now.Add(unheardTime / 2)); !slices.Equal(unseen, at) ||
		len(lost) > 0 || !clusters[1].Alive(2) {
		t.Errorf("not looked for, or given up too early: %v, %v", unseen, lost)
	}
	if unseen, lost := a.lostNodes(now.Add(2 * unheardTime)); !slices.Equal(unseen, at) ||
		len(lost) > 0 || clusters[1].Alive(2) {
		t.Errorf("not looked for, or not given up: %v, %v", unseen, lost)
	}
	a.heard(2, "another", true)
	if !clusters[1].Alive(2) {
		t.Error("it is not alive although gossip sees it")
	}
	testkit.Until(t, "all events came", func() bool {
		return slices.Equal(seen(), []event{{2, false}, {2, true}, {2, false}, {2, true}})
	})
}

// TestRunningClusterRefusesDuplicates: no daemon takes the number of a living node, and one that
// differs cannot rejoin.
func TestRunningClusterRefusesDuplicates(t *testing.T) {
	l := newLab(t, 2)
	clusters := l.formed()
	_, errs := l.form(t.Context(), []int{1}, nil)
	if !errors.As(errs[0], new(*cluster.DuplicateError)) {
		t.Error(errs[0])
	}
	clusters[1].kill()
	_, errs = l.form(t.Context(), []int{1}, func(o *cluster.Options) { o.Ranks = []int{3} })
	if !errors.As(errs[0], new(*cluster.DifferenceError)) {
		t.Error(errs[0])
	}
	if _, errs = l.form(t.Context(), []int{1}, nil); errs[0] != nil {
		t.Error(errs[0])
	}
}

// TestClusterSurvivesNode0: the other nodes continue, gathers fail and say why; a new node 0 is
// found, and takes over the old one's broadcast.
func TestClusterSurvivesNode0(t *testing.T) {
	l := newLab(t, 3)
	clusters := l.formed()
	seen := watch(clusters[2])
	clusters[0].kill()
	for _, c := range clusters[1:] {
		testkit.Until(t, "node 0 is dead", func() bool { return !c.Alive(0) })
		if !c.Alive(1) || !c.Alive(2) {
			t.Error("the other nodes are not alive")
		}
		var g *cluster.GatherError
		if _, err := c.Gather(t.Context(), "x", nil); !errors.As(err, &g) ||
			!slices.Equal(g.Missing, []int{0}) {
			t.Error(err)
		}
	}
	again, errs := l.form(t.Context(), []int{0}, func(o *cluster.Options) {
		o.Listen = l.join
		o.Listening = nil
		o.Broadcast = []byte("another seed")
	})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	clusters[0] = again[0]
	if string(again[0].Broadcast()) != "seed" {
		t.Errorf("the new node 0 gives %q", again[0].Broadcast())
	}
	for _, c := range clusters[1:] {
		testkit.Until(t, "node 0 is back", func() bool { return c.Alive(0) })
	}
	testkit.Until(t, "the events came", func() bool {
		return slices.Equal(seen(), []event{{0, false}, {0, true}})
	})
	if _, errs := gatherAll(t.Context(), clusters, "all", noData); errors.Join(errs...) != nil {
		t.Error(errs)
	}
	seen1 := watch(clusters[1])
	clusters[2].kill()
	testkit.Until(t, "node 1 learns of node 2", func() bool {
		return slices.Equal(seen1(), []event{{2, false}})
	})
}

func TestCloseEndsGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clusters := newVirtualLab(t, 2).formed()
		pending := make(chan error)
		go func() {
			_, err := clusters[1].Gather(t.Context(), "never", nil)
			pending <- err
		}()
		testkit.Until(t, "it waits", func() bool {
			clusters[1].mu.Lock()
			defer clusters[1].mu.Unlock()
			return len(clusters[1].calls) == 1
		})
		started := time.Now()
		_ = clusters[1].Close()
		if d := time.Since(started); d > time.Second {
			t.Errorf("Close took %v", d)
		}
		if err := <-pending; err == nil {
			t.Error("a gather outlived Close")
		}
		if _, err := clusters[1].Gather(t.Context(), "x", nil); !errors.Is(err, cluster.ErrClosed) {
			t.Error(err)
		}
		testkit.Until(t, "node 0 knows", func() bool { return !clusters[0].Alive(1) })
		started = time.Now()
		_ = clusters[0].Close()
		if d := time.Since(started); d > time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

// TestRestartedDaemonIsLate: where the job needs all nodes from its start, a daemon that was
// restarted fails at the deadline, node 0's own too; a node that was disconnected rejoins.
func TestRestartedDaemonIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVirtualLab(t, 3)
		whole := func(o *cluster.Options) { o.Whole = true }
		clusters, errs := l.form(t.Context(), upTo(3), whole)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		// Node 0 sends a member again when it is ready again.
		member := func() *node {
			clusters[0].mu.Lock()
			defer clusters[0].mu.Unlock()
			return clusters[0].nodes[1]
		}
		before := member()
		clusters[1].mu.Lock()
		clusters[1].up.Close()
		clusters[1].mu.Unlock()
		testkit.Until(t, "node 1 has another connection", func() bool { return member() != before })
		if _, errs := gatherAll(t.Context(), clusters, "all", noData); errors.Join(errs...) != nil {
			t.Error(errs)
		}

		l.wait = time.Second
		var late *cluster.LateError
		clusters[2].kill()
		if _, errs := l.form(t.Context(), []int{2}, func(o *cluster.Options) {
			o.Join = l.join
		}); !errors.As(errs[0], &late) || late.Node != 2 {
			t.Errorf("node 2: %v", errs[0])
		}
		clusters[0].kill()
		_, errs = l.form(t.Context(), []int{0}, func(o *cluster.Options) {
			o.Whole = true
			o.Listen = l.join
			o.Listening = nil
		})
		var missing *cluster.MissingError
		if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 ||
			!strings.Contains(missing.Refused[0], "node 1 (127.0.0.1) ") ||
			!strings.Contains(missing.Refused[0], "came after the job had begun") {
			t.Errorf("node 0: %v", errs[0])
		}
	})
}

// TestRestartedJobWaitsForThePreviousOne: a job that is restarted, under another name or with
// another secret, before the previous one has ended: node 0 waits for its port, the other nodes for
// their own node 0.
func TestRestartedJobWaitsForThePreviousOne(t *testing.T) {
	for name, change := range map[string]func(o *cluster.Options){
		"another job": func(o *cluster.Options) { o.Job = "job, again" },
		"another secret": func(o *cluster.Options) {
			o.Secret = []byte("another secret, just as long")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 2)
			var log lines
			before, errs := l.form(t.Context(), upTo(2), func(o *cluster.Options) {
				o.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for !strings.Contains(log.String(), "a connection was refused") {
					time.Sleep(time.Millisecond)
				}
				for _, c := range before {
					_ = c.Close()
				}
			}()
			_, errs = l.form(t.Context(), upTo(2), func(o *cluster.Options) {
				change(o)
				if o.Node == 0 {
					o.Listen, o.Listening = l.join, nil
				}
			})
			<-done
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAnotherJobAtNode0sAddressIsReported: a node that finds another running job there reports it
// while it waits, and fails with it at the deadline.
func TestAnotherJobAtNode0sAddressIsReported(t *testing.T) {
	l := newLab(t, 2)
	l.formed()
	l.wait = 2 * time.Second
	said := make(chan string, 100)
	_, errs := l.form(t.Context(), []int{1}, func(o *cluster.Options) {
		o.Join = l.join
		o.Secret = []byte("another secret, just as long")
		o.Progress = func(text string) {
			said <- text
		}
	})
	const why = "node 1 does not have the secret of the job running at 127.0.0.1:*, where node 0 " +
		"should be: two jobs use one port, a daemon of an earlier start is still running, or the " +
		"nodes have different secrets (HDMLP_SECRET, HDMLP_SECRET_FILE)"
	var wrong *cluster.SecretError
	if !errors.As(errs[0], &wrong) || !like(errs[0].Error(), why) {
		t.Error(errs[0])
	}
	close(said)
	times := 0
	for text := range said { // on a busy machine also that an attempt took too long
		if like(text, "node 1 is waiting for node 0: "+why) {
			times++
		}
	}
	if times != 1 {
		t.Errorf("it was said %d times", times)
	}
}
