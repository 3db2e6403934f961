package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/file"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a source of 10 samples of 100 bytes.
type fake struct {
	index  *dataset.Index
	shelf  *shelf
	inode  uint64
	closed *int
}

func (s fake) Index() *dataset.Index { return s.index }

func (s fake) Path(id int) string { return s.index.Name(id) }

func (s fake) Place() (device, inode uint64) { return 1, s.inode }

func (s fake) Read(_ context.Context, id int, dst []byte) (dataset.Stamp, error) {
	if s.shelf.reading != nil {
		s.shelf.reading()
	}
	for i := range dst {
		dst[i] = byte(id)
	}
	return 0, nil
}

func (s fake) Stat(context.Context, int) (dataset.Stamp, error) {
	s.shelf.stats.Add(1)
	return 0, nil
}

func (s fake) Close() error {
	*s.closed++
	return nil
}

const total = 1000

// shelf is a catalog of fakes, and what was done to them.
type shelf struct {
	*Catalog
	opened, closed int
	opening        func(ctx context.Context) error // before a dataset is there
	reading        func()                          // before a sample is read; nil: nothing
	// samples asked for, whether they are still the same
	stats atomic.Int64

	// What is found at the path now: in which directory, and which version. And through which view
	// it was opened last.
	inode, version uint64
	view           *dataset.View
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	c := &shelf{opening: func(context.Context) error { return nil }}
	ram, disk := memory.New(memory.Options{}), file.Kind("")
	disk.New = func(o storageclass.Options) (storageclass.Class, error) {
		return file.New(file.Options{Dir: o.Dir, Capacity: o.Capacity, Reserve: 1, Warn: o.Warn})
	}
	c.Catalog = New(Kinds{
		Sources: []dataset.Kind{
			{Name: "fake", Open: func(ctx context.Context, _ string,
				o dataset.OpenOptions,
			) (dataset.Indexed, error) {
				c.opened++
				c.view = o.View
				if err := c.opening(ctx); err != nil {
					return nil, err
				}
				b := dataset.NewBuilder([]string{"a"}, []string{".x"})
				b.Directory(dataset.Directory{Class: -1})
				b.Directory(dataset.Directory{Path: "a"})
				for i := range 10 {
					b.Sample(fmt.Sprintf("%d.x", i), total/10, int64(c.version), 0)
				}
				index, err := b.Build()
				return fake{index, c, c.inode, &c.closed}, err
			}},
			{Name: "none"},
		},
		Classes: []storageclass.Kind{memory.Kind(ram), disk},
	}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if len(c.datasets) > 0 {
			t.Errorf("%d datasets are left open", len(c.datasets))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

var spec = dataset.Spec{Kind: "fake", Path: "/data"}

// open opens the dataset as one that keeps its index in a directory.
func (c *shelf) open(t *testing.T, cfg *config.Config) *Dataset {
	t.Helper()
	d, err := c.Open(t.Context(), spec, nil, cfg, func(int64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDescribed: a store on a disk says which dataset it is of.
func TestDescribed(t *testing.T) {
	c := newShelf(t)
	dir := t.TempDir()
	cfg := &config.Config{
		SourceThreads:  1,
		StorageClasses: []config.StorageClass{{Kind: "file", Path: dir, Capacity: 1 << 20}},
	}
	d := c.open(t, cfg)
	defer d.Close()
	if _, _, err := d.JoinCache(cfg); err != nil {
		t.Fatal(err)
	}
	defer d.LeaveCache()
	cache, err := file.Existing(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	stores, err := cache.Stores()
	if err != nil || len(stores) != 1 || stores[0].Description == nil {
		t.Fatalf("%+v, %v", stores, err)
	}
	got, index := stores[0].Description, d.Index()
	if got.Kind != "fake" || got.Path != "/data" ||
		!slices.Equal(got.Extensions, index.Extensions()) || got.Samples != int64(index.Len()) ||
		got.Bytes != index.Bytes() {
		t.Errorf("%+v", got)
	}
}

// TestShared: who opens a dataset that is open has the same index and the same cache; both go with
// the last who has them.
func TestShared(t *testing.T) {
	c := newShelf(t)
	cfg := &config.Config{SourceThreads: 1, StorageClasses: []config.StorageClass{
		{Kind: "memory", Capacity: 400},
		{Kind: "file", Path: t.TempDir(), Capacity: 1 << 20},
		{Kind: "file", Path: t.TempDir(), Capacity: 500},
	}}
	a, b := c.open(t, cfg), c.open(t, cfg)
	if a.Index() != b.Index() || c.opened != 2 || c.closed != 1 {
		t.Errorf("opened %d times, closed %d: the second looks for itself, and joins the first",
			c.opened, c.closed)
	}
	if c.Cached(spec) {
		t.Error("it is cached before anybody has asked for a cache")
	}
	cache, madeBy, err := a.JoinCache(cfg)
	if err != nil || madeBy != cfg || !c.Cached(spec) {
		t.Fatalf("made by it: %t, cached: %t, %v", madeBy == cfg, c.Cached(spec), err)
	}
	again, madeBy, err := b.JoinCache(&config.Config{SourceThreads: 7})
	if err != nil || madeBy != cfg || again != cache {
		t.Errorf("the second: made by the first %t, the same %t, %v", madeBy == cfg, again == cache,
			err)
	}
	for i, want := range []struct {
		name     string
		room     int64
		keepsAll bool
	}{{"memory", 400, false}, {"file", total, true}, {"file-2", 500, false}} {
		if got := b.Classes()[i]; got.Name != want.name || got.Room != want.room ||
			got.KeepsAll != want.keepsAll {
			t.Errorf("class %d: %+v, want %+v", i, got, want)
		}
		if got := b.Reports()[i]; got.Name != want.name || got.Room != want.room || got.Used != 0 {
			t.Errorf("report %d: %+v, want %+v", i, got, want)
		}
	}
	a.LeaveCache()
	a.Close()
	a.Close() // does nothing
	if !c.Cached(spec) || c.closed != 1 || len(b.Classes()) != 3 {
		t.Errorf("the second has lost what the first has left: %d closed, classes %+v", c.closed,
			b.Classes())
	}
	b.LeaveCache()
	if c.Cached(spec) || c.closed != 1 || b.Reports() != nil {
		t.Errorf("the cache is still there: %+v, %d closed", b.Reports(), c.closed)
	}
	b.Close()
	if c.closed != 2 {
		t.Errorf("closed %d times", c.closed)
	}
	c.open(t, cfg).Close()
	if c.opened != 3 || c.closed != 3 {
		t.Errorf("opened %d times, closed %d", c.opened, c.closed)
	}
}

// TestIndexDirs: with its index elsewhere it is another one; its cache counts all the same.
func TestIndexDirs(t *testing.T) {
	c := newShelf(t)
	a, b := c.open(t, &config.Config{}), c.open(t, &config.Config{IndexDir: "/elsewhere"})
	if c.opened != 2 {
		t.Errorf("opened %d times", c.opened)
	}
	if _, _, err := b.JoinCache(&config.Config{SourceThreads: 1}); err != nil || !c.Cached(spec) {
		t.Errorf("cached: %t, %v", c.Cached(spec), err)
	}
	b.LeaveCache()
	a.Close()
	b.Close()
}

// TestFailed: what fails leaves nothing, is told to all who wait, and is tried anew by who comes
// then.
func TestFailed(t *testing.T) {
	c := newShelf(t)
	c.opening = func(context.Context) error { return errors.New("no such directory") }
	if _, err := c.Open(t.Context(), spec, nil, &config.Config{}, nil); err == nil ||
		err.Error() != "no such directory" {
		t.Error(err)
	}
	c.opening = func(context.Context) error { return nil }
	d := c.open(t, &config.Config{})
	for _, bad := range []config.StorageClass{{Kind: "tape"}, {Kind: "memory", Capacity: -1}} {
		cfg := &config.Config{
			SourceThreads:  1,
			StorageClasses: []config.StorageClass{{Kind: "memory", Capacity: 100}, bad},
		}
		if _, _, err := d.JoinCache(cfg); err == nil || c.Cached(spec) || d.Reports() != nil {
			t.Errorf("%+v: %v; cached: %t, %+v", bad, err, c.Cached(spec), d.Reports())
		}
	}
	d.Close()
}

// TestGivenUp: where the one who opens it goes away, the next of those that wait opens it; who
// waits may go away too.
func TestGivenUp(t *testing.T) {
	c := newShelf(t)
	opening := make(chan struct{})
	c.opening = func(ctx context.Context) error {
		opening <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	told := make(chan error)
	ask := func(ctx context.Context) {
		d, err := c.Open(ctx, spec, nil, &config.Config{}, nil)
		if err == nil {
			d.Close()
		}
		told <- err
	}
	first, leave := context.WithCancel(t.Context())
	go ask(first)
	<-opening
	waits, tire := context.WithCancel(t.Context())
	go ask(waits)
	tire()
	if err := <-told; !errors.Is(err, context.Canceled) {
		t.Errorf("who waits and goes away is told %v", err)
	}
	c.opening = func(context.Context) error { return nil }
	go ask(t.Context())
	leave()
	a, b := <-told, <-told
	if a == nil {
		a, b = b, a
	}
	if !errors.Is(a, context.Canceled) || b != nil {
		t.Errorf("they are told %v and %v", a, b)
	}
}

// TestUnknown: a kind that there is not is named, with those that there are.
func TestUnknown(t *testing.T) {
	c := newShelf(t)
	_, err := c.Open(t.Context(), dataset.Spec{Kind: "tape"}, nil, &config.Config{}, nil)
	if e := new(failure.Error); !errors.As(err, &e) || e.Kind != failure.Config ||
		!strings.Contains(e.Message, `dataset kind "tape" is not known; there are: fake, none`) {
		t.Error(err)
	}
	d := c.open(t, &config.Config{})
	_, _, err = d.JoinCache(&config.Config{StorageClasses: []config.StorageClass{{Kind: "tape"}}})
	if e := new(failure.Error); !errors.As(err, &e) || e.Kind != failure.Config ||
		!strings.Contains(e.Message,
			`storage class kind "tape" is not known; there are: file, memory`) {
		t.Error(err)
	}
	d.Close()
}
