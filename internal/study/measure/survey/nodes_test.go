package survey

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// joined runs each on so many nodes of a network in memory, in virtual time, and returns its
// errors.
func joined(t *testing.T, n int, facts func(node int) []Fact,
	each func(ctx context.Context, g *Group) error,
) []error {
	errs := make([]error, n)
	synctest.Test(t, func(t *testing.T) {
		network := networktest.New()
		var group sync.WaitGroup
		for node := range n {
			group.Go(func() {
				o := NodesOptions{
					Node: node, Nodes: n, Address: "10.0.0.1:4000", Sample: 100_000,
					Secret: []byte("sixteen bytes or more"), Wait: 20 * time.Second,
					Network: network.Host(fmt.Sprintf("10.0.0.%d", node+1)), Facts: facts(node),
				}
				if node == 0 {
					o.Address = ":4000"
				}
				g, err := Join(t.Context(), o)
				if err == nil {
					err = errors.Join(each(t.Context(), g), g.Close())
				}
				errs[node] = err
			})
		}
		group.Wait()
		time.Sleep(time.Minute) // in which memberlist ends
	})
	return errs
}

func same(int) []Fact { return []Fact{{Key: "dataset", Value: "one"}} }

// shared is a source that gives each reader at most 40 MB/s and all together 100 MB/s.
type shared struct {
	mu   sync.Mutex
	busy time.Time
}

func (s *shared) load() measure.Load {
	const size = 100_000
	return measure.Load{Do: func(context.Context, int, int) (int64, error) {
		own := time.Now().Add(size * time.Second / 40e6)
		s.mu.Lock()
		if now := time.Now(); s.busy.Before(now) {
			s.busy = now
		}
		s.busy = s.busy.Add(size * time.Second / 100e6)
		until := s.busy
		s.mu.Unlock()
		if until.Before(own) {
			until = own
		}
		time.Sleep(time.Until(until))
		return size, nil
	}}
}

func TestSourceIsMeasuredByTheNumberOfNodes(t *testing.T) {
	var source shared
	all := make([][]Total, 5)
	errs := joined(t, 5, same, func(ctx context.Context, g *Group) (err error) {
		all[g.Node], err = g.Sources(ctx, source.load(), measure.SteadyOptions{
			Streams: 1, Windows: 10, Window: 200 * time.Millisecond,
		}, func(int) {})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	want := map[int]float64{1: 40, 2: 80, 4: 100, 5: 100}
	for node, totals := range all {
		if len(totals) != len(want) || len(totals) != Steps(5) {
			t.Fatalf("node %d: %d totals", node, len(totals))
		}
		for _, total := range totals {
			if got := total.Point.Rate.Median; math.Abs(got/want[total.Nodes]-1) > 0.03 ||
				len(total.Point.Rounds) < 9 {
				t.Errorf("node %d: %d nodes read %.4g MB/s in %d windows, want %.4g", node,
					total.Nodes, got, len(total.Point.Rounds), want[total.Nodes])
			}
		}
	}
}

func TestNodeThatFailsIsNamedOnAll(t *testing.T) {
	errs := joined(t, 3, same, func(ctx context.Context, g *Group) error {
		_, err := g.Sources(ctx, measure.Load{
			Do: func(context.Context, int, int) (int64, error) {
				time.Sleep(time.Millisecond)
				if g.Node == 1 {
					return 0, errors.New("the disk is gone")
				}
				return 1000, nil
			},
		}, measure.SteadyOptions{Streams: 2, Windows: 10, Window: 100 * time.Millisecond},
			func(int) {})
		return err
	})
	for node, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "node 1: the disk is gone") {
			t.Errorf("node %d: %v", node, err)
		}
	}
}

func TestNodeThatLeavesEndsTheOthersWait(t *testing.T) {
	errs := joined(t, 3, same, func(ctx context.Context, g *Group) error {
		if g.Node == 2 {
			return nil
		}
		_, err := Tell(ctx, g, g.Node)
		return err
	})
	var gone *cluster.GatherError
	if !errors.As(errs[0], &gone) || !errors.As(errs[1], &gone) || errs[2] != nil {
		t.Errorf("errors: %v", errs)
	}
}

// TestNodeThatLeftBeforeIsReported: a command that watches the others only after one of them has
// ended would wait for that one for ever.
func TestNodeThatLeftBeforeIsReported(t *testing.T) {
	errs := joined(t, 3, same, func(_ context.Context, g *Group) error {
		if g.Node == 2 {
			return nil
		}
		time.Sleep(5 * time.Second)
		lost := make(chan int, 10)
		g.Watch(func(node int) { lost <- node })
		select {
		case node := <-lost:
			if node != 2 {
				return fmt.Errorf("node %d is reported", node)
			}
			time.Sleep(5 * time.Second) // the other one watches as well
			return nil
		case <-time.After(20 * time.Second):
			return errors.New("nothing is reported")
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestOtherDatasetIsRefused(t *testing.T) {
	errs := joined(t, 2, func(node int) []Fact {
		return []Fact{{Key: "dataset", Value: fmt.Sprint(node)}}
	}, func(context.Context, *Group) error { return nil })
	var differs *cluster.DifferenceError
	if !errors.As(errs[0], &differs) || !errors.As(errs[1], &differs) {
		t.Errorf("errors: %v", errs)
	}
}
