package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/job"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/request/requesttest"
	"github.com/hdmlp/hdmlp/internal/stage"
)

// over makes a job one over a subset.
func over(t *testing.T, ids []int32) func(*request.Open) {
	return func(m *request.Open) {
		m.Stream.Subset, m.Stream.List = &request.Subset{Count: len(ids)}, requesttest.List(t, ids)
	}
}

// by makes a job one whose epochs are given, with these and from first on.
func by(t *testing.T, batches []int32, first int, epochs ...[]int32) func(*request.Open) {
	return func(m *request.Open) {
		m.Stream.Shuffle = "given"
		m.Stream.Given = &request.Given{Batches: len(batches), Entries: len(epochs[0]), Epochs: len(epochs), First: first}
		m.Stream.List = requesttest.List(t, append([][]int32{batches}, epochs...)...)
	}
}

func give(t *testing.T, r *Rank, epoch int, ids []int32) error {
	return r.Give(request.Give{Epoch: epoch, Entries: len(ids)}, requesttest.List(t, ids))
}

// TestSubset: ranks are delivered a part of the dataset as a sampler over the part would have it; nothing else is read, whatever room there
// is; and the bound is over that part.
func TestSubset(t *testing.T) {
	subset := []int32{39, 3, 3, 17, 0, 21, 8, 9, 30, 31, 32, 33, 34}
	for _, shuffle := range []string{"torch", "feistel", "none"} {
		for _, policy := range policies.Engine() {
			w := world{}
			n := w.node()
			change := []func(*request.Open){
				over(t, subset), set("policy", policy.Name()),
				func(m *request.Open) { m.Stream.Shuffle, m.Stream.GlobalBatch = shuffle, 4 },
			}
			ranks := []*Rank{open(t, n, message(0, 2, change...)), open(t, n, message(1, 2, change...))}
			o := ranks[0].Opened()
			if o.Positions != len(subset) || o.Samples != samples || o.Steps != 4 || o.RankSamples != 7 {
				t.Errorf("opened %+v", o)
			}
			plain, err := access.New(access.Spec{Samples: len(subset), Seed: 7, Epochs: 4, WorldSize: 2, GlobalBatch: 4, Shuffle: access.Shuffle(shuffle)})
			if err != nil {
				t.Fatal(err)
			}
			together(ranks, func(r *Rank) {
				r.Wait() // before naive reads anything
				for here, ids := range consume(t, r, at{}, end) {
					want := plain.Epoch(here.epoch).Batch(nil, r.Number(), here.step)
					for i, p := range want {
						want[i] = subset[p]
					}
					if !slices.Equal(ids, want) {
						t.Errorf("%s: rank %d, %+v: samples %v, want %v", policy.Name(), r.Number(), here, ids, want)
					}
				}
				if a, err := r.Audit(t.Context(), 3); err != nil || !a.Complete {
					t.Errorf("%s: audit %+v, %v", policy.Name(), a, err)
				}
			})
			const needed = 12 * sampleSize
			r := ranks[0].Report()
			if !r.Subset || r.Needed != needed || r.Positions != len(subset) {
				t.Errorf("report %+v", r)
			}
			if slices.Contains([]string{"naive", "staging"}, policy.Name()) {
				// Ranks that need a sample at the same time share a read, and padding adds some.
				if left := w.bytes.Load(); r.Bound != 4*needed || left < needed {
					t.Errorf("%s: %d bytes left the source, and the bound is %d", policy.Name(), left, r.Bound)
				}
			} else if r.Bound != needed || w.bytes.Load() != needed {
				t.Errorf("%s: %d bytes left the source, and the bound is %d; want %d", policy.Name(), w.bytes.Load(), r.Bound, needed)
			}
			closeAll(ranks)
			w.close(t, n)
		}
	}
}

// TestSubsetOverNodes: what holds on one node does on several, with a plan that is there at once or made meanwhile; samples that
// are there twice are read from the source once.
func TestSubsetOverNodes(t *testing.T) {
	var subset []int32
	for k := range int32(20) {
		subset = append(subset, 2*k, 2*k)
	}
	for _, background := range []bool{false, true} {
		c := newNodes(t, 2, background)
		ranks := c.open(over(t, subset), set("memory", "11000B"))
		c.epochs(ranks, 0, 4)
		if total, most := c.read(); total != 20 || most != 1 {
			t.Errorf("background=%v: the source was read %d times, one sample %d times; want 20, and 1", background, total, most)
		}
		closeAll(ranks)
		c.close()
	}
}

