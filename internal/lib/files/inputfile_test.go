package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(path, 5); err != nil || string(data) != "12345" {
		t.Errorf("a file as long as the limit: %q, %v", data, err)
	}
	if _, err := Read(path, 4); err == nil || !strings.Contains(err.Error(), "larger than 4") {
		t.Errorf("a file longer than the limit: %v", err)
	}
	if _, err := Read(filepath.Join(dir, "none"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestNoFiles reads what would block a plain open or read, or never end.
func TestNoFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", dir} {
		var named *fs.PathError
		if _, err := Read(path, 1<<20); !errors.Is(err, ErrNotRegular) || !errors.As(err, &named) ||
			named.Path != path {
			t.Errorf("%s: %v", path, err)
		}
	}
}
