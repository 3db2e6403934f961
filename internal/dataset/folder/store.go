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

	"github.com/hdmlp/hdmlp/internal/dataset"
)

// hiddenName is the index file's name where it lies in the folder itself.
const hiddenName = ".hdmlp-index"

// indexPlaces are the paths at which the index of root may lie, best first. Each
// set of extensions has files of its own, so that two jobs that differ in it do
// not undo each other's.
func indexPlaces(root, dir string, extensions []string) ([]string, error) {
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
		return []string{filepath.Join(absolute, elsewhere)}, nil
	}
	places := []string{filepath.Join(root, hiddenName+suffix)}
	if cache, err := os.UserCacheDir(); err == nil { // XDG_CACHE_HOME, or ~/.cache
		places = append(places, filepath.Join(cache, "hdmlp", "index", elsewhere))
	}
	return places, nil
}

func short(s string) string {
	sum := xxh3.HashString128(s).Bytes()
	return hex.EncodeToString(sum[:8])
}

// readIndex reads the first usable index of places. One that is damaged, of
// another version, or for other extensions is as good as none: it is made
// anew.
func readIndex(places, extensions []string) (*dataset.Index, string) {
	for _, place := range places {
		index, err := readIndexFile(place)
		if err == nil && slices.Equal(index.Extensions(), extensions) {
			return index, place
		}
	}
	return nil, ""
}

func readIndexFile(path string) (*dataset.Index, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w: it is no regular file", path, dataset.ErrIndex)
	}
	index, err := dataset.Decode(file, info.Size())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return index, nil
}

// writeIndex writes index to the first of places that can be written.
func writeIndex(places []string, index *dataset.Index) (string, error) {
	var errs []error
	for _, place := range places {
		err := writeIndexFile(place, index)
		if err == nil {
			return place, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// writeIndexFile replaces the file at path as a whole, or not at all.
func writeIndexFile(path string, index *dataset.Index) (err error) {
	dir := filepath.Dir(path)
	if filepath.Base(path)[0] != '.' { // beside the dataset there is a directory
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("write dataset index: %w", err)
		}
	}
	file, err := os.CreateTemp(dir, hiddenName+"-*.tmp")
	if err != nil {
		return fmt.Errorf("write dataset index: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
			err = fmt.Errorf("write dataset index %s: %w", path, err)
		}
	}()
	if err := index.Encode(file); err != nil {
		return err
	}
	// Whoever may read the dataset may read its index.
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
