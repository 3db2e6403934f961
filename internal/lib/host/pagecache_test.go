package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDropCachedDropsTheRange: all pages that have any of it.
func TestDropCachedDropsTheRange(t *testing.T) {
	page := int64(os.Getpagesize())
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 6*page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type == tmpfs || fs.Type == ramfs {
		t.Skip("the file system is in memory")
	}
	if err := f.Sync(); err != nil { // unwritten pages stay in the cache
		t.Fatal(err)
	}
	load := func() {
		if _, err := f.ReadAt(make([]byte, 6*page), 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ offset, length, until int64 }{
		"within a page":  {2*page + 5, 10, 3 * page},
		"over two pages": {2*page - 1, 2, 3 * page},
		"two pages":      {page, 2 * page, 3 * page},
		"to the end":     {3*page + 1, 0, 6 * page},
		"all":            {0, 0, 6 * page},
	} {
		load()
		for at := int64(0); at < 6*page; at += page {
			if !resident(fd, at) {
				t.Fatalf("%s: the file is not in memory", name)
			}
		}
		if DropCached(fd, c.offset, c.length) {
			t.Errorf("%s: it is still in memory", name)
		}
		for at := c.offset &^ (page - 1); at < c.until; at += page {
			if resident(fd, at) {
				t.Errorf("%s: the page at %d is in memory", name, at)
			}
		}
	}
}
