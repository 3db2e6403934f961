package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// makeDataset makes a folder of samples, from a map of class/name to size.
func makeDataset(t *testing.T, sizes map[string]int) string {
	t.Helper()
	root := t.TempDir()
	for name, size := range sizes {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, make([]byte, size), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func datasetOutput(t *testing.T, opts datasetOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := runDataset(t.Context(), opts, &out, func() {}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDatasetPrintsText(t *testing.T) {
	root := makeDataset(t, map[string]int{
		"cat/1.jpg": 3000, "cat/2.jpg": 110_000, "cat/3.jpg": 120_000, "dog/1.jpg": 100_000,
		"e\x1bl/1.jpg": 0, "e\x1bl/2.jpg": 1,
	})
	got := datasetOutput(t, datasetOptions{
		paths: []string{root}, classes: true, datasetFlags: datasetFlags{indexDir: root + ".index"},
	})
	// What differs between runs is checked separately.
	lines := strings.Split(got, "\n")
	if lines[0] != root || !strings.HasPrefix(lines[3], "  scanned      in ") ||
		!strings.HasSuffix(lines[3], "; 4 of 4 directories listed") ||
		!strings.HasPrefix(lines[4], "  index        "+root+".index/") ||
		!strings.HasPrefix(lines[5], "  fingerprint  ") {
		t.Errorf("the head is\n%s", strings.Join(lines[:6], "\n"))
	}
	want := `
  sizes        smallest 0 B, median 97.7 KiB, mean 54.2 KiB, largest 117 KiB

                 empty  1  16.7 %  ████████████
            1 B to 2 B  1  16.7 %  ████████████
            2 B to 4 B  0   0.0 %
            4 B to 8 B  0   0.0 %
           8 B to 16 B  0   0.0 %
          16 B to 32 B  0   0.0 %
          32 B to 64 B  0   0.0 %
         64 B to 128 B  0   0.0 %
        128 B to 256 B  0   0.0 %
        256 B to 512 B  0   0.0 %
        512 B to 1 KiB  0   0.0 %
        1 KiB to 2 KiB  0   0.0 %
        2 KiB to 4 KiB  1  16.7 %  ████████████
        4 KiB to 8 KiB  0   0.0 %
       8 KiB to 16 KiB  0   0.0 %
      16 KiB to 32 KiB  0   0.0 %
      32 KiB to 64 KiB  0   0.0 %
     64 KiB to 128 KiB  3  50.0 %  ████████████████████████████████████

  classes      most     3    228 KiB  cat
               fewest   1   97.7 KiB  dog

   label      samples      bytes  class
       0            3    228 KiB  cat
       1            1   97.7 KiB  dog
       2            2        1 B  "e\x1bl"
`
	if diff := cmp.Diff(want, strings.Join(lines[6:], "\n")); diff != "" {
		t.Errorf("the rest (-want +got):\n%s", diff)
	}
	again := datasetOutput(t, datasetOptions{
		paths: []string{root}, datasetFlags: datasetFlags{indexDir: root + ".index"},
	})
	if !strings.Contains(again, "  loaded       in ") ||
		!strings.Contains(again, " directories listed again\n") {
		t.Errorf("the second time:\n%s", again)
	}
	rescan := datasetOutput(t, datasetOptions{
		paths: []string{root}, rescan: true, datasetFlags: datasetFlags{indexDir: root + ".index"},
	})
	if !strings.Contains(rescan, "  scanned      in ") {
		t.Errorf("with --rescan:\n%s", rescan)
	}
}

func TestDatasetPrintsJSON(t *testing.T) {
	root := makeDataset(t, map[string]int{"cat/1.npy": 3, "dog/1.NPY": 5, "dog/2.jpg": 7})
	var got datasetView
	if err := json.Unmarshal([]byte(datasetOutput(t,
		datasetOptions{
			paths: []string{root}, json: true, classes: true,
			datasetFlags: datasetFlags{extensions: []string{".npy"}},
		})),
		&got); err != nil {
		t.Fatal(err)
	}
	if got.Root != root || got.Samples != 2 || got.Bytes != 8 || got.Classes != 2 ||
		len(got.Fingerprint) != 32 || got.Index.Loaded {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]sizeBin{{2, 4, 1}, {4, 8, 1}}, got.Sizes.Histogram); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]classView{{0, "cat", 1, 3}, {1, "dog", 1, 5}}, got.List); diff != "" {
		t.Error(diff)
	}
}

func TestDatasetTakesPaths(t *testing.T) {
	quiet(t)
	for says, args := range map[string][]string{
		"takes a directory, or one": {"dataset"},
		"name is empty":             {"dataset", ""},
	} {
		if code, out, errs := status(t, args...); code != 2 || out != "" ||
			!strings.Contains(errs, says) {
			t.Errorf("%q: status %d, %s, %s", args, code, out, errs)
		}
	}
}

// TestDatasetIndexIsWhereJobsLookForIt unless --index-dir is given, and the output names it.
func TestDatasetIndexIsWhereJobsLookForIt(t *testing.T) {
	quiet(t)
	root := makeDataset(t, map[string]int{"cat/1.jpg": 3})
	configured, given := os.Getenv("HDMLP_INDEX_DIR"), filepath.Join(t.TempDir(), "given")
	for _, c := range []struct {
		dir  string
		args []string
	}{
		{configured, nil},
		{configured, []string{"--rescan"}},
		{given, []string{"--rescan", "--index-dir", given}},
	} {
		code, out, errs := status(t, append([]string{"dataset", root}, c.args...)...)
		if entries, err := os.ReadDir(c.dir); err != nil || len(entries) != 1 || code != 0 ||
			!strings.Contains(out, filepath.Join(c.dir, entries[0].Name())) {
			t.Errorf("%q: status %d, %s, %s; %v", c.args, code, out, errs, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(root, ".hdmlp-index")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is an index in the dataset, too: %v", err)
	}
}

func TestDatasetThatCannotBeOpenedIsAnInputError(t *testing.T) {
	root := makeDataset(t, map[string]int{"cat/1.jpg": 3, "dog/1.txt": 5})
	for _, args := range [][]string{
		{},
		{root, root},
		{filepath.Join(root, "nothing")},
		{filepath.Join(root, "cat/1.jpg")},
		{root},
		{root, "--extensions", ""},
		{root, "--no-such-flag"},
		{root, "--extensions", ".txt,.jpg", "--kind", "tape"},
	} {
		cmd := newRootCommand()
		var out, errs bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SetArgs(append([]string{"dataset"}, args...))
		ran, err := cmd.ExecuteContextC(t.Context())
		if code := exitCode(ran, err); code != 2 || out.Len() > 0 ||
			!strings.HasPrefix(errs.String(), "hdmlp: ") {
			t.Errorf("%q: exit status %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}

func TestNumbersAreFormattedForPeople(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.50 KiB", 10_300: "10.1 KiB",
		110_000:       "107 KiB",
		1024*1024 - 1: "1.00 MiB", 5.5e9: "5.12 GiB", 9.999 * 1024: "10.0 KiB", 24.52: "24.5 B",
	} {
		if got := byteSize(n); got != want {
			t.Errorf("%v is %q, not %q", n, got, want)
		}
	}
	for n, want := range map[int]string{
		0:       "0",
		999:     "999",
		1000:    "1,000",
		-1000:   "-1,000",
		-100:    "-100",
		1281167: "1,281,167",
	} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
	got := ""
	for _, columns := range []float64{0, 0.01, 0.5, 1, 2.99} {
		got += fmt.Sprintf("[%s]", sizeBar(columns))
	}
	if want := "[][▏][▌][█][███]"; got != want {
		t.Errorf("bars %s, not %s", got, want)
	}
	for s, want := range map[float64]string{
		0.0001: "less than 1 ms",
		0.126:  "126 ms",
		1.556:  "1.56 s",
		75.3:   "1m15s",
	} {
		if got := seconds(s); got != want {
			t.Errorf("%v s is %q", s, got)
		}
	}
}
