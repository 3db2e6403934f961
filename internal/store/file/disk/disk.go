// Package disk stores the files of a file class: directories to which no other user could have
// written, held by their descriptors (Directory), and the operations on files in them (Disk), which
// a test or another kind of disk replaces.
//
// Safety is Directory's task, by system calls of its own whatever the Disk: it checks the owners
// and modes of directories and files before and after they are opened. A Disk performs no checks.
//
// The package is independent of samples, and keeps no state but descriptors. It is safe for
// concurrent use.
package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Disk performs what changes files and directories, and returns the free space. A directory is an
// open descriptor, names are those of its entries, and errors are the system's (unix.ENOSPC,
// unix.EIO).
type Disk interface {
	// Open is openat(2); files that it creates are accessible to their owner only. path is the
	// file's Name.
	Open(dir int, name, path string, flags int) (File, error)
	Rename(dir int, from, to string) error
	Remove(dir int, name string) error
	Mkdir(dir int, name string) error // accessible to its owner only
	RemoveDirectory(dir int, name string) error
	// Sync makes the directory's entries survive a power failure (fsync(2)).
	Sync(dir int) error
	// Free returns the bytes of the directory's disk that this user can use, and its size.
	Free(dir int) (free, total int64, err error)
}

// File is an open file; *os.File implements it. A WriteAt that fails may have written a part.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error // fsync(2)
	Stat() (fs.FileInfo, error)
	Name() string
	Fd() uintptr // for locks, and for Directory's checks
}

// Prompt is a File that can read what the operating system has in memory without waiting for the
// disk.
type Prompt interface {
	File
	// ReadNow fills p from the offset, and reports whether it could without waiting. If not, p may
	// have been written to.
	ReadNow(p []byte, offset int64) bool
}

// System is the operating system's file system. Its files are Prompt.
type System struct{}

// systemFile is a file of System.
type systemFile struct {
	*os.File
	waits atomic.Bool // its file system cannot read without waiting
}

// ReadNow implements Prompt by preadv2(2) with RWF_NOWAIT. Since Linux 5.19 that may begin to read
// what is missing, as read-ahead, but does not wait for it.
func (f *systemFile) ReadNow(p []byte, offset int64) bool {
	if f.waits.Load() {
		return false
	}
	n, err := unix.Preadv2(int(f.Fd()), [][]byte{p}, offset, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		f.waits.Store(true)
	}
	return err == nil && n == len(p)
}

// Open implements Disk.
func (System) Open(dir int, name, path string, flags int) (File, error) {
	fd, err := openat(dir, name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return &systemFile{File: os.NewFile(uintptr(fd), path)}, nil
}

// Rename implements Disk.
func (System) Rename(dir int, from, to string) error {
	return retry(func() error { return unix.Renameat(dir, from, dir, to) })
}

// Remove implements Disk.
func (System) Remove(dir int, name string) error {
	return retry(func() error { return unix.Unlinkat(dir, name, 0) })
}

// Mkdir implements Disk.
func (System) Mkdir(dir int, name string) error {
	return retry(func() error { return unix.Mkdirat(dir, name, 0o700) })
}

// RemoveDirectory implements Disk.
func (System) RemoveDirectory(dir int, name string) error {
	return retry(func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
}

// Sync implements Disk. Some file systems cannot sync a directory, and say so: it is then as
// durable as they make it.
func (System) Sync(dir int) error {
	err := retry(func() error { return unix.Fsync(dir) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// Free implements Disk.
func (System) Free(dir int) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(dir, &st) }); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// Flock locks or unlocks f (flock(2)) without waiting.
func Flock(f File, how int) error {
	return retry(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
}

// Why explains err, and names the limit of the process that caused it, if one did.
func Why(err error) string {
	var limit unix.Rlimit
	if errors.Is(err, unix.EFBIG) && unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil &&
		limit.Cur != unix.RLIM_INFINITY {
		return fmt.Sprintf("%v: RLIMIT_FSIZE allows files of %d bytes; raise it (ulimit -f) "+
			"before the daemon starts", err, limit.Cur)
	}
	return err.Error()
}

// Head reads the beginning of a file, up to 4096 bytes.
func Head(f File) []byte {
	text := make([]byte, 4096)
	n, _ := f.ReadAt(text, 0)
	return text[:n]
}

// Sparse reports whether a file has holes.
func Sparse(f File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	hole, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE)
	if _, back := unix.Seek(int(f.Fd()), 0, unix.SEEK_SET); err != nil || back != nil {
		return false
	}
	return hole < info.Size()
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// lstat returns the status of name below dir; for a symbolic link, of the link.
func lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// kind returns the file type bits of the mode.
func kind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// retry calls f until it is not interrupted by a signal.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
