package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// refusedApart checks that each rank is refused for this reason, and may read apart.
func refusedApart(t *testing.T, what string, errs []error, why string) {
	t.Helper()
	for r, err := range errs {
		var e *failure.Error
		if !errors.As(err, &e) || e.Kind != failure.Config || e.Details[order.Apart] != true ||
			!strings.Contains(e.Message, why) {
			t.Errorf("%s: rank %d got %v; want %q", what, r, err, why)
		}
	}
}

// TestIrregularPartsAreRefusedOnAllRanks checks that if the ranks' parts do not make an order that
// can be shared, all ranks get the same error, and nothing of the job is left.
func TestIrregularPartsAreRefusedOnAllRanks(t *testing.T) {
	for what, c := range map[string]struct {
		of3  func(t *testing.T) func(*request.Open) // what rank 3 gives
		want string
	}{
		"another length": {func(t *testing.T) func(*request.Open) {
			return partOf(t, 2, 0, sampled(3, 0, 5))
		}, "rank 3 has 5 samples in epoch 0, and rank 0 has 6"},
		"other batches": {func(t *testing.T) func(*request.Open) {
			return partOf(t, 3, 0, sampled(3, 0, 6))
		}, "rank 3 has batches of 3 samples, and rank 0 of 2"},
		"another epoch": {func(t *testing.T) func(*request.Open) {
			return partOf(t, 2, 4, sampled(3, 0, 6))
		}, "rank 3 begins with epoch 4, and rank 0 with epoch 0"},
		"by itself": {func(t *testing.T) func(*request.Open) {
			return apartFrom(t, "it cannot be copied")
		}, "rank 3: it cannot be copied"},
	} {
		nodes := newNodes(t, 2, false)
		_, errs := nodes.openParts(2, func(r int) []func(*request.Open) {
			if r == 3 {
				return []func(*request.Open){c.of3(t)}
			}
			return []func(*request.Open){partOf(t, 2, 0, sampled(r, 0, 6))}
		})
		refusedApart(t, what, errs, c.want)
		nodes.close()
	}
}

// TestDisagreeingPartsEndTheJob checks that if a part of a later epoch has another length, or is of
// another epoch, the job ends on all ranks just before that epoch, with an error that names both
// values. If all parts change alike, or a rank states that it reads apart, each may read apart.
func TestDisagreeingPartsEndTheJob(t *testing.T) {
	const batch, n = 2, 6
	for what, c := range map[string]struct {
		gives   func(t *testing.T, r *Rank) error // called for all ranks after epoch 0
		next    func(r *Rank) int
		apart   bool
		message string
	}{
		"another length of one rank": {
			func(t *testing.T, r *Rank) error {
				return give(t, r, 1, sampled(r.Number(), 1, n-r.Number()/3))
			}, nil, false,
			"the ranks disagree about the sampler: rank 3 ends epoch 1 at index 5, and the part " +
				"of each rank had 6 samples until then",
		},
		"another epoch of one rank": {
			func(t *testing.T, r *Rank) error {
				return give(t, r, 1+r.Number()/3, sampled(r.Number(), 1, n))
			}, func(r *Rank) int { return 1 + r.Number()/3 }, false,
			"the ranks disagree about the sampler: after epoch 0 rank 3 goes on with epoch 2, " +
				"and rank 0 with epoch 1",
		},
		"another length of all": {
			func(t *testing.T, r *Rank) error {
				return give(t, r, 1, sampled(r.Number(), 1, n+1))
			}, nil, true, "epoch 1 has 7 samples on each rank, and had 6 before",
		},
		"one by itself": {
			func(t *testing.T, r *Rank) error {
				if r.Number() < 3 {
					return give(t, r, 1, sampled(r.Number(), 1, n))
				}
				return r.Give(request.Give{Epoch: 1, Apart: "it depends on what happens"}, nil)
			}, nil, true, "rank 3: it depends on what happens",
		},
	} {
		t.Run(what, func(t *testing.T) {
			nodes := newNodes(t, 2, false)
			ranks := nodes.mustOpenParts(2, batch, n)
			together(ranks, func(r *Rank) {
				trained(t, r, 0, 0, batch, n)
				if err := c.gives(t, r); err != nil {
					t.Error(err)
				}
				next := 1
				if c.next != nil {
					next = c.next(r)
				}
				if err := r.Check(next, 0); err != nil {
					t.Error(err)
				}
				got, err := take(r, at{next, 0}, end)
				e := failure.Of(err)
				if len(got) > 0 || !strings.Contains(e.Message, c.message) ||
					(e.Details[order.Apart] == true) != c.apart ||
					!c.apart && e.Kind != failure.Mismatch {
					t.Errorf("rank %d got %d batches, and %+v; want %q", r.Number(), len(got), e,
						c.message)
				}
			})
			closeAll(ranks)
			nodes.close()
		})
	}
}

