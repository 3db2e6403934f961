package catalog

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/store"
)

// hangs makes classes in directories hang when they are created, until the gate is closed.
func (c *shelf) hangs(gate <-chan struct{}) {
	kind := &c.kinds.Classes[1]
	open := kind.New
	kind.New = func(o store.Options) (store.Class, error) {
		<-gate
		return open(o)
	}
}

// TestDirectoryThatHangsWhenItIsOpened checks that a job with such a cache directory gets an error
// that names it after start_timeout, and at once if it is cancelled; that it is warned sooner that
// something hangs; that a job without it is not held up, then or later; and that the directory can
// be used when it responds again.
func TestDirectoryThatHangsWhenItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShelf(t)
		gate, dir := make(chan struct{}), filepath.Join(t.TempDir(), "cache")
		c.hangs(gate)
		with := &config.Config{
			SourceThreads: 1, StartTimeout: time.Minute,
			StorageClasses: []config.StorageClass{fileClass(dir, total, 1)},
		}
		without := &config.Config{SourceThreads: 1, StartTimeout: time.Minute}
		d := c.open(t, with)
		defer d.Close()
		begin := time.Now()
		told := make(chan time.Duration, 1)
		slow := func(path string) {
			if path != dir {
				t.Errorf("told of %s", path)
			}
			told <- time.Since(begin)
		}
		j := by(with)
		j.Slow = slow
		_, _, err := d.JoinCache(t.Context(), j)
		if took, told := time.Since(begin), <-told; took != time.Minute || told != slowAfter {
			t.Errorf("refused after %v, and told after %v", took, told)
		}
		if e := new(failure.Error); !errors.As(err, &e) || e.Kind != failure.Config ||
			!strings.Contains(e.Message, dir) || !strings.Contains(e.Message, "start_timeout") {
			t.Errorf("the error is %v", err)
		}
		again := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, _, err := d.JoinCache(ctx, by(with)); !errors.Is(err, context.Canceled) ||
			time.Since(again) != time.Second {
			t.Errorf("cancelled: %v after %v", err, time.Since(again))
		}
		if _, _, err := d.JoinCache(t.Context(), by(without)); err != nil {
			t.Errorf("without the directory: %v", err)
		}
		d.LeaveCache()
		if took := time.Since(again); took != time.Second {
			t.Errorf("without the directory it took %v", took)
		}
		close(gate)
		synctest.Wait()
		if _, _, err := d.JoinCache(t.Context(), by(with)); err != nil {
			t.Errorf("when it responds again: %v", err)
		} else {
			d.LeaveCache()
		}
	})
}

// TestDatasetIsOpenedWhileADirectoryHangs checks that a process which opens a dataset is not held
// up by another one whose cache directory hangs, and can give up waiting for its cache.
func TestDatasetIsOpenedWhileADirectoryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShelf(t)
		gate := make(chan struct{})
		c.hangs(gate)
		cfg := &config.Config{
			SourceThreads: 1, StartTimeout: time.Minute,
			StorageClasses: []config.StorageClass{
				fileClass(filepath.Join(t.TempDir(), "cache"), total, 1),
			},
		}
		first := c.open(t, cfg)
		defer first.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, _, err := first.JoinCache(t.Context(), by(cfg)); err == nil {
				t.Error("the directory that hangs was opened")
			}
		}()
		synctest.Wait()
		begin := time.Now()
		second := c.open(t, cfg)
		defer second.Close()
		if len(second.Reports()) > 0 || time.Since(begin) > 0 {
			t.Errorf("opened after %v", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := second.JoinCache(ctx, by(cfg)); !errors.Is(err, ctx.Err()) ||
			time.Since(begin) != time.Second {
			t.Errorf("the second process got %v after %v", err, time.Since(begin))
		}
		<-ended
		close(gate)
		synctest.Wait()
	})
}

// stuckStore is a store whose Close hangs.
type stuckStore struct {
	store.Store
	gate <-chan struct{}
}

func (s stuckStore) Close() error {
	<-s.gate
	return s.Store.Close()
}

