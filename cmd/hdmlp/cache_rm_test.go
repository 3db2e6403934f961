package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func listAll(t *testing.T, roots ...string) (names []string) {
	t.Helper()
	for _, root := range roots {
		must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			names = append(names, path)
			return err
		}))
	}
	return names
}

func TestCacheRmRemovesStoresAndKeepsOtherFiles(t *testing.T) {
	quiet(t)
	dir := filepath.Join(t.TempDir(), "cache")
	a, _ := fillCache(t, dir, tree(t, 6), nil)
	b, _ := fillCache(t, dir, tree(t, 8), nil)
	theirs := filepath.Join(dir, b, "theirs")
	must(t, os.WriteFile(theirs, nil, 0o600))
	var out bytes.Buffer
	asked := ""
	answer := func(yes bool) func(context.Context, string) (bool, error) {
		return func(_ context.Context, question string) (bool, error) {
			asked = question
			return yes, nil
		}
	}
	before := listAll(t, dir)
	if err := runCacheRm(t.Context(), cacheRmOptions{dir: dir, store: a, confirm: answer(false)},
		&out); err == nil || !strings.Contains(asked, a) {
		t.Errorf("asked %q, %v", asked, err)
	}
	if diff := cmp.Diff(before, listAll(t, dir)); diff != "" {
		t.Error(diff)
	}
	must(t, runCacheRm(t.Context(), cacheRmOptions{dir: dir, store: a[:8], confirm: answer(true)},
		&out))
	if !strings.HasPrefix(out.String(), "removed 1 store, ") {
		t.Error(out.String())
	}
	if _, err := os.Lstat(filepath.Join(dir, a)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", a, err)
	}
	code, text, errs := status(t, "cache", "rm", dir, "--all", "--yes", "--json")
	var v removedView
	must(t, json.Unmarshal([]byte(text), &v))
	if code != 0 || !slices.Equal(v.Removed, []string{b}) ||
		!slices.Equal(v.Kept, []string{filepath.Dir(theirs)}) {
		t.Errorf("status %d, %s, %s", code, text, errs)
	}
	if diff := cmp.Diff([]string{dir, filepath.Dir(theirs), theirs}, listAll(t, dir)); diff != "" {
		t.Error(diff)
	}
}
