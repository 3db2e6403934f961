package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// by returns the Join of a job on one node with this configuration.
func by(cfg *config.Config) Join { return Join{Config: cfg, MostFiles: 99, Nodes: 1} }

// join joins the dataset's cache.
func join(t *testing.T, d *Dataset, cfg *config.Config) *cache.Cache {
	t.Helper()
	cache, _, err := d.JoinCache(t.Context(), by(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// inMemory returns a configuration with one storage class.
func inMemory(capacity int64) *config.Config {
	return &config.Config{
		SourceThreads:  1,
		StorageClasses: []config.StorageClass{memoryClass(capacity)},
	}
}

// bring makes the cache fetch and keep a sample.
func bring(t *testing.T, c *cache.Cache, id int32) {
	t.Helper()
	u := c.Use(nil)
	defer u.Close()
	u.Keep([][]int32{{id}})
	if _, err := c.Serve(t.Context(), int(id), routing.Want{}, func(cache.Copy, bool) error {
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestOtherDirectoriesAndVersionsAreOtherDatasets checks that Open joins an open dataset only if
// the path leads to the same version in the same directory: a process in another container must not
// be served files that it does not see itself.
func TestOtherDirectoriesAndVersionsAreOtherDatasets(t *testing.T) {
	for name, change := range map[string]func(c *shelf){
		"another directory": func(c *shelf) { c.inode = 8 },
		"another version":   func(c *shelf) { c.version = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			c := newShelf(t)
			cfg := &config.Config{SourceThreads: 1}
			first := c.open(t, cfg)
			change(c)
			second, third := c.open(t, cfg), c.open(t, cfg)
			if len(c.datasets) != 2 || c.closed != 1 || second.Index() == first.Index() ||
				third.Index() != second.Index() {
				t.Errorf("%d datasets are open, %d sources were closed", len(c.datasets), c.closed)
			}
			if _, inode := second.DirectoryID(); inode != c.inode {
				t.Errorf("the second is in directory %d, but was found in %d", inode, c.inode)
			}
			mine, others := join(t, first, cfg), join(t, second, cfg)
			if mine == others || join(t, third, cfg) != others {
				t.Error("different datasets share a cache, or the same dataset has several caches")
			}
			for _, d := range []*Dataset{first, second, third} {
				d.LeaveCache()
				d.Close()
			}
		})
	}
}

// TestJoiningDoubtsTheCopies checks that every copy is confirmed again after each Open, because
// files may have been rewritten since they were cached.
func TestJoiningDoubtsTheCopies(t *testing.T) {
	c := newShelf(t)
	cfg := inMemory(400)
	first := c.open(t, cfg)
	cache := join(t, first, cfg)
	bring(t, cache, 3)
	held, ok := cache.Held(3, routing.Want{})
	if !ok || c.stats.Load() != 0 {
		t.Fatalf("held: %v; %d stats", ok, c.stats.Load())
	}
	held.Hold.Release()
	second := c.open(t, cfg)
	if _, ok := cache.Held(3, routing.Want{}); ok {
		t.Error("the copy is served unconfirmed after another Open")
	}
	for range 2 {
		if bring(t, cache, 3); c.stats.Load() != 1 {
			t.Errorf("%d stats, want 1", c.stats.Load())
		}
	}
	first.LeaveCache()
	first.Close()
	second.Close()
}

// TestPromisedCountsOpenMemoryClasses checks that Promised counts the memory that open stores may
// still take until the cache is closed, but no disk space.
func TestPromisedCountsOpenMemoryClasses(t *testing.T) {
	c := newShelf(t)
	cfg := inMemory(400)
	cfg.StorageClasses = append(cfg.StorageClasses,
		fileClass(t.TempDir(), 1<<20, 0))
	d := c.open(t, cfg)
	promised := func(when string, want int64) {
		t.Helper()
		if got := c.Promised(); got != want {
			t.Errorf("%s: %d bytes, want %d", when, got, want)
		}
	}
	promised("without a cache", 0)
	cache := join(t, d, cfg)
	promised("with a cache", 400)
	bring(t, cache, 3)
	promised("with a sample", 400-total/samples)
	other := c.open(t, cfg)
	join(t, other, cfg)
	d.LeaveCache()
	promised("while one user is left", 400-total/samples)
	other.LeaveCache()
	other.Close()
	promised("after it is closed", 0)
	d.Close()
}

// TestAnyProcessCanRenewTheRoot checks that every process that has the dataset open, or has added
// its view, is asked to open the root again, but none that has left.
func TestAnyProcessCanRenewTheRoot(t *testing.T) {
	c := newShelf(t)
	var mu sync.Mutex
	var asked []string
	view := func(name string) *source.View {
		return &source.View{
			Root: os.Stdin, Slash: os.Stdin,
			Renew: func(context.Context) (*source.View, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, name)
				return nil, errors.New(name + " cannot")
			},
		}
	}
	open := func(v *source.View) *Dataset {
		d, err := c.Open(t.Context(), spec, v, OpenOptions{Config: &config.Config{}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := open(view("first"))
	if c.view.Root != os.Stdin || c.view.Slash != os.Stdin {
		t.Error("the dataset is not opened through the descriptors of the process")
	}
	renew := c.view.Renew // of the source that stays open
	are := func(when string, want ...string) {
		t.Helper()
		asked = nil
		if _, err := renew(t.Context()); err == nil ||
			!slices.Equal(slices.Sorted(slices.Values(asked)), want) {
			t.Errorf("%s: %v were asked, want %v; %v", when, asked, want, err)
		}
	}
	are("the first only", "first")
	second := open(view("second"))
	are("both", "first", "second")
	first.Close()
	are("the first has left", "second")
	forget := second.See(view("third"))
	second.Close()
	are("the second has left", "third")
	forget()
	are("all have left")
}

// TestHungReadKeepsStoresOpen checks that if a read hangs when the last job leaves, the source and
// the storage classes remain open until the process exits, and the catalog's Close does not fail.
func TestHungReadKeepsStoresOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShelf(t)
		gate, under := make(chan struct{}), make(chan struct{})
		c.reading = func() { close(under); <-gate }
		cfg := inMemory(400)
		d := c.open(t, cfg)
		cache := join(t, d, cfg)
		u := cache.Use(nil)
		u.Keep([][]int32{{3}})
		u.Fill([][]int32{{3}}, func(int64) {})
		<-under
		u.Close()
		d.LeaveCache()
		d.Close()
		if c.closed != 0 {
			t.Error("the source was closed while a read of it hangs")
		}
		if d.Reports() != nil || c.Cached(spec) {
			t.Error("the cache is still open")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		close(gate)
		synctest.Wait()
	})
}

// TestWarningsReachTheProcess checks that warnings and progress of opening a dataset are reported
// to the process that opens it.
func TestWarningsReachTheProcess(t *testing.T) {
	c := newShelf(t)
	open := c.kinds.Sources[0].Open
	c.kinds.Sources[0].Open = func(ctx context.Context, path string,
		o source.OpenOptions,
	) (source.Indexed, error) {
		o.Progress(12)
		o.Await("node 0 has it")
		o.Tell("two files are empty")
		return open(ctx, path, o)
	}
	var files []int64
	var told, awaited []string
	d, err := c.Open(t.Context(), spec, nil, OpenOptions{
		Config: &config.Config{},
		Progress: func(p Progress) {
			switch {
			case p.Text == "":
				files = append(files, p.Files)
			case p.Warning:
				told = append(told, p.Text)
			default:
				awaited = append(awaited, p.Text)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(files, []int64{12}) || !slices.Equal(told, []string{"two files are empty"}) ||
		!slices.Equal(awaited, []string{"node 0 has it"}) {
		t.Errorf("told %v, %q and %q", files, told, awaited)
	}
	d.Close()
}

// TestUnsetCapacityIsWhatIsAvailable checks that a storage class without a capacity gets what is
// available, but no more than the dataset needs.
func TestUnsetCapacityIsWhatIsAvailable(t *testing.T) {
	for available, want := range map[int64]int64{250: 250, 1 << 20: total} {
		c := newShelf(t)
		ram := memory.New(memory.Options{Limit: func() (int64, error) { return available, nil }})
		c.kinds.Classes[0] = memory.Kind(ram)
		d := c.open(t, &config.Config{})
		join(t, d, inMemory(0))
		if got := d.Classes()[0].Capacity; got != want {
			t.Errorf("capacity %[2]d of %[1]d available bytes, want %[3]d", available, got, want)
		}
		d.LeaveCache()
		d.Close()
	}
}

// TestJobsComeAndGoAtTheSameTime checks that jobs may open a dataset at the same time, and close it
// and look at what is known of it while others open its cache.
func TestJobsComeAndGoAtTheSameTime(t *testing.T) {
	c, cfg := newShelf(t), inMemory(total)
	var all [4]*Dataset
	var jobs sync.WaitGroup
	for i := range all {
		jobs.Go(func() {
			var err error
			if all[i], err = c.Open(t.Context(), spec, nil, OpenOptions{Config: cfg}); err != nil {
				t.Error(err)
			}
		})
	}
	jobs.Wait()
	if t.Failed() {
		return
	}
	jobs.Go(all[0].Close)
	jobs.Go(all[1].Close)
	jobs.Go(func() {
		if _, _, err := all[2].JoinCache(t.Context(), by(cfg)); err != nil {
			t.Error(err)
		}
	})
	jobs.Go(func() { all[3].Live(1, nil) })
	jobs.Wait()
	all[2].LeaveCache()
	all[2].Close()
	if c.closed != 3 { // those that were found open already
		t.Errorf("%d sources are closed while a job has the dataset open", c.closed)
	}
	all[3].Close()
}

// TestThreads checks how many samples are read at the same time: as many as were asked for, or else
// at first 16, and later as many as 64 MiB and the open files allow, up to 512.
func TestThreads(t *testing.T) {
	for _, c := range []struct {
		configured int
		mean       int64
		files      int
		want       cache.Threads
	}{
		{configured: 700, mean: 1, files: 1, want: cache.Threads{Start: 700}},
		{mean: 1, files: 1000, want: cache.Threads{Start: 16, Most: 512}},
		{mean: 1 << 20, files: 1000, want: cache.Threads{Start: 16, Most: 64}},
		{mean: 1 << 30, files: 1000, want: cache.Threads{Start: 16, Most: 16}},
		{mean: 1, files: 100, want: cache.Threads{Start: 16, Most: 100}},
		{mean: 1, files: 10, want: cache.Threads{Start: 10, Most: 10}},
		{mean: 0, files: 0, want: cache.Threads{Start: 1, Most: 1}},
	} {
		if got := threads(c.configured, c.mean, c.files); got != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestUnusableDirectoryIsAnError checks that a cache directory that is none keeps no cache open.
func TestUnusableDirectoryIsAnError(t *testing.T) {
	c := newShelf(t)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{
		SourceThreads:  1,
		StorageClasses: []config.StorageClass{fileClass(path, 1<<20, 0)},
	}
	d := c.open(t, cfg)
	defer d.Close()
	if _, _, err := d.JoinCache(t.Context(), by(cfg)); err == nil || d.Cached() {
		t.Errorf("a file as a cache directory: %v", err)
	}
}
