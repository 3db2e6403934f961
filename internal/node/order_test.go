package node

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/node/request/requesttest"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

// over returns a change of a request to a job over a subset.
func over(t *testing.T, ids []int32) func(*request.Open) {
	return func(m *request.Open) {
		m.Stream.Subset, m.Stream.List = &request.Subset{Count: len(ids)}, requesttest.List(t, ids)
	}
}

// by returns a change of a request to a job with given epochs, from epoch first on.
func by(t *testing.T, batches []int32, first int, epochs ...[]int32) func(*request.Open) {
	return func(m *request.Open) {
		m.Stream.Shuffle = "given"
		m.Stream.Given = &request.Given{
			Batches: len(batches),
			Entries: len(epochs[0]),
			Epochs:  len(epochs),
			First:   first,
		}
		m.Stream.List = requesttest.List(t, append([][]int32{batches}, epochs...)...)
	}
}

func give(t *testing.T, r *Rank, epoch int, ids []int32) error {
	return r.Give(request.Give{Epoch: epoch, Entries: len(ids)}, requesttest.List(t, ids))
}

// TestSubsetIsDeliveredAndNothingElseRead checks that ranks get a part of the dataset as a sampler
// over that part would draw it, that nothing else is read, and that the bound is over that part.
func TestSubsetIsDeliveredAndNothingElseRead(t *testing.T) {
	subset := []int32{39, 3, 3, 17, 0, 21, 8, 9, 30, 31, 32, 33, 34}
	for _, shuffle := range []string{"torch", "feistel", "none"} {
		for _, policy := range keepingOrder() {
			w := world{}
			n := w.node()
			change := []func(*request.Open){
				over(t, subset), set("policy", policy.Name()),
				func(m *request.Open) { m.Stream.Shuffle, m.Stream.GlobalBatch = shuffle, 4 },
			}
			ranks := []*Rank{
				open(t, n, message(0, 2, change...)),
				open(t, n, message(1, 2, change...)),
			}
			o := ranks[0].Opened()
			if o.Positions != len(subset) || o.Samples != samples || o.Steps != 4 ||
				o.RankSamples != 7 {
				t.Errorf("opened %+v", o)
			}
			plain, err := access.New(access.Spec{
				Samples:     len(subset),
				Seed:        7,
				Epochs:      4,
				WorldSize:   2,
				GlobalBatch: 4,
				Shuffle:     access.Shuffle(shuffle),
			})
			if err != nil {
				t.Fatal(err)
			}
			together(ranks, func(r *Rank) {
				r.Wait() // before policy naive reads anything
				for here, ids := range consume(t, r, at{}, end) {
					want := plain.Epoch(here.epoch).Batch(nil, r.Number(), here.step)
					for i, p := range want {
						want[i] = subset[p]
					}
					if !slices.Equal(ids, want) {
						t.Errorf("%s: rank %d, %+v: samples %v, want %v", policy.Name(), r.Number(),
							here, ids, want)
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
			if policy.About().Copies == plan.NoCopies {
				// Ranks that need a sample at the same time share a read, and padding adds reads.
				if left := w.bytes.Load(); r.Bound != 4*needed || left < needed {
					t.Errorf("%s: %d bytes left the source, and the bound is %d", policy.Name(),
						left, r.Bound)
				}
			} else if r.Bound != needed || w.bytes.Load() != needed {
				t.Errorf("%s: %d bytes left the source, and the bound is %d; want %d",
					policy.Name(), w.bytes.Load(), r.Bound, needed)
			}
			closeAll(ranks)
			w.close(t, n)
		}
	}
}

// TestSubsetIsReadOnceOverNodes checks a subset over several nodes, with a plan made at once and in
// the background. Samples that occur twice are read from the source once.
func TestSubsetIsReadOnceOverNodes(t *testing.T) {
	var subset []int32
	for k := range int32(20) {
		subset = append(subset, 2*k, 2*k)
	}
	for _, background := range []bool{false, true} {
		c := newNodes(t, 2, background)
		ranks := c.open(over(t, subset), set("memory", "11000B"))
		c.epochs(ranks, 0, 4)
		if total, most := c.read(); total != 20 || most != 1 {
			t.Errorf("background=%v: the source was read %d times, one sample %d times; want 20, "+
				"and 1", background, total, most)
		}
		closeAll(ranks)
		c.close()
	}
}

// TestDifferentSubsetsAreRefused checks ranks and nodes whose subsets differ.
func TestDifferentSubsetsAreRefused(t *testing.T) {
	var w world
	n := w.node()
	first := open(t, n, message(0, 2, over(t, []int32{1, 2, 3})))
	for _, other := range [][]int32{{1, 3, 2}, {1, 2}} {
		e := refusal(t, n, message(1, 2, over(t, other)))
		if e.Kind != failure.Mismatch ||
			!strings.Contains(e.Message,
				"rank 1 disagrees with rank 0 of job j: subset or batches is") {
			t.Errorf("%+v", e)
		}
	}
	if e := refusal(t, n, message(1, 2)); e.Kind != failure.Mismatch ||
		!strings.Contains(e.Message, "subset or batches is none on rank 1 and 3 samples") {
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
		if !errors.As(err, &said) || said.Kind != failure.Mismatch ||
			!strings.Contains(said.Message, "subset or batches") || said.Details["node"] != 1 {
			t.Errorf("node %d: %v", i, err)
		}
	}
	c.close()
}

// TestInvalidListsAreRefused checks that an invalid list that comes with OPEN is refused with the
// reason before memory is taken for it.
func TestInvalidListsAreRefused(t *testing.T) {
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
		{failure.Config, "its descriptor is not a memfd", with(pipe, 3)},
		{failure.Config, "its descriptor is not a memfd", with(dir, 3)},
		{failure.Config, "its descriptor is not a memfd", with(regular, 3)},
		{
			failure.Config, "its descriptor has 8 bytes, and 12 are needed",
			with(requesttest.List(t, []int32{1, 2}), 3),
		},
		{failure.Config, "at most 268435456 samples", with(requesttest.List(t), request.MaxList+1)},
		{failure.Config, "at most 268435456 samples", with(requesttest.List(t), math.MaxInt)},
		{
			failure.Config, "has 0 bytes, and 1073741824 are needed",
			with(requesttest.List(t), request.MaxList),
		},
		{failure.Config, "1 x 0 samples", with(requesttest.List(t), 0)},
		{failure.Config, "1 x -5 samples", with(requesttest.List(t), -5)},
		{
			failure.Config, "Subset has sample 40 at index 1; allowed: 0 to 39",
			over(t, []int32{1, 40}),
		},
		{failure.Config, "nothing would be delivered", func(m *request.Open) {
			over(t, []int32{1, 4})(m)
			m.Stream.DropLast = true
		}},
		{failure.Config, `stream.shuffle = "torch"`, func(m *request.Open) {
			given(func(*request.Given) {})(m)
			m.Stream.Shuffle = "torch"
		}},
		{failure.Config, `stream.shuffle = "given"`, func(m *request.Open) {
			m.Stream.Shuffle = "given"
		}},
		{failure.Config, "give at most one", func(m *request.Open) {
			given(func(*request.Given) {})(m)
			m.Stream.Subset = &request.Subset{Count: 1}
		}},
		{failure.Config, "the world size is 2", func(m *request.Open) {
			given(func(*request.Given) {})(m)
			m.WorldSize = 2
		}},
		{
			failure.Config, "stream.given.batches = 0",
			given(func(g *request.Given) { g.Batches = 0 }),
		},
		{
			failure.Config, "stream.given.batches = 268435457",
			given(func(g *request.Given) { g.Batches = request.MaxList + 1 }),
		},
		{failure.Config, "0 x 3 samples", given(func(g *request.Given) { g.Epochs = 0 })},
		{
			failure.Config, "at most 268435456 samples",
			given(func(g *request.Given) { g.Epochs, g.Entries = 1<<20, 1<<20 }),
		},
		{failure.Config, "stream.given.first = -1", given(func(g *request.Given) { g.First = -1 })},
		{
			failure.Config, "epochs are 0 to 2147483647",
			given(func(g *request.Given) { g.First = math.MaxInt }),
		},
		{
			failure.Config, "epoch 4 is given; there are 4 epochs",
			given(func(g *request.Given) { g.First = 3 }),
		},
		{
			failure.Config, "its descriptor has 32 bytes, and 36 are needed",
			given(func(g *request.Given) { g.Batches = 3 }),
		},
		{
			failure.Config, "entries = 2: its batches have 3 samples",
			given(func(g *request.Given) { g.Entries = 2 }),
		},
		{failure.Config, "batch 1 has -1 samples", by(t, []int32{4, -1}, 0, []int32{1, 2, 3})},
		{failure.Config, "batch 0 has 0 samples", by(t, []int32{0, 3}, 0, []int32{1, 2, 3})},
		{
			failure.Config, "epoch 1 is given with sample 77 at index 0",
			by(t, []int32{2}, 0, []int32{1, 2}, []int32{77, 1}),
		},
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
	if err := large.Truncate(4 * request.MaxList); err != nil { // sparse: it takes no memory
		t.Fatal(err)
	}
	if e := refusal(t, n, message(0, 1, with(large, request.MaxList))); e.Kind != failure.Limit ||
		!strings.Contains(e.Message, "stream.subset: the list of samples: 1.0 GiB needed") {
		t.Errorf("%+v", e)
	}
	w.close(t, n)
}

// TestStandInIsOfTheSubset checks that a sample that cannot be read is replaced by one of the
// subset or given epoch: a validation sample must not stand in for a training sample.
func TestStandInIsOfTheSubset(t *testing.T) {
	for name, change := range map[string]func(*request.Open){
		"subset": over(t, []int32{5, 30, 12}),
		"given":  by(t, []int32{3}, 0, []int32{5, 30, 12}),
	} {
		var failed atomic.Int32
		w := world{read: func(_ context.Context, id int) error {
			if id == 12 {
				failed.Add(1)
				return &source.SampleError{ID: id, Path: "/data/12", Kind: source.ErrContent}
			}
			return nil
		}}
		n := w.node()
		r := open(t, n, message(0, 1, change, set("on_error", "substitute"), func(m *request.Open) {
			m.Stream.Epochs = 1
		}))
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
