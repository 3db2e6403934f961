package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/source"
)

// TestAuditAgreesWithExplain checks the audit over two ranks and all epochs, and that Explain
// returns what was delivered.
func TestAuditAgreesWithExplain(t *testing.T) {
	var w world
	n := w.node()
	ranks := []*Rank{open(t, n, message(0, 2)), open(t, n, message(1, 2))}
	together(ranks, func(r *Rank) {
		got := consume(t, r, at{0, 0}, end)
		if len(got) != 4*4 {
			t.Errorf("rank %d: %d batches, want 16", r.Number(), len(got))
		}
		for here, ids := range got {
			x, err := ranks[0].Explain(here.epoch, here.step, r.Number())
			if err != nil || !slices.Equal(x.IDs, ids) || len(x.Labels) != len(ids) ||
				len(x.Paths) != len(ids) {
				t.Errorf("rank %d, %+v: explained as %+v (%v), delivered %v", r.Number(), here, x,
					err, ids)
				continue
			}
			index := r.entry.dataset.Index()
			for i, id := range ids {
				if x.Labels[i] != index.Label(int(id)) || x.Paths[i] != index.Name(int(id)) {
					t.Errorf("sample %d is explained as %s, of class %d", id, x.Paths[i],
						x.Labels[i])
				}
			}
		}
	})
	for epoch := range 4 {
		a, err := ranks[1].Audit(t.Context(), epoch)
		if err != nil || !a.Complete || a.Samples != samples || a.Expected != a.Delivered ||
			len(a.Missing) > 0 {
			t.Errorf("epoch %d: %+v, %v", epoch, a, err)
		}
	}
	for _, epoch := range []int{-1, 4} {
		if _, err := ranks[0].Audit(t.Context(), epoch); err == nil ||
			!strings.Contains(err.Error(), "4 epochs") {
			t.Errorf("audit of epoch %d: %v", epoch, err)
		}
	}
	for says, x := range map[string][3]int{"epoch -1": {-1}, "step 4": {0, 4}, "rank 2": {0, 0, 2}} {
		_, err := ranks[0].Explain(x[0], x[1], x[2])
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("explain %v: %v; want %q", x, err, says)
		}
	}
	if x, err := ranks[1].Explain(0, 0, -1); err != nil || x.Rank != 1 {
		t.Errorf("explain of the own rank: %+v, %v", x, err)
	}
	for _, r := range ranks {
		r.Close()
	}
	w.close(t, n)
}

// TestResumedEpochsAreAudited checks epochs that begin in the middle, with samples left out, and
// that are run twice.
func TestResumedEpochsAreAudited(t *testing.T) {
	w := world{read: func(_ context.Context, id int) error {
		if id%7 == 3 {
			return &source.SampleError{ID: id, Path: "p", Kind: source.ErrMissing}
		}
		return nil
	}}
	for _, policy := range []string{"skip", "substitute"} {
		w.ram = nil
		n := w.node()
		ranks := []*Rank{
			open(t, n, message(0, 2, set("on_error", policy))),
			open(t, n, message(1, 2, set("on_error", policy))),
		}
		for range 2 {
			together(ranks, func(r *Rank) { consume(t, r, at{1, 2}, at{3, 0}) })
			for epoch := 1; epoch < 3; epoch++ {
				a, err := ranks[0].Audit(t.Context(), epoch)
				if err != nil || !a.Complete {
					t.Errorf("%s, epoch %d: %+v, %v", policy, epoch, a, err)
				}
				if policy == "substitute" && a.Samples != int64(samples/(3-epoch)) {
					t.Errorf("epoch %d: %d samples", epoch, a.Samples)
				}
			}
		}
		if faults := ranks[0].Report().Faults; len(faults) != 6 {
			t.Errorf("%s: %d faults are listed, want 6", policy, len(faults))
		}
		for _, r := range ranks {
			r.Close()
		}
		w.close(t, n)
	}
}

// TestDeliveriesCountAfterRanksLeft checks that what was delivered to a rank still counts when its
// process is gone, and when another one has its rank.
func TestDeliveriesCountAfterRanksLeft(t *testing.T) {
	w := world{read: func(_ context.Context, id int) error {
		if id == 3 {
			return &source.SampleError{ID: id, Path: "p", Kind: source.ErrMissing}
		}
		return nil
	}}
	n := w.node()
	skip := set("on_error", "skip")
	ranks := []*Rank{open(t, n, message(0, 2, skip)), open(t, n, message(1, 2, skip))}
	together(ranks, func(r *Rank) { consume(t, r, at{0, 0}, at{2, 0}) })
	for epoch := range 2 {
		for rank := range 2 {
			ranks[rank].Close()
			ranks[rank] = open(t, n, message(rank, 2, skip))
		}
		if a, err := ranks[0].Audit(t.Context(), epoch); err != nil || !a.Complete ||
			a.Samples != samples-1 {
			t.Errorf("epoch %d: %+v, %v", epoch, a, err)
		}
	}
	for _, r := range ranks {
		r.Close()
	}
	w.close(t, n)
}

