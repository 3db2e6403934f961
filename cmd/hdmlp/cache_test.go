package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/folder"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
)

// tree makes a folder of n samples, each with its own bytes.
func tree(t *testing.T, n int) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "data")
	for i := range n {
		path := filepath.Join(root, "ab"[i%2:i%2+1], fmt.Sprintf("%04d.jpg", i))
		must(t, os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 50+i), 0o644))
	}
	return root
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// fillCache fills a cache in dir with all samples of the folder except those in skip. It returns
// the version and the index.
func fillCache(t *testing.T, dir, root string, extensions []string,
	skip ...int,
) (string, *source.Index) {
	t.Helper()
	f, err := folder.Open(t.Context(), root,
		folder.Options{Extensions: extensions, IndexDir: os.Getenv("HDMLP_INDEX_DIR")})
	must(t, err)
	defer f.Close()
	index := f.Index()
	class, err := file.New(file.Options{Dir: dir, Reserve: 1, Version: version})
	must(t, err)
	opened, err := class.Open(store.Dataset{
		Fingerprint: index.Fingerprint(), Samples: index.Len(), Size: index.Size,
		About: store.About{
			Kind:       "folder",
			Path:       root,
			Extensions: index.Extensions(),
			Bytes:      index.Bytes(),
		},
	}, index.Bytes())
	must(t, err)
	for id := range index.Len() {
		if !slices.Contains(skip, id) {
			data, err := os.ReadFile(f.Path(id))
			must(t, err, opened.Put(id, data, store.Origin{Digest: digest.Of(data)}))
		}
	}
	must(t, opened.Close(), class.Close())
	return versionText(index.Fingerprint()), index
}

