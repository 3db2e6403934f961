package index_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lab/crashtest"
	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/folder"
	"github.com/hdmlp/hdmlp/internal/source/index"
)

// silent ignores system calls.
type silent struct{}

func (silent) Begin(_, _, _ string) {}
func (silent) End()                 {}

// withFiles calls do with the index files of the folder at root.
func withFiles(root string, disk files.Disk, do func(*index.Files) error) error {
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	locations, err := index.Locations(root, "", nil)
	if err != nil {
		return err
	}
	return do(&index.Files{
		Root: root, RootFD: int(dir.Fd()), Locations: locations[:1], Calls: silent{}, Disk: disk,
	})
}

func writes(ix *source.Index) func(*index.Files) error {
	return func(f *index.Files) error {
		_, err := f.Write(ix)
		return err
	}
}

// TestCrashesLeaveWholeIndices simulates power failures at every point of writing and replacing a
// folder's index: it is missing or one of those that were written, and can be written again.
func TestCrashesLeaveWholeIndices(t *testing.T) {
	var indices []*source.Index
	for _, samples := range []int{100, 3, 40} {
		root := t.TempDir()
		for i := range samples {
			write(t, filepath.Join(root, fmt.Sprintf("a/%d.jpg", i)), "x")
		}
		indices = append(indices, open(t, root, folder.Options{}).Index())
	}
	root := t.TempDir()
	r, err := crashtest.New(root)
	do(t, err)
	for _, index := range indices {
		do(t, withFiles(root, crashtest.Disk[files.File]{Recorder: r}, writes(index)))
	}
	states, err := r.Explore(50, 1, func(root string) error {
		return withFiles(root, nil, func(f *index.Files) error {
			// There is none in a state without the name; all others must be whole.
			_, missing := os.Stat(filepath.Join(root, index.HiddenName))
			index, _ := f.Read(indices[0].Extensions())
			if (index == nil) != (missing != nil) {
				return fmt.Errorf("the index is read: %v; its file: %v", index != nil, missing)
			}
			if index != nil && !among(index, indices) {
				return fmt.Errorf("the index is another one, of %d samples", index.Len())
			}
			if err := writes(indices[0])(f); err != nil {
				return err
			}
			if index, _ = f.Read(indices[0].Extensions()); index == nil || !among(index, indices[:1]) {
				return errors.New("the index cannot be written again")
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d states", states)
}

// among reports whether an index is equal to one of others.
func among(index *source.Index, others []*source.Index) bool {
	for _, other := range others {
		var a, b bytes.Buffer
		if index.Encode(&a) == nil && other.Encode(&b) == nil && bytes.Equal(a.Bytes(), b.Bytes()) {
			return true
		}
	}
	return false
}

// full is a disk on which no file can be written to.
type full struct{ files.Disk }

func (d full) Open(dir int, name, path string, flags int) (files.File, error) {
	f, err := d.Disk.Open(dir, name, path, flags)
	return fullFile{f}, err
}

type fullFile struct{ files.File }

func (fullFile) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestAnIndexThatCannotBeWrittenLeavesTheOneBefore: the error is returned, and nothing of the new
// index is left.
func TestAnIndexThatCannotBeWrittenLeavesTheOneBefore(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/1.jpg"), "x")
	before := open(t, root, folder.Options{}).Index()
	write(t, filepath.Join(root, "a/2.jpg"), "x")
	now := open(t, root, folder.Options{Rescan: true, IndexDir: t.TempDir()}).Index()
	if err := withFiles(root, full{files.System{}}, writes(now)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	do(t, withFiles(root, nil, func(f *index.Files) error {
		if found, _ := f.Read(before.Extensions()); found == nil || !found.Equal(before) {
			t.Errorf("the index is now %v", found)
		}
		return nil
	}))
	if all, err := os.ReadDir(root); err != nil || len(all) != 2 { // the class, and the index
		t.Errorf("the folder has %v, %v", all, err)
	}
}