// TestAuditWaitsForRanks checks that an audit waits for ranks that are still in the epoch, but not
// for those that left, and that it finds a wrong sum.
func TestAuditWaitsForRanks(t *testing.T) {
	var w world
	n := w.node()
	ranks := []*Rank{open(t, n, message(0, 2)), open(t, n, message(1, 2))}
	consume(t, ranks[0], at{0, 0}, at{1, 0})
	audited := make(chan *audit.Result, 1)
	go func() {
		a, err := ranks[0].Audit(context.Background(), 0)
		if err != nil {
			t.Error(err)
		}
		audited <- a
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ranks[0].Audit(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled audit: %v", err)
	}
	consume(t, ranks[1], at{0, 0}, at{0, 2})
	select {
	case a := <-audited:
		t.Errorf("audited before rank 1 had finished: %+v", a)
	default:
	}
	ranks[1].Close()
	if a := <-audited; a.Complete || !slices.Equal(a.Missing, []int{1}) {
		t.Errorf("rank 1 left: %+v", a)
	}
	ranks[1] = open(t, n, message(1, 2))
	if _, err := takeSaying(ranks[1], at{0, 0}, at{1, 0}, func(uint64) uint64 {
		return 12345
	}); err != nil {
		t.Error(err)
	}
	if a, err := ranks[0].Audit(t.Context(), 0); err != nil || a.Complete ||
		a.Expected == a.Delivered {
		t.Errorf("a wrong sum: %+v, %v", a, err)
	}
	for _, r := range ranks {
		r.Close()
	}
	w.close(t, n)
}

// TestAuditOfOldEpochIsRefused checks that an audit of an epoch that is no longer known does not
// wait.
func TestAuditOfOldEpochIsRefused(t *testing.T) {
	var w world
	n := w.node()
	r := open(t, n,
		message(0, 1, func(m *request.Open) { m.Stream.Epochs = 0; m.Stream.GlobalBatch = 40 }))
	consume(t, r, at{0, 0}, at{20, 0})
	if _, err := r.Audit(t.Context(), 3); err == nil ||
		!strings.Contains(err.Error(), "from epoch 4 on") {
		t.Errorf("audit of epoch 3 after 20: %v", err)
	}
	if a, err := r.Audit(t.Context(), 4); err != nil || !a.Complete {
		t.Errorf("audit of epoch 4 after 20: %+v, %v", a, err)
	}
	r.Close()
	w.close(t, n)
}

// TestSourceReadsStayWithinTheBound checks that, whatever the caches hold, at most the bound is
// read from the source over four epochs, and that the report's totals are the sums of its parts.
func TestSourceReadsStayWithinTheBound(t *testing.T) {
	for _, memory := range []string{"0B", "20000B", "40000B"} {
		var w world
		n := w.node()
		ranks := []*Rank{
			open(t, n, message(0, 2, set("memory", memory))),
			open(t, n, message(1, 2, set("memory", memory))),
		}
		together(ranks, func(r *Rank) { consume(t, r, at{0, 0}, end) })
		r := ranks[0].Report()
		for r.Source.Bytes < w.bytes.Load() { // reads that fill the class are counted afterwards
			r = ranks[0].Report()
		}
		if got := w.bytes.Load(); float64(got) > 1.01*float64(r.Bound) {
			t.Errorf("memory %s: %d bytes left the source, the bound is %d", memory, got, r.Bound)
		}
		var bySummary, byRank, reads int64
		for _, e := range r.Epochs {
			bySummary += e.Source.Bytes
			if e.Batches != 8 || e.Samples != samples {
				t.Errorf("memory %s: epoch %+v", memory, e)
			}
			for _, a := range e.Reads {
				reads += a.Samples
			}
		}
		for _, rank := range r.Ranks {
			for _, e := range rank.Epochs {
				byRank += e.Samples
			}
		}
		if bySummary != r.Source.Bytes || byRank != 4*samples || reads != 4*samples {
			t.Errorf("memory %s: the parts do not add up: %d of %d bytes, %d and %d of %d samples",
				memory, bySummary, r.Source.Bytes, byRank, reads, 4*samples)
		}
		if want := map[string]int64{
			"0B":     4 * total,
			"20000B": total + 3*total/2,
			"40000B": total,
		}[memory]; r.Bound != want {
			t.Errorf("memory %s: bound %d, want %d", memory, r.Bound, want)
		}
		if !strings.Contains(r.Sentence, "4 epochs") || r.BoundShare > 1.01 || r.Utilisation < 0 ||
			r.Utilisation > 1 {
			t.Errorf("memory %s: share %v, utilisation %v, %q", memory, r.BoundShare, r.Utilisation,
				r.Sentence)
		}
		for _, r := range ranks {
			r.Close()
		}
		w.close(t, n)
	}
}

// TestTwoJobsShareACache checks that two jobs on one dataset share its cache.
func TestTwoJobsShareACache(t *testing.T) {
	var w world
	n := w.node()
	a := open(t, n, message(0, 1))
	b := open(t, n,
		message(0, 1, func(m *request.Open) { m.Job = "k"; m.Stream.Shuffle = "feistel" }))
	together([]*Rank{a, b}, func(r *Rank) { consume(t, r, at{0, 0}, end) })
	if got := w.bytes.Load(); got != total {
		t.Errorf("%d bytes left the source for two jobs, want the dataset's %d", got, total)
	}
	if r := n.Reports(); len(r) != 2 || r[0].Job != "j" || r[1].Job != "k" {
		t.Errorf("reports %+v", r)
	}
	if warnings := b.Opened().Warnings; len(warnings) != 0 {
		t.Errorf("warnings %q, although the cache settings are the same", warnings)
	}
	c := open(t, n,
		message(0, 1, set("source_threads", "9"), func(m *request.Open) { m.Job = "l" }))
	if warnings := c.Opened().Warnings; len(warnings) != 1 ||
		!strings.Contains(warnings[0], "another job") ||
		!strings.Contains(warnings[0], "source_threads (0 in that job, 9 in this one)") {
		t.Errorf("warnings %q", warnings)
	}
	c.Close()
	a.Close()
	consume(t, b, at{0, 0}, end) // the other job goes on
	b.Close()
	w.close(t, n)
}

// TestReopenedJobIsWarm checks that a job that is opened again finds memory warm on the same node,
// and the file class on the next one.
func TestReopenedJobIsWarm(t *testing.T) {
	for _, where := range []string{"memory", "file", "both"} {
		w := world{disk: t.TempDir()}
		n := w.node()
		change := []func(*request.Open){}
		if where != "memory" {
			change = append(change, set("cache_dir", w.disk), set("cache_size", "1MB"))
		}
		if where == "file" {
			change = append(change, set("memory", "0"))
		}
		r := open(t, n, message(0, 1, change...))
		consume(t, r, at{0, 0}, end)
		r.Close()
		if got := w.bytes.Swap(0); got != total {
			t.Errorf("%s: %d bytes left the source at first, want %d", where, got, total)
		}
		if where != "memory" { // the daemon is restarted
			w.close(t, n)
			w.ram = nil
			n = w.node()
		}
		r = open(t, n, message(0, 1, change...))
		consume(t, r, at{0, 0}, end)
		if got := w.bytes.Load(); got != 0 {
			t.Errorf("%s: %d bytes left the source again", where, got)
		}
		if s := r.Report().BoundShare; s != 0 {
			t.Errorf("%s: share of the bound %v, want 0", where, s)
		}
		r.Close()
		w.close(t, n)
	}
}

// TestUnsentBatchesDoNotCount checks that batches that were never sent count nowhere.
func TestUnsentBatchesDoNotCount(t *testing.T) {
	var w world
	n := w.node()
	r := open(t, n, message(0, 1))
	for epoch := range 100 {
		r.Yielded(epoch, 3, stage.Stall{}, 99)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for epoch := range 4 {
		if a, err := r.Audit(ctx, epoch); !errors.Is(err, context.Canceled) {
			t.Errorf("an audit of epoch %d, which was never delivered, does not wait: %+v, %v",
				epoch, a, err)
		}
	}
	if s := r.Report().Sentence; s != "No batch has been read yet." {
		t.Errorf("sentence %q", s)
	}
	for _, x := range []at{{0, 5}} {
		if err := r.Check(x.epoch, x.step); err == nil {
			t.Errorf("%+v passes", x)
		}
	}
	r.Close()
	w.close(t, n)
}

// TestHungSourceEndsTheStreamInTime checks that when a read hangs the stream ends in time, job and
// node can be closed, the dataset can be opened again, and the report names what hangs.
func TestHungSourceEndsTheStreamInTime(t *testing.T) {
	gate := make(chan struct{})
	var hung atomic.Bool
	w := world{read: func(_ context.Context, id int) error {
		if id == 5 && !hung.Swap(true) {
			<-gate
		}
		return nil
	}}
	n := w.node()
	m := message(0, 1, set("source_timeout", "200ms"))
	r := open(t, n, m)
	keeper, err := n.OpenDataset(t.Context(), m.Dataset, nil,
		OpenOptions{Config: r.entry.open.Config})
	if err != nil {
		t.Fatal(err)
	}
	_, err = take(r, at{0, 0}, end)
	var sample *source.SampleError
	if !errors.As(err, &sample) || sample.ID != 5 || !errors.Is(err, source.ErrUnavailable) ||
		!strings.Contains(err.Error(), "source_timeout (200ms)") {
		t.Fatalf("error %v", err)
	}
	if x := r.Report().Waiting; x == nil || x.Sample != 5 || x.Path != sample.Path ||
		x.Seconds < 0.2 {
		t.Errorf("waiting %+v", x)
	}
	r.Close()
	again := open(t, n, m)
	consume(t, again, at{0, 0}, end)
	if k := len(again.Report().Classes); k != 1 {
		t.Errorf("%d classes, want 1", k)
	}
	again.Close()
	keeper.Close()
	if err := n.Close(); err != nil {
		t.Errorf("close the node: %v", err)
	}
	close(gate)
	noBuffers(t) // nor that of the hung read
}
