package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// openMarker opens a marker, as another process would.
func openMarker(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestBriefLockOfTheMarkerIsWaitedFor: a process that only checks whether the cache is in use does
// not keep a daemon out.
func TestBriefLockOfTheMarkerIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), markerName)
	looking, mine := openMarker(t, path), openMarker(t, path)
	if err := disk.Flock(looking, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(lockPause*(lockAttempts-2), func() { _ = disk.Flock(looking, unix.LOCK_UN) })
		if err := lockMarker(mine, false); err != nil {
			t.Error(err)
		}
	})
}

// TestRemovedMarkerIsNotLocked: a marker that `hdmlp cache rm` removes between opening and locking
// is refused.
func TestRemovedMarkerIsNotLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), markerName)
	marker := openMarker(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := lockMarker(marker, false); !errors.Is(err, ErrInUse) {
		t.Errorf("locked: %v", err)
	}
}

// TestLockedMarkerWithoutAProcess: if the directory's files were removed while a daemon has it, as
// on a file system whose locks outlive that, the error says so, and how to find the daemon.
func TestLockedMarkerWithoutAProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), markerName)
	theirs, mine := openMarker(t, path), openMarker(t, path)
	if err := lockMarker(theirs, false); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if err := lockMarker(mine, false); !errors.Is(err, ErrInUse) ||
			!strings.Contains(err.Error(), fmt.Sprintf("by process %d", os.Getpid())) {
			t.Errorf("a marker that names its process: %v", err)
		}
		if err := theirs.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if err := lockMarker(mine, false); !errors.Is(err, ErrInUse) ||
			!strings.Contains(err.Error(), "`fuser -v "+path+"`") {
			t.Errorf("a marker that names none: %v", err)
		}
	})
}

// TestTornMarkerIsReplaced: a power failure while the marker was created may have left anything in
// it, and then there is nothing else in the directory. With contents the directory is not ours.
func TestTornMarkerIsReplaced(t *testing.T) {
	for _, torn := range []string{"", string(make([]byte, 126)), "noise", markerText[100:]} {
		dir := t.TempDir()
		path := filepath.Join(dir, markerName)
		if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := New(Options{Dir: dir, Reserve: 1, Disk: big{}})
		if err != nil {
			t.Errorf("%q: %v", torn, err)
			continue
		}
		text, err := os.ReadFile(path)
		if err := errors.Join(err, c.Close(), os.WriteFile(path, []byte(torn), 0o600),
			os.Mkdir(filepath.Join(dir, "other"), 0o700)); err != nil {
			t.Fatal(err)
		}
		if markerPID(text) != strconv.Itoa(os.Getpid()) {
			t.Errorf("%q: the marker is %q", torn, text)
		}
		if _, err := New(Options{Dir: dir, Reserve: 1, Disk: big{}}); !errors.Is(err, ErrNotOurs) {
			t.Errorf("%q, with contents: %v", torn, err)
		}
	}
}