// TestDirectoryThatHangsWhenItIsClosed checks that the end of the last job takes a bounded time.
func TestDirectoryThatHangsWhenItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShelf(t)
		gate := make(chan struct{})
		cfg := &config.Config{SourceThreads: 1, StorageClasses: []config.StorageClass{
			fileClass(filepath.Join(t.TempDir(), "cache"), total, 1),
		}}
		d := c.open(t, cfg)
		if _, _, err := d.JoinCache(t.Context(), by(cfg)); err != nil {
			t.Fatal(err)
		}
		class := &d.entry.classes[0]
		class.Store = stuckStore{class.Store, gate}
		begin := time.Now()
		d.LeaveCache()
		d.Close()
		if took := time.Since(begin); took > closeTimeout+time.Second {
			t.Errorf("leaving took %v", took)
		}
		if c.stuck.Load() == 0 {
			t.Error("the catalog does not know that a directory hangs")
		}
		close(gate)
		synctest.Wait()
	})
}

// slowClass is a class that opens stores when the gate is closed.
type slowClass struct {
	store.Class
	gate   <-chan struct{}
	closed *bool
}

func (s slowClass) Open(ds store.Dataset, capacity int64) (store.Store, error) {
	<-s.gate
	return s.Class.Open(ds, capacity)
}

func (s slowClass) Close() error {
	*s.closed = true
	return s.Class.Close()
}

// TestClassIsClosedAfterALateStore checks that a class whose store is opened only after the job has
// left, and the catalog was closed, is closed when that has ended, and not before.
func TestClassIsClosedAfterALateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShelf(t)
		gate, closed := make(chan struct{}), false
		kind := &c.kinds.Classes[1]
		open := kind.New
		kind.New = func(o store.Options) (store.Class, error) {
			class, err := open(o)
			return slowClass{class, gate, &closed}, err
		}
		cfg := &config.Config{SourceThreads: 1, StorageClasses: []config.StorageClass{
			fileClass(filepath.Join(t.TempDir(), "cache"), total, 1),
		}}
		d := c.open(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, _, err := d.JoinCache(ctx, by(cfg)); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
		d.Close()
		if err := c.Close(); err != nil || closed {
			t.Errorf("closed while a store is being opened: %v, %v", closed, err)
		}
		close(gate)
		synctest.Wait()
		if !closed {
			t.Error("the class is left open")
		}
	})
}

// TestCachesAreClosedWhenASourceAnswersAgain: a read of the source hangs when the last job leaves.
// The job that follows, on other files, gets the room of the caches when the read has ended, and
// the source is closed then, and not before.
func TestCachesAreClosedWhenASourceAnswersAgain(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := newShelf(t)
			cfg := &config.Config{SourceThreads: 1, StorageClasses: []config.StorageClass{
				fileClass(filepath.Join(t.TempDir(), "cache"), total, 1),
			}}
			gate := make(chan struct{})
			c.reading = func() { <-gate }
			d := c.open(t, cfg)
			u := join(t, d, cfg).Use(nil)
			u.Keep([][]int32{{3}})
			u.Fill([][]int32{{3}}, func(int64) {})
			synctest.Wait()
			u.Close()
			d.LeaveCache()
			d.Close()
			if c.closed > 0 || c.stuck.Load() == 0 {
				t.Errorf("a read hangs, and %d sources are closed", c.closed)
			}
			time.AfterFunc(after, func() { close(gate) })
			c.version++
			next := c.open(t, cfg)
			_, _, err := next.JoinCache(t.Context(), by(cfg))
			if (err == nil) != (after < endTimeout) {
				t.Errorf("the read ended after %v: %v", after, err)
			}
			<-gate
			synctest.Wait()
			if c.closed != 1 || c.stuck.Load() > 0 {
				t.Errorf("the read has ended, and %d sources are closed", c.closed)
			}
			if err != nil {
				if _, _, err = next.JoinCache(t.Context(), by(cfg)); err != nil {
					t.Errorf("when the read has ended: %v", err)
				}
			}
			next.LeaveCache()
			next.Close()
		})
	}
}
