package folder

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source/index"
)

func TestBeside(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	tr := newSettled(t, "a/1.jpg")
	f := open(t, tr.root, Options{})
	anything := func([]byte) error { return nil }
	if data, path, err := f.ReadBeside(".x", 10, anything); data != nil || path != "" || err != nil {
		t.Errorf("no file: %q, %q, %v", data, path, err)
	}
	want := filepath.Join(tr.root, index.HiddenName+".x")
	for _, text := range []string{"first", "second"} {
		if path, err := f.WriteBeside(".x", []byte(text)); path != want || err != nil {
			t.Fatalf("%q, %v", path, err)
		}
		if data, path, err := f.ReadBeside(".x", 10, anything); string(data) != text || path != want ||
			err != nil {
			t.Errorf("%q, %q, %v", data, path, err)
		}
	}
	if _, _, err := f.ReadBeside(".x", 5, anything); err == nil {
		t.Error("a file that is too large was read")
	}
	if again := open(t, tr.root, Options{}); !again.FromIndex() {
		t.Error("the file beside the index made it outdated")
	}
	if err := os.Chmod(want, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.ReadBeside(".x", 10, anything); err == nil ||
		!strings.Contains(err.Error(), "users") {
		t.Errorf("a file that others may write: %v", err)
	}
	if err := os.Remove(want); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(want, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.ReadBeside(".x", 10, anything); err == nil {
		t.Error("a FIFO was read")
	}
}

// TestNewestUsableFileBesideTheIndex: where the dataset's directory cannot be written to, the file
// is replaced in the user's cache directory, and is read from there.
func TestNewestUsableFileBesideTheIndex(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	tr := newSettled(t, "a/1.jpg")
	f := open(t, tr.root, Options{})
	locations, err := index.Locations(f.path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	beside, elsewhere := locations[0].Path()+".x", locations[1].Path()+".x"
	if err := os.MkdirAll(filepath.Dir(elsewhere), 0o700); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("damaged")
	usable := func(data []byte) error {
		if string(data) == "bad" {
			return bad
		}
		return nil
	}
	for _, c := range []struct {
		beside, elsewhere string
		newer             string // of the two; beside if they are of the same time
		want              string
		err               error
	}{
		{beside: "old", elsewhere: "new", newer: elsewhere, want: elsewhere},
		{beside: "new", elsewhere: "old", newer: beside, want: beside},
		{beside: "bad", elsewhere: "old", newer: beside, want: elsewhere},
		{beside: "old", elsewhere: "bad", newer: elsewhere, want: beside},
		{beside: "bad", elsewhere: "bad", newer: elsewhere, want: beside, err: bad},
		{elsewhere: "only", newer: elsewhere, want: elsewhere},
	} {
		for path, text := range map[string]string{beside: c.beside, elsewhere: c.elsewhere} {
			_ = os.Remove(path)
			if text == "" {
				continue
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			then := time.Unix(1e9, 0)
			if path == c.newer {
				then = then.Add(time.Second)
			}
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
		}
		if _, path, err := f.ReadBeside(".x", 10, usable); path != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v: read %s, %v", c, path, err)
		}
	}
}
