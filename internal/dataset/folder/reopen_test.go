package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			r, err := f.openAgain(t.Context(), f.root.Load())
			if err == nil {
				r.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("got the error %v, want %q", err, c.want)
			}
		})
	}
}
