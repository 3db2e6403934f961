package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
)

func TestFilesAreReadDroppedAndProbed(t *testing.T) {
	dir := t.TempDir()
	paths := []string{
		filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "gone"), dir,
	}
	for _, path := range paths[:2] {
		if err := os.WriteFile(path, []byte("sample "+filepath.Base(path)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := New(paths, []int64{8, 9, 5, 5})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Index().Len() != 4 || f.Index().Bytes() != 27 || f.Path(1) != paths[1] {
		t.Errorf("%d samples of %d bytes, %s", f.Index().Len(), f.Index().Bytes(), f.Path(1))
	}
	data := make([]byte, 8)
	if _, err := f.Read(t.Context(), 0, data); err != nil || string(data) != "sample a" {
		t.Errorf("read %q, %v", data, err)
	}
	if err := f.Probe(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if _, err := f.Drop(t.Context(), 0); err != nil {
		t.Error(err)
	}
	for id, want := range map[int]error{
		1: source.ErrShort, 2: source.ErrMissing, 3: source.ErrUnreadable,
	} {
		_, err := f.Read(t.Context(), id, make([]byte, f.Index().Size(id)))
		if !errors.Is(err, want) {
			t.Errorf("sample %d: %v, want %v", id, err, want)
		}
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("no files are a source")
	}
}
