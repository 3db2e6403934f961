package file

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/store"
)

const goldenVersion = "0123456789abcdef0123456789abcdef"

// described returns the description in testdata/dataset.
func described() *Description {
	return &Description{
		Format: 1, Version: goldenVersion, Kind: "folder", Path: "/data/<a> & \u00fc\x1b[31m",
		Extensions: []string{".jpg", ".npy"},
		Samples:    1_281_167, Bytes: 146_899_265_000, HDMLP: "0.1.0",
		FirstOpened: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC),
		LastOpened:  time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC),
	}
}

// TestDescriptionMatchesGoldenFile checks the layout of docs/FORMATS.md.
func TestDescriptionMatchesGoldenFile(t *testing.T) {
	got, err := described().encode()
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/dataset")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, golden) {
		t.Fatalf("the layout has changed:\n%s\n%s", got, golden)
	}
	back, err := decodeDescription(golden, goldenVersion)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(described(), back); diff != "" {
		t.Error(diff)
	}
}

func TestHostileDescriptionsAreRejected(t *testing.T) {
	golden, err := os.ReadFile("testdata/dataset")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a terminal escape as its kind":    {`"folder"`, `"\u001b]0;x\u0007"`},
		"a terminal escape as hdmlp":       {`"0.1.0"`, `"\u009b31m"`},
		"a terminal escape as extension":   {`".npy"`, `".\u001b[2J"`},
		"a long extension":                 {`.npy`, strings.Repeat("x", 65)},
		"a relative path":                  {`"/data/`, `"data/`},
		"a path of several KiB":            {`"/data/`, `"/data/` + strings.Repeat("x", 4096)},
		"NUL in its path":                  {`"/data/`, `"/data\u0000/`},
		"another format":                   {`"format": 1`, `"format": 2`},
		"another store's":                  {goldenVersion, "f" + goldenVersion[1:]},
		"a negative number of samples":     {`1281167`, `-1`},
		"too many samples":                 {`1281167`, `2147483648`},
		"a number of samples out of range": {`1281167`, `1e300`},
		"negative bytes":                   {`146899265000`, `-1`},
		"no time":                          {`2026-11-22T`, `yesterday`},
		"an unknown member":                {`"format"`, `"more": 1, "format"`},
		"something after it":               {"}\n", "} {}"},
		"not an object":                    {string(golden), `[]`},
		"nothing":                          {string(golden), ``},
		"deeply nested":                    {string(golden), strings.Repeat(`{"path":`, 30_000)},
	} {
		b := strings.Replace(string(golden), change[0], change[1], 1)
		if b == string(golden) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if d, err := decodeDescription([]byte(b), goldenVersion); err == nil {
			t.Errorf("%s: accepted: %+v", name, d)
		} else if strings.ContainsAny(err.Error(), "\x1b\x07\u009b") {
			t.Errorf("%s: %q contains terminal escapes", name, err)
		}
	}
}

// TestOpenUpdatesTheDescription: every opening rewrites the description, but keeps the time of the
// first opening; a damaged or too large description is replaced.
func TestOpenUpdatesTheDescription(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache")
	warned := ""
	ds := store.Dataset{
		Fingerprint: [16]byte{0xab}, Samples: 3, Size: func(int) int64 { return 10 },
		About: store.About{
			Kind:       "folder",
			Path:       "/data",
			Extensions: []string{".x"},
			Bytes:      30,
		},
	}
	open := func() *Description {
		t.Helper()
		c, err := New(Options{
			Dir:     path,
			Disk:    big{},
			Version: "1.2.3",
			Warn:    func(m string) { warned += m },
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Open(ds, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		existing, err := Existing(path)
		if err != nil {
			t.Fatal(err)
		}
		defer existing.Close()
		stores, err := existing.Stores()
		if err != nil || len(stores) != 1 || stores[0].Problem != nil {
			t.Fatalf("%+v, %v", stores, err)
		}
		return stores[0].Description
	}
	first := open()
	want := &Description{
		Format: 1, Version: storeName(ds.Fingerprint), Kind: "folder", Path: "/data",
		Extensions: []string{".x"}, Samples: 3, Bytes: 30,
		HDMLP: "1.2.3", FirstOpened: first.FirstOpened, LastOpened: first.FirstOpened,
	}
	if diff := cmp.Diff(want, first); diff != "" || time.Since(first.FirstOpened) > time.Hour {
		t.Error(first.FirstOpened, diff)
	}
	file := filepath.Join(path, storeName(ds.Fingerprint), descriptionName)
	first.FirstOpened = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	b, err := first.encode()
	if err := errors.Join(err, os.WriteFile(file, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	ds.About.Path = "/elsewhere"
	if again := open(); !again.FirstOpened.Equal(first.FirstOpened) || again.Path != "/elsewhere" {
		t.Errorf("opened again: %+v", again)
	}
	for _, damaged := range []string{"", "{", string(b) + strings.Repeat(" ", descriptionLimit)} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		existing, err := Existing(path)
		if err != nil {
			t.Fatal(err)
		}
		stores, err := existing.Stores()
		if err := errors.Join(err, existing.Close()); err != nil || stores[0].Problem == nil ||
			stores[0].Description != nil || stores[0].Samples != 3 {
			t.Errorf("damaged: %+v, %v", stores[0], err)
		}
		if again := open(); again.FirstOpened.Year() < 2026 {
			t.Errorf("replaced: %+v", again)
		}
	}
	// The samples can be used without it.
	ds.About.Path = "/" + strings.Repeat("\x01", descriptionLimit)
	open()
	if !strings.Contains(warned, "write the description") {
		t.Errorf("warned of %q", warned)
	}
}

func FuzzDecodeDescription(f *testing.F) {
	golden, err := os.ReadFile("testdata/dataset")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(golden[:90])
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDescription(b, goldenVersion)
		if err != nil {
			return
		}
		again, err := d.encode()
		if err != nil {
			return // years that JSON cannot represent; more escapes than in the input
		}
		back, err := decodeDescription(again, goldenVersion)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if diff := cmp.Diff(d, back); diff != "" {
			t.Fatal(diff)
		}
	})
}
