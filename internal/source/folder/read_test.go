package folder

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/retry"
	"github.com/hdmlp/hdmlp/internal/source/sourcetest"
)

// fixture stores samples as files.
func fixture(t *testing.T, samples []sourcetest.Sample) (*Folder, sourcetest.Fixture) {
	t.Helper()
	root := t.TempDir()
	for _, s := range samples {
		write(t, filepath.Join(root, s.Class, s.Name), string(s.Data))
	}
	f, err := Open(t.Context(), root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	damage := func(id int, fault sourcetest.Fault) bool {
		path, size := f.Path(id), f.Index().Size(id)
		var err error
		switch fault {
		case sourcetest.Removed:
			err = os.Remove(path)
		case sourcetest.Shortened:
			err = os.Truncate(path, size-1)
		case sourcetest.Lengthened:
			err = os.Truncate(path, size+1)
		case sourcetest.Emptied:
			err = os.Truncate(path, 0)
		case sourcetest.Unreadable: // a directory of the same name
			if err = os.Remove(path); err == nil {
				err = os.Mkdir(path, 0o755)
			}
		case sourcetest.Rewritten:
			err = os.WriteFile(path, make([]byte, size), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	return f, sourcetest.Fixture{Source: f, Index: f.Index(), Damage: damage}
}

func TestFolderConforms(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		_, fix := fixture(t, samples)
		return fix
	})
}

func TestFolderWithRetriesConforms(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		_, fix := fixture(t, samples)
		fix.Source = retry.New(fix.Source,
			retry.Options{Slow: func(int, string, time.Time) { t.Error("a read was slow") }})
		return fix
	})
}

func TestReadAllocatesNothing(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/b/c.jpg"), strings.Repeat("x", 5000))
	f := open(t, root, Options{})
	dst := make([]byte, 5000)
	ctx := t.Context()
	allocs := testing.AllocsPerRun(200, func() {
		if _, err := f.Read(ctx, 0, dst); err != nil {
			t.Fatal(err)
		}
	})
	if allocs >= 1 && !sanitized { // the race detector empties pools now and then
		t.Errorf("%v allocations per read", allocs)
	}
}

// TestReadDoesNotBlock reads paths that are not regular files.
func TestReadDoesNotBlock(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/1.jpg"), "")
	if err := unix.Mkfifo(filepath.Join(root, "a/2.jpg"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"3.jpg": "nothing", "4.jpg": "4.jpg"} {
		if err := os.Symlink(target, filepath.Join(root, "a", link)); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, root, Options{})
	for id, kind := range []error{
		source.ErrEmpty, source.ErrUnreadable, source.ErrMissing,
		source.ErrUnreadable,
	} {
		_, err := f.Read(t.Context(), id, nil)
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), f.Path(id)) {
			t.Errorf("%s: %v, not %v", f.Path(id), err, kind)
		}
	}
}

func TestReadAfterClose(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/1.jpg"), "x")
	f := open(t, root, Options{})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(t.Context(), 0, make([]byte, 1)); !errors.Is(err, os.ErrClosed) ||
		!errors.Is(err, source.ErrUnreadable) {
		t.Error(err)
	}
}

// TestErrorWithoutDescriptorsNamesTheLimit lowers the limit on open files until none can be opened.
func TestErrorWithoutDescriptorsNamesTheLimit(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/1.jpg"), "x")
	f := open(t, root, Options{})
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Read(t.Context(), 0, make([]byte, 1))
	_, openErr := Open(t.Context(), root, Options{})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{err, openErr} {
		if !errors.Is(err, source.ErrUnavailable) || !errors.Is(err, unix.EMFILE) ||
			!strings.Contains(err.Error(), "RLIMIT_NOFILE is 0; raise it") {
			t.Error(err)
		}
	}
	if _, err := f.Read(t.Context(), 0, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestIndexOfChangedFilesIsRemoved checks that the next Open lists all files again after a read has
// found one that is not as listed.
func TestIndexOfChangedFilesIsRemoved(t *testing.T) {
	tr := newSettled(t, "a/1.jpg", "a/2.jpg")
	f := open(t, tr.root, Options{})
	if _, err := os.Stat(f.IndexPath()); err != nil {
		t.Fatal(err)
	}
	write(t, f.Path(1), "as long")
	write(t, f.Path(0), "of another length")
	for id := range 2 {
		if _, err := f.Read(t.Context(), id, make([]byte, f.Index().Size(id))); err == nil {
			t.Errorf("file %d has changed, and was read", id)
		}
	}
	if _, err := os.Stat(f.IndexPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the index is there: %v", err)
	}
}
