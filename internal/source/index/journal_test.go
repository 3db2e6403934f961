package index

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// journalOf opens the journal of an index in dir.
func journalOf(t *testing.T, dir, what string, most int64) *Journal {
	t.Helper()
	x := filesIn(t, dir)
	j, err := x.Journal([]byte(what), most)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func filesIn(t *testing.T, dir string) *Files {
	t.Helper()
	locations, err := Elsewhere("s3://bucket/x", dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Files{
		Root: "s3://bucket/x", RootFD: -1, Rootless: true, Locations: locations, Calls: silent{},
	}
}

// journalPath returns the path of the only journal in dir; "": there is none.
func journalPath(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	if err != nil || len(paths) > 1 {
		t.Fatal(paths, err)
	}
	return append(paths, "")[0]
}

const enough = 1 << 20

// TestWhatAJournalKeeps is there for the next attempt, up to where the file was damaged.
func TestWhatAJournalKeeps(t *testing.T) {
	names := [][16]byte{{1}, {2}, {3}}
	const second = 24 + 31 // where the second entry begins
	cut := func(d []byte) []byte { return d[:len(d)-1] }
	length := func(d []byte) []byte { d[second] ^= 0x40; return d }
	value := func(d []byte) []byte { d[second-1] ^= 1; return d }
	zeros := func(d []byte) []byte { return append(d, make([]byte, 99)...) }
	for name, c := range map[string]struct {
		damage func(data []byte) []byte
		what   string
		most   int64
		want   int // entries
	}{
		"all":                  {nil, "this", enough, 3},
		"of another index":     {nil, "that", enough, 0},
		"larger than allowed":  {nil, "this", 60, 1},
		"cut off":              {cut, "this", enough, 2},
		"a length is wrong":    {length, "this", enough, 1},
		"a byte is wrong":      {value, "this", enough, 0},
		"zeros follow":         {zeros, "this", enough, 3},
		"it is something else": {func([]byte) []byte { return []byte("hello") }, "this", enough, 0},
		"it is empty":          {func([]byte) []byte { return nil }, "this", enough, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := journalOf(t, dir, "this", enough)
			for _, name := range names {
				j.Keep(name, bytes.Repeat(name[:1], 3))
			}
			j.Close(false)
			path := journalPath(t, dir)
			data, err := os.ReadFile(path)
			if err == nil && c.damage != nil {
				err = os.WriteFile(path, c.damage(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			j = journalOf(t, dir, c.what, c.most)
			found := 0
			for i, name := range names {
				data := j.Found(name)
				if data != nil && !bytes.Equal(data, bytes.Repeat(name[:1], 3)) {
					t.Errorf("entry %d is %v", i, data)
				}
				if data != nil {
					found++
				}
			}
			if found != c.want {
				t.Errorf("%d entries are found, want %d", found, c.want)
			}
			j.Keep([16]byte{9}, []byte("more"))
			j.Close(false)
			if c.most < enough {
				return
			}
			j = journalOf(t, dir, c.what, c.most) // what is added after that is found
			if string(j.Found([16]byte{9})) != "more" {
				t.Error("what was added after the damage is not found")
			}
			j.Close(true)
			if left := journalPath(t, dir); left != "" {
				t.Errorf("%s is left", left)
			}
		})
	}
}

// TestAJournalIsLocked while an index is being made, and a waiting process does not lock the file
// that the other one removes.
func TestAJournalIsLocked(t *testing.T) {
	dir := t.TempDir()
	first := journalOf(t, dir, "this", enough)
	x := filesIn(t, dir)
	if _, err := x.Journal([]byte("this"), enough); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	if x.Touched().IsZero() {
		t.Error("the lock has no time")
	}
	first.Close(true)
	second, err := x.Journal([]byte("this"), enough)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filesIn(t, dir).Journal([]byte("this"), enough); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
	second.Close(false)
}

// TestAJournalIsBounded: what does not fit is not kept.
func TestAJournalIsBounded(t *testing.T) {
	dir := t.TempDir()
	j := journalOf(t, dir, "this", 100)
	j.Keep([16]byte{1}, make([]byte, 40))
	j.Keep([16]byte{2}, make([]byte, 40))
	j.Close(false)
	info, err := os.Stat(journalPath(t, dir))
	if err != nil || info.Size() > 100 {
		t.Error(info, err)
	}
	j = journalOf(t, dir, "this", 100)
	defer j.Close(true)
	if j.Found([16]byte{1}) == nil || j.Found([16]byte{2}) != nil {
		t.Error("the first entry fits, the second does not")
	}
}
