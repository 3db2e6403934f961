package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/index"
)

// settled is a folder whose directories have settled, so that the index trusts their times. Change
// times cannot be set, so the clock of the tests runs ahead.
type settled struct {
	t    *testing.T
	root string
	now  time.Time
}

func newSettled(t *testing.T, files ...string) *settled {
	tr := &settled{t: t, root: t.TempDir(), now: time.Now().Add(time.Hour)}
	for _, f := range files {
		write(t, filepath.Join(tr.root, f), f)
	}
	return tr
}

// open opens the folder at a time when nothing has changed for an hour.
func (tr *settled) open() *Folder {
	tr.t.Helper()
	f, err := openAt(tr.t.Context(), tr.root, Options{}, tr.now)
	if err != nil {
		tr.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tr.t.Fatal(err)
	}
	return f
}

// check opens the folder, and compares the index with a scan.
func (tr *settled) check(what string, wantListed int) *Folder {
	tr.t.Helper()
	f := tr.open()
	if listed, _ := f.Listed(); listed != wantListed || !f.FromIndex() {
		tr.t.Errorf("%s: %d directories were listed, not %d; from index: %v", what, listed,
			wantListed, f.FromIndex())
	}
	fresh, err := openAt(tr.t.Context(), tr.root, Options{Rescan: true, IndexDir: tr.t.TempDir()},
		tr.now)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer fresh.Close() //nolint:errcheck // nothing was written
	if diff := cmp.Diff(listing(fresh.Index()), listing(f.Index())); diff != "" {
		tr.t.Errorf("%s: samples (-scan +index):\n%s", what, diff)
	}
	if !fresh.Index().Equal(f.Index()) {
		tr.t.Errorf("%s: the index differs from that of a scan", what)
	}
	return f
}

func (tr *settled) do(errs ...error) {
	tr.t.Helper()
	if err := errors.Join(errs...); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *settled) path(name string) string { return filepath.Join(tr.root, name) }

func TestOnlyChangedDirectoriesAreListedAgain(t *testing.T) {
	tr := newSettled(t, "a/1.jpg", "a/sub/2.jpg", "a/sub/deep/3.jpg", "b/1.jpg", "c/x/1.jpg")
	if tr.open().FromIndex() {
		t.Fatal("there was an index")
	}
	first := tr.check("nothing changed", 1)

	write(t, tr.path("b/0.jpg"), "new")
	f := tr.check("a file added", 2)
	if f.Index().Fingerprint() == first.Index().Fingerprint() {
		t.Error("a file added: the fingerprint is the same")
	}
	tr.check("nothing changed since", 1)

	write(t, tr.path("b/new/deep/er/0.jpg"), "new")
	tr.check("directories added", 1+4)
	tr.do(os.Rename(tr.path("a/sub"), tr.path("c/sub")))
	// a, c, and the directories moved below c.
	tr.check("a directory moved", 1+2+2)
	tr.do(os.RemoveAll(tr.path("c/sub")))
	tr.check("a directory removed", 1+1)
	write(t, tr.path("0/1.jpg"), "new")
	tr.check("a class added, before the others", 1+1)
	tr.do(os.RemoveAll(tr.path("b")))
	tr.check("a class removed", 1)
	tr.do(os.Rename(tr.path("a"), tr.path("z")))
	tr.check("a class renamed", 1+1)
	tr.do(os.Symlink(tr.path("z"), tr.path("c/link")))
	tr.check("a link to a class", 1+1+1)
	tr.check("nothing changed since", 1)
	write(t, tr.path("z/through-the-link.jpg"), "new")
	tr.check("a file added, in a linked directory and in another", 1+2)
	tr.do(os.WriteFile(tr.path("z/.tmp"), []byte("longer"), 0o644),
		os.Rename(tr.path("z/.tmp"), tr.path("z/1.jpg")))
	f = tr.check("a file replaced", 1+2)
	if size := f.Index().Size(f.Index().Len() - 2); size != 6 {
		t.Errorf("the replaced file has %d bytes", size)
	}

	before := f.Index().Fingerprint()
	write(t, tr.path("z/notes.txt"), "no sample")
	if f = tr.check("a file that is not a sample", 1+2); f.Index().Fingerprint() != before {
		t.Error("a file that is not a sample changes the fingerprint")
	}
}