// TestRankThatLeavesEndsTheJobAtTheNextEpoch checks that the others get the known epochs, and then
// an error that names the rank or its node.
func TestRankThatLeavesEndsTheJobAtTheNextEpoch(t *testing.T) {
	const batch, n = 2, 6
	for each, want := range map[int]string{2: "rank 3 has left the job", 1: "node 1 is gone"} {
		c := newNodes(t, 2, false)
		ranks := c.mustOpenParts(each, batch, n)
		together(ranks, func(r *Rank) { trained(t, r, 0, 0, batch, n) })
		last := len(ranks) - 1
		ranks[last].Close()
		together(ranks[:last], func(r *Rank) {
			if err := give(t, r, 1, sampled(r.Number(), 1, n)); err != nil {
				t.Error(err)
			}
			got, err := take(r, at{1, 0}, end)
			if e := failure.Of(err); len(got) > 0 || e.Kind != failure.Mismatch ||
				!strings.Contains(e.Message, want) ||
				!strings.Contains(e.Message, "the order of epoch 1") {
				t.Errorf("rank %d got %d batches, and %v; want %q", r.Number(), len(got), err, want)
			}
		})
		closeAll(ranks[:last])
		c.close()
	}
}

// TestRankInUseKeepsItsPart checks that a process which is refused because another one has its rank
// does not give that rank's part of the next epoch.
func TestRankInUseKeepsItsPart(t *testing.T) {
	const (
		batch  = 2
		n      = 6
		epochs = 5
	)
	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, batch, n)
	for e := range epochs {
		if e == epochs-1 { // epoch 0 is not known any more
			m := ranks[1].entry.request
			partOf(t, batch, 0, sampled(1, 0, n))(&m)
			_, err := c.list[1].Open(t.Context(), m, nil, func(request.Step) {})
			if f := failure.Of(err); f.Kind != failure.Busy {
				t.Errorf("a second process of rank 1: %v", err)
			}
		}
		together(ranks, func(r *Rank) { trained(t, r, e, 0, batch, n) })
	}
	closeAll(ranks)
	c.close()
}

// TestAuditsDoNotWaitForARankThatReadsApart checks this for a rank that has not finished the epoch.
func TestAuditsDoNotWaitForARankThatReadsApart(t *testing.T) {
	const batch, n = 2, 6
	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(2, batch, n)
	together(ranks[:3], func(r *Rank) { trained(t, r, 0, 0, batch, n) })
	if err := ranks[3].Give(request.Give{Epoch: 1, Apart: "it depends on what happens"},
		nil); err != nil {
		t.Error(err)
	}
	if a, err := ranks[0].Audit(t.Context(), 0); err != nil || a.Complete ||
		!slices.Equal(a.Missing, []int{3}) {
		t.Errorf("audited as %+v, %v", a, err)
	}
	closeAll(ranks)
	c.close()
}

// TestCancelledOpenIsNotWaitedFor checks that a process that is gone before the other nodes have
// come is no longer waited for, and that a new job can be opened.
func TestCancelledOpenIsNotWaitedFor(t *testing.T) {
	c := newNodes(t, 2, false)
	address := c.address()
	ctx, cancel := context.WithCancel(t.Context())
	waits, ended := make(chan struct{}), make(chan error)
	go func() {
		said := sync.OnceFunc(func() { close(waits) })
		_, err := c.list[0].Open(ctx,
			message(0, 2, partOf(t, 2, 0, sampled(0, 0, 6)), onNodes(2, 1, address)), nil,
			func(request.Step) {
				said()
			})
		ended <- err
	}()
	<-waits
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ranks := c.mustOpenParts(1, 2, 6)
	together(ranks, func(r *Rank) { trained(t, r, 0, 0, 2, 6) })
	closeAll(ranks)
	c.close()
}

// TestCancelledOpenLeavesTheRankToAnother checks that a process which gives up opening a job does
// not make another one of its rank, which is opening the job as well, count as gone.
func TestCancelledOpenLeavesTheRankToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newVirtualNodes(t, 2, false)
		ctx, cancel := context.WithCancel(t.Context())
		ranks := make([]*Rank, 3)
		var opening sync.WaitGroup
		begin := func(ctx context.Context, i, number int) {
			opening.Go(func() {
				m := message(number, 2, partOf(t, 2, 0, sampled(number, 0, 6)),
					onNodes(2, 1, c.address()))
				ranks[i], _ = c.list[number].Open(ctx, m, nil, func(request.Step) {})
			})
			synctest.Wait()
		}
		begin(t.Context(), 0, 0)
		begin(ctx, 2, 0)
		cancel()
		synctest.Wait()
		begin(t.Context(), 1, 1)
		opening.Wait()
		if ranks[0] == nil || ranks[1] == nil || ranks[2] != nil {
			t.Fatalf("opened %v", ranks)
		}
		for e := range 3 {
			together(ranks[:2], func(r *Rank) { trained(t, r, e, 0, 2, 6) })
		}
		closeAll(ranks[:2])
		c.close()
	})
}

