package index

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
)

// HiddenName is the index file's name in the folder itself.
const HiddenName = ".hdmlp-index"

// Locations returns the possible locations of the index of root, best first. Each set of extensions
// has its own files, so that jobs with different extensions do not overwrite each other's; nil
// means the default extensions.
func Locations(root, dir string, extensions []string) ([]Location, error) {
	suffix := ""
	if extensions != nil {
		suffix = "-" + short(strings.Join(extensions, "/"))
	}
	// The hash distinguishes roots; the name is for people.
	elsewhere := filepath.Base(root) + "-" + short(root) + suffix + ".hdmlp-index"
	if filepath.Base(root) == "/" {
		elsewhere = "root" + suffix + ".hdmlp-index"
	}
	if dir != "" {
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("index directory %s: %w", dir, err)
		}
		return []Location{{dir: absolute, name: elsewhere, given: true}}, nil
	}
	locations := []Location{{dir: root, name: HiddenName + suffix, beside: true}}
	if cache, err := os.UserCacheDir(); err == nil { // XDG_CACHE_HOME, or ~/.cache
		locations = append(locations,
			Location{dir: filepath.Join(cache, "hdmlp", "index"), name: elsewhere})
	}
	return locations, nil
}

// Elsewhere returns the possible locations of an index of root that must not be in root: dir, or
// the user's cache directory. what distinguishes it from other indexes of root.
func Elsewhere(root, dir string, what []string) ([]Location, error) {
	locations, err := Locations(root, dir, what)
	if err != nil || locations[0].given {
		return locations, err
	}
	return locations[1:], nil
}

// OfList returns the possible locations of what lies beside the index of a list of root's files, of
// a kind, with this hash, and not in root; if the hash is "", those where there is something for
// any such list.
func OfList(root, dir, kind, sum string) ([]Location, error) {
	locations, err := Elsewhere(root, dir, []string{kind})
	if err != nil {
		return nil, err
	}
	var all []Location
	for _, p := range locations {
		begin := strings.TrimSuffix(p.name, HiddenName) + "-"
		if sum != "" {
			p.name = begin + short(sum) + HiddenName
			all = append(all, p)
			continue
		}
		for _, name := range besides(p.dir, begin) {
			p.name = name
			all = append(all, p)
		}
	}
	return all, nil
}

// besides returns the names of indexes in dir that begin so, of files that lie beside them.
func besides(dir, begin string) (names []string) {
	entries, _ := os.ReadDir(dir) // if it cannot be read, there are none
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), begin); ok {
			if list, _, ok := strings.Cut(rest, HiddenName); ok {
				names = append(names, begin+list+HiddenName)
			}
		}
	}
	return slices.Compact(names)
}

func short(s string) string {
	sum := xxh3.HashString128(s).Bytes()
	return hex.EncodeToString(sum[:8])
}

// Read returns the first usable index of locations, and its path. It ignores an index that is
// damaged, of another version, or for other extensions, and calls Warn for one that is not trusted
// or too large.
func (x *Files) Read(extensions []string) (*source.Index, string) {
	for _, p := range x.Locations {
		index, err := x.read(p)
		switch {
		case err == nil && slices.Equal(index.Extensions(), extensions):
			return index, p.Path()
		case err == nil || x.Warn == nil:
			continue
		}
		var memory *source.MemoryError
		switch {
		case errors.As(err, &memory):
			x.Warn(fmt.Sprintf("the dataset's index %s is not used, and the dataset is scanned "+
				"instead: it needs %s of memory, and %s are allowed, a quarter of what "+
				"is available",
				p.Path(), human.Format(memory.Need), human.Format(memory.Limit)))
		case errors.Is(err, errDistrust):
			x.Warn(fmt.Sprintf("the dataset's index is not used, and the dataset is scanned "+
				"instead: %v", err))
		}
	}
	return nil, ""
}

// Write writes index to the first of locations that is writable, and returns its path.
func (x *Files) Write(index *source.Index) (string, error) {
	var errs []error
	for _, p := range x.Locations {
		err := x.write(p, index)
		if err == nil {
			return p.Path(), nil
		}
		errs = append(errs, err)
	}
	return "", nowhere(errs)
}

// nowhere joins the reasons why no location can be written to, in one line.
func nowhere(errs []error) (all error) {
	for i, err := range errs {
		if i == 0 {
			all = err
		} else {
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
