package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// failing can be opened, and reading its beginning fails with EIO.
const failing = "/proc/self/mem"

// TestVersionRestsOnFilesThatWereRead has a file that fails with EIO, beside others or alone. If
// alone, the source may be down. What an index has of the file is valid only while its stamp is.
func TestVersionRestsOnFilesThatWereRead(t *testing.T) {
	held, err := os.Open(failing) // so that its times stay
	if err != nil {
		t.Skip(err)
	}
	defer held.Close() //nolint:errcheck // it was only opened
	for name, c := range map[string]struct {
		good      int  // files that can be read
		known     bool // an earlier index has the contents of all files
		rewritten bool // the file that fails was, since then
		listed    bool // the files were listed again
		want      error
		changes   bool // the version does
	}{
		"alone":                          {want: source.ErrUnavailable},
		"alone, known":                   {known: true},
		"alone, known, listed":           {known: true, listed: true},
		"alone, rewritten":               {known: true, rewritten: true, want: errOutdated},
		"alone, rewritten, listed":       {0, true, true, true, source.ErrUnavailable, false},
		"with others":                    {good: 20, changes: true},
		"with others, known":             {good: 20, known: true},
		"with others, known, listed":     {good: 20, known: true, listed: true},
		"with others, rewritten":         {20, true, true, false, errOutdated, false},
		"with others, rewritten, listed": {20, true, true, true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the time between attempts passes at once
				root := partlyFailing(t, c.good)
				before := indexOf(t, root, c.good, c.rewritten)
				now := before
				if c.listed {
					now = indexOf(t, root, c.good, false)
				}
				s := &scanner{scanConfig: scanConfig{
					root: root, calls: newMonitor(root.Path(), Options{}),
				}}
				if c.known {
					s.known = before
				}
				res, err := s.withContents(t.Context(), result{index: now})
				if !errors.Is(err, c.want) {
					t.Fatalf("got the error %v, want %v", err, c.want)
				}
				if err == nil &&
					(res.index.Fingerprint() != before.Fingerprint()) != c.changes {
					t.Errorf("the version changes: %v, want %v", !c.changes, c.changes)
				}
			})
		})
	}
}

// partlyFailing returns a folder with so many good files and one that fails.
func partlyFailing(t *testing.T, good int) *tree.Root {
	dir := t.TempDir()
	for i := range good {
		write(t, filepath.Join(dir, "a", fmt.Sprint(i)), "good")
	}
	write(t, filepath.Join(dir, "a/x"), "")
	if err := errors.Join(os.Remove(filepath.Join(dir, "a/x")),
		os.Symlink(failing, filepath.Join(dir, "a/x"))); err != nil {
		t.Fatal(err)
	}
	root, err := tree.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	return root
}

// indexOf returns the index of such a folder, with the contents of all files; if rewritten, as it
// was before the one that fails was rewritten.
func indexOf(t *testing.T, root *tree.Root, good int, rewritten bool) *source.Index {
	b := source.NewBuilder([]string{"a"}, classes.Extensions())
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Path: "a", Class: 0})
	digests := make([][16]byte, good+1)
	for i := range digests {
		name := "x"
		if i < good {
			name = fmt.Sprint(i)
		}
		digests[i] = source.ContentDigest([]byte("good"))
		var st unix.Statx_t
		if err := root.Statx([]byte("a/"+name+"\x00"), &st); err != nil {
			t.Fatal(err)
		}
		stamp := tree.StampOf(&st)
		if i == good && rewritten {
			stamp ^= 1 // another change time
		}
		b.Sample(name, int64(len("good")), tree.Nanos(st.Mtime), stamp)
	}
	index, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if index, err = index.WithContents(digests); err != nil {
		t.Fatal(err)
	}
	return index
}