// notInVersion returns IDs of samples whose contents the version does not cover.
func notInVersion(index *source.Index) (ids []int) {
	covered := map[int]bool{}
	for _, e := range index.Excerpts() {
		covered[e.ID] = true
	}
	for id := range index.Len() {
		if !covered[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// rewrite changes a file in place and restores its times.
func rewrite(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	data[0] ^= 0xff
	must(t, os.WriteFile(path, data, 0o644), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// flipCopy changes a byte of the store's data at this offset.
func flipCopy(t *testing.T, dir, version string, at int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, version, "data"), os.O_RDWR, 0)
	must(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	must(t, err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b, at)
	must(t, err, f.Close())
}

// status runs a command and returns what it printed and its exit status.
func status(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	return statusOf(t, newRootCommand(), args...)
}

// quiet isolates a test from the user's configuration.
func quiet(t *testing.T) {
	t.Helper()
	for key := range hdmlpEnvironment() {
		t.Setenv(key, "")
		os.Unsetenv(key)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HDMLP_INDEX_DIR", filepath.Join(t.TempDir(), "index"))
}

func checkJSON(t *testing.T, out string) []checkView {
	t.Helper()
	var views []checkView
	must(t, json.Unmarshal([]byte(out), &views))
	for i := range views {
		views[i].Seconds = 0
	}
	return views
}

func TestCacheCheckFindsCorruptAndDifferentCopies(t *testing.T) {
	quiet(t)
	root, dir := tree(t, 200), filepath.Join(t.TempDir(), "cache")
	version, index := fillCache(t, dir, root, nil, 100, 101)
	free := notInVersion(index)
	code, out, errs := status(t, "cache", "check", dir)
	if code != 0 || errs != "" || !strings.Contains(out, "compared 198 of 200 samples") ||
		!strings.Contains(out, "          198  same") {
		t.Fatalf("status %d, %s, %s", code, out, errs)
	}
	differs, corrupt := free[3], free[20]
	pathOf := func(id int) string { return filepath.Join(root, index.Name(id)) }
	offset := int64(0)
	for id := range corrupt {
		if id != 100 && id != 101 {
			offset += index.Size(id)
		}
	}
	original, err := os.ReadFile(pathOf(differs))
	must(t, err)
	rewrite(t, pathOf(differs))
	changed, err := os.ReadFile(pathOf(differs))
	must(t, err)
	flipCopy(t, dir, version, offset)
	code, out, errs = status(t, "cache", "check", dir, "--json")
	views := checkJSON(t, out)
	if code != 1 || len(views) != 1 || !strings.Contains(errs, "2 of 198 cached samples in "+dir) {
		t.Fatalf("status %d, %s, %s", code, out, errs)
	}
	v := views[0]
	want := checkView{
		Dir: dir, Version: version, Dataset: root, Samples: 200, Held: 198, Bytes: v.Bytes,
		Same: 196, Corrupt: 1, Differ: 1,
		Findings: []finding{
			{
				Sample: differs,
				Path:   pathOf(differs),
				What:   "differs",
				Copy:   digestText(digest.Of(original)),
				Other:  digestText(digest.Of(changed)),
			},
			{
				Sample: corrupt,
				Path:   pathOf(corrupt),
				What:   "corrupt",
				Copy:   v.Findings[1].Copy,
				Other:  v.Findings[1].Other,
			},
		},
	}
	if diff := cmp.Diff(want, v); diff != "" || v.Findings[1].Copy == v.Findings[1].Other {
		t.Error(diff)
	}
	must(t, os.Chtimes(pathOf(differs), time.Unix(0, 0), time.Unix(0, 0)))
	// The version as it is now. An index that is a few seconds old need not show that a file has
	// other times, so that there is none.
	t.Setenv("HDMLP_INDEX_DIR", t.TempDir())
	rescanned, _ := fillCache(t, filepath.Join(t.TempDir(), "other"), root, nil)
	code, out, errs = status(t, "cache", "check", dir, "--fix")
	if code != 2 || !strings.Contains(errs, version) || !strings.Contains(errs, rescanned) ||
		out != "" || rescanned == version {
		t.Fatalf("another version: status %d, %s, %s", code, out, errs)
	}
}

// faultySource fails some reads.
type faultySource struct {
	source.Source
	errs map[int]error // kinds
}

func (f faultySource) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	if kind := f.errs[id]; kind != nil {
		return 0, &source.SampleError{ID: id, Path: "somewhere", Kind: kind}
	}
	return f.Source.Read(ctx, id, dst)
}

// TestCacheCheckCountsUnreadableFiles and still verifies their copies' checksums. A source that
// does not answer ends the comparison.
func TestCacheCheckCountsUnreadableFiles(t *testing.T) {
	quiet(t)
	root, dir := tree(t, 30), filepath.Join(t.TempDir(), "cache")
	version, index := fillCache(t, dir, root, nil)
	flipCopy(t, dir, version, 0)
	f, err := folder.Open(t.Context(), root, folder.Options{IndexDir: os.Getenv("HDMLP_INDEX_DIR")})
	must(t, err)
	defer f.Close()
	c, err := file.Existing(dir)
	must(t, err)
	defer c.Close()
	contents, err := c.Contents(store.Dataset{
		Fingerprint: index.Fingerprint(),
		Samples:     index.Len(),
		Size:        index.Size,
	})
	must(t, err)
	defer contents.Close()
	errs := map[int]error{0: source.ErrMissing, 3: source.ErrChanged, 4: source.ErrUnreadable}
	var progress []int
	k := &checker{
		source: faultySource{f, errs}, locate: f.Path, index: index, contents: contents,
		progress: func(done, of int) {
			if progress = append(progress, done); of != 30 {
				t.Errorf("%d of %d", done, of)
			}
		},
	}
	must(t, k.run(t.Context()))
	what := ""
	for _, f := range k.view.Findings {
		what += fmt.Sprintf("%d %s %s\n", f.Sample, f.What, f.Reason)
	}
	if want := fmt.Sprintf("0 corrupt \n3 source %v\n4 source %v\n", source.ErrChanged,
		source.ErrUnreadable); what != want {
		t.Errorf("found\n%swant\n%s", what, want)
	}
	if !slices.Equal(k.drop, []int32{0}) || k.view.Same != 27 || k.view.Unreadable != 2 ||
		progress[len(progress)-1] != 30 {
		t.Errorf("drop %v, %+v, %v", k.drop, k.view, progress)
	}
	errs[20] = source.ErrUnavailable
	if err := (&checker{
		source:   faultySource{f, errs},
		locate:   f.Path,
		index:    index,
		contents: contents,
	}).run(t.Context()); !errors.Is(err, source.ErrUnavailable) {
		t.Errorf("a source that does not answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&checker{
		source:   f,
		locate:   f.Path,
		index:    index,
		contents: contents,
	}).run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestCacheCheckFixDropsOnlyBadCopies(t *testing.T) {
	quiet(t)
	root, dir := tree(t, 200), filepath.Join(t.TempDir(), "cache")
	version, index := fillCache(t, dir, root, nil)
	flipCopy(t, dir, version, 0)
	for _, id := range notInVersion(index)[1:31] {
		rewrite(t, filepath.Join(root, index.Name(id)))
	}
	code, out, _ := status(t, "cache", "check", dir)
	if code != 1 || !strings.Contains(out, "--fix drops") ||
		strings.Count(out, "the copy differs:") != 19 ||
		!strings.Contains(out, "\n  and 11 more\n") {
		t.Fatalf("status %d, %s", code, out)
	}
	if code, out, errs := status(t, "cache", "check", dir, "--store", version[:6], "--dataset",
		root, "--fix"); code != 1 || !strings.Contains(out, "dropped 31 copies") {
		t.Fatalf("status %d, %s, %s", code, out, errs)
	}
	if code, out, errs := status(t, "cache", "check", dir); code != 0 ||
		!strings.Contains(out, "compared 169 of 200 samples") {
		t.Fatalf("status %d, %s, %s", code, out, errs)
	}
	if code, out, errs := status(t, "cache", "check", dir, "--fix"); code != 0 ||
		strings.Contains(out, "dropped") {
		t.Fatalf("status %d, %s, %s", code, out, errs)
	}
}

// TestCacheCheckComparesEachStoreWithItsDataset, with the dataset's own extensions.
func TestCacheCheckComparesEachStoreWithItsDataset(t *testing.T) {
	quiet(t)
	dir := filepath.Join(t.TempDir(), "cache")
	one := tree(t, 20)
	two := makeDataset(t, map[string]int{"c/1.npy": 10, "c/2.npy": 20, "c/3.jpg": 30})
	a, _ := fillCache(t, dir, one, nil)
	b, _ := fillCache(t, dir, two, []string{".npy"})
	code, out, errs := status(t, "cache", "check", dir, "--json")
	if views := checkJSON(t, out); code != 0 || len(views) != 2 ||
		views[0].Held+views[1].Held != 22 {
		t.Fatalf("status %d, %s, %s", code, out, errs)
	}
	if code, _, errs := status(t, "cache", "check", dir, "--dataset", one); code != 2 ||
		!strings.Contains(errs, "--store") || !strings.Contains(errs, a) ||
		!strings.Contains(errs, b) {
		t.Errorf("status %d, %s", code, errs)
	}
	code, _, errs = status(t, "cache", "check", dir, "--dataset", one, "--store", b)
	if code != 2 || !strings.Contains(errs, b) {
		t.Errorf("status %d, %s", code, errs)
	}
	if code, out, errs := status(t, "cache", "check", dir, "--dataset", two, "--store",
		a[:5]); code != 2 || !strings.Contains(errs, a) || out != "" {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	// The status of a store that differs takes precedence over one that cannot be compared; both
	// are reported.
	must(t, os.RemoveAll(one))
	flipCopy(t, dir, b, 5)
	if code, out, errs := status(t, "cache", "check", dir); code != 1 ||
		!strings.Contains(errs, one) || !strings.Contains(errs, "1 of 2 cached samples") ||
		!strings.Contains(out, "the copy is corrupt") {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	// Terminal control characters are escaped.
	description := filepath.Join(dir, a, "dataset")
	text, err := os.ReadFile(description)
	must(t, err, os.WriteFile(description,
		bytes.Replace(text, []byte(one), []byte(`/\u001b[31m\u009b\u202e`), 1), 0o600))
	for _, args := range [][]string{
		{"cache", "check", dir, "--store", a},
		{"cache", "ls", dir},
		{"cache", "ls", dir, "--json"},
		{"cache", "rm", dir},
		{"--json", "cache", "rm", dir},
	} {
		code, out, errs := status(t, args...)
		if strings.ContainsAny(out+errs, "\x1b\u009b\u202e") ||
			!strings.Contains(out+errs, "[31m") {
			t.Errorf("%q: status %d, %q, %q", args, code, out, errs)
		}
	}
	// A dataset of an unknown kind is not opened as another kind.
	must(t, os.WriteFile(description, bytes.Replace(text, []byte(`"folder"`), []byte(`"tape"`), 1),
		0o600))
	if code, _, errs := status(t, "cache", "check", dir, "--store", a); code != 2 ||
		!strings.Contains(errs, `dataset kind "tape" is not known; there are: folder`) {
		t.Errorf("status %d, %s", code, errs)
	}
	// Without a description the dataset must be given.
	must(t, os.Remove(filepath.Join(dir, b, "dataset")))
	if code, _, errs := status(t, "cache", "check", dir, "--store", b); code != 2 ||
		!strings.Contains(errs, "--dataset") {
		t.Errorf("status %d, %s", code, errs)
	}
	must(t, os.WriteFile(filepath.Join(dir, b, "index"), []byte("damaged"), 0o600))
	if code, _, errs := status(t, "cache", "ls", dir); code != 0 {
		t.Errorf("status %d, %s", code, errs)
	}
}
