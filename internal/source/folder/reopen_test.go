package folder

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// TestReopenedRootHoldsTheDataset checks what is accepted at the path after the file system was
// remounted. A mount point is an empty directory between umount and mount: if that were accepted,
// all samples would be missing for good.
func TestReopenedRootHoldsTheDataset(t *testing.T) {
	const file = "a/1.jpg"
	for name, c := range map[string]struct {
		files map[string]string
		want  string // in the error; "": none
	}{
		"the same":           {map[string]string{file: "one", "b/2.jpg": "two"}, ""},
		"a file is missing":  {map[string]string{file: "one"}, ""},
		"other contents":     {map[string]string{file: "one", "b/2.jpg": "six"}, "another dataset"},
		"a bare mount point": {nil, "no file of the dataset"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "data")
			write(t, filepath.Join(root, file), "one")
			write(t, filepath.Join(root, "b/2.jpg"), "two")
			f := open(t, root, Options{})
			if err := os.Rename(root, root+".old"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(root, 0o755); err != nil {
				t.Fatal(err)
			}
			for path, content := range c.files {
				write(t, filepath.Join(root, path), content)
			}
			before := testkit.Descriptors(t, root)
			r, err := f.openAgain(t.Context(), f.root.Load())
			if err == nil {
				r.Close()
			}
			if now := testkit.Descriptors(t, root); now != before {
				t.Errorf("%d descriptors below the root, and %d before", now, before)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("got the error %v, want %q", err, c.want)
			}
		})
	}
}

// TestRootIsNotReopenedForOneFile checks that a file that is gone is an error of its own while its
// root answers.
func TestRootIsNotReopenedForOneFile(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/1.jpg"), "one")
	f := open(t, root, Options{})
	was := f.root.Load()
	if err := f.reopen(t.Context(), was, unix.ESTALE); !errors.Is(err, unix.ESTALE) {
		t.Errorf("reopened: %v", err)
	}
	if f.root.Load() != was {
		t.Error("there is another root")
	}
}
