package devcluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/crashtest"
	"github.com/hdmlp/hdmlp/internal/lib/files"
)

// TestCrashesLeaveNoUnusableStateFile simulates power failures at every point of writing a state
// file: dead runs can be swept, and a run with the name of the dead one started.
func TestCrashesLeaveNoUnusableStateFile(t *testing.T) {
	root := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", root)
	if err := os.Mkdir(filepath.Join(root, "hdmlp-dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := crashtest.New(root)
	if err != nil {
		t.Fatal(err)
	}
	run := state{
		Version: stateVersion, Run: "crash", Marker: "hdmlp-dev-crash-none",
		Nodes: []nodeState{{Address: "10.0.0.1"}},
	}
	file, err := newStateFile(crashtest.Disk[files.File]{Recorder: r}, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.file.Close() })
	states, err := r.Explore(200, 1, func(root string) error {
		t.Setenv("XDG_RUNTIME_DIR", root)
		if err := Sweep(); err != nil {
			return err
		}
		again, err := newStateFile(files.System{}, run)
		if err != nil {
			return err
		}
		return again.remove()
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d states", states)
}
