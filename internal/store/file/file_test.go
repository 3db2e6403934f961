package file_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		victim(dir)
	}
	goleak.VerifyTestMain(m)
}

// sized is the system's disk with another size.
type sized struct {
	disk.System
	free  func() int64
	total int64
}

func (d sized) Free(int) (free, total int64, err error) { return d.free(), d.total, nil }

func ofSize(free, total int64) disk.Disk {
	return sized{free: func() int64 { return free }, total: total}
}

// bigDisk has practically unlimited space.
var bigDisk = ofSize(math.MaxInt64/4, math.MaxInt64/4)

func newClass(t testing.TB, dir string, capacity int64) store.Class {
	t.Helper()
	c, err := file.New(file.Options{Dir: dir, Capacity: capacity, Reserve: 1, Disk: bigDisk})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func factory(t testing.TB, capacity int64) store.Class {
	dir, err := os.MkdirTemp("", "hdmlp-cache-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return newClass(t, dir, capacity)
}

func keep(s store.Store, id int, data []byte) error {
	return s.Put(id, data, storetest.OriginOf(id, data))
}

func TestClass(t *testing.T) { storetest.Run(t, factory) }

func BenchmarkClass(b *testing.B) { storetest.Benchmark(b, factory) }

func path(dir string, ds store.Dataset, name string) string {
	return filepath.Join(dir, hex.EncodeToString(ds.Fingerprint[:]), name)
}

// flip changes a byte of a file.
func flip(t *testing.T, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func TestWarmAfterRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "us")
	ds := storetest.Uniform(1, 200, 100)
	c := newClass(t, dir, 20000)
	s := storetest.Open(t, c, ds, 10000)
	var ids []int
	for id := 99; id >= 0; id-- {
		ids = append(ids, id)
	}
	storetest.Put(t, s, ds, ids...)
	storetest.Close(t, s, c)
	if n, err := file.Held(dir); err != nil || n != 10000 {
		t.Fatalf("held %d, %v", n, err)
	}

	c = newClass(t, dir, 20000)
	s = storetest.Open(t, c, ds, 20000)
	storetest.Check(t, s, ds, ids...)
	storetest.Put(t, s, ds, 150)
	storetest.Close(t, s, c)

	// With less room the newest samples are dropped, from the files as well.
	c = newClass(t, dir, 20000)
	s = storetest.Open(t, c, ds, 5050)
	storetest.Check(t, s, ds, ids[:50]...)
	storetest.Close(t, s, c)
	if info, err := os.Stat(path(dir, ds, "data")); err != nil || info.Size() != 5000 {
		t.Fatalf("data has %d bytes, %v", info.Size(), err)
	}
	if info, err := os.Stat(path(dir, ds, "index")); err != nil || info.Size() != 64+50*40 {
		t.Fatalf("index has %d bytes, %v", info.Size(), err)
	}
	c = newClass(t, dir, 20000)
	s = storetest.Open(t, c, ds, 20000)
	storetest.Check(t, s, ds, ids[:50]...)
	storetest.Close(t, s, c)
}

func TestDirectoryThatIsNotACacheIsRefused(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"a file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600)
		},
		"another marker": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "HDMLP-CACHE"), []byte("HDMLP-CACHE 9\n"), 0o600)
		},
		"empty marker beside a file": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "HDMLP-CACHE"), nil, 0o600),
				os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
		},
	} {
		dir := t.TempDir()
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadDir(dir)
		if c, err := file.New(file.Options{Dir: dir}); !errors.Is(err, file.ErrNotOurs) {
			t.Errorf("%s: got %v, %v", name, c, err)
		}
		if after, _ := os.ReadDir(dir); len(after) != len(before) {
			t.Errorf("%s: the directory was changed: %v", name, after)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	storetest.Close(t, newClass(t, dir, 1))
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := file.New(file.Options{Dir: name}); err == nil {
		t.Error("a file was taken for a directory")
	}
}

func TestCacheInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := newClass(t, dir, 1)
	_, err := file.New(file.Options{Dir: dir})
	if !errors.Is(err, file.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("got %v, want ErrInUse and the pid", err)
	}
	storetest.Close(t, c)
	storetest.Close(t, newClass(t, dir, 1))
}

func TestEvictionKeepsForeignFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := storetest.Uniform(1, 10, 10), storetest.Uniform(2, 10, 10)
	c := newClass(t, dir, 100)
	s := storetest.Open(t, c, a, 100)
	storetest.Put(t, s, a, 0, 1)
	storetest.Close(t, s)
	theirs := path(dir, a, "theirs")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = storetest.Open(t, c, b, 100)
	storetest.Close(t, s, c)
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"data", "index"} {
		if _, err := os.Stat(path(dir, a, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it evicted", name, err)
		}
	}
}