// TestInvalidPartsAreRefused checks that an invalid part is refused before memory is taken for it.
func TestInvalidPartsAreRefused(t *testing.T) {
	var w world
	n := w.node()
	change := func(f func(g *request.Given)) func(*request.Open) {
		return func(m *request.Open) {
			partOf(t, 2, 0, []int32{1, 2, 3})(m)
			f(m.Stream.Given)
			m.Cluster = &request.Cluster{
				Nodes:          2,
				LocalWorldSize: 1,
				Address:        "127.0.0.1:0",
				Secret:         "0123456789abcdef0123456789abcdef",
			}
		}
	}
	for want, f := range map[string]func(g *request.Given){
		"stream.given.batch = 0": func(g *request.Given) { g.Batch = 0 },
		"stream.given.batch = 9223372036854775807": func(g *request.Given) {
			g.Batch = 1<<63 - 1
		},
		"stream.given.first = -1": func(g *request.Given) { g.First = -1 },
		"epochs = 2":              func(g *request.Given) { g.Epochs = 2 },
		"1 x 0 samples":           func(g *request.Given) { g.Entries = 0 },
		"its descriptor has 12 bytes, and 16 are needed": func(g *request.Given) { g.Entries = 4 },
	} {
		if e := refusal(t, n, message(0, 2, change(f))); e.Kind != failure.Config ||
			!strings.Contains(e.Message, want) {
			t.Errorf("%+v; want %q", e, want)
		}
		w.empty(t, n)
	}
	w.close(t, n)

	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, 2, 6)
	for _, bad := range []struct {
		ids  []int32
		want string
	}{
		{
			[]int32{1, 2, 3, 40, 4, 5},
			"epoch 1 is given with sample 40 at index 3; allowed: 0 to 39",
		},
		{[]int32{1, 2, 3, -1, 4, 5}, "epoch 1 is given with sample -1 at index 3"},
	} {
		if err := give(t, ranks[0], 1, bad.ids); err == nil ||
			!strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v: %v; want %q", bad.ids, err, bad.want)
		}
	}
	for e := 1; e <= 2; e++ {
		if err := give(t, ranks[0], e, sampled(0, e, 6)); err != nil {
			t.Error(err)
		}
	}
	if err := give(t, ranks[0], 3, sampled(0, 3, 6)); err == nil ||
		!strings.Contains(err.Error(), "those of epochs 1 and 2 still wait for the other ranks") {
		t.Errorf("a third epoch ahead: %v", err)
	}
	if err := give(t, ranks[0], 2, sampled(0, 2, 6)); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := give(t, ranks[0], 2, sampled(0, 3, 6)); err == nil ||
		!strings.Contains(err.Error(), "epoch 2 is given again with another order") {
		t.Errorf("once more, and otherwise: %v", err)
	}
	closeAll(ranks)
	c.close()
}

// TestWaitForPartsTimesOut checks that a rank that has begun an epoch that no other begins, because
// they wait for it in the previous one, reads apart after start_timeout, and that the others get an
// error when they come to that epoch, whether or not another rank of its node has begun it as well.
func TestWaitForPartsTimesOut(t *testing.T) {
	const batch, n = 2, 6
	for each := 1; each <= 2; each++ {
		for ahead := 1; ahead <= each; ahead++ { // ranks of node 0 that go on
			synctest.Test(t, func(t *testing.T) {
				c := newVirtualNodes(t, 2, false)
				ranks := c.mustOpenParts(each, batch, n, set("start_timeout", "5s"))
				together(ranks, func(r *Rank) { trained(t, r, 0, 0, batch, n) })
				next := func(r *Rank) error {
					if err := give(t, r, 1, sampled(r.Number(), 1, n)); err != nil {
						t.Error(err)
					}
					got, err := take(r, at{1, 0}, end)
					if len(got) > 0 {
						t.Errorf("rank %d got batches of epoch 1", r.Number())
					}
					return err
				}
				errs := make([]error, len(ranks))
				together(ranks[:ahead], func(r *Rank) { errs[r.Number()] = next(r) })
				time.Sleep(time.Second) // virtual: until node 1 is notified
				together(ranks[ahead:], func(r *Rank) { errs[r.Number()] = next(r) })
				refusedApart(t, fmt.Sprintf("%d of %d on each node ahead", ahead, each), errs,
					"other ranks have not begun epoch 1 within 5s")
				closeAll(ranks)
				c.close()
			})
		}
	}
}
