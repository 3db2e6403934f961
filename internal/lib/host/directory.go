package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Directory returns an error if path is not a directory and cannot become one by creating its last
// component alone. More is not created, because a missing parent is usually misspelt or on a file
// system that is not mounted. Other errors are left to the code that opens the directory.
func Directory(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return errors.New("it is not a directory; name a directory, or a path at which one " +
			"can be created")
	case errors.Is(err, unix.ENOTDIR):
		return errors.New("a part of the path is not a directory; correct the path")
	case !errors.Is(err, fs.ErrNotExist):
		return nil
	}
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its parent directory %s does not exist; correct the path, mount its "+
			"file system, or create the parent", parent)
	}
	return nil
}