func TestCorruptSampleIsDropped(t *testing.T) {
	dir := t.TempDir()
	ds := storetest.Uniform(1, 5, 100)
	c := newClass(t, dir, 300)
	s := storetest.Open(t, c, ds, 300)
	storetest.Put(t, s, ds, 0, 1, 2)
	flip(t, path(dir, ds, "data"), 150)
	dst := make([]byte, 100)
	if err := s.Read(1, dst); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
	storetest.Check(t, s, ds, 0, 2)
	storetest.Put(t, s, ds, 3) // in the freed bytes
	storetest.Check(t, s, ds, 0, 2, 3)
	if err := keep(s, 1, storetest.Bytes(ds, 1)); !errors.Is(err, store.ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	storetest.Close(t, s, c)

	c = newClass(t, dir, 300)
	s = storetest.Open(t, c, ds, 300)
	storetest.Check(t, s, ds, 0, 2, 3)
	if err := os.Truncate(path(dir, ds, "data"), 250); err != nil { // truncated by another program
		t.Fatal(err)
	}
	if err := s.Read(2, dst); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
	storetest.Put(t, s, ds, 2) // again; it is the newest now
	storetest.Check(t, s, ds, 0, 3, 2)
	storetest.Close(t, s, c)

	c = newClass(t, dir, 300)
	s = storetest.Open(t, c, ds, 300)
	storetest.Check(t, s, ds, 0, 3, 2)
	storetest.Close(t, s, c)
}

// TestDamagedFilesKeepTheIntactSamples damages the files of a closed store.
func TestDamagedFilesKeepTheIntactSamples(t *testing.T) {
	ds := storetest.Uniform(1, 5, 100)
	other := storetest.Dataset(1, 100, 100, 99, 100, 100)
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		reopen store.Dataset
		want   []int
	}{
		"nothing": {func(*testing.T, string) {}, ds, []int{3, 1, 2, 0}},
		"torn tail": {func(t *testing.T, dir string) {
			if err := os.Truncate(path(dir, ds, "index"), 64+4*40-5); err != nil {
				t.Fatal(err)
			}
		}, ds, []int{3, 1, 2}},
		"record": {func(t *testing.T, dir string) {
			flip(t, path(dir, ds, "index"), 64+40+3)
		}, ds, []int{3, 2, 0}},
		"magic": {func(t *testing.T, dir string) {
			flip(t, path(dir, ds, "index"), 0)
		}, ds, nil},
		"zero bytes": {func(t *testing.T, dir string) {
			_ = os.Truncate(path(dir, ds, "index"), 64+5*40)
		}, ds, []int{3, 1, 2, 0}},
		"no index": {func(t *testing.T, dir string) {
			_ = os.Remove(path(dir, ds, "index"))
		}, ds, nil},
		"no data": {func(t *testing.T, dir string) {
			_ = os.Remove(path(dir, ds, "data"))
		}, ds, nil},
		"short data": {func(t *testing.T, dir string) {
			_ = os.Truncate(path(dir, ds, "data"), 350)
		}, ds, []int{3, 1, 2}},
		"other size": {func(*testing.T, string) {}, other, []int{3, 1, 0}},
		"another F":  {func(*testing.T, string) {}, storetest.Uniform(1, 4, 100), nil},
		"leftover": {func(t *testing.T, dir string) {
			_ = os.WriteFile(path(dir, ds, "index.new"), []byte("x"), 0o600)
		}, ds, []int{3, 1, 2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			class := newClass(t, dir, 500)
			s := storetest.Open(t, class, ds, 500)
			storetest.Put(t, s, ds, 3, 1, 2, 0)
			storetest.Close(t, s, class)
			c.damage(t, dir)
			for range 2 { // the second opens what the first has written
				class = newClass(t, dir, 500)
				s = storetest.Open(t, class, c.reopen, 500)
				want := c.want
				var held []int
				for _, id := range s.Held() {
					held = append(held, int(id))
				}
				if fmt.Sprint(held) != fmt.Sprint(want) {
					t.Fatalf("held %v, want %v", held, want)
				}
				if c.reopen.Size(2) == 100 {
					storetest.Check(t, s, c.reopen, want...)
				}
				storetest.Close(t, s, class)
			}
		})
	}
}

// TestCheckRefusesADirectoryOfSomethingElse: a dataset, for instance; a missing or empty directory
// and a cache may be used.
func TestCheckRefusesADirectoryOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	for _, usable := range []string{dir, filepath.Join(dir, "missing")} {
		if err := file.Check(usable); err != nil {
			t.Errorf("%s: %v", usable, err)
		}
	}
	c, err := file.New(file.Options{Dir: filepath.Join(dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := file.Check(filepath.Join(dir, "cache")); err != nil {
		t.Errorf("a cache: %v", err)
	}
	if err := file.Check(dir); !errors.Is(err, file.ErrNotOurs) ||
		!strings.Contains(err.Error(), `it contains "cache"`) {
		t.Errorf("something else: %v", err)
	}
}