// TestSubsetsDiffer: ranks, and nodes, whose subsets differ are refused, and named.
func TestSubsetsDiffer(t *testing.T) {
	var w world
	n := w.node()
	first := open(t, n, message(0, 2, over(t, []int32{1, 2, 3})))
	for _, other := range [][]int32{{1, 3, 2}, {1, 2}} {
		e := refusal(t, n, message(1, 2, over(t, other)))
		if e.Kind != failure.Mismatch || !strings.Contains(e.Message, "rank 1 disagrees with rank 0 of job j: subset or batches is") {
			t.Errorf("%+v", e)
		}
	}
	if e := refusal(t, n, message(1, 2)); e.Kind != failure.Mismatch || !strings.Contains(e.Message, "subset or batches is none here and 3 samples") {
		t.Errorf("%+v", e)
	}
	first.Close()
	w.close(t, n)

	c := newNodes(t, 2, false)
	address := c.address()
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i, node := range c.list {
		all.Go(func() {
			m := message(i, 2, over(t, []int32{1, 2, int32(i)}), onNodes(2, 1, address))
			_, errs[i] = node.Open(t.Context(), m, nil, func(request.Step) {})
		})
	}
	all.Wait()
	for i, err := range errs {
		var said *failure.Error
		if !errors.As(err, &said) || said.Kind != failure.Mismatch || !strings.Contains(said.Message, "subset or batches") || said.Details["node"] != 1 {
			t.Errorf("node %d: %v", i, err)
		}
	}
	c.close()
}

// TestGivenEpochs: epochs are delivered as they are given; a run ends with the last one that is known, and goes on into one that comes in
// time; those that are over are forgotten.
func TestGivenEpochs(t *testing.T) {
	batches := []int32{3, 1, 6}
	orders := [][]int32{
		{39, 39, 0, 5, 1, 2, 3, 4, 5, 6},
		{10, 11, 12, 13, 14, 15, 15, 15, 15, 16},
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		{9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
	}
	wanted := func(epoch, step int) []int32 {
		from := []int32{0, 3, 4}[step]
		return orders[epoch][from : from+batches[step]]
	}
	check := func(t *testing.T, got map[at][]int32, epochs ...int) {
		t.Helper()
		if len(got) != 3*len(epochs) {
			t.Errorf("%d batches, want %d", len(got), 3*len(epochs))
		}
		for here, ids := range got {
			if !slices.Contains(epochs, here.epoch) || !slices.Equal(ids, wanted(here.epoch, here.step)) {
				t.Errorf("%+v: samples %v", here, ids)
			}
		}
	}
	for _, policy := range policies.Engine() {
		for _, background := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/background=%v", policy.Name(), background), func(t *testing.T) {
				w := world{}
				n := w.node()
				if background {
					n.options.Strategy.AtOnce = -1
				}
				r := open(t, n, message(0, 1, by(t, batches, 0, orders[0]), set("policy", policy.Name())))
				if o := r.Opened(); o.Positions != 10 || o.Steps != 3 || o.RankSamples != 10 {
					t.Errorf("opened %+v", o)
				}
				r.Wait()
				check(t, consume(t, r, at{}, end), 0)
				<-r.entry.open.Job.Planner().Done() // what is read before is kept only where epoch 0 has it
				if a, err := r.Audit(t.Context(), 0); err != nil || !a.Complete || a.Samples != 10 {
					t.Errorf("audit %+v, %v", a, err)
				}
				if err := r.Check(1, 0); err == nil || !strings.Contains(err.Error(), "epoch 1 was not given") {
					t.Errorf("an epoch that is not there: %v", err)
				}
				for e := 1; e < 3; e++ {
					if err := give(t, r, e, orders[e]); err != nil {
						t.Fatal(err)
					}
				}
				if x, err := r.Explain(2, 2, -1); err != nil || !slices.Equal(x.IDs, wanted(2, 2)) {
					t.Errorf("explained %+v, %v", x, err)
				}
				r.Wait()
				check(t, consume(t, r, at{1, 0}, end), 1, 2)
				if known := r.entry.open.Order.Stream().GivenEpochs(); !slices.Equal(known, []int{2}) {
					t.Errorf("epochs %v are known, and 2 was the last", known)
				}
				if a, err := r.Audit(t.Context(), 2); err != nil || !a.Complete {
					t.Errorf("audit %+v, %v", a, err)
				}
				if _, err := r.Explain(1, 0, -1); err == nil || !strings.Contains(err.Error(), "epoch 1 was not given, or is over") {
					t.Errorf("explained what is forgotten: %v", err)
				}
				if err := give(t, r, 3, orders[3]); err != nil {
					t.Fatal(err)
				}
				r.Wait()
				got := consume(t, r, at{3, 1}, end) // amid an epoch
				if len(got) != 2 || !slices.Equal(got[at{3, 2}], wanted(3, 2)) {
					t.Errorf("resumed: %v", got)
				}
				rep := r.Report()
				if slices.Contains([]string{"naive", "staging"}, policy.Name()) {
					if want := int64(8+7+10+7) * sampleSize; rep.Bound != want {
						t.Errorf("bound %d, want %d", rep.Bound, want)
					}
				} else if want := int64(8+7+3) * sampleSize; rep.Bound != want || w.bytes.Load() != want { // 7, 8, 9 are new in epoch 2
					t.Errorf("%d bytes left the source, the bound is %d; want %d", w.bytes.Load(), rep.Bound, want)
				}
				r.Close()
				w.close(t, n)
			})
		}
	}
}