// TestSwappedDirectoriesAreListedAgain swaps directories, which then have each other's times.
func TestSwappedDirectoriesAreListedAgain(t *testing.T) {
	tr := newSettled(t, "a/x/1.jpg", "a/y/2.jpg")
	then := time.Unix(1_500_000_000, 0)
	tr.do(os.Chtimes(tr.path("a/x"), then, then), os.Chtimes(tr.path("a/y"), then, then))
	tr.open()
	tr.do(os.Rename(tr.path("a/x"), tr.path("a/tmp")), os.Rename(tr.path("a/y"), tr.path("a/x")),
		os.Rename(tr.path("a/tmp"), tr.path("a/y")))
	tr.check("swapped", 1+3)
}

// TestFreshDirectoriesAreNotTrusted makes changes that do not show in the times because the clock
// of the file system has not ticked since the scan.
func TestFreshDirectoriesAreNotTrusted(t *testing.T) {
	tr := newSettled(t, "a/1.jpg", "b/1.jpg")
	tr.now = time.Now() // the directories are new
	tr.open()
	f := tr.open()
	if listed, all := f.Listed(); listed != 3 || all != 3 || !f.FromIndex() {
		t.Errorf("%d of %d directories listed; from index: %v", listed, all, f.FromIndex())
	}
	tr.now = tr.now.Add(time.Hour)
	tr.check("an hour later", 3)
	tr.check("from then on", 1)
}

// TestFilesWrittenDuringTheScanAreNotTrusted: one that is written again in place changes neither
// its directory nor, within a tick of the clock, its own time.
func TestFilesWrittenDuringTheScanAreNotTrusted(t *testing.T) {
	tr := newSettled(t, "a/1.jpg", "a/2.jpg", "b/1.jpg")
	tr.do(os.Chtimes(tr.path("a/2.jpg"), tr.now, tr.now))
	tr.open()
	tr.now = tr.now.Add(time.Hour)
	tr.check("the directory with the file is listed again", 1+1)
	tr.check("and has settled", 1)
}

// TestRemovedTargetOfALinkIsNoticed: the directory with the link is unchanged, and the target was
// settled or not.
func TestRemovedTargetOfALinkIsNoticed(t *testing.T) {
	for _, settled := range []bool{true, false} {
		elsewhere := t.TempDir()
		target := filepath.Join(elsewhere, "far")
		write(t, filepath.Join(target, "1.jpg"), "x")
		tr := newSettled(t, "a/1.jpg")
		if !settled {
			future := tr.now.Add(time.Hour)
			tr.do(os.Chtimes(target, future, future))
		}
		tr.do(os.Symlink(target, tr.path("a/link")))
		tr.open()
		tr.do(os.RemoveAll(target))
		f := tr.open()
		if diff := cmp.Diff([]string{"a: a/1.jpg"}, listing(f.Index())); diff != "" ||
			f.FromIndex() {
			t.Errorf("settled %v: from index: %v; samples (-want +got):\n%s", settled,
				f.FromIndex(), diff)
		}
	}
}

// TestRefreshEqualsScan changes trees at random.
func TestRefreshEqualsScan(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		tr := newSettled(t, "a/0.jpg")
		tr.open()
		for step := range 10 {
			for range random.IntN(4) {
				name := []string{"a", "b", "a/x", "a/x-y", "a/x/y", "b/z", "b/z/z"}[random.IntN(7)]
				switch random.IntN(4) {
				case 0:
					tr.do(os.RemoveAll(tr.path(name)))
				default:
					write(t, tr.path(fmt.Sprintf("%s/%d.jpg", name, random.IntN(5))),
						fmt.Sprint(step))
				}
			}
			write(t, tr.path("a/0.jpg"), "0") // classes must not be empty
			if _, err := os.Stat(tr.path("b")); err == nil {
				write(t, tr.path("b/0.jpg"), "0")
			}
			f := tr.open()
			fresh, err := openAt(t.Context(), tr.root, Options{Rescan: true, IndexDir: t.TempDir()},
				tr.now)
			if err != nil {
				t.Fatal(err)
			}
			// Files that are rewritten in place differ only in their own times, not in their
			// directory's.
			if diff := cmp.Diff(listing(fresh.Index()), listing(f.Index())); diff != "" {
				t.Fatalf("seed %d, step %d: samples (-scan +index):\n%s", seed, step, diff)
			}
			tr.do(fresh.Close())
		}
	}
}

