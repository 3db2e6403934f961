package directory

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place returns an empty directory in which few files stay open.
func newPlace(t *testing.T) objectstest.Fixture {
	root := t.TempDir()
	d, err := Open(root, Options{Open: 3})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	written := time.Unix(1_700_000_000, 0)
	return objectstest.Fixture{
		Objects: d,
		Put: func(name string, data []byte) {
			path := filepath.Join(root, name)
			must(os.MkdirAll(filepath.Dir(path), 0o755))
			must(os.WriteFile(path, data, 0o644))
			written = written.Add(time.Second)
			must(os.Chtimes(path, written, written))
		},
		Remove: func(name string) { must(os.Remove(filepath.Join(root, name))); d.forget() },
	}
}

// forget closes the files that stay open.
func (d *Directory) forget() { d.opened.Load().open.forget() }

func TestConformance(t *testing.T) { objectstest.Run(t, newPlace) }

// TestFilesStayOpenUpToALimit counts descriptors.
func TestFilesStayOpenUpToALimit(t *testing.T) {
	p := newPlace(t)
	defer p.Objects.Close() //nolint:errcheck // it was only read
	before := descriptorsOpen(t)
	for round := range 2 {
		for i := range 20 {
			name := fmt.Sprint(i)
			if round == 0 {
				p.Put(name, []byte(name))
			}
			o, err := p.Objects.Stat(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			part := make([]byte, len(name))
			if _, err := p.Objects.Read(t.Context(), &o, 0, [][]byte{part}); err != nil {
				t.Fatal(err)
			}
			if string(part) != name {
				t.Fatalf("%q of %q", part, name)
			}
			if n := descriptorsOpen(t) - before; n > 3 {
				t.Fatalf("%d files are open", n)
			}
		}
	}
}

func descriptorsOpen(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestLinksAndOthers: links are followed, and what is no regular file is none of the objects.
func TestLinksAndOthers(t *testing.T) {
	p := newPlace(t)
	defer p.Objects.Close() //nolint:errcheck // it was only read
	p.Put("real/a", []byte("a"))
	root := filepath.Dir(p.Objects.Path("x"))
	for link, to := range map[string]string{
		"linked": "real", "real/b": "a", "real/none": "missing", "real/self": "self",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	if err := p.Objects.List(t.Context(), "", func(o source.Object) error {
		got = append(got, o.Name)
		return nil
	}); err != nil && !errors.Is(err, source.ErrUnreadable) {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "real/self")); err != nil {
		t.Fatal(err)
	}
	got = nil
	if err := p.Objects.List(t.Context(), "", func(o source.Object) error {
		got = append(got, o.Name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != "[linked/a linked/b real/a real/b]" {
		t.Errorf("%q", got)
	}
	_, err := p.Objects.Stat(t.Context(), "real")
	var e *objects.Error
	if !errors.As(err, &e) || e.Kind != source.ErrUnreadable {
		t.Errorf("a directory: %v", err)
	}
	if err := os.Symlink("..", filepath.Join(root, "real/up")); err != nil {
		t.Fatal(err)
	}
	if err := p.Objects.List(t.Context(), "", func(source.Object) error {
		return nil
	}); !errors.Is(err, source.ErrUnreadable) {
		t.Errorf("a cycle: %v", err)
	}
}

// TestAReplacedFileIsReadAsItWasWhileItIsOpen, and Stat looks at the name.
func TestAReplacedFileIsReadAsItWasWhileItIsOpen(t *testing.T) {
	p := newPlace(t)
	defer p.Objects.Close() //nolint:errcheck // it was only read
	p.Put("a", []byte("old"))
	o, err := p.Objects.Stat(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	read := func() string {
		part := make([]byte, 3)
		if _, err := p.Objects.Read(t.Context(), &o, 0, [][]byte{part}); err != nil {
			return err.Error()
		}
		return string(bytes.TrimSpace(part))
	}
	if got := read(); got != "old" {
		t.Fatal(got)
	}
	p.Put("b", []byte("new"))
	if err := os.Rename(p.Objects.Path("b"), p.Objects.Path("a")); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "old" {
		t.Error(got)
	}
	now, err := p.Objects.Stat(t.Context(), "a")
	if kind, _ := objects.Compare(&o, &now); err != nil || kind != source.ErrChanged {
		t.Errorf("%v, %v", kind, err)
	}
}

// TestReadsInOrderAreRecognised, though workers exchange neighbours, and again after a change.
func TestReadsInOrderAreRecognised(t *testing.T) {
	const size = 25_000
	var o order
	changes := 0
	read := func(sample int64) (random bool) {
		random, changed := o.next(sample * size)
		if changed {
			changes++
		}
		return random
	}
	if !read(7) {
		t.Error("the first read of a file is not anywhere")
	}
	for i := range int64(1000) {
		if read(i^1) && i > 0 {
			t.Fatalf("read %d in order is anywhere", i)
		}
	}
	elsewhere := 0
	for i := range int64(1000) {
		if read(i * 379 % 1009) {
			elsewhere++
		}
	}
	if elsewhere < 900 {
		t.Errorf("%d of 1000 reads anywhere were found to be", elsewhere)
	}
	for i := range int64(100) {
		if read(i) && i > mostScore {
			t.Fatalf("read %d in order again is anywhere", i)
		}
	}
	if changes > 100 {
		t.Errorf("%d changes", changes)
	}
}

// TestFilesThatAreReadAheadOnRequestAreNotReadAheadOtherwise: an index would read half of shards.
func TestFilesThatAreReadAheadOnRequestAreNotReadAheadOtherwise(t *testing.T) {
	p := newPlace(t)
	defer p.Objects.Close() //nolint:errcheck // it was only read
	p.Put("a", make([]byte, 200_000))
	o, err := p.Objects.Stat(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	d := p.Objects.(*Directory)
	for at := int64(0); at < 200_000; at += 20_000 {
		d.Ahead(&o, at, 4096)
		if _, err := d.Read(t.Context(), &o, at, [][]byte{make([]byte, 4096)}); err != nil {
			t.Fatal(err)
		}
		if !d.opened.Load().open.byName["a"].order.random.Load() {
			t.Fatalf("at %d", at)
		}
	}
}
