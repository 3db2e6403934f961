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

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a source with 40 samples of 25 bytes.
type fake struct {
	index  *source.Index
	shelf  *shelf
	inode  uint64
	closed *int
}

func (s fake) Index() *source.Index { return s.index }

func (s fake) Path(id int) string { return s.index.Name(id) }

func (s fake) DirectoryID() (device, inode uint64) { return 1, s.inode }

func (s fake) Read(_ context.Context, id int, dst []byte) (source.Stamp, error) {
	if s.shelf.reading != nil {
		s.shelf.reading()
	}
	for i := range dst {
		dst[i] = byte(id)
	}
	return 0, nil
}

func (s fake) Stat(context.Context, int) (source.Stamp, error) {
	s.shelf.stats.Add(1)
	return 0, nil
}

func (s fake) Close() error {
	*s.closed++
	return nil
}

const samples, total = 40, 1000

// shelf is a catalog of fake sources, and records what was done with them.
type shelf struct {
	*Catalog
	opened, closed int
	opening        func(ctx context.Context) error // called before a dataset is opened
	reading        func()                          // called before a sample is read; may be nil
	beside         besideFile
	// stats counts the calls of Stat.
	stats atomic.Int64

	// The state of the path: its directory, and its version. view is the one through which it was
	// opened last.
	inode, version uint64
	view           *source.View
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	c := &shelf{opening: func(context.Context) error { return nil }}
	ram, disk := memory.New(memory.Options{}), file.Kind("")
	disk.New = func(o store.Options) (store.Class, error) {
		own := file.OptionsOf(o)
		own.Reserve = 1
		return file.New(own)
	}
	indexed := []option.Option{{Key: source.IndexDirKey, Job: "index_dir"}}
	c.Catalog = New(Kinds{
		Sources: []source.Kind{
			{Name: "fake", Options: indexed, Open: func(ctx context.Context, _ string,
				o source.OpenOptions,
			) (source.Indexed, error) {
				c.opened++
				c.view = o.View
				if err := c.opening(ctx); err != nil {
					return nil, err
				}
				b := source.NewBuilder([]string{"a"}, []string{".x"})
				b.Directory(source.Directory{Class: -1})
				b.Directory(source.Directory{Path: "a"})
				for i := range samples {
					b.Sample(fmt.Sprintf("%d.x", i), total/samples, int64(c.version), 0)
				}
				index, err := b.Build()
				return fake{index, c, c.inode, &c.closed}, err
			}},
			{Name: "none"},
		},
		Classes: []store.Kind{memory.Kind(ram), disk},
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

var spec = source.Spec{Kind: "fake", Path: "/data"}

// open opens the dataset with a configuration.
func (c *shelf) open(t *testing.T, cfg *config.Config) *Dataset {
	t.Helper()
	d, err := c.Open(t.Context(), spec, nil, OpenOptions{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestStoreDescribesItsDataset checks that a store on disk has a description of its dataset.
func TestStoreDescribesItsDataset(t *testing.T) {
	c := newShelf(t)
	dir := t.TempDir()
	cfg := &config.Config{
		SourceThreads:  1,
		StorageClasses: []config.StorageClass{fileClass(dir, 1<<20, 0)},
	}
	d := c.open(t, cfg)
	defer d.Close()
	if _, _, err := d.JoinCache(t.Context(), by(cfg)); err != nil {
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

// TestIndexAndCacheAreShared checks that opening an open dataset returns the same index and cache,
// and that both are closed with the last user.
func TestIndexAndCacheAreShared(t *testing.T) {
	c := newShelf(t)
	cfg := &config.Config{SourceThreads: 1, StorageClasses: []config.StorageClass{
		memoryClass(400),
		fileClass(t.TempDir(), 1<<20, 0),
		fileClass(t.TempDir(), 500, 0),
	}}
	a, b := c.open(t, cfg), c.open(t, cfg)
	if a.Index() != b.Index() || c.opened != 2 || c.closed != 1 {
		t.Errorf("opened %d times, closed %d times; want 2 and 1: the second scans again, and "+
			"joins the first",
			c.opened, c.closed)
	}
	if c.Cached(spec) {
		t.Error("the dataset is cached before JoinCache")
	}
	cache, madeBy, err := a.JoinCache(t.Context(), by(cfg))
	if err != nil || madeBy != cfg || !c.Cached(spec) {
		t.Fatalf("made by cfg: %t, cached: %t, %v", madeBy == cfg, c.Cached(spec), err)
	}
	again, madeBy, err := b.JoinCache(t.Context(), by(&config.Config{SourceThreads: 7}))
	if err != nil || madeBy != cfg || again != cache {
		t.Errorf("the second: made by cfg: %t, the same cache: %t, %v", madeBy == cfg,
			again == cache,
			err)
	}
	for i, want := range []struct {
		name     string
		capacity int64
		keepsAll bool
	}{{"memory", 400, false}, {"file", total, true}, {"file-2", 500, false}} {
		if got := b.Classes()[i]; got.Name != want.name || got.Capacity != want.capacity ||
			got.KeepsAll != want.keepsAll {
			t.Errorf("class %d: %+v, want %+v", i, got, want)
		}
		if got := b.Reports()[i]; got.Name != want.name || got.Capacity != want.capacity ||
			got.Used != 0 {
			t.Errorf("report %d: %+v, want %+v", i, got, want)
		}
	}
	a.LeaveCache()
	a.Close()
	a.Close() // idempotent
	if !c.Cached(spec) || c.closed != 1 || len(b.Classes()) != 3 {
		t.Errorf("the second lost what the first left: %d closed, classes %+v", c.closed,
			b.Classes())
	}
	b.LeaveCache()
	if c.Cached(spec) || c.closed != 1 || b.Reports() != nil {
		t.Errorf("the cache is still open: %+v, %d closed", b.Reports(), c.closed)
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

// TestIndexDirsAreSeparateDatasets checks that a dataset with another index_dir is a separate one,
// and that Cached reports its cache all the same.
func TestIndexDirsAreSeparateDatasets(t *testing.T) {
	c := newShelf(t)
	a, b := c.open(t, &config.Config{}), c.open(t, &config.Config{IndexDir: "/elsewhere"})
	if c.opened != 2 {
		t.Errorf("opened %d times", c.opened)
	}
	_, _, err := b.JoinCache(t.Context(), by(&config.Config{SourceThreads: 1}))
	if err != nil || !c.Cached(spec) {
		t.Errorf("cached: %t, %v", c.Cached(spec), err)
	}
	b.LeaveCache()
	a.Close()
	b.Close()
}

// TestFailedOpenLeavesNothing checks that a failure is returned, leaves nothing open, and does not
// affect later attempts.
func TestFailedOpenLeavesNothing(t *testing.T) {
	c := newShelf(t)
	c.opening = func(context.Context) error { return errors.New("no such directory") }
	if _, err := c.Open(t.Context(), spec, nil, OpenOptions{Config: &config.Config{}}); err == nil ||
		err.Error() != "no such directory" {
		t.Error(err)
	}
	c.opening = func(context.Context) error { return nil }
	d := c.open(t, &config.Config{})
	for _, bad := range []config.StorageClass{{Kind: "tape"}, memoryClass(-1)} {
		cfg := &config.Config{
			SourceThreads:  1,
			StorageClasses: []config.StorageClass{memoryClass(100), bad},
		}
		_, _, err := d.JoinCache(t.Context(), by(cfg))
		if err == nil || c.Cached(spec) || d.Reports() != nil {
			t.Errorf("%+v: %v; cached: %t, %+v", bad, err, c.Cached(spec), d.Reports())
		}
	}
	d.Close()
}

// TestNextOpenTakesOverFromACancelledOne checks that if the one that opens a dataset is cancelled,
// the next one that waits opens it, and that waiting can be cancelled too.
func TestNextOpenTakesOverFromACancelledOne(t *testing.T) {
	c := newShelf(t)
	opening := make(chan struct{})
	c.opening = func(ctx context.Context) error {
		opening <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	told := make(chan error)
	ask := func(ctx context.Context) {
		d, err := c.Open(ctx, spec, nil, OpenOptions{Config: &config.Config{}})
		if err == nil {
			d.Close()
		}
		told <- err
	}
	first, leave := context.WithCancel(t.Context())
	go ask(first)
	<-opening
	waits, cancel := context.WithCancel(t.Context())
	go ask(waits)
	cancel()
	if err := <-told; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled waiting Open returned %v", err)
	}
	c.opening = func(context.Context) error { return nil }
	go ask(t.Context())
	leave()
	a, b := <-told, <-told
	if a == nil {
		a, b = b, a
	}
	if !errors.Is(a, context.Canceled) || b != nil {
		t.Errorf("the other two returned %v and %v", a, b)
	}
}

// TestUnknownKindListsTheAvailableOnes checks that the error for an unknown kind lists the
// available ones.
func TestUnknownKindListsTheAvailableOnes(t *testing.T) {
	c := newShelf(t)
	_, err := c.Open(t.Context(), source.Spec{Kind: "tape"}, nil,
		OpenOptions{Config: &config.Config{}})
	if e := new(failure.Error); !errors.As(err, &e) || e.Kind != failure.Config ||
		!strings.Contains(e.Message, `unknown dataset kind "tape"; available: fake, none`) {
		t.Error(err)
	}
	d := c.open(t, &config.Config{})
	tape := []config.StorageClass{{Kind: "tape"}}
	_, _, err = d.JoinCache(t.Context(), by(&config.Config{StorageClasses: tape}))
	if e := new(failure.Error); !errors.As(err, &e) || e.Kind != failure.Config ||
		!strings.Contains(e.Message,
			`unknown storage class kind "tape"; available: file, memory`) {
		t.Error(err)
	}
	d.Close()
}

// TestClassOpenedTooLateIsClosed checks that a storage class whose opening ends after the catalog
// was closed is closed as well.
func TestClassOpenedTooLateIsClosed(t *testing.T) {
	closed := false
	opening := make(chan struct{})
	goOn := make(chan struct{})
	c := New(Kinds{Classes: []store.Kind{{
		Name: "slow", New: func(store.Options) (store.Class, error) {
			close(opening)
			<-goOn
			return lateClass{closed: &closed}, nil
		},
	}}}, slog.New(slog.DiscardHandler))
	done := make(chan error)
	go func() {
		_, err := c.class(config.StorageClass{Kind: "slow"})
		done <- err
	}()
	<-opening
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := <-done; !errors.Is(err, errClosed) || !closed {
		t.Errorf("%v, and the class was closed: %v", err, closed)
	}
}

// lateClass is a class that notes that it was closed.
type lateClass struct {
	store.Class
	closed *bool
}

func (c lateClass) Close() error {
	*c.closed = true
	return nil
}

// fileClass and memoryClass are classes as the configuration has them.
func fileClass(path string, capacity int64, threads int) config.StorageClass {
	return config.StorageClass{
		Kind: file.Name, Threads: threads,
		Options: option.Values{store.PathKey: path, store.CapacityKey: capacity},
	}
}

func memoryClass(capacity int64) config.StorageClass {
	return config.StorageClass{
		Kind: memory.Name, Memory: true, Options: option.Values{store.CapacityKey: capacity},
	}
}
