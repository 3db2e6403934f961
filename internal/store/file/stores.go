package file

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"time"

	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// storeFiles returns the files of a store, in the order in which they are removed.
func storeFiles() []string {
	return []string{
		indexName, newIndex, newDescription, newList, dataName, listName, descriptionName,
	}
}

// idleStore is a store on disk that no job has open.
type idleStore struct {
	bytes int64     // of its data file
	used  time.Time // when it was last opened
}

// Held returns how many bytes the cache in dir takes on its disk, in use or not; 0 if there is
// none.
func Held(dir string) (int64, error) {
	d, err := disk.OpenCache(disk.System{}, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer d.Close() //nolint:errcheck // it was only read
	if marked, err := d.Has(markerName); err == nil && !marked {
		return 0, nil
	}
	stores, err := scan(d)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, s := range stores {
		sum += s.bytes
	}
	return sum, nil
}

// scan finds the stores in dir; it returns an error if a directory or file of theirs is not safe.
func scan(dir *disk.Directory) (map[[16]byte]idleStore, error) {
	stores := map[[16]byte]idleStore{}
	err := eachStore(dir, func(fingerprint [16]byte, used time.Time, store *disk.Directory) error {
		s := idleStore{used: used}
		for _, file := range storeFiles() {
			size, err := store.CheckFile(file)
			if err != nil {
				return err
			}
			if file == dataName {
				s.bytes = size
			}
		}
		stores[fingerprint] = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stores, nil
}

// eachStore calls do with every store in dir and the time when it was last opened.
func eachStore(dir *disk.Directory,
	do func(fingerprint [16]byte, used time.Time, store *disk.Directory) error,
) error {
	names, err := dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		var fingerprint [16]byte
		if len(name) != 2*len(fingerprint) {
			continue
		}
		if n, err := hex.Decode(fingerprint[:], []byte(name)); err != nil ||
			n != len(fingerprint) || storeName(fingerprint) != name {
			continue
		}
		used, err := dir.CheckDirectory(name)
		if err != nil {
			return err
		}
		store, err := dir.OpenDirectory(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has been evicted
		}
		if err != nil {
			return err
		}
		err = do(fingerprint, used, store)
		_ = store.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// removeStore deletes a store's files, the index first, and its directory if nothing else is in it.
func removeStore(cache *disk.Directory, name string) error {
	s, err := cache.OpenDirectory(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // a directory has nothing to lose
	for _, file := range storeFiles() {
		if err := s.Remove(file); err != nil {
			return err
		}
	}
	cache.RemoveEmpty(name)
	return nil
}

// storeName returns the name of a store's directory.
func storeName(fingerprint [16]byte) string { return hex.EncodeToString(fingerprint[:]) }
