package node

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// lateDisk is a disk of which operations of one kind wait from some time on.
type lateDisk struct {
	disk.System
	kind string // "write" or "close", and the name of a file

	mu   sync.Mutex     // guards the following
	wait func(size int) // nil: they do not wait
	open int            // files
	met  int            // operations that have waited
}

func (d *lateDisk) begin(wait func(size int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wait = wait
}

func (d *lateDisk) op(kind string, size int) {
	d.mu.Lock()
	wait := d.wait
	if kind != d.kind {
		wait = nil
	}
	if wait != nil {
		d.met++
	}
	d.mu.Unlock()
	if wait != nil {
		wait(size)
	}
}

func (d *lateDisk) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += n
}

func (d *lateDisk) waited() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.met
}

func (d *lateDisk) files() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

func (d *lateDisk) Open(dir int, name, path string, flags int) (disk.File, error) {
	f, err := d.System.Open(dir, name, path, flags)
	if err != nil {
		return nil, err
	}
	d.count(1)
	return &lateFile{f, d}, nil
}

type lateFile struct {
	disk.File
	disk *lateDisk
}

func (f *lateFile) name() string { return filepath.Base(f.Name()) }

func (f *lateFile) WriteAt(p []byte, at int64) (int, error) {
	f.disk.op("write "+f.name(), len(p))
	return f.File.WriteAt(p, at)
}

func (f *lateFile) Close() error {
	f.disk.op("close "+f.name(), 0)
	f.disk.count(-1)
	return f.File.Close()
}

// train takes all batches of a job.
func train(t *testing.T, r *Rank) {
	t.Helper()
	sum := uint64(0)
	if err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
		sum += b.Audit
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, sum)
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestJobEndsWhateverItsCacheDirectoryDoes has a cache directory's operations of each kind hang, or
// be slow, from the beginning of training or from its end on. The end of the job, and of the
// daemon, takes no longer than is documented (docs/SEMANTICS.md): a second for reads, 30 s for what
// is to be written, and 5 s to close the directory, for the job and again for the daemon. What is
// not written by then is lost, and the directory is closed as soon as it responds.
func TestJobEndsWhateverItsCacheDirectoryDoes(t *testing.T) {
	const (
		size = 100_000
		most = (1 + 30 + 5 + 5) * time.Second
	)
	hangs := func(gate chan struct{}) func(int) { return func(int) { <-gate } }
	slow := func(bytesPerSecond int) func(chan struct{}) func(int) {
		return func(chan struct{}) func(int) {
			turn := make(chan struct{}, 1)
			return func(n int) {
				turn <- struct{}{}
				time.Sleep(time.Duration(n) * time.Second / time.Duration(bytesPerSecond))
				<-turn
			}
		}
	}
	for name, c := range map[string]struct {
		kinds []string
		waits func(gate chan struct{}) func(int)
		all   bool // is written by the end
	}{
		"hangs": {[]string{
			"write data", "write index", "close data", "close index",
			"close HDMLP-CACHE",
		}, hangs, false},
		"slow":     {[]string{"write data"}, slow(4e6), true},   // a second for all
		"too slow": {[]string{"write data"}, slow(50e3), false}, // 80 s for all
	} {
		for _, kind := range c.kinds {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/early=%v", name, kind, early), func(t *testing.T) {
					dir := t.TempDir()
					synctest.Test(t, func(t *testing.T) {
						d, gate := &lateDisk{kind: kind}, make(chan struct{})
						wait := c.waits(gate)
						w := &world{files: d}
						for range 40 {
							w.sizes = append(w.sizes, size)
						}
						n := w.node()
						if early && kind == "write data" { // which may begin when it is opened
							d.begin(wait)
						}
						r := open(t, n, message(0, 1, set("memory", "1B"), set("cache_dir", dir),
							set("cache_size", "10MB"), set("staging_buffer", "8MB"),
							func(m *request.Open) { m.Stream.Epochs = 1 }))
						if early {
							d.begin(wait)
						}
						train(t, r)
						d.begin(wait)
						begun := time.Now()
						r.Close()
						if err := n.Close(); err != nil {
							t.Error(err)
						}
						if took := time.Since(begun); took > most {
							t.Errorf("the end took %v", took)
						}
						if d.waited() == 0 && (early || kind != "write data") {
							t.Error("nothing has waited")
						}
						close(gate)
						time.Sleep(time.Hour)
						if open := d.files(); open > 0 {
							t.Errorf("%d files stay open", open)
						}
						held, err := file.Held(dir)
						if all := int64(40 * size); err != nil || c.all && held < all {
							t.Errorf("%d bytes of %d are held: %v", held, all, err)
						}
					})
				})
			}
		}
	}
}
