package stage

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a stager over a fake source: one cache, and ranks that can be run.
type rig struct {
	t      cachetest.T
	source *cachetest.Source
	stream *access.Stream
	cache  *cache.Cache
	use    *cache.Use
	faults *Samples
	opened *cachetest.Stores
	stores []store.Store
	ranks  []*testRank
}

type testRank struct {
	rank   int
	stager *Stager
	buffer *staging.Buffer
	ledger *Ledger
	stall  Stall // of each batch
	raw    bool  // of rigOptions
}

// seen is a sample as the training process receives it.
type seen struct {
	id, label int
	data      []byte
}

type step struct{ epoch, step int }

// run takes a rank's batches from step from on, until it has taken until batches (0: all). It keeps
// up to keep batches before it returns their slots.
func (g *rig) run(r *testRank, from step, until, keep int) (map[step][]seen, error) {
	out := map[step][]seen{}
	stop := errors.New("stop")
	var kept []*Batch
	extras := map[uint32][]byte{}
	r.stager.Wait()
	err := r.stager.Run(context.Background(), from.epoch, from.step, func(b *Batch) error {
		if until > 0 && len(out) == until {
			return stop
		}
		kept = append(kept, b)
		for _, e := range b.Extras {
			extras[e.Segment] = make([]byte, e.Size)
			if _, err := e.File.ReadAt(extras[e.Segment], 0); err != nil {
				g.t.Fatalf("read extra segment: %v", err)
			}
		}
		at := func(segment uint32, offset, length uint64) []byte {
			switch {
			case length == NoField:
				return nil
			case segment == 0:
				return bytes.Clone(r.buffer.Data(offset, length))
			case segment < firstClassSegment:
				return bytes.Clone(extras[segment][offset : offset+length])
			}
			data := make([]byte, length)
			class, _ := OfClass(segment)
			f, _, _ := g.stores[class.Class].(store.InPlace).Segment(class.Number)
			if _, err := f.ReadAt(data, int64(offset)); err != nil {
				g.t.Fatalf("read class segment: %v", err)
			}
			return data
		}
		samples := []seen{}
		for i := range b.IDs {
			samples = append(samples, seen{
				int(b.IDs[i]), int(b.Labels[i]), at(b.Segments[i], b.Offsets[i], b.Lengths[i]),
			})
		}
		for _, l := range b.Left {
			samples[l.Position].data = at(l.Segment, l.Offset, l.Length)
		}
		for i := len(b.IDs); i < len(b.Offsets) && r.raw; i++ {
			of := &samples[i-len(b.IDs)]
			of.data = append(of.data, at(b.Segments[i], b.Offsets[i], b.Lengths[i])...)
		}
		out[step{b.Epoch, b.Step}] = samples
		r.ledger.Yielded(b.Epoch, b.Step, r.stall)
		for len(kept) > keep {
			g.giveBack(r, kept[0])
			kept = kept[1:]
		}
		r.stager.Taken(b.Epoch, b.Step, Stall{})
		r.stager.Wait() // like a process that always waits
		return nil
	})
	for _, b := range kept {
		g.giveBack(r, b)
	}
	if errors.Is(err, stop) {
		err = nil
	}
	return out, err
}

// giveBack returns a batch's slots, as the process does.
func (g *rig) giveBack(r *testRank, b *Batch) {
	for _, slot := range b.Slots {
		if _, err := r.buffer.Return(slot); err != nil {
			g.t.Fatalf("return slot: %v", err)
		}
	}
}

type rigOptions struct {
	sizes        []int
	spec         access.Spec
	memory       int64 // bytes; 0: no memory class
	file         int64
	dir          string
	threads      int
	buffer       int64
	mostBuffer   int64 // up to what the buffer grows
	mostAhead    int
	grow         func(bytes int64) bool
	ahead        int
	lazy, fill   bool
	timeout      time.Duration
	hook         func(ctx context.Context, id int) error
	planAll      bool // plan all samples for the first class, whatever its capacity
	policy       Policy
	preprocessor Preprocessor
	memoryClass  *memory.Class
	converter    cache.Converter // of copies in memory; the job takes forms
	raw          bool            // the sample is also delivered as it is, after preprocessor's result
}