// TestGivenInTime: an epoch that is given before the process has taken the last batch of the one before it is gone into without another
// Run, however far the run is ahead.
func TestGivenInTime(t *testing.T) {
	w := world{}
	n := w.node()
	r := open(t, n, message(0, 1, by(t, []int32{1, 1, 1, 1}, 5, []int32{1, 2, 3, 4}), func(m *request.Open) { m.Stream.Epochs = 0 }))
	var got []int32
	err := r.Run(t.Context(), 5, 0, func(b *stage.Batch) error {
		if b.Epoch < 150 && b.Step == 3 {
			if err := give(t, r, b.Epoch+1, []int32{int32(b.Epoch % samples), 2, 3, 4}); err != nil {
				return err
			}
		}
		if b.Step == 0 {
			got = append(got, int32(b.IDs[0]))
		}
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, 0)
		r.Wait()
		if known := r.entry.open.Order.Stream().GivenEpochs(); len(known) > 2 {
			return fmt.Errorf("epochs %v are known", known)
		}
		return nil
	})
	if err != nil || len(got) != 146 || got[0] != 1 || got[145] != 149%samples {
		t.Errorf("%v; first samples %v", err, got)
	}
	r.Close()
	w.close(t, n)
}

// TestGiveRefused: an order that cannot be is refused with epoch, index and value, and a process cannot give ahead without end.
func TestGiveRefused(t *testing.T) {
	w := world{}
	n := w.node()
	r := open(t, n, message(0, 1, by(t, []int32{2, 1}, 0, []int32{1, 2, 3}), func(m *request.Open) { m.Stream.Epochs = 9 }))
	for _, c := range []struct {
		epoch int
		ids   []int32
		want  string
	}{
		{1, []int32{1, 2, 40}, "epoch 1 is given with sample 40 at index 2; allowed: 0 to 39"},
		{1, []int32{1, -2, 3}, "epoch 1 is given with sample -2 at index 1"},
		{1, []int32{1, 2}, "the order of epoch 1 has 2 samples; the batches of an epoch have 3"},
		{0, []int32{1, 2, 4}, "epoch 0 is given again with another order: sample 4 at index 2, which was 3"},
		{0, []int32{1, 2, 3}, ""},
		{9, []int32{1, 2, 3}, "there are 9 epochs"},
		{-1, []int32{1, 2, 3}, "the order of epoch -1"},
		{1, []int32{1, 2, 3}, ""},
		{2, []int32{1, 2, 3}, ""},
		{3, []int32{1, 2, 3}, ""},
		{4, []int32{1, 2, 3}, "the order of epoch 4 is given, while those of epochs [0 1 2 3] are known"},
	} {
		err := give(t, r, c.epoch, c.ids)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || failure.Of(err).Kind != failure.Config) {
			t.Errorf("epoch %d, %v: %v; want %q", c.epoch, c.ids, err, c.want)
		}
	}
	if err := r.Give(request.Give{Epoch: 2, Entries: 3}, requesttest.List(t, []int32{1, 2})); err == nil || !strings.Contains(err.Error(), "the order of epoch 2: its descriptor has 8 bytes, and 12 are needed") {
		t.Errorf("a short descriptor: %v", err)
	}
	r.Close()
	drawn := open(t, n, message(0, 1))
	if err := give(t, drawn, 1, make([]int32, samples)); err == nil || !strings.Contains(err.Error(), "the orders of this job are drawn") {
		t.Errorf("given to a job that draws: %v", err)
	}
	drawn.Close()
	w.close(t, n)
}

