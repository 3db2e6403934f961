package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/storageclass/file/disk"
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
