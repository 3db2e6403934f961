package index_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source/folder"
	"github.com/hdmlp/hdmlp/internal/source/index"
)

// elsewhere returns the index files of a folder with one sample, and the directory that was given
// for them.
func elsewhere(t *testing.T) (files *index.Files, dir string) {
	t.Helper()
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "index")
	write(t, filepath.Join(root, "a/1.jpg"), "x")
	fd, err := os.Open(root)
	do(t, err)
	t.Cleanup(func() { do(t, fd.Close()) })
	locations, err := index.Locations(root, dir, nil)
	do(t, err)
	files = &index.Files{
		Root: root, RootFD: int(fd.Fd()), Locations: locations, Calls: silent{},
	}
	return files, dir
}

// TestIndexOfAnUnknownRootIsNotTrusted checks that no index is used if it cannot be learned who may
// change the samples.
func TestIndexOfAnUnknownRootIsNotTrusted(t *testing.T) {
	files, _ := elsewhere(t)
	index := open(t, files.Root, folder.Options{}).Index()
	do(t, writes(index)(files))
	if read, _ := files.Read(index.Extensions()); read == nil {
		t.Fatal("the index is not used")
	}
	files.RootFD = -1
	if read, path := files.Read(index.Extensions()); read != nil {
		t.Errorf("%s is used", path)
	}
}

// TestFileInPlaceOfTheDirectory checks that an index that cannot be written is an error.
func TestFileInPlaceOfTheDirectory(t *testing.T) {
	files, dir := elsewhere(t)
	index := open(t, files.Root, folder.Options{}).Index()
	write(t, dir, "")
	if path, err := files.Write(index); err == nil {
		t.Errorf("it was written to %s", path)
	}
}

// TestIndexHasItsReaders checks that those who may read the dataset's directory may read its index,
// and no others.
func TestIndexHasItsReaders(t *testing.T) {
	for mode, want := range map[os.FileMode]os.FileMode{
		0o700: 0o600, 0o750: 0o640, 0o711: 0o600, 0o755: 0o644, 0o777: 0o644,
	} {
		files, _ := elsewhere(t)
		do(t, os.Chmod(files.Root, mode))
		path := open(t, files.Root, folder.Options{}).IndexPath()
		info, err := os.Stat(path)
		do(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("in a directory of mode %o the index has %o, want %o", mode,
				info.Mode().Perm(), want)
		}
	}
}

// TestIndexForOtherExtensionsIsNotUsed checks that an index has the files that are asked for,
// whatever its name.
func TestIndexForOtherExtensionsIsNotUsed(t *testing.T) {
	files, _ := elsewhere(t)
	write(t, filepath.Join(files.Root, "a/2.npy"), "x")
	jpg := open(t, files.Root, folder.Options{Extensions: []string{".jpg"}})
	both := folder.Options{Extensions: []string{".jpg", ".npy"}}
	do(t, os.Rename(jpg.IndexPath(), open(t, files.Root, both).IndexPath()))
	if f := open(t, files.Root, both); f.FromIndex() || f.Index().Len() != 2 {
		t.Errorf("%d samples; from index: %v", f.Index().Len(), f.FromIndex())
	}
}
