package prefetch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/staging"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/file"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource holds samples whose bytes follow from their ID.
type fakeSource struct {
	index *dataset.Index
	reads []atomic.Int32
	bad   map[int]bool // can not be read

	hook func(ctx context.Context, id int) error // not nil: called first by every Read

	// What is there now: where, which instance of each file, and with what bytes. nil: the same for ever.
	inode   uint64
	changed func(id int) int64
	bytes   func(id int, dst []byte)
	stats   atomic.Int32
}

func (s *fakeSource) Place() (device, inode uint64) { return 1, s.inode }

func (s *fakeSource) stamp(id int) dataset.Stamp {
	if s.changed == nil {
		return 0
	}
	return dataset.NewStamp(s.index.Size(id), 0, s.changed(id), uint64(id))
}

func content(id int, size int64) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(id), 1))
	for i := 0; i < len(b); i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], r.Uint64())
		copy(b[i:], w[:])
	}
	return b
}

func newFakeSource(t interface{ Fatal(...any) }, sizes []int) *fakeSource {
	b := dataset.NewBuilder([]string{"a", "b"}, []string{".x"})
	b.Directory(dataset.Directory{Path: "", Class: -1})
	half := (len(sizes) + 1) / 2
	for class, part := range [][]int{sizes[:half], sizes[half:]} {
		b.Directory(dataset.Directory{Path: string(rune('a' + class)), Class: class})
		for i, size := range part {
			b.Sample(fmt.Sprintf("%06d.x", i), int64(size), 0, 0)
		}
	}
	index, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &fakeSource{index: index, reads: make([]atomic.Int32, len(sizes)), bad: map[int]bool{}}
}

func (s *fakeSource) Read(ctx context.Context, id int, dst []byte) (dataset.Stamp, error) {
	s.reads[id].Add(1)
	if s.hook != nil {
		if err := s.hook(ctx, id); err != nil {
			return 0, err
		}
	}
	if s.bad[id] {
		return 0, &dataset.SampleError{ID: id, Path: s.Path(id), Kind: dataset.ErrMissing}
	}
	copy(dst, content(id, int64(len(dst))))
	if s.bytes != nil {
		s.bytes(id, dst)
	}
	return s.stamp(id), nil
}

func (s *fakeSource) Stat(_ context.Context, id int) (dataset.Stamp, error) {
	s.stats.Add(1)
	if s.bad[id] {
		return 0, &dataset.SampleError{ID: id, Path: s.Path(id), Kind: dataset.ErrMissing}
	}
	return s.stamp(id), nil
}

func (s *fakeSource) Close() error { return nil }

func (s *fakeSource) Path(id int) string { return "/source/" + s.index.Name(id) }

// rig is an engine over a fake source: one cache, and ranks that can be run.
type rig struct {
	t      interface{ Fatalf(string, ...any) }
	source *fakeSource
	stream *access.Stream
	cache  *Cache
	use    *Use
	faults *Faults
	stores []storageclass.Store
	ranks  []*testRank
}

type testRank struct {
	rank   int
	stager *Stager
	buffer *staging.Buffer
	ledger *Ledger
}

// seen is a sample as a training process saw it.
type seen struct {
	id, label int
	data      []byte
}

type step struct{ epoch, step int }

// run consumes a rank's batches from (epoch, at) on, until `until` batches were
// taken (0: all), keeping up to `keep` of them before it returns their slots.
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
		samples := []seen{}
		for i := range b.IDs {
			s := seen{id: int(b.IDs[i]), label: int(b.Labels[i])}
			switch seg := b.Segments[i]; {
			case seg == 0:
				s.data = r.buffer.Data(b.Offsets[i], b.Lengths[i])
			case seg < ClassSegment(0):
				s.data = extras[seg][b.Offsets[i] : b.Offsets[i]+b.Lengths[i]]
			default:
				s.data = make([]byte, b.Lengths[i])
				f, _ := g.stores[seg-ClassSegment(0)].(storageclass.InPlace).Segment()
				if _, err := f.ReadAt(s.data, int64(b.Offsets[i])); err != nil {
					g.t.Fatalf("read class segment: %v", err)
				}
			}
			s.data = bytes.Clone(s.data)
			samples = append(samples, s)
		}
		out[step{b.Epoch, b.Step}] = samples
		r.ledger.Yielded(b.Epoch, b.Step, Stall{})
		for len(kept) > keep {
			g.giveBack(r, kept[0])
			kept = kept[1:]
		}
		r.stager.Taken(b.Epoch, b.Step)
		r.stager.Wait() // as a process that always waits
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

// giveBack gives a batch's slots back, as the process does.
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
	ahead        int
	lazy, fill   bool
	timeout      time.Duration
	hook         func(ctx context.Context, id int) error
	planAll      bool // the first class is to hold everything, whatever its room
	keepAll      bool // the file class is to keep everything that is read
	policy       OnError
	preprocessor Preprocessor
	memoryClass  *memory.Class
}

