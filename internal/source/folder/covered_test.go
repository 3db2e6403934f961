package folder

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
)

// rewrite writes other bytes to a file, whose size and times stay as they are.
func rewrite(t *testing.T, path, content string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(content)) != info.Size() {
		t.Fatalf("%d bytes, not %d", len(content), info.Size())
	}
	write(t, path, content)
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// TestWhatTheVersionCoversIsCompared checks that a file that the dataset's version covers is not
// read with other bytes than those, whether it is covered as a whole or in pieces.
func TestWhatTheVersionCoversIsCompared(t *testing.T) {
	const large = 50_000
	for name, c := range map[string]struct{ was, is string }{
		"a byte of a small file": {"abc", "abd"},
		"a file of 4 KiB":        {strings.Repeat("a", 4096), strings.Repeat("a", 4095) + "b"},
		"a large file's first":   {strings.Repeat("a", large), "b" + strings.Repeat("a", large-1)},
		"a large file's last":    {strings.Repeat("a", large), strings.Repeat("a", large-1) + "b"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "a", "x.jpg")
			write(t, path, c.was)
			write(t, filepath.Join(root, "a", "y.jpg"), "y")
			f := open(t, root, Options{})
			dst := make([]byte, len(c.was))
			if _, err := f.Read(t.Context(), 0, dst); err != nil {
				t.Fatal(err)
			}
			rewrite(t, path, c.is)
			_, err := f.Read(t.Context(), 0, dst)
			var sample *source.SampleError
			if !errors.Is(err, source.ErrChanged) || !errors.As(err, &sample) ||
				sample.Path != path {
				t.Errorf("read %v", err)
			}
			if _, err := os.Stat(f.IndexPath()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the outdated index file is still there: %v", err)
			}
			if _, err := f.Read(t.Context(), 1, make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}