func TestUnusableIndexesAreRebuilt(t *testing.T) {
	tr := newSettled(t, "a/1.jpg")
	path := tr.open().IndexPath()
	good, err := os.ReadFile(path)
	tr.do(err)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for what, content := range map[string][]byte{
		"empty": nil, "cut off": good[:len(good)-1], "too long": append(bytes.Clone(good), 0),
		"flipped": flipped, "text": []byte(strings.Repeat("text ", 100)),
	} {
		tr.do(os.WriteFile(path, content, 0o644))
		if f := tr.open(); f.FromIndex() || f.IndexError() != nil || f.Index().Len() != 1 {
			t.Errorf("%s: from index: %v, %v", what, f.FromIndex(), f.IndexError())
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) {
			t.Errorf("%s: it was not rewritten: %v", what, err)
		}
	}
	leftovers, err := filepath.Glob(tr.path(".hdmlp-*.tmp"))
	if err != nil || len(leftovers) > 0 {
		t.Errorf("left over: %v", leftovers)
	}
}

func TestEachSetOfExtensionsHasItsIndex(t *testing.T) {
	tr := newSettled(t, "a/1.jpg", "a/2.npy", "a/3.NPY")
	for range 2 {
		for extensions, want := range map[string]int{
			"":               1,
			".NPY":           2,
			".npy,.jpg":      3,
			".jpg,.npy,.jpg": 3,
		} {
			opts := Options{}
			if extensions != "" {
				opts.Extensions = strings.Split(extensions, ",")
			}
			if f := open(t, tr.root, opts); f.Index().Len() != want {
				t.Errorf("%q: %d samples", extensions, f.Index().Len())
			}
		}
	}
	if files, err := filepath.Glob(tr.path(index.HiddenName + "*")); err != nil ||
		len(files) != 3 {
		t.Errorf("index files: %v", files)
	}
}

func TestIndexIsWrittenToTheFirstWritableDirectory(t *testing.T) {
	cache, dir := t.TempDir(), filepath.Join(t.TempDir(), "made_for_it")
	t.Setenv("XDG_CACHE_HOME", cache)
	tr := newSettled(t, "a/1.jpg")
	if f := open(t, tr.root, Options{IndexDir: dir}); filepath.Dir(f.IndexPath()) != dir {
		t.Errorf("with a directory named: %s", f.IndexPath())
	}
	if f := open(t, tr.root, Options{}); f.IndexPath() != tr.path(index.HiddenName) {
		t.Errorf("with none named: %s", f.IndexPath())
	}

	// A directory at the file's path prevents writing it, like a read-only file system, even for
	// root.
	other := newSettled(t, "a/1.jpg", index.HiddenName+"/1.jpg")
	for _, fromIndex := range []bool{false, true} {
		f := open(t, other.root, Options{})
		if filepath.Dir(f.IndexPath()) != filepath.Join(cache, "hdmlp", "index") ||
			f.IndexError() != nil || f.FromIndex() != fromIndex {
			t.Errorf("where it cannot be written: %s, %v, from index: %v", f.IndexPath(),
				f.IndexError(), f.FromIndex())
		}
	}
	given := filepath.Join(cache, "given")
	path := open(t, tr.root, Options{IndexDir: given}).IndexPath()
	if err := os.Remove(path); err != nil || filepath.Dir(path) != given {
		t.Fatal(path, err)
	}
	write(t, filepath.Join(path, "file"), "")
	f := open(t, tr.root, Options{IndexDir: given})
	if f.IndexPath() != "" || f.IndexError() == nil || f.Index().Len() != 1 {
		t.Errorf("nowhere: %q, %v", f.IndexPath(), f.IndexError())
	}
}

