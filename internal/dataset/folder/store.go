package folder

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/dataset"
)

// hiddenName is the index file's name where it lies in the folder itself.
const hiddenName = ".hdmlp-index"

// indexPlaces are the paths at which the index of root may lie, best first. Each
// set of extensions has files of its own, so that two jobs that differ in it do
// not undo each other's.
func indexPlaces(root, dir string, extensions []string) ([]place, error) {
	suffix := ""
	if !slices.Equal(extensions, Extensions()) {
		suffix = "-" + short(strings.Join(extensions, "/"))
	}
	// The hash tells roots apart, the name is for people.
	elsewhere := filepath.Base(root) + "-" + short(root) + suffix + ".hdmlp-index"
	if filepath.Base(root) == "/" {
		elsewhere = "root" + suffix + ".hdmlp-index"
	}
	if dir != "" {
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("index directory %s: %w", dir, err)
		}
		return []place{{dir: absolute, name: elsewhere}}, nil
	}
	places := []place{{dir: root, name: hiddenName + suffix, beside: true}}
	if cache, err := os.UserCacheDir(); err == nil { // XDG_CACHE_HOME, or ~/.cache
		places = append(places, place{dir: filepath.Join(cache, "hdmlp", "index"), name: elsewhere})
	}
	return places, nil
}

func short(s string) string {
	sum := xxh3.HashString128(s).Bytes()
	return hex.EncodeToString(sum[:8])
}

// readFirst reads the first usable index of places. One that is damaged, of
// another version, or for other extensions is as good as none: it is made
// anew. One that is refused although it may be an index is told of.
func (x *indexFiles) readFirst(extensions []string) (*dataset.Index, string) {
	for _, p := range x.places {
		index, err := x.read(p)
		switch {
		case err == nil && slices.Equal(index.Extensions(), extensions):
			return index, p.path()
		case err == nil || x.opts.Warn == nil:
			continue
		}
		var memory *dataset.MemoryError
		switch {
		case errors.As(err, &memory):
			x.opts.Warn(fmt.Sprintf("the dataset's index %s is not used, and the dataset is scanned instead: it takes %s of memory, and %s are allowed, a quarter of what is available",
				p.path(), size.Format(memory.Need), size.Format(memory.Limit)))
		case errors.Is(err, errDistrust):
			x.opts.Warn(fmt.Sprintf("the dataset's index is not used, and the dataset is scanned instead: %v", err))
		}
	}
	return nil, ""
}

// writeFirst writes index to the first of places that can be written.
func (x *indexFiles) writeFirst(index *dataset.Index) (string, error) {
	var errs []error
	for _, p := range x.places {
		err := x.write(p, index)
		if err == nil {
			return p.path(), nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
