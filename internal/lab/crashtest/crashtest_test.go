package crashtest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lab/crashtest"
)

const before, after = "before", "the contents after it"

// directory is a directory that holds the file name with its contents before, and its recorder.
func directory(t *testing.T) (*crashtest.Recorder, int) {
	t.Helper()
	path := t.TempDir()
	must(t, os.WriteFile(filepath.Join(path, "name"), []byte(before), 0o600))
	r, err := crashtest.New(path)
	must(t, err)
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(dir) })
	return r, dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replace replaces the file by a new one.
func replace(t *testing.T, r *crashtest.Recorder, dir int, sync bool) {
	t.Helper()
	f, err := r.Open(dir, "new", "new", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	must(t, err)
	_, err = f.Write([]byte(after))
	must(t, err)
	if sync {
		must(t, f.Sync())
	}
	must(t, f.Close())
	must(t, r.Rename(dir, "new", "name"))
}

// found counts the contents of a file in all states.
func found(t *testing.T, r *crashtest.Recorder, name string) map[string]int {
	t.Helper()
	found := map[string]int{}
	_, err := r.Explore(0, 1, func(path string) error {
		b, err := os.ReadFile(filepath.Join(path, name))
		if errors.Is(err, fs.ErrNotExist) {
			b = []byte("missing")
		} else if err != nil {
			return err
		}
		found[string(b)]++
		return nil
	})
	must(t, err)
	return found
}

// TestRenameWithoutSyncLosesBoth: the file may be empty, and have zeros or former contents.
func TestRenameWithoutSyncLosesBoth(t *testing.T) {
	r, dir := directory(t)
	replace(t, r, dir, false)
	got := found(t, r, "name")
	for _, want := range []string{before, after, "", strings.Repeat("\x00", len(after))} {
		if got[want] == 0 {
			t.Errorf("no state has %q: %v", want, got)
		}
	}
	if got["missing"] > 0 {
		t.Errorf("a rename was not atomic: %v", got)
	}
}

func TestRenameAfterSyncIsAtomic(t *testing.T) {
	r, dir := directory(t)
	replace(t, r, dir, true)
	if got := found(t, r, "name"); len(got) != 2 || got[before] == 0 || got[after] == 0 {
		t.Errorf("got %v", got)
	}
	if got := found(t, r, "new"); got["missing"] == 0 || got[after] == 0 {
		t.Errorf("beside it: %v", got)
	}
}

// TestSyncMakesNoNameDurable: that takes a sync of the directory.
func TestSyncMakesNoNameDurable(t *testing.T) {
	r, dir := directory(t)
	f, err := r.Open(dir, "other", "other", unix.O_RDWR|unix.O_CREAT)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte(after), 0)
	must(t, err)
	must(t, f.Sync())
	if got := found(t, r, "other"); got["missing"] == 0 {
		t.Errorf("got %v", got)
	}
	must(t, r.Sync(dir))
	must(t, r.Mkdir(dir, "later"))
	later := 0
	_, err = r.Explore(0, 1, func(path string) error {
		if _, err := os.Stat(filepath.Join(path, "later")); err != nil {
			return nil
		}
		later++
		if b, err := os.ReadFile(filepath.Join(path, "other")); err != nil || string(b) != after {
			return fmt.Errorf("after both syncs: %q, %w", b, err)
		}
		return nil
	})
	if must(t, err); later == 0 {
		t.Error("no state is of after both syncs")
	}
}

// TestTornWrite: each sector of a write is new or former; the size may be that of a whole page.
func TestTornWrite(t *testing.T) {
	r, dir := directory(t)
	f, err := r.Open(dir, "name", "name", unix.O_RDWR)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(0))
	_, err = f.WriteAt([]byte(strings.Repeat("x", 5000)), 0)
	must(t, err)
	sizes, former := map[int]bool{}, false
	_, err = r.Explore(100_000, 1, func(path string) error {
		b, err := os.ReadFile(filepath.Join(path, "name"))
		sizes[len(b)] = true
		former = former || len(b) == 5000 && strings.HasPrefix(string(b), before) && b[600] == 'x'
		for at := 0; at+512 <= len(b); at += 512 {
			x := strings.Count(string(b[at:at+512]), "x")
			if x != 0 && x != 512 {
				return fmt.Errorf("the sector at %d is torn", at)
			}
		}
		return err
	})
	must(t, err)
	for _, want := range []int{0, len(before), 4096, 5000} {
		if !sizes[want] {
			t.Errorf("no state has %d bytes: %v", want, sizes)
		}
	}
	if !former {
		t.Error("no state shows former contents beside new ones")
	}
}

// TestReportIsReduced: a failure names what the crash must lose, and nothing else.
func TestReportIsReduced(t *testing.T) {
	r, dir := directory(t)
	must(t, r.Mkdir(dir, "below"))
	replace(t, r, dir, false)
	must(t, r.Remove(dir, "name"))
	must(t, r.RemoveDirectory(dir, "below"))
	_, err := r.Explore(0, 1, func(path string) error {
		if b, err := os.ReadFile(filepath.Join(path, "name")); err == nil && len(b) == 0 {
			return errors.New("it is empty")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "it is empty") ||
		strings.Count(err.Error(), "\n  name: ")+strings.Count(err.Error(), "\n  new: ") != 1 {
		t.Errorf("got %v", err)
	}
}