// TestIndexThatCannotBeWrittenAnywhere checks that the error has one reason for each place, in one
// line, and no path twice in a reason.
func TestIndexThatCannotBeWrittenAnywhere(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "file")
	write(t, cache, "") // nothing can be created below it
	t.Setenv("XDG_CACHE_HOME", cache)
	tr := newSettled(t, "a/1.jpg", index.HiddenName+"/1.jpg")
	f := open(t, tr.root, Options{})
	if f.IndexError() == nil {
		t.Fatalf("the index was written to %s", f.IndexPath())
	}
	text := f.IndexError().Error()
	if strings.Contains(text, "\n") || strings.Count(text, "; ") != 1 ||
		strings.Count(text, tr.root) != 1 || strings.Contains(text, ".tmp") {
		t.Errorf("the reason is %q", text)
	}
}

// TestIndexDirectoryIsRefused if it is none, or if more than its last component is missing, as it
// is with a path that is misspelt or not mounted.
func TestIndexDirectoryIsRefused(t *testing.T) {
	root := newSettled(t, "a/1.jpg").root
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "file"), "")
	for dir, want := range map[string]string{
		"file":           "it is not a directory",
		"file/x":         "a part of the path is not a directory",
		"missing/x":      "its parent directory " + elsewhere + "/missing does not exist",
		"missing/x/../y": "its parent directory " + elsewhere + "/missing does not exist",
	} {
		_, err := Open(t.Context(), root, Options{IndexDir: elsewhere + "/" + dir})
		if !errors.Is(err, source.ErrIndexDirectory) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", dir, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "missing")); err == nil {
		t.Error("the parent of the index directory was created")
	}
}

func TestOpenReportsProgressAndEndsWhenCancelled(t *testing.T) {
	root := t.TempDir()
	for i := range 900 {
		write(t, filepath.Join(root, fmt.Sprintf("%d/%d.jpg", i/300, i)), "")
	}
	var calls, last atomic.Int64
	f := open(t, root, Options{Progress: func(n int64) { calls.Add(1); last.Store(n) }})
	if f.Index().Len() != 900 || calls.Load() < 1 || last.Load() < 1 || last.Load() > 900 {
		t.Errorf("%d samples, %d calls, the last with %d", f.Index().Len(), calls.Load(),
			last.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Open(ctx, root, Options{Rescan: true, Progress: func(int64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	tr := newSettled(t, "classes/a/1.jpg", "classes/b/notes.txt", "classes/c/deep/er/notes.txt",
		"flat/1.jpg", "file")
	tr.do(os.Mkdir(tr.path("empty"), 0o755), os.MkdirAll(tr.path("cycle/a/b"), 0o755),
		os.MkdirAll(tr.path("cross/a"), 0o755),
		os.MkdirAll(tr.path("cross/b"), 0o755), os.Symlink("..", tr.path("cycle/a/b/up")),
		os.Symlink("../b", tr.path("cross/a/to-b")), os.Symlink("../a", tr.path("cross/b/to-a")))
	for _, c := range []struct {
		name string
		opts Options
		kind error
		says string
	}{
		{"nothing/here", Options{}, source.ErrNoDirectory, "mounted"},
		{"file", Options{}, source.ErrNotDirectory, "subdirectory per class"},
		{"file/below", Options{}, source.ErrNotDirectory, "subdirectory per class"},
		{"empty", Options{}, source.ErrNoClasses, "subdirectory per class"},
		{"flat", Options{}, source.ErrNoClasses, "subdirectory per class"},
		{
			"classes",
			Options{},
			source.ErrEmptyClass,
			`"b", "c"; a sample is a file whose name ends with .jpg, .jpeg`,
		},
		{
			"classes",
			Options{Extensions: []string{"png"}},
			source.ErrEmptyClass,
			"ends with png; these are all of its classes: pass the extensions of their files",
		},
		{"cycle", Options{}, source.ErrLinkCycle, "a/b/up is"},
		{"cross", Options{}, source.ErrLinkCycle, "remove the link"},
		{"classes", Options{Extensions: []string{}}, source.ErrExtensions, "empty"},
		{"classes", Options{Extensions: []string{""}}, source.ErrExtensions, ".jpg"},
	} {
		_, err := Open(t.Context(), tr.path(c.name), c.opts)
		var problem *source.Error
		if !errors.As(err, &problem) || !errors.Is(err, c.kind) ||
			!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), tr.root) {
			t.Errorf("%s: %v; not %q, %q", c.name, err, c.kind, c.says)
		}
	}
}
