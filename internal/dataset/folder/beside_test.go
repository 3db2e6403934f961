package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/dataset/folder/indexfile"
)

func TestBeside(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	tr := newSettled(t, "a/1.jpg")
	f := open(t, tr.root, Options{})
	if data, path, err := f.ReadBeside(".x", 10); data != nil || path != "" || err != nil {
		t.Errorf("no file: %q, %q, %v", data, path, err)
	}
	want := filepath.Join(tr.root, indexfile.HiddenName+".x")
	for _, text := range []string{"first", "second"} {
		if path, err := f.WriteBeside(".x", []byte(text)); path != want || err != nil {
			t.Fatalf("%q, %v", path, err)
		}
		if data, path, err := f.ReadBeside(".x", 10); string(data) != text || path != want ||
			err != nil {
			t.Errorf("%q, %q, %v", data, path, err)
		}
	}
	if _, _, err := f.ReadBeside(".x", 5); err == nil {
		t.Error("a file that is too large was read")
	}
	if again := open(t, tr.root, Options{}); !again.FromIndex() {
		t.Error("the file beside the index made it outdated")
	}
	if err := os.Chmod(want, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.ReadBeside(".x", 10); err == nil || !strings.Contains(err.Error(), "users") {
		t.Errorf("a file that others may write: %v", err)
	}
	if err := os.Remove(want); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(want, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.ReadBeside(".x", 10); err == nil {
		t.Error("a FIFO was read")
	}
}
