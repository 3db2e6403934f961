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
	f, err := New(paths, nil, []int64{8, 9, 5, 5})
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
	if _, err := New(nil, nil, nil); err == nil {
		t.Error("no files are a source")
	}
}

func TestRangesOfFilesAreReadDroppedAndProbed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard")
	if err := os.WriteFile(path, []byte("first sample, second"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := New([]string{path, path, path}, []int64{14, 6, 18}, []int64{6, 6, 6})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, 6)
	for id, want := range []string{"second", "sample"} {
		if _, err := f.Read(t.Context(), id, data); err != nil || string(data) != want {
			t.Errorf("sample %d: %q, %v", id, data, err)
		}
		if err := f.Probe(t.Context(), id); err != nil {
			t.Error(err)
		}
		if _, err := f.Drop(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Read(t.Context(), 2, data); !errors.Is(err, source.ErrShort) {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := New([]string{path}, []int64{1, 2}, []int64{6}); err == nil {
		t.Error("two offsets of one file are a source")
	}
}
