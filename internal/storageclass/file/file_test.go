package file_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/file"
	"github.com/hdmlp/hdmlp/internal/storageclass/file/disk"
	"github.com/hdmlp/hdmlp/internal/storageclass/storageclasstest"
)

const victimDir = "HDMLP_TEST_VICTIM_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		victim(dir)
	}
	goleak.VerifyTestMain(m)
}

// sized is the system's disk, of another size.
type sized struct {
	disk.System
	free  func() int64
	total int64
}

func (d sized) Free(int) (free, total int64, err error) { return d.free(), d.total, nil }

func ofSize(free, total int64) disk.Disk {
	return sized{free: func() int64 { return free }, total: total}
}

// bigDisk has room for everything.
var bigDisk = ofSize(math.MaxInt64/4, math.MaxInt64/4)

func newClass(t testing.TB, dir string, capacity int64) storageclass.Class {
	t.Helper()
	c, err := file.New(file.Options{Dir: dir, Capacity: capacity, Reserve: 1, Disk: bigDisk})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func factory(t testing.TB, capacity int64) storageclass.Class {
	dir, err := os.MkdirTemp("", "hdmlp-cache-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return newClass(t, dir, capacity)
}

func keep(s storageclass.Store, id int, data []byte) error {
	return s.Put(id, data, storageclasstest.OriginOf(id, data))
}

func TestClass(t *testing.T) { storageclasstest.Run(t, factory) }

func BenchmarkClass(b *testing.B) { storageclasstest.Benchmark(b, factory) }

func path(dir string, ds storageclass.Dataset, name string) string {
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
	ds := storageclasstest.Uniform(1, 200, 100)
	c := newClass(t, dir, 20000)
	s := storageclasstest.Open(t, c, ds, 10000)
	var ids []int
	for id := 99; id >= 0; id-- {
		ids = append(ids, id)
	}
	storageclasstest.Put(t, s, ds, ids...)
	storageclasstest.Close(t, s, c)
	if n, err := file.Held(dir); err != nil || n != 10000 {
		t.Fatalf("held %d, %v", n, err)
	}

	c = newClass(t, dir, 20000)
	s = storageclasstest.Open(t, c, ds, 20000)
	storageclasstest.Check(t, s, ds, ids...)
	storageclasstest.Put(t, s, ds, 150)
	storageclasstest.Close(t, s, c)

	// Less room: the newest go, in the files as well.
	c = newClass(t, dir, 20000)
	s = storageclasstest.Open(t, c, ds, 5050)
	storageclasstest.Check(t, s, ds, ids[:50]...)
	storageclasstest.Close(t, s, c)
	if info, err := os.Stat(path(dir, ds, "data")); err != nil || info.Size() != 5000 {
		t.Fatalf("data has %d bytes, %v", info.Size(), err)
	}
	if info, err := os.Stat(path(dir, ds, "index")); err != nil || info.Size() != 64+50*40 {
		t.Fatalf("index has %d bytes, %v", info.Size(), err)
	}
	c = newClass(t, dir, 20000)
	s = storageclasstest.Open(t, c, ds, 20000)
	storageclasstest.Check(t, s, ds, ids[:50]...)
	storageclasstest.Close(t, s, c)
}

func TestNotOurs(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"a file": func(dir string) error { return os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600) },
		"another marker": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "HDMLP-CACHE"), []byte("HDMLP-CACHE 9\n"), 0o600)
		},
		"empty marker beside a file": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "HDMLP-CACHE"), nil, 0o600), os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
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
			t.Errorf("%s: something was left in the directory: %v", name, after)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	storageclasstest.Close(t, newClass(t, dir, 1))
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := file.New(file.Options{Dir: name}); err == nil {
		t.Error("a file was taken for a directory")
	}
}

func TestInUse(t *testing.T) {
	dir := t.TempDir()
	c := newClass(t, dir, 1)
	_, err := file.New(file.Options{Dir: dir})
	if !errors.Is(err, file.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("got %v, want ErrInUse and the pid", err)
	}
	storageclasstest.Close(t, c)
	storageclasstest.Close(t, newClass(t, dir, 1))
}

func TestEvictionDeletesOnlyOurFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := storageclasstest.Uniform(1, 10, 10), storageclasstest.Uniform(2, 10, 10)
	c := newClass(t, dir, 100)
	s := storageclasstest.Open(t, c, a, 100)
	storageclasstest.Put(t, s, a, 0, 1)
	storageclasstest.Close(t, s)
	theirs := path(dir, a, "theirs")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = storageclasstest.Open(t, c, b, 100)
	storageclasstest.Close(t, s, c)
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"data", "index"} {
		if _, err := os.Stat(path(dir, a, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it evicted", name, err)
		}
	}
}

