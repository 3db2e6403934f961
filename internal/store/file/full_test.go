package file_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

func TestFullDiskStopsCaching(t *testing.T) {
	var free atomic.Int64
	free.Store(200 << 20)
	var warnings []string
	c, err := file.New(file.Options{
		Dir: t.TempDir(), Reserve: 10 << 20,
		Disk: sized{free: free.Load, total: 1 << 30},
		Warn: func(message string) { warnings = append(warnings, message) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ds := storetest.Uniform(1, 100, 1<<20)
	if n, err := c.Available(ds); err != nil || n != 190<<20 {
		t.Fatalf("available %d, %v", n, err)
	}
	s := storetest.Open(t, c, ds, 100<<20)
	data := make([]byte, 1<<20)
	free.Store(5 << 20) // another program uses it
	put := 0
	for id := range 100 {
		switch err := keep(s, id, data); {
		case err == nil:
			put++
		case !errors.Is(err, store.ErrFull):
			t.Fatal(err)
		}
	}
	if put != 64 || len(warnings) != 1 || !strings.Contains(warnings[0], "5.0 MiB left") {
		t.Fatalf("%d samples put, warnings %q", put, warnings)
	}
	if err := s.Read(10, data); err != nil {
		t.Fatal(err)
	}
	storetest.Close(t, s)
	free.Store(200 << 20) // and frees it
	s = storetest.Open(t, c, ds, 100<<20)
	if err := keep(s, 99, data); err != nil {
		t.Fatal(err)
	}
	storetest.Close(t, s, c)
}

func TestCapacityLargerThanTheDiskIsRefused(t *testing.T) {
	disk := ofSize(5<<30, 100<<30)
	dir := t.TempDir()
	_, err := file.New(file.Options{Dir: dir, Capacity: 1 << 30, Disk: disk})
	var limit *store.LimitError
	if !errors.As(err, &limit) || limit.Need != 1<<30 || limit.Limit != 0 {
		t.Fatalf("got %v, want need and limit: the reserve is 5 GiB", err)
	}
	c, err := file.New(file.Options{Dir: dir, Capacity: 1 << 30, Reserve: 4 << 30, Disk: disk})
	if err != nil {
		t.Fatal(err) // New releases the directory if it fails
	}
	storetest.Close(t, c)
}

// TestENOSPCStopsCaching fills a real file system, if the test may mount one.
func TestENOSPCStopsCaching(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	warnings := 0
	c, err := file.New(file.Options{
		Dir: dir, Capacity: 2 << 20, Reserve: 1, Disk: bigDisk, // statfs reports too much
		Warn: func(string) { warnings++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	ds := storetest.Uniform(1, 100, 20_000)
	s := storetest.Open(t, c, ds, 2<<20)
	var ids []int
	for id := range 100 {
		switch err := keep(s, id, storetest.Bytes(ds, id)); {
		case err == nil:
			ids = append(ids, id)
		case !errors.Is(err, store.ErrFull):
			t.Fatal(err)
		}
	}
	if len(ids) < 40 || len(ids) > 52 || warnings != 1 {
		t.Fatalf("%d samples of 20 kB put into 1 MiB, %d warnings", len(ids), warnings)
	}
	storetest.Check(t, s, ds, ids...)
	if err := s.Close(); err == nil {
		t.Log("the index found room")
	}
	s = storetest.Open(t, c, ds, 2<<20)
	storetest.Check(t, s, ds, ids[:len(s.Held())]...)
	_ = s.Close()
	storetest.Close(t, c)
}
