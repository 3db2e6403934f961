package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

const samples = 40

// local is a fake of the job on this node.
type local struct {
	ready  chan struct{} // closed once it is open
	failed bool
	parts  func(ctx context.Context, epoch int) ([]audit.Part, error)
	turn   int
	missed []int
	// summary is what the node reports
	summary *report.ClusterReport
}

func newLocal() *local {
	l := &local{
		ready: make(chan struct{}),
		parts: func(context.Context, int) ([]audit.Part, error) { return nil, errors.New("none") },
	}
	close(l.ready)
	return l
}

func (l *local) Ready(ctx context.Context) (bool, error) {
	select {
	case <-l.ready:
		return !l.failed, nil
	default:
	}
	select {
	case <-l.ready:
		return !l.failed, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (l *local) Summary() *report.ClusterReport { return l.summary }
func (l *local) Steps() int                     { return 4 }
func (l *local) Missing() (int, []int)          { return l.turn, l.missed }
func (l *local) AuditParts(ctx context.Context, epoch int) ([]audit.Part, error) {
	return l.parts(ctx, epoch)
}

// index returns the index of a dataset of n samples, the first of which begins with a byte.
func index(t *testing.T, n int, begins byte) *source.Index {
	t.Helper()
	contents := make([][16]byte, n)
	contents[0][0] = begins
	b := source.NewBuilder([]string{"a"}, []string{".x"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Path: "a", Class: 0})
	for i := range n {
		b.Sample(fmt.Sprintf("%04d.x", i), 1000, 0, 0)
	}
	x, err := b.Build()
	if err == nil {
		x, err = x.WithContents(contents)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// options returns the options of one of several nodes, with 2 ranks each.
func options(t *testing.T, nodes, node int, address string) Options {
	return Options{
		Job: "j", WorldSize: 2 * nodes, Nodes: nodes, Node: node,
		Ranks: []int{2 * node, 2*node + 1}, Address: address,
		Secret: "0123456789abcdef0123456789abcdef", Seed: 100,
		Facts: []Fact{{Key: "seed", Value: "100"}}, Index: index(t, samples, 0), Timeout: time.Minute,
		Local: newLocal(), Stops: lockstep.New(node, "host", func(error) {}),
		Progress: func(string, bool) {}, Log: slog.New(slog.DiscardHandler),
	}
}

// formed returns nodes that have formed a cluster over loopback.
func formed(t *testing.T, nodes int, change ...func(*Options)) []*Coordinator {
	t.Helper()
	address := testkit.Address(t)
	all, errs := make([]*Coordinator, nodes), make([]error, nodes)
	var done sync.WaitGroup
	for n := range nodes {
		o := options(t, nodes, n, address)
		o.Seed += uint64(n) // node 0's seed is the one agreed on
		for _, c := range change {
			c(&o)
		}
		done.Go(func() {
			var a Agreement
			if all[n], a, errs[n] = Form(t.Context(), o); errs[n] == nil &&
				(a.Seed != 100 || a.Version != o.Index.Fingerprint()) {
				errs[n] = fmt.Errorf("node %d agrees on %+v", n, a)
			}
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range all {
			done.Go(c.Close)
		}
		done.Wait()
	})
	return all
}

// on has nodes reach each other on a simulated network, as 10.0.0.1 and so on.
func on(network *networktest.Network) func(*Options) {
	return func(o *Options) {
		o.Network, o.Address = network.Host(fmt.Sprintf("10.0.0.%d", o.Node+1)), "10.0.0.1:6000"
	}
}
