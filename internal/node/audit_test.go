package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

// field is a job of 2 ranks on each of some nodes. With 6 ranks an epoch has 4 steps.
type field struct {
	t      *testing.T
	worlds []*world
	nodes  []*Node
	ranks  []*Rank
}

func newField(t *testing.T, nodes int) *field {
	f := &field{t: t}
	for range nodes {
		w := &world{}
		f.worlds, f.nodes = append(f.worlds, w), append(f.nodes, w.node())
	}
	f.ranks = spread(t, f.nodes, 2, func(m *request.Open) { m.Stream.GlobalBatch = 12 })
	return f
}

// close closes all ranks, and checks that nothing is left.
func (f *field) close() {
	f.t.Helper()
	for _, r := range f.ranks {
		r.Close()
	}
	for i, w := range f.worlds {
		w.close(f.t, f.nodes[i])
	}
}

// audit has ranks audit an epoch concurrently, and returns the results by rank.
func (f *field) audit(epoch int, ranks ...int) map[int]*audit.Result {
	f.t.Helper()
	var mu sync.Mutex
	out := map[int]*audit.Result{}
	var all sync.WaitGroup
	for _, r := range ranks {
		all.Go(func() {
			a, err := f.ranks[r].Audit(f.t.Context(), epoch)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.t.Errorf("rank %d: %v", r, err)
				a = &audit.Result{}
			}
			out[r] = a
		})
	}
	all.Wait()
	return out
}

var sixRanks = []int{0, 1, 2, 3, 4, 5}

// TestAuditIsTheSameOnAllNodes checks that every rank on every node gets the same complete result,
// also in the last epoch, where each rank leaves as soon as it has the result, node 0 first.
func TestAuditIsTheSameOnAllNodes(t *testing.T) {
	f := newField(t, 3)
	const last = 3
	var all sync.WaitGroup
	for i, r := range f.ranks {
		all.Go(func() {
			for epoch := range last + 1 {
				consume(t, r, at{epoch, 0}, at{epoch + 1, 0})
				a, err := r.Audit(t.Context(), epoch)
				if err != nil || !a.Complete || a.Samples != 42 || len(a.Missing) > 0 ||
					a.Why != "" {
					t.Errorf("rank %d, epoch %d: %+v, %v", i, epoch, a, err)
				}
			}
			r.Close()
		})
	}
	all.Wait()
	f.close()
}

// TestAuditFindsErrorsOverNodes checks that a wrong delivery on one node makes the audit fail on
// all.
func TestAuditFindsErrorsOverNodes(t *testing.T) {
	f := newField(t, 3)
	together(f.ranks, func(r *Rank) {
		if _, err := takeSaying(r, at{}, at{1, 0}, func(sum uint64) uint64 {
			if r.Number() == 3 {
				return 12345
			}
			return sum
		}); err != nil {
			t.Error(err)
		}
	})
	for r, a := range f.audit(0, sixRanks...) {
		if a.Complete || a.Expected == a.Delivered || len(a.Missing) > 0 {
			t.Errorf("rank %d: %+v", r, a)
		}
	}
	f.close()
}

// TestAuditNamesMissingRanks checks that ranks that leave, break off an epoch, or whose node is
// gone are named, and do not block the audit.
func TestAuditNamesMissingRanks(t *testing.T) {
	// A node that leaves in order may have reported before that its ranks have left. Then no reason
	// is given.
	missing := func(t *testing.T, audits map[int]*audit.Result, ranks []int, whys ...string) {
		t.Helper()
		for r, a := range audits {
			if a.Complete || !slices.Equal(a.Missing, ranks) || !slices.Contains(whys, a.Why) {
				t.Errorf("rank %d: %+v; missing are %v: %q", r, a, ranks, whys)
			}
		}
	}
	partly := func(f *field, rank int, to at) {
		for i, r := range f.ranks {
			if i != rank {
				consume(f.t, r, at{}, at{1, 0})
			}
		}
		consume(f.t, f.ranks[rank], at{}, to)
	}
	t.Run("left", func(t *testing.T) {
		f := newField(t, 3)
		partly(f, 3, at{0, 2})
		told := make(chan map[int]*audit.Result)
		go func() { told <- f.audit(0, 0, 1, 2, 4, 5) }()
		f.ranks[3].Close()
		missing(t, <-told, []int{3}, "")
		f.close()
	})
	t.Run("went on", func(t *testing.T) {
		f := newField(t, 3)
		partly(f, 5, at{0, 2})
		told := make(chan map[int]*audit.Result)
		go func() { told <- f.audit(0, 0, 1, 2, 3, 4) }()
		consume(t, f.ranks[5], at{1, 0}, at{1, 1})
		missing(t, <-told, []int{5}, "")
		f.close()
	})
	t.Run("node gone", func(t *testing.T) {
		f := newField(t, 3)
		together(f.ranks[:4], func(r *Rank) { consume(t, r, at{}, at{1, 0}) })
		told := make(chan map[int]*audit.Result)
		go func() { told <- f.audit(0, 0, 1, 2, 3) }()
		f.ranks[4].Close()
		f.ranks[5].Close()
		missing(t, <-told, []int{4, 5}, "node 2 is gone", "")
		f.close()
	})
	t.Run("node 0 gone", func(t *testing.T) {
		const unasked = "node 2 cannot be asked, because node 0 is gone"
		f := newField(t, 3)
		together(f.ranks[2:4], func(r *Rank) { consume(t, r, at{}, at{1, 0}) })
		told := make(chan map[int]*audit.Result)
		go func() { told <- f.audit(0, 2, 3) }()
		f.ranks[0].Close()
		f.ranks[1].Close()
		missing(t, <-told, []int{0, 1, 4, 5}, "node 0 is gone; "+unasked, unasked)
		f.close()
	})
}

// TestCancelledAuditContinuesForOtherRanks checks that a rank whose audit is cancelled gets the
// error, and that the audit continues for another rank of its node.
func TestCancelledAuditContinuesForOtherRanks(t *testing.T) {
	f := newField(t, 2)
	together(f.ranks[:3], func(r *Rank) { consume(t, r, at{}, at{1, 0}) })
	ctx, cancel := context.WithCancel(t.Context())
	gone, stays := make(chan error), make(chan map[int]*audit.Result)
	go func() {
		_, err := f.ranks[0].Audit(ctx, 0)
		gone <- err
	}()
	go func() { stays <- f.audit(0, 1) }()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "epoch 0") {
		t.Error(err)
	}
	consume(t, f.ranks[3], at{}, at{1, 0})
	if a := (<-stays)[1]; !a.Complete {
		t.Errorf("rank 1: %+v", a)
	}
	f.close()
}
