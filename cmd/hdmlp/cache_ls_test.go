package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/store/file"
)

func TestTerminalControlCharactersAreEscaped(t *testing.T) {
	text := "a\tb\n\x1b[1m \u009b \u202e \xff \U000e0001 \u00fc \U0001f600"
	if got, want := human.Text(text),
		"a\tb\n"+`\x1b[1m \u009b \u202e \xff \U000e0001 `+"\u00fc \U0001f600"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	var out bytes.Buffer
	var back string
	valid := strings.ReplaceAll(text, "\xff", "")
	must(t, printJSON(&out, valid), json.Unmarshal(out.Bytes(), &back))
	if back != valid || strings.ContainsAny(out.String(), "\x1b\u009b\u202e\U000e0001") {
		t.Errorf("%q, not %q, in %s", back, valid, out.String())
	}
}

func TestCacheLsListsStores(t *testing.T) {
	quiet(t)
	root, dir := tree(t, 20), filepath.Join(t.TempDir(), "cache")
	version, index := fillCache(t, dir, root, nil, 3, 4, 5)
	must(t, os.Chtimes(filepath.Join(dir, version), time.Unix(0, 0), time.Unix(1_800_000_000, 0)))
	var out bytes.Buffer
	missing := filepath.Join(t.TempDir(), "missing")
	must(t, runCacheLs(cacheLsOptions{
		dirs:       []string{dir, missing},
		configured: true,
		location:   time.UTC,
	}, &out))
	held := index.Bytes() - index.Size(3) - index.Size(4) - index.Size(5)
	want := fmt.Sprintf(`%s: 1 store, %s

  version        samples      bytes  last used         dataset
  %s  17 of 20   %s  2027-01-15 08:00  %s

%s: nothing is cached yet; the directory does not exist
`, dir, byteSize(float64(held)), version[:12], byteSize(float64(held)), root, missing)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	var views []cacheView
	code, text, _ := status(t, "cache", "ls", dir, "--json")
	must(t, json.Unmarshal([]byte(text), &views))
	if code != 0 || len(views) != 1 || views[0].InUse || views[0].Bytes != held ||
		len(views[0].Stores) != 1 ||
		views[0].Stores[0].Version != version || views[0].Stores[0].Description.Path != root {
		t.Errorf("%s", text)
	}
	// Without arguments, the directories of the configuration.
	if code, _, errs := status(t, "cache", "ls"); code != 2 ||
		!strings.Contains(errs, "no cache directory is configured") {
		t.Errorf("status %d, %s", code, errs)
	}
	if code, _, errs := status(t, "cache", "ls", "/dev/null"); code != 2 ||
		!strings.Contains(errs, "/dev/null is not a directory") {
		t.Errorf("a file: status %d, %s", code, errs)
	}
	t.Setenv("HDMLP_CACHE_DIR", dir)
	if code, out, errs := status(t, "cache", "ls"); code != 0 ||
		!strings.Contains(out, version[:12]) {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	class, err := file.New(file.Options{Dir: dir, Reserve: 1})
	must(t, err)
	defer class.Close()
	if code, out, errs := status(t, "cache", "ls"); code != 0 ||
		!strings.Contains(out, fmt.Sprintf("in use by process %d", os.Getpid())) {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	for _, args := range [][]string{{"check", dir}, {"rm", dir, "--all", "--yes"}} {
		code, out, errs := status(t, append([]string{"cache"}, args...)...)
		if code != 2 || out != "" ||
			!strings.Contains(errs, fmt.Sprintf("process %d", os.Getpid())) ||
			!strings.Contains(errs, "hdmlp stop") {
			t.Errorf("%q: status %d, %s, %s", args, code, out, errs)
		}
	}
}

// TestCacheCommandsRejectOtherDirectories and leave them unchanged.
func TestCacheCommandsRejectOtherDirectories(t *testing.T) {
	quiet(t)
	root, dir := tree(t, 4), filepath.Join(t.TempDir(), "cache")
	version, _ := fillCache(t, dir, root, nil)
	foreign := t.TempDir()
	must(t, os.WriteFile(filepath.Join(foreign, "precious"), nil, 0o600))
	unsafe := filepath.Join(t.TempDir(), "unsafe")
	fillCache(t, unsafe, root, nil)
	must(t, os.Chmod(unsafe, 0o777))
	before := listAll(t, dir, foreign, unsafe)
	for _, args := range [][]string{
		{"nothing"},
		{"ls", foreign},
		{"ls", filepath.Join(dir, "missing")},
		{"ls", unsafe},
		{"check"},
		{"check", dir, dir},
		{"check", foreign},
		{"check", filepath.Join(dir, "missing")},
		{"check", unsafe},
		{"check", dir, "--store", "zz"},
		{"check", dir, "--dataset", filepath.Join(root, "missing")},
		{"rm"},
		{"rm", dir},
		{"rm", dir, "--yes"},
		{"rm", dir, "--all"}, // standard input is not a terminal
		{"rm", dir, "--all", "--store", version, "--yes"},
		{"rm", dir, "--store", "zz", "--yes"},
		{"rm", foreign, "--all", "--yes"},
		{"rm", filepath.Join(dir, "missing"), "--all", "--yes"},
		{"rm", unsafe, "--all", "--yes"},
	} {
		code, out, errs := status(t, append([]string{"cache"}, args...)...)
		if code != 2 || out != "" || !strings.HasPrefix(errs, "hdmlp: ") {
			t.Errorf("%q: status %d, %q, %q", args, code, out, errs)
		}
	}
	if diff := cmp.Diff(before, listAll(t, dir, foreign, unsafe)); diff != "" {
		t.Error(diff)
	}
	if _, _, errs := status(t, "cache", "rm", dir); !strings.Contains(errs, version) ||
		!strings.Contains(errs, root) {
		t.Errorf("the stores are not listed: %s", errs)
	}
}
