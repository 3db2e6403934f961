package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// unreadable returns the error of a sample that cannot be read.
func unreadable(id int) error {
	return &source.SampleError{
		ID:   id,
		Path: fmt.Sprintf("/data/%d.x", id),
		Kind: source.ErrMissing,
	}
}

// first returns the position at which a rank first needs a sample.
func first(r *Rank, sample int) at {
	for epoch := 0; ; epoch++ {
		for step := range r.entry.open.Order.Stream().Steps() {
			ids := r.entry.open.Order.Stream().Epoch(epoch).Batch(nil, r.Number(), step)
			if slices.Contains(ids, int32(sample)) {
				return at{epoch, step}
			}
		}
	}
}

// stopAll runs all ranks from the beginning until a sample cannot be read for one of them: that
// rank ends before the sample's batch, and all end with its error. It checks that each got only its
// stream.
func (c *nodes) stopAll(ranks []*Rank, rank, sample int) {
	c.t.Helper()
	missing := first(ranks[rank], sample)
	together(ranks, func(r *Rank) {
		r.Wait() // before policy naive reads anything
		got, err := take(r, at{0, 0}, end)
		if err == nil {
			c.t.Errorf("rank %d got no error", r.Number())
			return
		}
		m := failure.Of(err)
		text := fmt.Sprintf("sample %d (/data/%d.x)", sample, sample)
		if r.Number() != rank {
			text = fmt.Sprintf("rank %d on node %d (%s) stopped: %s", rank, rank, m.Details["host"],
				text)
		}
		if m.Kind != failure.Sample || fmt.Sprint(m.Details["sample"]) != fmt.Sprint(sample) ||
			!strings.HasPrefix(m.Message, text) {
			c.t.Errorf("rank %d got %+v, want %s", r.Number(), m, text)
		}
		if steps := r.entry.open.Order.Stream().Steps(); r.Number() == rank &&
			len(got) != missing.epoch*steps+missing.step {
			c.t.Errorf("rank %d got %d batches before %+v", r.Number(), len(got), missing)
		}
		for here, ids := range got {
			epoch := r.entry.open.Order.Stream().Epoch(here.epoch)
			if want := epoch.Batch(nil, r.Number(), here.step); !slices.Equal(ids, want) {
				c.t.Errorf("rank %d, %+v: samples %v, want %v", r.Number(), here, ids, want)
			}
		}
	})
}

// TestOneStoppedRankStopsAll checks that if one rank's stream ends because its node cannot read a
// sample, those of all ranks on all nodes end; that they get the stream when the sample can be read
// and they begin again; and that a later failure reaches them too.
func TestOneStoppedRankStopsAll(t *testing.T) {
	c := newNodes(t, 3, false)
	var bad [3]atomic.Int32 // by node
	for n, w := range c.worlds {
		bad[n].Store(-1)
		w.read = func(_ context.Context, id int) error {
			if int32(id) == bad[n].Load() {
				return unreadable(id)
			}
			return nil
		}
	}
	ranks := c.open(set("policy", "naive"), func(m *request.Open) { m.Stream.Epochs = 0 })
	for rank, sample := range []int32{7, 31, 7} {
		bad[rank].Store(sample)
		c.stopAll(ranks, rank, int(sample))
		bad[rank].Store(-1)
		c.epochs(ranks, 0, 4)
	}
	closeAll(ranks)
	c.close()
}

// TestStopIsReportedOnLeaving checks that the stop of a rank that leaves the job at once, as a
// process does that does not handle the error, has reached the others.
func TestStopIsReportedOnLeaving(t *testing.T) {
	c := newNodes(t, 3, false)
	c.worlds[1].read = func(_ context.Context, id int) error { return unreadable(id) }
	ranks := c.open(set("policy", "naive"))
	ranks[1].Wait()
	if _, err := take(ranks[1], at{1, 1}, end); err == nil {
		t.Error("rank 1 did not stop")
	}
	ranks[1].Close()
	for _, r := range []*Rank{ranks[0], ranks[2]} {
		r.Wait()
		got, err := take(r, at{0, 0}, end)
		if err == nil || !strings.HasPrefix(err.Error(), "rank 1 on node 1") ||
			len(got) != r.entry.open.Order.Stream().Steps()+1 {
			t.Errorf("rank %d got %d batches, and %v", r.Number(), len(got), err)
		}
		r.Close()
	}
	c.close()
}

