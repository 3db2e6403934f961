package catalog

import (
	"math"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// TestClassThatMayNotGrowIsReported: reports say that a class in memory may not grow, even if it
// has given nothing back.
func TestClassThatMayNotGrowIsReported(t *testing.T) {
	ram := memory.New(memory.Options{})
	defer ram.Close()
	opened, err := ram.Open(store.Dataset{
		Samples: 4, Size: func(int) int64 { return 100 },
	}, 400)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if r := returned(opened, 400); r != nil {
		t.Errorf("a class that may grow: %+v", r)
	}
	ram.Allow(0)
	if r := returned(opened, 400); r == nil || !r.Paused || r.Segments != 0 {
		t.Errorf("memory is short: %+v", r)
	}
	ram.Allow(math.MaxInt64)
	for id := range 4 {
		if err := opened.Put(id, make([]byte, 100), store.Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	ram.Allow(0)
	if r := returned(opened, 400); r != nil {
		t.Errorf("memory is short, but the class is full, and has given nothing back: %+v", r)
	}
}

// TestStartedAgainWithOtherFiles checks that a job on other files gets the room of the last job,
// which is still being taken apart, and is refused if that does not end soon.
func TestStartedAgainWithOtherFiles(t *testing.T) {
	for _, leaves := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := newShelf(t)
			cfg := &config.Config{SourceThreads: 1, StorageClasses: []config.StorageClass{
				fileClass(filepath.Join(t.TempDir(), "cache"), total, 1),
			}}
			last := c.open(t, cfg)
			if _, _, err := last.JoinCache(t.Context(), by(cfg)); err != nil {
				t.Fatal(err)
			}
			gone := make(chan struct{})
			time.AfterFunc(leaves, func() {
				defer close(gone)
				last.LeaveCache()
			})
			c.version++
			d, begin := c.open(t, cfg), time.Now()
			_, _, err := d.JoinCache(t.Context(), by(cfg))
			took := time.Since(begin)
			if err == nil {
				d.LeaveCache()
			}
			d.Close()
			if want := min(leaves, endTimeout); took != want || (err == nil) != (leaves < endTimeout) {
				t.Errorf("left after %v: %v after %v", leaves, err, took)
			}
			<-gone
			last.Close()
		})
	}
}
