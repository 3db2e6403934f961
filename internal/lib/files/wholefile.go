package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Disk performs operations on files. A directory is an open descriptor, names are those of its
// entries, and errors are the system's.
type Disk interface {
	// Open is openat(2); files that it creates are accessible to their owner only. path is the
	// file's Name.
	Open(dir int, name, path string, flags int) (File, error)
	Rename(dir int, from, to string) error
	Link(dir int, from, to string) error
	Remove(dir int, name string) error
}

// File is an open file; *os.File implements it.
type File interface {
	io.WriteCloser
	Chmod(mode fs.FileMode) error
	Sync() error
	Name() string
	Fd() uintptr // for locks
}

// Replace writes the file at path, and replaces one that is there, which may be of any kind. dir is
// the file's directory. If write returns an error, Replace returns it.
func Replace(d Disk, dir int, path string, mode fs.FileMode, write func(File) error) error {
	f, name, err := temporary(d, dir, path, mode, write)
	if err != nil {
		return err
	}
	if err = f.Close(); err == nil {
		err = d.Rename(dir, name, filepath.Base(path))
	}
	if err != nil {
		_ = d.Remove(dir, name)
	}
	return err
}

// Create is like Replace, but if there is a file at path it changes nothing and returns
// fs.ErrExist, and it returns the open file.
func Create(d Disk, dir int, path string, mode fs.FileMode, write func(File) error) (File, error) {
	f, name, err := temporary(d, dir, path, mode, write)
	if err != nil {
		return nil, err
	}
	err = d.Link(dir, name, filepath.Base(path))
	_ = d.Remove(dir, name)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// temporary returns a file with its contents on the disk, and its name until it has that of path,
// which is how errors call it.
func temporary(d Disk, dir int, path string, mode fs.FileMode, write func(File) error,
) (_ File, name string, err error) {
	name = ".hdmlp-" + rand.Text() + ".tmp"
	f, err := d.Open(dir, name, path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
	if err != nil {
		return nil, "", err
	}
	if err = write(f); err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = d.Remove(dir, name)
		return nil, "", err
	}
	return f, name, nil
}

// Write replaces the file at path on the operating system's disk.
func Write(path string, mode fs.FileMode, data []byte) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer dir.Close() //nolint:errcheck // a directory has nothing to lose
	err = Replace(System{}, int(dir.Fd()), path, mode, func(f File) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// System is the operating system's file system.
type System struct{}

// Open implements Disk.
func (System) Open(dir int, name, path string, flags int) (File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Rename implements Disk.
func (System) Rename(dir int, from, to string) error {
	return retry(func() error { return unix.Renameat(dir, from, dir, to) })
}

// Link implements Disk.
func (System) Link(dir int, from, to string) error {
	return retry(func() error { return unix.Linkat(dir, from, dir, to, 0) })
}

// Remove implements Disk.
func (System) Remove(dir int, name string) error {
	return retry(func() error { return unix.Unlinkat(dir, name, 0) })
}

// retry calls f until it is not interrupted by a signal.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
