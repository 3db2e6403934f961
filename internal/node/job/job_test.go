package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test dataset has 12 samples of 100 bytes, each filled with its number. A job has 2 ranks, and
// 3 steps per epoch.
const (
	samples    = 12
	sampleSize = 100
)

type fakeSource struct{}

func (fakeSource) Path(id int) string                              { return fmt.Sprint(id) }
func (fakeSource) Close() error                                    { return nil }
func (fakeSource) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }

func (fakeSource) Read(_ context.Context, id int, dst []byte) (source.Stamp, error) {
	copy(dst, bytes.Repeat([]byte{byte(id)}, len(dst)))
	return 0, nil
}

// noClasses is a dataset without storage classes.
type noClasses struct{}

func (noClasses) Reports() []report.Class { return nil }

func (noClasses) Requests() *report.Requests { return nil }

// memory records which ranks have staging buffers.
type memory struct {
	mu    sync.Mutex
	ranks []int
}

func (m *memory) Staged(rank int, b *staging.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.ranks, rank); b == nil && i >= 0 {
		m.ranks = slices.Delete(m.ranks, i, i+1)
	} else if b != nil {
		m.ranks = append(m.ranks, rank)
	}
}

// nodes are the nodes of a job; the test plays the other ones.
type nodes struct {
	audits int
	mine   []audit.Part // as passed to Audit
	others []audit.Part
}

func (n *nodes) Audit(_ context.Context, _ int, mine []audit.Part) ([]audit.Part, string, error) {
	n.audits++
	n.mine = mine
	return n.others, "node 2 is gone", nil
}

func (n *nodes) Reports(_ context.Context, mine report.NodeReport) []report.NodeReport {
	return []report.NodeReport{mine, {Node: 1, Responding: true, Tally: report.Tally{Batches: 5}}}
}

func (n *nodes) States() []report.Peer { return []report.Peer{{Node: 1}} }

// world is a job and what it works with.
type world struct {
	*Job
	memory *memory
}