func TestCorruptSample(t *testing.T) {
	dir := t.TempDir()
	ds := storageclasstest.Uniform(1, 5, 100)
	c := newClass(t, dir, 300)
	s := storageclasstest.Open(t, c, ds, 300)
	storageclasstest.Put(t, s, ds, 0, 1, 2)
	flip(t, path(dir, ds, "data"), 150)
	dst := make([]byte, 100)
	if err := s.Read(1, dst); !errors.Is(err, storageclass.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
	storageclasstest.Check(t, s, ds, 0, 2)
	storageclasstest.Put(t, s, ds, 3) // in its place
	storageclasstest.Check(t, s, ds, 0, 2, 3)
	if err := keep(s, 1, storageclasstest.Bytes(ds, 1)); !errors.Is(err, storageclass.ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	storageclasstest.Close(t, s, c)

	c = newClass(t, dir, 300)
	s = storageclasstest.Open(t, c, ds, 300)
	storageclasstest.Check(t, s, ds, 0, 2, 3)
	if err := os.Truncate(path(dir, ds, "data"), 250); err != nil { // someone cuts it
		t.Fatal(err)
	}
	if err := s.Read(2, dst); !errors.Is(err, storageclass.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
	storageclasstest.Put(t, s, ds, 2) // once more, last now
	storageclasstest.Check(t, s, ds, 0, 3, 2)
	storageclasstest.Close(t, s, c)

	c = newClass(t, dir, 300)
	s = storageclasstest.Open(t, c, ds, 300)
	storageclasstest.Check(t, s, ds, 0, 3, 2)
	storageclasstest.Close(t, s, c)
}

// TestDamagedIndex damages the files of a closed store.
func TestDamagedIndex(t *testing.T) {
	ds := storageclasstest.Uniform(1, 5, 100)
	other := storageclasstest.Dataset(1, 100, 100, 99, 100, 100)
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		reopen storageclass.Dataset
		want   []int
	}{
		"nothing": {func(*testing.T, string) {}, ds, []int{3, 1, 2, 0}},
		"torn tail": {func(t *testing.T, dir string) {
			if err := os.Truncate(path(dir, ds, "index"), 64+4*40-5); err != nil {
				t.Fatal(err)
			}
		}, ds, []int{3, 1, 2}},
		"record":     {func(t *testing.T, dir string) { flip(t, path(dir, ds, "index"), 64+40+3) }, ds, []int{3, 2, 0}},
		"magic":      {func(t *testing.T, dir string) { flip(t, path(dir, ds, "index"), 0) }, ds, nil},
		"zero bytes": {func(t *testing.T, dir string) { _ = os.Truncate(path(dir, ds, "index"), 64+5*40) }, ds, []int{3, 1, 2, 0}},
		"no index":   {func(t *testing.T, dir string) { _ = os.Remove(path(dir, ds, "index")) }, ds, nil},
		"no data":    {func(t *testing.T, dir string) { _ = os.Remove(path(dir, ds, "data")) }, ds, nil},
		"short data": {func(t *testing.T, dir string) { _ = os.Truncate(path(dir, ds, "data"), 350) }, ds, []int{3, 1, 2}},
		"other size": {func(*testing.T, string) {}, other, []int{3, 1, 0}},
		"another F":  {func(*testing.T, string) {}, storageclasstest.Uniform(1, 4, 100), nil},
		"leftover":   {func(t *testing.T, dir string) { _ = os.WriteFile(path(dir, ds, "index.new"), []byte("x"), 0o600) }, ds, []int{3, 1, 2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			class := newClass(t, dir, 500)
			s := storageclasstest.Open(t, class, ds, 500)
			storageclasstest.Put(t, s, ds, 3, 1, 2, 0)
			storageclasstest.Close(t, s, class)
			c.damage(t, dir)
			for range 2 { // what was found is what is written
				class = newClass(t, dir, 500)
				s = storageclasstest.Open(t, class, c.reopen, 500)
				want := c.want
				var held []int
				for _, id := range s.Held() {
					held = append(held, int(id))
				}
				if fmt.Sprint(held) != fmt.Sprint(want) {
					t.Fatalf("held %v, want %v", held, want)
				}
				if c.reopen.Size(2) == 100 {
					storageclasstest.Check(t, s, c.reopen, want...)
				}
				storageclasstest.Close(t, s, class)
			}
		})
	}
}

func TestDiskRunsFull(t *testing.T) {
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
	ds := storageclasstest.Uniform(1, 100, 1<<20)
	if n, err := c.Available(ds); err != nil || n != 190<<20 {
		t.Fatalf("available %d, %v", n, err)
	}
	s := storageclasstest.Open(t, c, ds, 100<<20)
	data := make([]byte, 1<<20)
	free.Store(5 << 20) // somebody else takes it
	put := 0
	for id := range 100 {
		switch err := keep(s, id, data); {
		case err == nil:
			put++
		case !errors.Is(err, storageclass.ErrFull):
			t.Fatal(err)
		}
	}
	if put != 64 || len(warnings) != 1 || !strings.Contains(warnings[0], "5.0 MiB left") {
		t.Fatalf("%d samples put, warnings %q", put, warnings)
	}
	if err := s.Read(10, data); err != nil {
		t.Fatal(err)
	}
	storageclasstest.Close(t, s)
	free.Store(200 << 20) // and gives it back
	s = storageclasstest.Open(t, c, ds, 100<<20)
	if err := keep(s, 99, data); err != nil {
		t.Fatal(err)
	}
	storageclasstest.Close(t, s, c)
}

func TestCapacityLargerThanDisk(t *testing.T) {
	disk := ofSize(5<<30, 100<<30)
	dir := t.TempDir()
	_, err := file.New(file.Options{Dir: dir, Capacity: 1 << 30, Disk: disk})
	var limit *storageclass.LimitError
	if !errors.As(err, &limit) || limit.Need != 1<<30 || limit.Limit != 0 {
		t.Fatalf("got %v, want need and limit: the reserve is 5 GiB", err)
	}
	c, err := file.New(file.Options{Dir: dir, Capacity: 1 << 30, Reserve: 4 << 30, Disk: disk})
	if err != nil {
		t.Fatal(err) // and the directory is free again
	}
	storageclasstest.Close(t, c)
}

// victim puts samples until it is killed, and says so after each.
func victim(dir string) {
	c, err := file.New(file.Options{Dir: dir, Capacity: 1 << 30, Reserve: 1, Disk: bigDisk})
	if err != nil {
		panic(err)
	}
	ds := storageclasstest.Uniform(1, 100_000, 1000)
	s, err := c.Open(ds, 1<<29)
	if err != nil {
		panic(err)
	}
	for id := range ds.Samples {
		if err := keep(s, id, storageclasstest.Bytes(ds, id)); err != nil {
			panic(err)
		}
		fmt.Println(id)
	}
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), victimDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	const until = 1000
	lines := bufio.NewScanner(out)
	for n := 0; n < until && lines.Scan(); n++ {
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()

	ds := storageclasstest.Uniform(1, 100_000, 1000)
	c := newClass(t, dir, 1<<30) // the lock is free
	s := storageclasstest.Open(t, c, ds, 1<<29)
	held := s.Held()
	if len(held) < until-64 {
		t.Fatalf("%d samples were put, %d are left; at most 64 may be missing", until, len(held))
	}
	dst := make([]byte, 1000)
	for i, id := range held {
		if int(id) != i {
			t.Fatalf("sample %d in place of %d", id, i)
		}
		if err := s.Read(int(id), dst); err != nil || string(dst) != string(storageclasstest.Bytes(ds, i)) {
			t.Fatalf("sample %d after the kill: %v", id, err)
		}
	}
	storageclasstest.Put(t, s, ds, len(held))
	storageclasstest.Close(t, s, c)
}

// TestNoSpace runs into a file system that is really full, where the test may mount one.
func TestNoSpace(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	warnings := 0
	c, err := file.New(file.Options{
		Dir: dir, Capacity: 2 << 20, Reserve: 1, Disk: bigDisk, // what statfs says is wrong
		Warn: func(string) { warnings++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	ds := storageclasstest.Uniform(1, 100, 20_000)
	s := storageclasstest.Open(t, c, ds, 2<<20)
	var ids []int
	for id := range 100 {
		switch err := keep(s, id, storageclasstest.Bytes(ds, id)); {
		case err == nil:
			ids = append(ids, id)
		case !errors.Is(err, storageclass.ErrFull):
			t.Fatal(err)
		}
	}
	if len(ids) < 40 || len(ids) > 52 || warnings != 1 {
		t.Fatalf("%d samples of 20 kB put into 1 MiB, %d warnings", len(ids), warnings)
	}
	storageclasstest.Check(t, s, ds, ids...)
	if err := s.Close(); err == nil {
		t.Log("the index found room")
	}
	s = storageclasstest.Open(t, c, ds, 2<<20)
	storageclasstest.Check(t, s, ds, ids[:len(s.Held())]...)
	_ = s.Close()
	storageclasstest.Close(t, c)
}
