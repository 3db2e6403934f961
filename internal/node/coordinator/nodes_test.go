package coordinator

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
)

// batches is what a node reports that has delivered so many.
func batches(n int64) report.NodeReport {
	return report.NodeReport{Tally: report.Tally{Batches: n}}
}

// TestReportsOfAllNodes checks that every node's report is there, and that of a node that is gone
// has its last figures.
func TestReportsOfAllNodes(t *testing.T) {
	c := formed(t, 3, func(o *Options) {
		o.Local.(*local).summary = &report.ClusterReport{
			Nodes: []report.NodeReport{batches(int64(10 + o.Node))},
		}
	})
	for n, r := range c[0].Reports(t.Context(), batches(5)) {
		want := batches(int64(10 + n))
		if n == 0 {
			want = batches(5)
		}
		if r.Node != n || r.Batches != want.Batches || r.Responding != (n > 0) ||
			r.Address != "127.0.0.1" || n == 0 && (len(r.Ranks) != 2 || r.Ranks[1].Rank != 1) {
			t.Errorf("node %d: %+v", n, r)
		}
	}
	for _, text := range []string{"{", `{"node":-1}`, `{"node":3}`, `{"node":0}`} {
		if c[0].hear([]byte(tellFinal + " " + text)) {
			t.Errorf("%s was taken in", text)
		}
	}
	c[2].Leave(batches(99))
	for n := 2; n > 0; n-- {
		want := map[int]int64{1: 11, 2: 99}[n] // node 1 leaves without final figures
		c[n].Close()
		testkit.Until(t, "the node is gone", func() bool { return !c[0].Alive(n) })
		if r := c[0].Reports(t.Context(), batches(5))[n]; r.Responding || r.Batches != want ||
			r.Age < 0 || r.Why != "it is gone" {
			t.Errorf("node %d is gone: %+v", n, r)
		}
	}
}

// finishing has a node's ranks finish each epoch when they are asked the second time.
func finishing(o *Options) {
	var asked atomic.Int32
	ranks := o.Ranks
	o.Local.(*local).parts = func(context.Context, int) ([]audit.Part, error) {
		if asked.Add(1) == 1 {
			return nil, errors.New("the ranks are in the epoch")
		}
		return parts(ranks...), nil
	}
}

// TestAuditHasThePartsOfAllNodes checks that a node is asked again until its ranks have finished,
// that node 0 sends what it has to all others before it may leave, and that what a node has sent
// is known when it is gone.
func TestAuditHasThePartsOfAllNodes(t *testing.T) {
	c := formed(t, 3, finishing)
	audited := func(node int, finished ...int) (why string) {
		t.Helper()
		mine := parts(2*node, 2*node+1)
		got, why, err := c[node].Audit(t.Context(), 7, mine)
		if err != nil {
			t.Fatal(err)
		}
		var ranks []int
		for _, p := range got {
			if p.Finished {
				ranks = append(ranks, p.Rank)
			}
		}
		if slices.Sort(ranks); len(got) != 4 || !slices.Equal(ranks, finished) {
			t.Errorf("node %d is told %+v, want that %v have finished", node, got, finished)
		}
		return why
	}
	if why := audited(0, 2, 3, 4, 5); why != "" {
		t.Error(why)
	}
	c[1].mu.Lock()
	if told := c[1].told[7][2]; len(told) != 2 {
		t.Errorf("node 0 has told node 1 %+v of node 2", told)
	}
	c[1].mu.Unlock()
	c[2].Close()
	testkit.Until(t, "node 2 is gone", func() bool { return !c[0].Alive(2) && !c[1].Alive(2) })
	if why := audited(1, 0, 1, 4, 5); why != "" {
		t.Error(why)
	}
	if why := audited(0, 2, 3); why != "node 2 is gone" { // it has said nothing to node 0
		t.Errorf("why: %q", why)
	}
}

// TestAuditHasWhatANodeSaidLast checks that the parts that a node sent while it was asked, just
// before it was gone, are audited.
func TestAuditHasWhatANodeSaidLast(t *testing.T) {
	asked := make(chan struct{})
	c := formed(t, 2, func(o *Options) {
		if o.Node == 1 {
			o.Local.(*local).parts = func(ctx context.Context, _ int) ([]audit.Part, error) {
				close(asked)
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
	})
	var leaving sync.WaitGroup
	leaving.Go(func() {
		<-asked
		told := auditNews{7, map[int][]audit.Part{1: parts(2, 3)}}
		if err := c[1].tellParts(t.Context(), told); err != nil {
			t.Error(err)
		}
		c[1].Close()
	})
	got, why, err := c[0].Audit(t.Context(), 7, parts(0, 1))
	if err != nil || why != "" || len(got) != 2 || !got[0].Finished || !got[1].Finished {
		t.Errorf("%+v, %q, %v", got, why, err)
	}
	leaving.Wait()
}

// TestNodeThatLeftGathersNothing checks that a node that has left the cluster learns no bootstrap
// windows: it is an error, and not that the others are gone.
func TestNodeThatLeftGathersNothing(t *testing.T) {
	c := formed(t, 2)
	c[1].Close()
	if got, err := c[1].BootstrapWindows(t.Context(), plan.BootstrapWindow{}, 4); err == nil {
		t.Errorf("windows %+v", got)
	}
}

// closed is a network on which a node's samples cannot be reached.
type closed struct {
	Network
	samples *atomic.Pointer[string] // address of the first listener, which is that for samples
}

func (c closed) Listen(address string) (net.Listener, error) {
	l, err := c.Network.Listen(address)
	if err == nil {
		at := l.Addr().String()
		c.samples.CompareAndSwap(nil, &at)
	}
	return l, err
}

func (c closed) Dial(ctx context.Context, address string) (net.Conn, error) {
	if at := c.samples.Load(); at != nil && *at == address {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return c.Network.Dial(ctx, address)
}

// TestClosedPortIsNamed checks that no cluster is formed if a node's samples cannot be reached, and
// that the errors of all nodes have the address and what to do.
func TestClosedPortIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, samples := networktest.New(), new(atomic.Pointer[string])
		var done sync.WaitGroup
		for n := range 2 {
			o := options(t, 2, n, "")
			on(network)(&o)
			o.Network = closed{o.Network, samples}
			done.Go(func() {
				_, _, err := Form(t.Context(), o)
				if err == nil || !strings.Contains(err.Error(), "(samples of node ") ||
					!strings.Contains(err.Error(), ": connection refused; a node serves") ||
					strings.Contains(err.Error(), "dial") {
					t.Errorf("node %d: %v", n, err)
				}
			})
		}
		done.Wait()
		<-time.After(time.Minute) // until a probe in progress has ended
	})
}
