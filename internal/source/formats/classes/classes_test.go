package classes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/folder"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// index returns the index of the files below a directory, by their names alone.
func index(t *testing.T, root string, extensions []string) (*source.Index, error) {
	t.Helper()
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	values := option.Values{}
	if extensions != nil {
		values[source.ExtensionsKey] = extensions
	}
	return classes.Index(t.Context(), d, nil, formats.Options{Values: values})
}

// TestItIsTheFolderThatScansFinds compares the index with that of package folder, over names that
// are sorted in odd ways.
func TestItIsTheFolderThatScansFinds(t *testing.T) {
	parts := []string{
		"a", "B", "b", "a-b", "a b", "10", "9", "\u00e9", "\u4e2d", "\xff", "\xc3", ".hidden", "a.jpg",
		"\U0001f600",
	}
	names := []string{"x.jpg", "X.JPG", "y.jpeg", "z.txt", "10.png", "9.png", "\xfe.webp", ".jpg"}
	for seed := range uint64(20) {
		draw := rand.New(rand.NewPCG(seed, 1))
		root := t.TempDir()
		for n := range 60 {
			dir := filepath.Join(root, parts[draw.IntN(len(parts))])
			for range draw.IntN(3) {
				dir = filepath.Join(dir, parts[draw.IntN(len(parts))])
			}
			if os.MkdirAll(dir, 0o755) != nil {
				continue // a file is there
			}
			name := names[draw.IntN(len(names))]
			if draw.IntN(2) == 0 {
				name = fmt.Sprintf("%d-%s", n, name)
			}
			_ = os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644) // a directory is there
		}
		must(t, os.WriteFile(filepath.Join(root, "beside.jpg"), nil, 0o644))
		extensions := [][]string{nil, {".TXT"}, {".jpg", ".png", ".txt", ".jpeg", ".webp"}}[seed%3]
		want, err := folder.Open(t.Context(), root, folder.Options{
			Extensions: extensions, IndexDir: t.TempDir(),
		})
		got, gotErr := index(t, root, extensions)
		if err != nil {
			var mine, theirs *source.Error
			if !errors.As(err, &theirs) || !errors.As(gotErr, &mine) || mine.Hint != theirs.Hint {
				t.Errorf("seed %d: %v, not %v", seed, gotErr, err)
			}
			continue
		}
		must(t, gotErr)
		x := want.Index()
		if !slices.Equal(got.Classes(), x.Classes()) || got.Len() != x.Len() ||
			got.Bytes() != x.Bytes() || !slices.Equal(got.Extensions(), x.Extensions()) {
			t.Fatalf("seed %d: %v %q, not %v %q", seed, got, got.Classes(), x, x.Classes())
		}
		for id := range x.Len() {
			if got.Name(id) != x.Name(id) || got.Label(id) != x.Label(id) || got.Size(id) != x.Size(id) {
				t.Fatalf("seed %d: sample %d is %q of class %d, not %q of %d", seed, id, got.Name(id),
					got.Label(id), x.Name(id), x.Label(id))
			}
		}
		must(t, want.Close())
	}
}

func TestNamesThatAreNoFiles(t *testing.T) {
	root := t.TempDir()
	_, err := index(t, root, nil)
	if !errors.Is(err, source.ErrNoClasses) {
		t.Error(err)
	}
	must(t, os.Mkdir(filepath.Join(root, "a"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "a", "b.txt"), nil, 0o644))
	_, err = index(t, root, nil)
	if !errors.Is(err, source.ErrEmptyClass) || !strings.Contains(err.Error(), `"a"`) {
		t.Error(err)
	}
	_, err = index(t, root, []string{})
	if !errors.Is(err, source.ErrExtensions) {
		t.Error(err)
	}
}
