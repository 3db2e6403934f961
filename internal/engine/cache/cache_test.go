package cache

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// content returns the bytes of a sample of the given size.
func content(id int, size int64) []byte { return cachetest.Content(id, size) }

// rig is a cache over a fake source, with one job's use of it.
type rig struct {
	t      testing.TB
	source *cachetest.Source
	cache  *Cache
	use    *Use
	opened *cachetest.Stores
	stores []store.Store
}

type rigOptions struct {
	sizes       []int
	memory      int64 // bytes; 0: no memory class
	memoryClass *memory.Class
	file        int64
	dir         string
	spare       int64 // bytes that the file class has besides
	threads     int
	mostThreads int // 0: threads is fixed
	fill        bool
	timeout     time.Duration
	hook        func(ctx context.Context, id int) error
	planAll     bool // plan all samples for the first class, whatever its capacity
	known       map[string]model.Known
	keepAll     bool // the file class keeps everything that is read
	// wrap replaces the stores that are not in memory; nil: none
	wrap     func(store.Store) store.Store
	responds func(class int, responds bool)
	trust    bool
	// converter converts copies in memory; nil: none
	converter Converter
	// takesForms: the job takes forms from the beginning.
	takesForms bool
	crowded    bool
	// source replaces the source; nil: it is not
	source func(s *cachetest.Source) source.Source
}

// plain returns options for samples of 100 bytes.
func plain(samples int) rigOptions {
	return rigOptions{sizes: slices.Repeat([]int{100}, samples), threads: 3}
}

func newRig(t testing.TB, o rigOptions) *rig {
	g := &rig{t: t, source: cachetest.NewSource(t, o.sizes)}
	g.source.Hook = o.hook
	g.opened = cachetest.Open(t, g.source, cachetest.Options{
		Memory: o.memory, MemoryClass: o.memoryClass, File: o.file, Dir: o.dir, PlanAll: o.planAll,
		Spare: o.spare,
	})
	g.stores = g.opened.Stores
	var from source.Source = g.source
	if o.source != nil {
		from = o.source(g.source)
	}
	var classes []Class
	for i, store := range g.stores {
		name := g.opened.Names[i]
		if o.wrap != nil && name == "file" {
			store = o.wrap(store)
		}
		classes = append(classes,
			Class{Name: name, Store: store, KeepAll: o.keepAll && name == "file"})
	}
	g.cache = New(Options{
		Index:   g.source.Index,
		Source:  from,
		Classes: classes,
		Threads: Threads{Start: o.threads, Most: o.mostThreads},
		Timeout: o.timeout,
		Known:   o.known,

		Responds:     o.responds,
		TrustVersion: o.trust,
		Converter:    o.converter,
		Converts:     2,
		Crowded:      o.crowded,
	})
	if o.takesForms {
		g.use = g.cache.UseForms(nil, true, nil)
	} else {
		g.use = g.cache.Use(nil)
	}
	g.use.Keep(g.opened.Plan)
	if o.fill {
		g.use.Fill(g.opened.Plan, func(int64) {})
	}
	return g
}

func (g *rig) close() {
	g.use.Close()
	if !g.cache.Close().None() {
		g.t.Fatal("workers did not end")
	}
	g.opened.Close(g.t)
}

// fetched fetches a sample with a new worker.
func (g *rig) fetched(t testing.TB, r *Request, id int) ([]byte, Tier, error) {
	t.Helper()
	s, err := g.cache.FetchView(t.Context(), &Worker{}, r, id)
	defer s.Release()
	return bytes.Clone(s.Data), s.From, err
}

// fetch fetches a sample into the class that the plan assigns it to, or else into a buffer.
func (g *rig) fetch(ctx context.Context, id int) ([]byte, error) {
	s, err := g.cache.Fetch(ctx, &Request{}, id, make([]byte, g.source.Index.Size(id)))
	defer s.Release()
	return bytes.Clone(s.Data), err
}

// heldUp is a store whose writes wait until it is closed.
type heldUp struct {
	store.Store
	until chan struct{}
}

func (s heldUp) Put(id int, data []byte, origin store.Origin) error {
	<-s.until
	return s.Store.Put(id, data, origin)
}

// TestCopyThatWaitsIsNoReadOfTheClass: a sample that is delivered while its copy waits to be
// written counts for neither its class nor the source.
func TestCopyThatWaitsIsNoReadOfTheClass(t *testing.T) {
	until := make(chan struct{})
	o := plain(1)
	o.file, o.dir = 400, t.TempDir()
	o.wrap = func(s store.Store) store.Store { return heldUp{s, until} }
	g := newRig(t, o)
	defer g.close()
	for _, want := range []string{"source", "writeback", "file"} {
		if want == "file" {
			close(until)
			g.cache.classes[0].writer.Flush(t.Context())
		}
		_, tier, err := g.fetched(t, &Request{}, 0)
		got := g.cache.TierName(tier)
		if err != nil || got != want || int(tier) >= g.cache.Tiers() {
			t.Errorf("from %q (%d of %d), %v; want %q", got, tier, g.cache.Tiers(), err, want)
		}
		for _, s := range g.cache.Speeds() {
			if s.Tier == "file" && (s.Samples > 0) != (want == "file") {
				t.Errorf("%s: the class delivered %d samples", want, s.Samples)
			}
		}
	}
}