// TestBadLists: what comes with OPEN may be anything; it is refused with what is wrong, before memory is taken for it.
func TestBadLists(t *testing.T) {
	var w world
	n := w.node()
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, requesttest.Encoded([]int32{1, 2, 3}), 0o600); err != nil {
		t.Fatal(err)
	}
	regular, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer regular.Close()
	with := func(f *os.File, count int) func(*request.Open) {
		return func(m *request.Open) {
			m.Stream.Subset, m.Stream.List = &request.Subset{Count: count}, f
		}
	}
	given := func(change func(g *request.Given)) func(*request.Open) {
		return func(m *request.Open) {
			by(t, []int32{2, 1}, 0, []int32{1, 2, 3}, []int32{3, 2, 1})(m)
			change(m.Stream.Given)
		}
	}
	for _, c := range []struct {
		kind   failure.Kind
		want   string
		change func(*request.Open)
	}{
		{failure.Config, "stream.subset came without its descriptor", with(nil, 3)},
		{failure.Config, "its descriptor is no memfd", with(pipe, 3)},
		{failure.Config, "its descriptor is no memfd", with(dir, 3)},
		{failure.Config, "its descriptor is no memfd", with(regular, 3)},
		{failure.Config, "its descriptor has 8 bytes, and 12 are needed", with(requesttest.List(t, []int32{1, 2}), 3)},
		{failure.Config, "at most 268435456 samples", with(requesttest.List(t), request.MaxList+1)},
		{failure.Config, "at most 268435456 samples", with(requesttest.List(t), math.MaxInt)},
		{failure.Config, "has 0 bytes, and 1073741824 are needed", with(requesttest.List(t), request.MaxList)},
		{failure.Config, "1 epoch(s) of 0 samples", with(requesttest.List(t), 0)},
		{failure.Config, "1 epoch(s) of -5 samples", with(requesttest.List(t), -5)},
		{failure.Config, "Subset has sample 40 at index 1; allowed: 0 to 39", over(t, []int32{1, 40})},
		{failure.Config, "nothing would be delivered", func(m *request.Open) { over(t, []int32{1, 4})(m); m.Stream.DropLast = true }},
		{failure.Config, `stream.shuffle = "torch"`, func(m *request.Open) { given(func(*request.Given) {})(m); m.Stream.Shuffle = "torch" }},
		{failure.Config, `stream.shuffle = "given"`, func(m *request.Open) { m.Stream.Shuffle = "given" }},
		{failure.Config, "at most one of them", func(m *request.Open) {
			given(func(*request.Given) {})(m)
			m.Stream.Subset = &request.Subset{Count: 1}
		}},
		{failure.Config, "the world size is 2", func(m *request.Open) { given(func(*request.Given) {})(m); m.WorldSize = 2 }},
		{failure.Config, "stream.given.batches = 0", given(func(g *request.Given) { g.Batches = 0 })},
		{failure.Config, "stream.given.batches = 268435457", given(func(g *request.Given) { g.Batches = request.MaxList + 1 })},
		{failure.Config, "0 epoch(s) of 3 samples", given(func(g *request.Given) { g.Epochs = 0 })},
		{failure.Config, "at most 268435456 samples", given(func(g *request.Given) { g.Epochs, g.Entries = 1<<20, 1<<20 })},
		{failure.Config, "stream.given.first = -1", given(func(g *request.Given) { g.First = -1 })},
		{failure.Config, "epochs are 0 to 2147483647", given(func(g *request.Given) { g.First = math.MaxInt })},
		{failure.Config, "epoch 4 is given; there are 4 epochs", given(func(g *request.Given) { g.First = 3 })},
		{failure.Config, "its descriptor has 32 bytes, and 36 are needed", given(func(g *request.Given) { g.Batches = 3 })},
		{failure.Config, "entries = 2: its batches have 3 samples", given(func(g *request.Given) { g.Entries = 2 })},
		{failure.Config, "batch 1 has -1 samples", by(t, []int32{4, -1}, 0, []int32{1, 2, 3})},
		{failure.Config, "batch 0 has 0 samples", by(t, []int32{0, 3}, 0, []int32{1, 2, 3})},
		{failure.Config, "epoch 1 is given with sample 77 at index 0", by(t, []int32{2}, 0, []int32{1, 2}, []int32{77, 1})},
	} {
		e := refusal(t, n, message(0, 1, c.change))
		if e.Kind != c.kind || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %s; want %s: %q", e.Kind, e.Message, c.kind, c.want)
		}
		w.empty(t, n)
	}
	w.close(t, n)

	w.available = func() (int64, error) { return 1 << 20, nil }
	n = w.node()
	large := requesttest.List(t)
	if err := large.Truncate(4 * request.MaxList); err != nil { // it takes no memory
		t.Fatal(err)
	}
	if e := refusal(t, n, message(0, 1, with(large, request.MaxList))); e.Kind != failure.Limit || !strings.Contains(e.Message, "stream.subset: the list of samples: 1.0 GiB needed") {
		t.Errorf("%+v", e)
	}
	w.close(t, n)
}