// TestStopReachesWaitingRanks checks that a rank that waits for its batch of the step that failed
// on another rank gets the error at once.
func TestStopReachesWaitingRanks(t *testing.T) {
	var bad, slow atomic.Int32
	bad.Store(-1)
	slow.Store(-1)
	free := make(chan struct{})
	w := world{read: func(_ context.Context, id int) error {
		switch int32(id) {
		case bad.Load():
			return unreadable(id)
		case slow.Load():
			<-free
		}
		return nil
	}}
	n := w.node()
	ranks := []*Rank{
		open(t, n, message(0, 2, set("policy", "naive"))),
		open(t, n, message(1, 2, set("policy", "naive"))),
	}
	stream := ranks[0].entry.open.Order.Stream()
	bad.Store(stream.Epoch(0).Batch(nil, 0, 0)[0])
	slow.Store(stream.Epoch(0).Batch(nil, 1, 0)[0])
	together(ranks, func(r *Rank) {
		r.Wait()
		got, err := take(r, at{0, 0}, end)
		if len(got) != 0 || err == nil || failure.Of(err).Kind != failure.Sample {
			t.Errorf("rank %d got %v, %v", r.Number(), got, err)
			return
		}
		if told := strings.HasPrefix(err.Error(),
			"rank 0 stopped: sample"); told != (r.Number() == 1) {
			t.Errorf("rank %d: %v", r.Number(), err)
		}
	})
	close(free)
	closeAll(ranks)
	w.close(t, n)
}

// TestOneNodesDecisionHoldsOnAll checks that a sample that one node could not read is left out, or
// substituted, on all nodes, although it can be read again.
func TestOneNodesDecisionHoldsOnAll(t *testing.T) {
	for _, policy := range []string{"skip", "substitute"} {
		c := newNodes(t, 3, false)
		const bad = 7
		var back atomic.Bool
		for _, w := range c.worlds {
			w.read = func(_ context.Context, id int) error {
				if id == bad && !back.Load() {
					return unreadable(id)
				}
				return nil
			}
		}
		ranks := c.open(set("policy", "naive"), set("on_error", policy),
			func(m *request.Open) { m.Stream.Epochs = 0 })
		epoch := func(e int) {
			together(ranks, func(r *Rank) {
				r.Wait()
				for here, ids := range consume(t, r, at{e, 0}, at{e + 1, 0}) {
					want := r.entry.open.Order.Stream().Epoch(e).Batch(nil, r.Number(), here.step)
					if i := slices.Index(want, bad); i >= 0 && policy == "skip" {
						want = slices.Delete(want, i, i+1)
					} else if i >= 0 {
						want[i] = bad + 1
					}
					if !slices.Equal(ids, want) {
						t.Errorf("%s, rank %d, %+v: samples %v, want %v", policy, r.Number(), here, ids, want)
					}
				}
			})
		}
		epoch(0)
		for _, r := range ranks {
			testkit.Until(t, "all nodes know of the sample", func() bool {
				faults := r.Report().Faults
				return len(faults) == 1 && faults[0].Sample == bad && faults[0].Policy == policy &&
					faults[0].Path == "/data/7.x"
			})
		}
		back.Store(true)
		for e := 1; e < 5; e++ {
			epoch(e)
		}
		for _, r := range ranks {
			if a, err := r.Audit(t.Context(), 0); err != nil || !a.Complete {
				t.Errorf("%s: audit %+v, %v", policy, a, err)
			}
		}
		closeAll(ranks)
		c.close()
	}
}