func start(t *testing.T, change func(*Config, *Parts)) *world {
	t.Helper()
	b := source.NewBuilder([]string{"a"}, []string{".x"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Path: "a", Class: 0})
	for i := range samples {
		b.Sample(fmt.Sprintf("%04d.x", i), sampleSize, 0, 0)
	}
	index, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m := &request.Open{
		Job: "j", WorldSize: 2, Stream: request.Stream{
			Epochs:      4,
			GlobalBatch: 4,
			Shuffle:     "torch",
			Scheme:      "strided",
			Tail:        "pad",
		},
	}
	o, err := order.New(m, &request.Order{}, 7, index, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	life, end := context.WithCancelCause(context.Background())
	cache := cache.New(cache.Options{
		Index: index, Source: fakeSource{}, Threads: cache.Threads{Start: 2},
	})
	w := &world{memory: new(memory)}
	c := Config{
		Request:  m,
		Seed:     7,
		Ranks:    []int{0, 1},
		Policy:   "staging",
		Staging:  64 << 10,
		Prefetch: 2,
	}
	p := Parts{
		Life: life, End: end, Order: o, Dataset: noClasses{}, Cache: cache, Use: cache.Use(nil),
		Stops: NewStops(m, log), Unusable: NewUnusable("raise"), Memory: w.memory,
		Admit: func(int64, string, string) error { return nil }, Log: log,
	}
	if change != nil {
		change(&c, &p)
	}
	if w.Job, err = New(t.Context(), c, p); err != nil {
		t.Fatal(err)
	}
	w.Opened()
	t.Cleanup(func() {
		end(context.Canceled)
		w.Close()
		p.Use.Close()
		if !cache.Close().None() {
			t.Error("a read hangs")
		}
		if len(w.memory.ranks) > 0 {
			t.Errorf("ranks %v still have their buffers", w.memory.ranks)
		}
	})
	return w
}

func (w *world) join(t *testing.T, rank int) *Rank {
	t.Helper()
	r, err := w.Join(rank, false)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// epoch takes all batches of an epoch, and returns the IDs that were delivered.
func epoch(t *testing.T, r *Rank, epoch int) (ids []int32) {
	t.Helper()
	done := errors.New("the epoch is over")
	var sum uint64
	err := r.Run(t.Context(), epoch, 0, func(b *stage.Batch) error {
		if b.Epoch > epoch {
			return done
		}
		sum += b.Audit
		for i, id := range b.IDs {
			ids = append(ids, int32(id))
			if data := r.buffer.Data(b.Offsets[i], b.Lengths[i]); !bytes.Equal(data,
				bytes.Repeat([]byte{byte(id)}, sampleSize)) {
				t.Errorf("sample %d has other bytes", id)
			}
		}
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, sum)
		return nil
	})
	if err != nil && !errors.Is(err, done) {
		t.Error(err)
	}
	return ids
}

// TestRanksGetTheirPartsOfTheOrder checks that ranks get their parts batch by batch, and that the
// audit of an epoch that both have taken is complete.
func TestRanksGetTheirPartsOfTheOrder(t *testing.T) {
	w := start(t, nil)
	view := w.p.Order.Epoch(1)
	for rank := range 2 {
		r := w.join(t, rank)
		defer r.Close()
		var want []int32
		for step := range 3 {
			want = view.Batch(want, rank, step)
		}
		if got := epoch(t, r, 1); !slices.Equal(got, want) {
			t.Errorf("rank %d got %v, want %v", rank, got, want)
		}
		if rank == 1 {
			if a, err := r.Audit(t.Context(), 1); err != nil || !a.Complete ||
				a.Samples != samples {
				t.Errorf("audited as %+v, %v", a, err)
			}
		}
	}
	if report := w.Report(); len(report.Ranks) != 2 || report.Seed != 7 || report.Steps != 3 ||
		report.Nodes != 1 {
		t.Errorf("reported as %+v", report)
	}
}

// TestAuditAsksTheOtherNodesOnce checks that the other nodes are asked once for all ranks of this
// node, and that both their parts and the reason for missing ones are used.
func TestAuditAsksTheOtherNodesOnce(t *testing.T) {
	n := new(nodes)
	w := start(t, func(c *Config, p *Parts) { c.Ranks, p.Nodes = []int{0}, n })
	r := w.join(t, 0)
	defer r.Close()
	epoch(t, r, 0)
	n.others = []audit.Part{{
		Rank:      1,
		Finished:  true,
		Delivered: audit.Delivered{Hash: 1, Samples: 6},
	}}
	for range 2 {
		a, err := r.Audit(t.Context(), 0)
		if err != nil || a.Complete || a.Samples != samples || a.Why != "node 2 is gone" {
			t.Errorf("audited as %+v, %v", a, err)
		}
	}
	if n.audits != 1 || len(n.mine) != 1 || n.mine[0].Rank != 0 || !n.mine[0].Finished {
		t.Errorf("the other nodes were asked %d times, and told %+v", n.audits, n.mine)
	}
}

// TestClusterReportIsTheSumOverNodes checks that all nodes' reports are added up.
func TestClusterReportIsTheSumOverNodes(t *testing.T) {
	w := start(t, func(c *Config, p *Parts) { c.Ranks, p.Nodes = []int{0}, new(nodes) })
	r := w.join(t, 0)
	defer r.Close()
	epoch(t, r, 0)
	if c := r.ClusterReport(t.Context()); len(c.Nodes) != 2 || c.Total.Batches != 3+5 {
		t.Errorf("over both nodes: %+v", c)
	}
	if report := r.Report(); len(report.Peers) != 1 || report.Peers[0].Node != 1 {
		t.Errorf("the other nodes are %+v", report.Peers)
	}
}

// TestEveryRankIsToldThatTheJobFailed checks a rank that is receiving batches, and one that asks
// for some afterwards.
func TestEveryRankIsToldThatTheJobFailed(t *testing.T) {
	w := start(t, nil)
	first, second := w.join(t, 0), w.join(t, 1)
	defer first.Close()
	defer second.Close()
	why := errors.New("out of memory")
	for _, r := range []*Rank{first, second} {
		err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
			w.Fail(why)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), why.Error()) {
			t.Errorf("rank %d is told %v", r.Number(), err)
		}
	}
}