// TestOrdersAreClaimed: orders that are yet to be given count as memory that the job may take, and then it may.
func TestOrdersAreClaimed(t *testing.T) {
	var available atomic.Int64
	available.Store(1 << 30)
	w := world{available: func() (int64, error) { return available.Load(), nil }}
	n := w.node()
	order := make([]int32, 100_000)
	r := open(t, n, message(0, 1, by(t, []int32{50_000, 50_000}, 0, order), set("staging_buffer", nil), set("memory", "10000B")))
	buffer, _ := job.BufferSize(r.entry.open.Order, 0, 0, nil)
	if got, least := n.options.Budget.Outstanding()-buffer, int64(3*4*len(order)); got < least {
		t.Errorf("%d bytes are claimed beside the staging buffer, want %d at least", got, least)
	}
	available.Store(0)
	if err := give(t, r, 1, order); err != nil {
		t.Error(err)
	}
	r.Close()
	available.Store(401 * kib)
	if e := refusal(t, n, message(0, 1, by(t, []int32{50_000, 50_000}, 0, order), set("memory", "10000B"))); !strings.Contains(e.Message, "1.1 MiB for the orders of epochs that are yet to be given") {
		t.Errorf("%+v", e)
	}
	w.close(t, n)
}

// TestStandInOfTheSubset: a sample that cannot be read is replaced by one of the subset, or of the epoch that is given: one of the
// validation set must not stand in for one of the training set.
func TestStandInOfTheSubset(t *testing.T) {
	for name, change := range map[string]func(*request.Open){
		"subset": over(t, []int32{5, 30, 12}),
		"given":  by(t, []int32{3}, 0, []int32{5, 30, 12}),
	} {
		var failed atomic.Int32
		w := world{read: func(_ context.Context, id int) error {
			if id == 12 {
				failed.Add(1)
				return &dataset.SampleError{ID: id, Path: "/data/12", Kind: dataset.ErrContent}
			}
			return nil
		}}
		n := w.node()
		r := open(t, n, message(0, 1, change, set("on_error", "substitute"), func(m *request.Open) { m.Stream.Epochs = 1 }))
		for here, ids := range consume(t, r, at{}, end) {
			if slices.Sort(ids); !slices.Equal(ids, []int32{5, 30, 30}) {
				t.Errorf("%s, %+v: samples %v, want 30 for 12", name, here, ids)
			}
		}
		if a, err := r.Audit(t.Context(), 0); err != nil || !a.Complete {
			t.Errorf("%s: audit %+v, %v", name, a, err)
		}
		if failed.Load() == 0 {
			t.Errorf("%s: sample 12 was not read", name)
		}
		r.Close()
		w.close(t, n)
	}
}

// TestLargeBatch: a batch that is larger than the dataset is one short batch, and takes no more room than that.
func TestLargeBatch(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		w := world{}
		n := w.node()
		var all []*Rank
		for r := range ranks {
			all = append(all, open(t, n, message(r, ranks, set("staging_buffer", nil), set("memory", "0"), func(m *request.Open) {
				m.Stream.GlobalBatch, m.Stream.Tail = 1<<31, "keep"
			})))
		}
		seen := make([]atomic.Int32, samples)
		together(all, func(r *Rank) {
			for _, ids := range consume(t, r, at{}, end) {
				for _, k := range ids {
					seen[k].Add(1)
				}
			}
			if size := r.Segments()[0].Size; size > 32<<20 {
				t.Errorf("a staging buffer of %d bytes", size)
			}
		})
		for k := range seen {
			if seen[k].Load() != 4 {
				t.Errorf("sample %d was delivered %d times in 4 epochs", k, seen[k].Load())
			}
		}
		closeAll(all)
		w.close(t, n)
	}
}
