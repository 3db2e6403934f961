package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// keepList writes the list of a dataset's records into its store, which is being opened, unless the
// store has one of this size: datasets of one version have the same records.
func keepList(s *disk.Directory, list []byte) error {
	size, err := s.CheckFile(listName)
	if err != nil || list == nil || size == int64(len(list)) {
		return err
	}
	f, err := s.CreateNew(newList)
	if err != nil {
		return err
	}
	_, err = f.Write(list)
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.Rename(newList, listName)
	}
	if err != nil {
		_ = s.Remove(newList)
	}
	return err
}

// List returns the list of the records of a store's dataset that a process gave. It returns
// fs.ErrNotExist if the store has none.
func (c *Cache) List(fingerprint [16]byte) ([]byte, error) {
	s, err := c.dir.OpenDirectory(storeName(fingerprint))
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // a directory has nothing to lose
	f, err := s.Open(listName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	list, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return list, nil
}
