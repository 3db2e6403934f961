package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
)

// warm runs `hdmlp cache warm --json`.
func warm(t *testing.T, want int, args ...string) (a warmAnswer, errs string) {
	t.Helper()
	code, out, errs := status(t, append([]string{"cache", "warm", "--json"}, args...)...)
	if code != want {
		t.Fatalf("%q: exit status %d, %s", args, code, errs)
	}
	if out != "" {
		must(t, json.Unmarshal([]byte(out), &a))
	}
	return a, errs
}

// TestWarmCopiesWhatIsMissing, and cache check finds the copies equal; what is there stays.
func TestWarmCopiesWhatIsMissing(t *testing.T) {
	quiet(t)
	dir := t.TempDir()
	for name, data := range map[string]string{"folder": tree(t, 40), "shards": someShards(t)} {
		cache := filepath.Join(dir, name)
		first, _ := warm(t, 0, data, "--cache", cache)
		if first.Held != first.Samples || first.Added != first.Samples || first.Full {
			t.Errorf("%s: %+v", name, first)
		}
		again, _ := warm(t, 0, data, "--cache", cache)
		if again.Added != 0 || again.Held != first.Samples {
			t.Errorf("%s again: %+v", name, again)
		}
		if code, out, errs := status(t, "cache", "check", cache); code != 0 ||
			!strings.Contains(out, "  same\n") {
			t.Errorf("%s: exit status %d, %s, %s", name, code, out, errs)
		}
	}
}

// TestWarmReplacesCopiesOfOtherFiles: of a file that was replaced since.
func TestWarmReplacesCopiesOfOtherFiles(t *testing.T) {
	quiet(t)
	data, cache := tree(t, 40), filepath.Join(t.TempDir(), "cache")
	fillCache(t, cache, data, nil, 3, 4) // of which no instance is known
	a, _ := warm(t, 0, data, "--cache", cache)
	if a.Added != 40 || a.Held != 40 {
		t.Errorf("%+v", a)
	}
}

// TestWarmKeepsToTheCapacity, and keeps the samples that a job needs first.
func TestWarmKeepsToTheCapacity(t *testing.T) {
	quiet(t)
	data, cache := tree(t, 40), filepath.Join(t.TempDir(), "cache")
	like := filepath.Join(t.TempDir(), "like")
	must(t, os.WriteFile(like, []byte("[39, 7]"), 0o644))
	a, _ := warm(t, 0, data, "--cache", cache, "--size", "1000B", "--like", like)
	if !a.Full || a.HeldSize > 1000 || a.Capacity != 1000 || a.Held == 0 {
		t.Errorf("%+v", a)
	}
	_, out, _ := status(t, "cache", "warm", data, "--cache", cache, "--size", "1000B")
	if !strings.Contains(out, "the cache is full (1000 B): a job reads the others from") {
		t.Error(out)
	}
}

// TestWarmReportsSamplesThatCannotBeRead, and copies the others.
func TestWarmReportsSamplesThatCannotBeRead(t *testing.T) {
	quiet(t)
	dir, cache := someShards(t), filepath.Join(t.TempDir(), "cache")
	last := filepath.Join(dir, "002.tar")
	was, err := os.ReadFile(last)
	must(t, err)
	at := &datasetFlags{indexDir: t.TempDir()}
	found, err := at.look(t.Context(), []string{dir})
	must(t, err)
	src, err := found.open(t.Context(), openOptions{warn: func(string) {}})
	must(t, err)
	defer src.Close()
	must(t, os.WriteFile(last, was[:len(was)-2048], 0o644))
	w := &warming{source: src, index: src.Index()}
	class, err := file.New(file.Options{Dir: cache, Reserve: 1})
	must(t, err)
	defer class.Close()
	opened, err := class.Open(storeOf(src), src.Index().Bytes())
	must(t, err)
	defer opened.Close()
	must(t, w.run(t.Context(), opened))
	if w.failed != 5 || w.added != 7 || len(opened.Held()) != 7 ||
		!strings.Contains(w.failures[0], "002.tar") {
		t.Errorf("%d failed, %d were added: %q", w.failed, w.added, w.failures)
	}
}

// storeOf returns a dataset as storage classes know it.
func storeOf(src source.Indexed) store.Dataset {
	ds, _ := catalog.Stored(&source.Spec{Kind: "test", Path: "/"}, src)
	return ds
}

// fileWith returns the path of a file with this text.
func fileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// TestWarmRefusesWrongInput with what is wrong, and what to do.
func TestWarmRefusesWrongInput(t *testing.T) {
	quiet(t)
	data, cache := tree(t, 4), filepath.Join(t.TempDir(), "cache")
	mine := t.TempDir()
	must(t, os.WriteFile(filepath.Join(mine, "mine"), nil, 0o644))
	used := filepath.Join(t.TempDir(), "used")
	class, err := file.New(file.Options{Dir: used, Reserve: 1})
	must(t, err)
	defer class.Close()
	for want, args := range map[string][]string{
		"--cache is missing":                {data},
		"takes a directory, or one file":    {"--cache", cache},
		"there is no such directory":        {data + "x", "--cache", cache},
		"its parent directory":              {data, "--cache", filepath.Join(cache, "a", "b")},
		"the directory is not empty and is": {data, "--cache", mine},
		"end the daemon with":               {data, "--cache", used},
		"cache_size":                        {data, "--cache", cache, "--size", "much"},
		"is in the directory of the":        {data, "--cache", filepath.Join(data, "cache")},
		"it is no list of IDs":              {data, "--cache", cache, "--like", fileWith(t, `["a"]`)},
		"too large for the disk of":         {data, "--cache", cache, "--size", "1000PB"},
	} {
		code, out, errs := status(t, append([]string{"cache", "warm"}, args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: exit status %d, printed %q and %q; want %q", args, code, out, errs, want)
		}
	}
}
