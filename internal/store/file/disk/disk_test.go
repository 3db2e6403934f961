package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store"
)

// racing is the system's disk; it calls before between Directory's check and the operation.
type racing struct {
	System
	before func(name string)
}

func (d racing) Open(dir int, name, path string, flags int) (File, error) {
	d.before(name)
	return d.System.Open(dir, name, path, flags)
}

// TestLinkPlantedAfterTheCheckIsRefused: a link that replaces a file between the check and the
// opening is not followed, whatever its kind and however the file is opened.
func TestLinkPlantedAfterTheCheckIsRefused(t *testing.T) {
	for kind, plant := range map[string]func(victim, path string) error{
		"symlink":   os.Symlink,
		"hard link": os.Link,
	} {
		for way, open := range map[string]func(*Directory) (File, error){
			"Open":      func(d *Directory) (File, error) { return d.Open("data", unix.O_RDWR) },
			"Create":    func(d *Directory) (File, error) { return d.Create("data") },
			"CreateNew": func(d *Directory) (File, error) { return d.CreateNew("data") },
		} {
			dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
			path := filepath.Join(dir, "data")
			if err := errors.Join(os.Chmod(dir, 0o700),
				os.WriteFile(victim, []byte("precious"), 0o600),
				os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			d, err := OpenCache(racing{before: func(string) {
				_ = os.Remove(path)
				if err := plant(victim, path); err != nil {
					t.Fatal(err)
				}
			}}, dir)
			if err != nil {
				t.Fatal(err)
			}
			if f, err := open(d); err == nil {
				t.Errorf("%s by %s: it was opened", kind, way)
				_ = f.Close()
			} else if unsafe := new(store.UnsafeError); !errors.Is(err, unix.ELOOP) &&
				!errors.Is(err, unix.EEXIST) && !errors.As(err, &unsafe) {
				t.Errorf("%s by %s: %v", kind, way, err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDirectoryIsHeldByItsDescriptor: operations apply to the directory that was opened, even if
// its path changes.
func TestDirectoryIsHeldByItsDescriptor(t *testing.T) {
	root := t.TempDir()
	dir, moved := filepath.Join(root, "cache"), filepath.Join(root, "moved")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := OpenCache(System{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	store, err := d.Make("store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := errors.Join(os.Rename(dir, moved),
		os.MkdirAll(filepath.Join(dir, "store"), 0o700)); err != nil {
		t.Fatal(err)
	}
	f, err := store.CreateNew("new")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), store.Rename("new", "data")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(moved, "store", "data")); err != nil {
		t.Error(err)
	}
	if size, err := store.CheckFile("data"); size != 0 || err != nil {
		t.Errorf("%d bytes, %v", size, err)
	}
	if has, err := store.Has("new"); has || err != nil {
		t.Errorf("the old name exists: %v, %v", has, err)
	}
	if err := store.Remove("data"); err != nil {
		t.Error(err)
	}
	d.RemoveEmpty("store")
	if has, err := d.Has("store"); has || err != nil {
		t.Errorf("the directory exists: %v, %v", has, err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "store")); err != nil || len(entries) > 0 {
		t.Errorf("the directory now at the path contains %v, %v", entries, err)
	}
}