func newRig(t interface {
	Fatalf(string, ...any)
	Fatal(...any)
}, o rigOptions,
) *rig {
	g := &rig{t: t, source: newFakeSource(t, o.sizes)}
	g.source.hook = o.hook
	var err error
	if g.stream, err = access.New(o.spec); err != nil {
		t.Fatal(err)
	}
	ds := storageclass.Dataset{Fingerprint: g.source.index.Fingerprint(), Samples: len(o.sizes), Size: g.source.index.Size}
	var classes []Class
	var plan [][]int32
	next := 0
	add := func(name string, class storageclass.Class, room int64) {
		store, err := class.Open(ds, room)
		if err != nil {
			t.Fatal(err)
		}
		g.stores = append(g.stores, store)
		classes = append(classes, Class{Name: name, Store: store, KeepAll: o.keepAll && name == "file"})
		var ids []int32
		for ; next < len(o.sizes) && (o.planAll || room >= int64(o.sizes[next])); next++ {
			room -= int64(o.sizes[next])
			ids = append(ids, int32(next))
		}
		plan = append(plan, ids)
	}
	if o.memory > 0 {
		if o.memoryClass == nil {
			o.memoryClass = memory.New(memory.Options{})
		}
		add("memory", o.memoryClass, o.memory)
	}
	if o.file > 0 {
		class, err := file.New(file.Options{Dir: o.dir, Capacity: o.file, Reserve: 1})
		if err != nil {
			t.Fatal(err)
		}
		add("file", class, o.file)
		defer func() { g.stores = append(g.stores, closing{class}) }()
	}
	g.faults = NewFaults(o.policy)
	g.cache = NewCache(CacheOptions{Index: g.source.index, Source: g.source, Classes: classes, Threads: o.threads, Timeout: o.timeout})
	g.use = g.cache.Use(nil)
	g.use.Keep(plan)
	for r := range o.spec.WorldSize {
		buffer, err := staging.New(o.buffer)
		if err != nil {
			t.Fatal(err)
		}
		ledger := NewLedger(g.cache, steps(o.preprocessor))
		g.ranks = append(g.ranks, &testRank{r, NewStager(StagerOptions{
			Stream: g.stream, Epoch: g.stream.Epoch, Rank: r, Cache: g.cache, Buffer: buffer,
			Ahead: o.ahead, Lazy: o.lazy, Faults: g.faults, Ledger: ledger, Preprocessor: o.preprocessor,
		}), buffer, ledger})
	}
	if o.fill {
		g.use.Fill(plan, func(int64) {})
	}
	return g
}

func steps(p Preprocessor) []string {
	if p == nil {
		return nil
	}
	return p.Steps()
}

// closing closes a class after its stores.
type closing struct{ storageclass.Class }

func (c closing) Has(int) bool           { return false }
func (c closing) Held() []int32          { return nil }
func (c closing) Room() (int64, int64)   { return 0, 0 }
func (c closing) Read(int, []byte) error { return storageclass.ErrNotHeld }
func (c closing) Drop(int)               {}

func (c closing) Put(int, []byte, storageclass.Origin) error { return storageclass.ErrFull }
func (c closing) Origin(int) (storageclass.Origin, bool)     { return storageclass.Origin{}, false }

func (g *rig) close() {
	g.use.Close()
	for _, r := range g.ranks {
		r.stager.Close()
	}
	if !g.cache.Close() {
		g.t.Fatalf("workers did not end")
	}
	for _, s := range g.stores {
		if err := s.Close(); err != nil {
			g.t.Fatalf("close store: %v", err)
		}
	}
}

// want is what the stream says a rank sees in a step.
func (g *rig) want(rank int, at step) []seen {
	out := []seen{}
	for _, id := range g.stream.Epoch(at.epoch).Batch(nil, rank, at.step) {
		s := g.seen(int(id))
		if p := g.ranks[rank].stager.o.Preprocessor; p != nil {
			var made []byte
			room := func(size int) ([]byte, error) { made = make([]byte, size); return made, nil }
			if err := p.Apply(room, s.data, at.epoch, int(id), make([]time.Duration, len(p.Steps()))); err != nil {
				panic(err)
			}
			s.data = made
		}
		out = append(out, s)
	}
	return out
}

func (g *rig) seen(id int) seen {
	return seen{id, g.source.index.Label(id), content(id, g.source.index.Size(id))}
}

func equal(a, b []seen) bool {
	return slices.EqualFunc(a, b, func(x, y seen) bool {
		return x.id == y.id && x.label == y.label && bytes.Equal(x.data, y.data)
	})
}

