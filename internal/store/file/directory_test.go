package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// refused checks that err refuses path and contains the words.
func refused(t *testing.T, what string, err error, path string, words ...string) {
	t.Helper()
	var notOurs *store.UnsafeError
	if !errors.As(err, &notOurs) || notOurs.Path != path || !strings.Contains(err.Error(), path) {
		t.Errorf("%s: %v, want %s refused", what, err, path)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q in it", what, err, w)
		}
	}
}

// warmCache returns the directory of a cache that holds samples of a dataset.
func warmCache(t *testing.T, ds store.Dataset) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	c := newClass(t, dir, 10_000)
	s := storetest.Open(t, c, ds, 1000)
	storetest.Put(t, s, ds, 0, 1, 2)
	storetest.Close(t, s, c)
	return dir
}

// must fails the test if there is an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestCacheOfAnotherUserIsRefused: so is a cache to which another user could have written.
func TestCacheOfAnotherUserIsRefused(t *testing.T) {
	ds := storetest.Uniform(1, 5, 100)
	me, otherUser := os.Geteuid(), 1001
	for name, c := range map[string]struct {
		change func(dir string) error
		below  string // what is refused
		words  []string
	}{
		"group may write": {func(dir string) error {
			return os.Chmod(dir, 0o770)
		}, "", []string{"mode 0770", "chmod 700", "/cache/hdmlp"}},
		"all may write": {func(dir string) error {
			return os.Chmod(dir, 0o777|os.ModeSticky)
		}, "", []string{"mode 1777", "chmod 700"}},
		"its owner": {func(dir string) error {
			return os.Chown(dir, otherUser, -1)
		}, "", []string{"user 1001", fmt.Sprintf("user %d:", me), "another directory"}},
		"a store's mode": {func(dir string) error {
			return os.Chmod(path(dir, ds, ""), 0o777)
		}, "store", []string{"mode 0777"}},
		"a store's owner": {func(dir string) error {
			return os.Chown(path(dir, ds, ""), otherUser, -1)
		}, "store", []string{"user 1001"}},
		"data's mode": {func(dir string) error {
			return os.Chmod(path(dir, ds, "data"), 0o666)
		}, "data", []string{"mode 0666"}},
		"data's owner": {func(dir string) error {
			return os.Chown(path(dir, ds, "data"), otherUser, -1)
		}, "data", []string{"user 1001"}},
		"dataset's owner": {func(dir string) error {
			return os.Chown(path(dir, ds, "dataset"), otherUser, -1)
		}, "dataset", []string{"user 1001"}},
		"index's owner": {func(dir string) error {
			return os.Chown(path(dir, ds, "index"), otherUser, -1)
		}, "index", []string{"user 1001"}},
		"the marker's": {func(dir string) error {
			return os.Chown(filepath.Join(dir, "HDMLP-CACHE"), otherUser, -1)
		}, "HDMLP-CACHE", nil},
	} {
		dir := warmCache(t, ds)
		if err := c.change(dir); errors.Is(err, syscall.EPERM) {
			continue // only root can change owners
		} else if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"": dir, "store": filepath.Clean(path(dir, ds, "")),
			"HDMLP-CACHE": filepath.Join(dir, "HDMLP-CACHE"),
		}[c.below]
		if want == "" {
			want = path(dir, ds, c.below)
		}
		class, err := file.New(file.Options{Dir: dir, Reserve: 1, Disk: bigDisk})
		refused(t, name, err, want, c.words...)
		if class != nil {
			storetest.Close(t, class)
		}
		if c.below != "HDMLP-CACHE" {
			_, err = file.Held(dir)
			refused(t, name+": held", err, want)
		}
	}
}

// TestPlantedEntryIsRefused: a link, FIFO or directory in place of a cache's file is refused, and
// the target is not touched, whether it was there when the cache was opened or was planted later.
func TestPlantedEntryIsRefused(t *testing.T) {
	ds := storetest.Uniform(1, 5, 100)
	precious := []byte("precious")
	for name, plant := range map[string]func(path, victim string) error{
		"symlink":   func(path, victim string) error { return os.Symlink(victim, path) },
		"hard link": func(path, victim string) error { return os.Link(victim, path) },
		"FIFO":      func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path, _ string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, target := range []string{"data", "index", "index.new", "dataset", "dataset.new"} {
			for _, late := range []bool{false, true} {
				if late && strings.HasSuffix(target, ".new") {
					continue // these files are always newly created
				}
				what := fmt.Sprintf("%s as %s, late: %v", name, target, late)
				dir := warmCache(t, ds)
				victim := filepath.Join(t.TempDir(), "victim")
				must(t, os.WriteFile(victim, precious, 0o600))
				replace := func() {
					must(t, os.RemoveAll(path(dir, ds, target)),
						plant(path(dir, ds, target), victim))
				}
				var err error
				if late {
					c := newClass(t, dir, 10_000)
					replace()
					_, err = c.Open(ds, 1000)
					storetest.Close(t, c)
				} else {
					replace()
					_, err = file.New(file.Options{Dir: dir, Reserve: 1, Disk: bigDisk})
				}
				refused(t, what, err, path(dir, ds, target))
				if got, err := os.ReadFile(victim); err != nil || !bytes.Equal(got, precious) {
					t.Errorf("%s: the victim holds %q, %v", what, got, err)
				}
			}
		}
	}
}

// TestLinkedStoreIsRefused checks that a store's directory must not be a symbolic link.
func TestLinkedStoreIsRefused(t *testing.T) {
	ds := storetest.Uniform(1, 5, 100)
	dir, elsewhere := warmCache(t, ds), t.TempDir()
	store := filepath.Clean(path(dir, ds, ""))
	must(t, os.RemoveAll(store),
		os.WriteFile(filepath.Join(elsewhere, "data"), []byte("precious"), 0o600),
		os.Symlink(elsewhere, store))
	_, err := file.New(file.Options{Dir: dir, Reserve: 1, Disk: bigDisk})
	refused(t, "there from the beginning", err, store, "symbolic link")

	must(t, os.Remove(store))
	c := newClass(t, dir, 10_000)
	must(t, os.Symlink(elsewhere, store))
	_, err = c.Open(ds, 1000)
	refused(t, "planted", err, store, "symbolic link")
	storetest.Close(t, c)
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) != 1 {
		t.Errorf("the link's target contains %v, %v", entries, err)
	}
}

// TestLinkToTheCacheIsFollowedOnce: a link of this user's is followed when the cache is opened, and
// not again.
func TestLinkToTheCacheIsFollowedOnce(t *testing.T) {
	ds := storetest.Uniform(1, 5, 100)
	dir := warmCache(t, ds)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	c := newClass(t, link, 10_000)
	must(t, os.Remove(link), os.Symlink(t.TempDir(), link)) // now points elsewhere
	s := storetest.Open(t, c, ds, 1000)
	storetest.Check(t, s, ds, 0, 1, 2)
	storetest.Put(t, s, ds, 3)
	storetest.Close(t, s, c)
	c = newClass(t, dir, 10_000)
	s = storetest.Open(t, c, ds, 1000)
	storetest.Check(t, s, ds, 0, 1, 2, 3)
	storetest.Close(t, s, c)

	must(t, os.Remove(link), os.Symlink(dir, link))
	if err := os.Lchown(link, 1001, -1); err != nil {
		t.Skip(err)
	}
	_, err := file.New(file.Options{Dir: link, Reserve: 1, Disk: bigDisk})
	refused(t, "another user's link", err, link, "symbolic link of user 1001")
}
