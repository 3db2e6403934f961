package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

func existing(t *testing.T, dir string) *file.Cache {
	t.Helper()
	c, err := file.Existing(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// contentsOf reads all files below dir.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestExistingCreatesNothing(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if c, err := file.Existing(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v", c, err)
	}
	empty := t.TempDir()
	if c, err := file.Existing(empty); !errors.Is(err, file.ErrNoCache) {
		t.Errorf("%v, %v", c, err)
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "HDMLP-CACHE"), []byte("HDMLP-CACHE 9\n"), 0o600))
	if c, err := file.Existing(other); !errors.Is(err, file.ErrNoCache) ||
		!strings.Contains(err.Error(), "HDMLP-CACHE 9") {
		t.Errorf("%v, %v", c, err)
	}
	unsafe := warmCache(t, storetest.Uniform(1, 5, 100))
	must(t, os.Chmod(unsafe, 0o770))
	_, err := file.Existing(unsafe)
	refused(t, "mode", err, unsafe, "mode 0770")
}

// TestCacheInUseIsListedButNotLocked: conversely, a daemon cannot open a locked cache.
func TestCacheInUseIsListedButNotLocked(t *testing.T) {
	ds := storetest.Uniform(1, 200, 10)
	dir := t.TempDir()
	class := newClass(t, dir, 10_000)
	store := storetest.Open(t, class, ds, 10_000)
	for id := range 150 {
		storetest.Put(t, store, ds, id)
	}
	c := existing(t, dir)
	if pid, err := c.User(); pid != fmt.Sprint(os.Getpid()) || err != nil {
		t.Errorf("in use by %q, %v", pid, err)
	}
	stores, err := c.Stores()
	if err != nil || len(stores) != 1 || stores[0].Held != 128 || stores[0].HeldBytes != 1280 ||
		stores[0].Samples != 200 {
		t.Errorf("%+v, %v", stores, err) // the other records are pending
	}
	if err := c.Lock(); !errors.Is(err, file.ErrInUse) ||
		!strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("locked: %v", err)
	}
	storetest.Close(t, store, class)
	if pid, err := c.User(); pid != "" || err != nil {
		t.Errorf("in use by %q, %v", pid, err)
	}
	must(t, c.Lock())
	if _, err := file.New(file.Options{Dir: dir, Disk: bigDisk}); !errors.Is(err, file.ErrInUse) {
		t.Errorf("a class opened the locked directory: %v", err)
	}
	must(t, c.Close())
	storetest.Close(t, newClass(t, dir, 10_000))
}

// TestContentsAreReadWithoutAChange: reading a store with a torn index and a damaged sample changes
// no file.
func TestContentsAreReadWithoutAChange(t *testing.T) {
	ds := storetest.Uniform(1, 6, 100)
	dir := t.TempDir()
	class := newClass(t, dir, 10_000)
	store := storetest.Open(t, class, ds, 1000)
	storetest.Put(t, store, ds, 5, 0, 3, 2)
	storetest.Close(t, store, class)
	index, err := os.OpenFile(path(dir, ds, "index"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = index.WriteString("torn")
	must(t, err, index.Close())
	flip(t, path(dir, ds, "data"), 150) // of sample 0
	before := contentsOf(t, dir)
	c := existing(t, dir)
	contents, err := c.Contents(ds)
	must(t, err)
	if got := contents.Held(); !slices.Equal(got, []int32{0, 2, 3, 5}) {
		t.Errorf("held: %v", got)
	}
	for id, want := range map[int]struct {
		file  []byte
		right bool // the checksum
		equal bool
	}{
		0: {storetest.Bytes(ds, 0), false, false},
		2: {storetest.Bytes(ds, 2), true, true},
		3: {bytes.Repeat([]byte{1}, 100), true, false},
		5: {nil, true, false},
	} {
		for _, piece := range []int{1, 7, 100, 1000} {
			got, err := contents.Compare(id, want.file, make([]byte, piece))
			if err != nil || (got.Digest == got.Recorded) != want.right || got.Equal != want.equal {
				t.Errorf("sample %d in pieces of %d bytes: %+v, %v", id, piece, got, err)
			}
			if recorded := storetest.OriginOf(id,
				storetest.Bytes(ds, id)).Digest; got.Recorded != recorded {
				t.Errorf("sample %d: digest %08x was recorded, not %08x", id, recorded,
					got.Recorded)
			}
		}
	}
	must(t, contents.Close())
	_, err = c.Contents(storetest.Uniform(1, 7, 100))
	if !errors.Is(err, file.ErrIndex) {
		t.Errorf("of a dataset with more samples: %v", err)
	}
	if after := contentsOf(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("files were changed")
	}

	then := time.Unix(1_000_000_000, 0)
	must(t, os.Chtimes(path(dir, ds, ""), then, then))
	must(t, c.Lock(), c.Drop(ds, []int32{0, 3}))
	if stores, err := c.Stores(); err != nil || len(stores) != 1 || stores[0].Held != 2 ||
		!stores[0].Used.Equal(then) {
		t.Errorf("%+v, %v", stores, err)
	}
	must(t, c.Close())
	class = newClass(t, dir, 10_000)
	store = storetest.Open(t, class, ds, 1000)
	storetest.Check(t, store, ds, 5, 2)
	storetest.Put(t, store, ds, 0, 3, 1)
	storetest.Check(t, store, ds, 5, 2, 0, 3, 1)
	storetest.Close(t, store, class)
}

// TestRemoveKeepsForeignFiles checks that only the cache's own files are deleted.
func TestRemoveKeepsForeignFiles(t *testing.T) {
	a, b := storetest.Uniform(1, 10, 10), storetest.Uniform(2, 10, 10)
	dir := t.TempDir()
	class := newClass(t, dir, 1000)
	for _, ds := range []store.Dataset{a, b} {
		store := storetest.Open(t, class, ds, 100)
		storetest.Put(t, store, ds, 0)
		storetest.Close(t, store)
	}
	storetest.Close(t, class)
	theirs := []string{path(dir, a, "theirs"), filepath.Join(dir, "theirs")}
	for _, name := range theirs {
		must(t, os.WriteFile(name, nil, 0o600))
	}
	c := existing(t, dir)
	must(t, c.Lock())
	for _, want := range []struct {
		ds   store.Dataset
		kept bool
	}{{a, true}, {b, false}, {b, false}} {
		if kept, err := c.Remove(want.ds.Fingerprint); err != nil || kept != want.kept {
			t.Errorf("%x: kept %v, %v", want.ds.Fingerprint, kept, err)
		}
	}
	must(t, c.RemoveMarker(), c.Close())
	after := contentsOf(t, dir)
	for _, name := range theirs {
		if _, ok := after[name]; !ok || len(after) != len(theirs) {
			t.Errorf("left: %v", after)
		}
	}
}