// TestStream is the property that matters to training: whatever the ranks,
// classes, sizes, threads, buffers, habits of the process and resume points, each
// rank sees exactly what the stream says, and where the caches hold the dataset
// each sample is read from the source once.
func TestStream(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3000), 1, 60).Draw(t, "sizes")
		var total int64
		for _, s := range sizes {
			total += int64(s)
		}
		world := rapid.IntRange(1, 3).Draw(t, "ranks")
		spec := access.Spec{
			Samples: len(sizes), Seed: rapid.Uint64Range(0, 1<<40).Draw(t, "seed"), Epochs: rapid.IntRange(1, 3).Draw(t, "epochs"),
			WorldSize: world, GlobalBatch: rapid.IntRange(1, len(sizes)).Draw(t, "batch"),
			Shuffle: rapid.SampledFrom([]access.Shuffle{access.Torch, access.Feistel, access.Sequential}).Draw(t, "shuffle"),
			Scheme:  rapid.SampledFrom([]access.Scheme{access.Strided, access.Uniform, access.Whole, access.Imbalanced}).Draw(t, "scheme"),
			Tail:    rapid.SampledFrom([]access.Tail{access.Pad, access.Keep}).Draw(t, "tail"),
		}
		o := rigOptions{
			sizes: sizes, spec: spec,
			memory:  rapid.SampledFrom([]int64{0, 1, total / 3, total}).Draw(t, "memory"),
			file:    rapid.SampledFrom([]int64{0, total / 2}).Draw(t, "file"),
			dir:     fmt.Sprintf("%s/%d", dir, run),
			threads: rapid.IntRange(1, 6).Draw(t, "threads"),
			buffer:  int64(rapid.IntRange(1, 40_000).Draw(t, "buffer")),
			ahead:   rapid.IntRange(1, 8).Draw(t, "ahead"),
			lazy:    rapid.Bool().Draw(t, "lazy"),
			fill:    rapid.Bool().Draw(t, "fill"),
			policy:  Raise,
		}
		if rapid.Bool().Draw(t, "preprocess") {
			o.preprocessor = summary{}
		}
		keep := rapid.IntRange(0, 3).Draw(t, "kept batches")
		g := newRig(t, o)
		defer g.close()
		steps := g.stream.Steps()
		cut := rapid.IntRange(0, spec.Epochs*steps-1).Draw(t, "resume at")
		var all sync.WaitGroup
		for _, r := range g.ranks {
			all.Go(func() {
				first, err := g.run(r, step{0, 0}, cut, keep)
				if err != nil {
					panic(err)
				}
				rest, err := g.run(r, step{cut / steps, cut % steps}, 0, keep)
				if err != nil {
					panic(err)
				}
				if cut == 0 {
					first = map[step][]seen{}
				}
				if len(first)+len(rest) != spec.Epochs*steps {
					panic(fmt.Sprintf("rank %d saw %d and %d steps of %d", r.rank, len(first), len(rest), spec.Epochs*steps))
				}
				for _, part := range []map[step][]seen{first, rest} {
					for at, got := range part {
						if want := g.want(r.rank, at); !equal(got, want) {
							panic(fmt.Sprintf("rank %d, %+v: got %v, want %v", r.rank, at, ids(got), ids(want)))
						}
					}
				}
			})
		}
		all.Wait()
		if o.memory == total {
			for id := range sizes {
				if n := g.source.reads[id].Load(); n > 1 {
					t.Fatalf("sample %d was read from the source %d times", id, n)
				}
			}
		}
	})
}

func ids(s []seen) []int {
	out := []int{}
	for _, x := range s {
		out = append(out, x.id)
	}
	return out
}

// TestAhead: no more batches are read than the process has taken, and Ahead, though it was sent them.
func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead, batch = 2, 4
		g := newRig(t, rigOptions{
			sizes: slices.Repeat([]int{10}, 80), ahead: ahead, threads: 2, buffer: 1 << 20,
			spec: access.Spec{Samples: 80, WorldSize: 1, GlobalBatch: batch, Epochs: 2, Shuffle: access.Sequential, Scheme: access.Uniform, Tail: access.Keep},
		})
		defer g.close()
		s := g.ranks[0].stager
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		sent := 0
		ended.Go(func() { _ = s.Run(ctx, 0, 0, func(*Batch) error { sent++; return nil }) })
		s.Wait() // for the first, before it is there
		for taken := range 30 {
			synctest.Wait()
			if want := taken + ahead; s.Staged() != want || sent != want {
				t.Fatalf("%d batches taken: %d were read and %d sent, want %d", taken, s.Staged(), sent, want)
			}
			s.Taken(taken/20, taken%20)
			if taken%3 == 0 {
				s.Wait()
			}
		}
		cancel()
		ended.Wait()
	})
}