func newRig(t cachetest.T, o rigOptions) *rig {
	g := &rig{t: t, source: cachetest.NewSource(t, o.sizes)}
	g.source.Hook = o.hook
	var err error
	if g.stream, err = access.New(o.spec); err != nil {
		t.Fatal(err)
	}
	g.opened = cachetest.Open(t, g.source, cachetest.Options{
		Memory: o.memory, MemoryClass: o.memoryClass, File: o.file, Dir: o.dir, PlanAll: o.planAll,
	})
	g.stores = g.opened.Stores
	var classes []cache.Class
	for i, store := range g.stores {
		classes = append(classes, cache.Class{Name: g.opened.Names[i], Store: store})
	}
	g.faults = newUnusable(o.policy)
	g.cache = cache.New(cache.Options{
		// so that no timing decides where samples are read from
		Known: map[string]model.Known{"source": {
			Coefficients: model.Coefficients{Latency: 1}, Origin: model.Given,
		}},
		Index:   g.source.Index,
		Source:  g.source,
		Classes: classes,
		Threads: cache.Threads{Start: o.threads},
		Timeout: o.timeout,

		Converter: o.converter,
	})
	if o.converter != nil {
		g.use = g.cache.UseForms(nil, true, nil)
	} else {
		g.use = g.cache.Use(nil)
	}
	g.use.Keep(g.opened.Plan)
	for r := range o.spec.WorldSize {
		buffer, err := staging.New(o.buffer, o.mostBuffer)
		if err != nil {
			t.Fatal(err)
		}
		ledger := NewLedger(g.cache, steps(o.preprocessor))
		g.ranks = append(g.ranks, &testRank{r, New(Options{
			Stream: g.stream, Epoch: g.stream.Epoch, Rank: r, Cache: g.cache, Buffer: buffer,
			Ahead: o.ahead, MostAhead: o.mostAhead, Grow: o.grow, Lazy: o.lazy, Unusable: g.faults,
			Ledger: ledger, Outputs: o.outputs(), TakesForms: o.converter != nil,
		}), buffer, ledger, Stall{}, o.raw})
	}
	if o.fill {
		g.use.Fill(g.opened.Plan, func(int64) {})
	}
	return g
}

// outputs returns the outputs of the options.
func (o *rigOptions) outputs() []Output {
	list := outputs(o.preprocessor)
	if o.raw {
		list = append(list, Output{})
	}
	return list
}

// outputs returns the output of samples of one field; nil: they stay as they are.
func outputs(p Preprocessor) []Output {
	if p == nil {
		return nil
	}
	list := []Output{{Preprocessor: p, Forms: []bool{true}}}
	if _, views := p.(pair); views {
		list = append(list, Output{Preprocessor: p, View: 1})
	}
	return list
}

func steps(p Preprocessor) []string {
	if p == nil {
		return nil
	}
	return p.Steps()
}

func (g *rig) close() {
	g.use.Close()
	for _, r := range g.ranks {
		r.stager.Close()
	}
	if !g.cache.Close().None() {
		g.t.Fatalf("workers did not end")
	}
	g.opened.Close(g.t)
}

// serve makes the cache fetch a sample for another node.
func (g *rig) serve(id int) error {
	_, err := g.cache.Serve(context.Background(), id, routing.Want{}, func(cache.Copy, bool) error {
		return nil
	})
	return err
}

// want returns what the stream delivers to a rank in a step.
func (g *rig) want(rank int, at step) []seen {
	out := []seen{}
	for _, id := range g.stream.Epoch(at.epoch).Batch(nil, rank, at.step) {
		s := g.seen(int(id))
		if p := g.ranks[rank].stager.preprocessor; p != nil {
			var made []byte
			alloc := func(_, size int) ([]byte, error) { made = make([]byte, size); return made, nil }
			err := p.Apply(alloc, [][]byte{s.data}, 0, at.epoch, int(id), 0, false,
				make([]time.Duration, len(p.Steps())))
			if err == nil {
				s.data = made
			} else if left, _ := p.Left(err); !left {
				panic(err)
			}
		}
		out = append(out, s)
	}
	return out
}

func (g *rig) seen(id int) seen {
	return seen{id, g.source.Index.Label(id), cachetest.Content(id, g.source.Index.Size(id))}
}

func equal(a, b []seen) bool {
	return slices.EqualFunc(a, b, func(x, y seen) bool {
		return x.id == y.id && x.label == y.label && bytes.Equal(x.data, y.data)
	})
}

func ids(s []seen) []int {
	out := []int{}
	for _, x := range s {
		out = append(out, x.id)
	}
	return out
}

// same returns n sizes of 100 bytes.
func same(n int) []int { return slices.Repeat([]int{100}, n) }

// plain returns options for one rank that reads samples 0, 1, 2... two at a time.
func plain(samples, epochs int) rigOptions {
	return rigOptions{
		sizes: same(samples),
		spec: access.Spec{
			Samples:     samples,
			Epochs:      epochs,
			WorldSize:   1,
			GlobalBatch: 2,
			Shuffle:     access.Sequential,
			Scheme:      access.Uniform,
			Tail:        access.Keep,
		},
		threads: 3, buffer: 1 << 16, ahead: 4, policy: Raise,
	}
}

// stream returns the IDs that a run delivered, in order.
func stream(out map[step][]seen) []int {
	keys := make([]step, 0, len(out))
	for at := range out {
		keys = append(keys, at)
	}
	slices.SortFunc(keys, func(a, b step) int { return (a.epoch-b.epoch)*1000 + a.step - b.step })
	list := []int{}
	for _, at := range keys {
		list = append(list, ids(out[at])...)
	}
	return list
}