// TestRankWithAnotherOrderEndsTheJob checks that a rank whose order differs ends the job, unless it
// was in the job before, or the difference is not about the order.
func TestRankWithAnotherOrderEndsTheJob(t *testing.T) {
	w := start(t, nil)
	w.join(t, 0).Close()
	refused := func(key string) error {
		return failure.Differs(key, 1, 2, nil, "%s is 1 on rank 1 and 2 on rank 0", key)
	}
	again := w.Disagree(0, refused("seed"))
	alone := w.Disagree(1, refused("policy"))
	for rank, err := range []error{again, alone} {
		if want := fmt.Sprintf(". Only rank %d is refused", rank); !strings.Contains(err.Error(),
			want) {
			t.Errorf("rank %d is told %q, want %q", rank, err, want)
		}
	}
	for _, other := range []error{errors.New("anything else"), failure.Input("a wrong value")} {
		if err := w.Disagree(1, other); err != other {
			t.Errorf("got %v, want %v", err, other)
		}
	}
	if err := w.failure(); err != nil {
		t.Errorf("the job failed: %v", err)
	}
	told, others := failure.Of(w.Disagree(1, refused("seed"))), failure.Of(w.failure())
	for _, e := range []*failure.Error{told, others} {
		if e.Kind != failure.Mismatch || e.Details["key"] != "seed" ||
			!strings.Contains(e.Message, "seed is 1 on rank 1 and 2 on rank 0. The job ends") {
			t.Errorf("ranks are told %+v", e)
		}
	}
	// Each side has its own value as "mine".
	if told.Details["mine"] != 1 || others.Details["mine"] != 2 || others.Details["theirs"] != 1 {
		t.Errorf("the refused rank is told %v, the others %v", told.Details, others.Details)
	}
}

// TestRankHasOneProcess checks that one process at a time has a rank, and that its buffer counts
// until it leaves.
func TestRankHasOneProcess(t *testing.T) {
	w := start(t, nil)
	r := w.join(t, 1)
	if open, ever := w.Has(1); !open || !ever || !slices.Equal(w.memory.ranks, []int{1}) {
		t.Errorf("open %v, ever %v; buffers of ranks %v", open, ever, w.memory.ranks)
	}
	if _, err := w.Join(1, false); failure.Of(err).Kind != failure.Busy {
		t.Errorf("a second process: %v", err)
	}
	r.Close()
	r.Close()
	if open, ever := w.Has(1); open || !ever || len(w.memory.ranks) > 0 {
		t.Errorf("open %v, ever %v; buffers of ranks %v", open, ever, w.memory.ranks)
	}
	w.join(t, 1).Close()
}

// ragged stands for a transform to images of different sizes, ten times as large as the samples.
type ragged struct{}

func (ragged) Expected(bytes float64) float64 { return 10 * bytes }
func (ragged) Ragged() bool                   { return true }

// TestBufferHoldsTwoBatches checks that the buffer holds at least 2 batches, whatever size was
// asked for.
func TestBufferHoldsTwoBatches(t *testing.T) {
	o := start(t, nil).p.Order
	const batch = 2 * sampleSize
	for _, c := range []struct {
		asked   int64
		program Sizes
		want    int64
		warns   bool
	}{
		{0, nil, smallestBuffer, false},
		{2 * batch, nil, 2 * batch, false},
		{2*batch - 1, nil, 2 * batch, true},
		{2 * batch, ragged{}, 2 * 10 * batch, true},
		{0, ragged{}, smallestBuffer, false},
	} {
		if got, warning := BufferSize(o, 0, c.asked, c.program); got != c.want ||
			(warning != "") != c.warns {
			t.Errorf("%+v: %d bytes, %q", c, got, warning)
		}
	}
}
