package files_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/crashtest"
	"github.com/hdmlp/hdmlp/internal/lib/files"
)

func open(t *testing.T, path string) int {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return int(dir.Fd())
}

func write(data []byte) func(files.File) error {
	return func(f files.File) error {
		for part := range slices.Chunk(data, 1000) {
			if _, err := f.Write(part); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestCrashesLeaveWholeFiles simulates power failures at every point of writing and replacing
// files: one has the contents of one of the writes, and can be written again.
func TestCrashesLeaveWholeFiles(t *testing.T) {
	root := t.TempDir()
	dir := open(t, root)
	r, err := crashtest.New(root)
	if err != nil {
		t.Fatal(err)
	}
	d := crashtest.Disk[files.File]{Recorder: r}
	contents := [][]byte{
		bytes.Repeat([]byte("one\x00"), 300), []byte("two"), bytes.Repeat([]byte("\x00three"), 500),
	}
	path := filepath.Join(root, "file")
	f, err := files.Create(d, dir, path, 0o600, write(contents[0]))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, data := range contents[1:] {
		if err := files.Replace(d, dir, path, 0o600, write(data)); err != nil {
			t.Fatal(err)
		}
	}
	states, err := r.Explore(100, 1, func(root string) error {
		path := filepath.Join(root, "file")
		got, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		found := err != nil
		for _, data := range contents {
			found = found || bytes.Equal(got, data)
		}
		if !found {
			return fmt.Errorf("the file has %d other bytes", len(got))
		}
		if err := files.Write(path, 0o600, []byte("next")); err != nil {
			return err
		}
		if got, err = os.ReadFile(path); string(got) != "next" {
			return fmt.Errorf("after another write it has %q, %w", got, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d states", states)
}

// TestFailedWriteChangesNothing: neither does creating a file that is there.
func TestFailedWriteChangesNothing(t *testing.T) {
	root := t.TempDir()
	dir, path := open(t, root), filepath.Join(root, "file")
	if err := files.Write(path, 0o640, []byte("former")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	failed := errors.New("it failed")
	fail := func(f files.File) error {
		_, err := f.Write([]byte("half"))
		return errors.Join(err, failed)
	}
	if err := files.Replace(files.System{}, dir, path, 0o600, fail); !errors.Is(err, failed) {
		t.Errorf("replace: %v", err)
	}
	_, err := files.Create(files.System{}, dir, path, 0o600, write([]byte("other")))
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("create: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "former" {
		t.Errorf("it has %q, %v", got, err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
		t.Errorf("left over: %v, %v", entries, err)
	}
	if err := files.Write(filepath.Join(root, "no", "file"), 0o600, nil); err == nil ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
}
