package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store"
)

// Directory is a directory of a cache, held by its descriptor. Everything in it is accessed by name
// relative to that descriptor and never through a link, so that what was checked is what is used,
// even if the path changes.
//
// Nothing in a cache may belong to another user: a sample with a valid checksum is trusted like the
// source, and files are truncated and written. So all directories and files must belong to the
// effective user, must not be writable by others, and must not be symbolic or hard links.
type Directory struct {
	disk  Disk
	path  string
	cache string // path of the whole cache
	fd    int
}

// OpenCache opens the directory of a cache. The path may be a symbolic link of this user's or
// root's.
func OpenCache(disk Disk, path string) (*Directory, error) {
	path = filepath.Clean(path)
	hint := "choose another directory, which is then created"
	if st, err := lstat(unix.AT_FDCWD, path); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	} else if kind(&st) == unix.S_IFLNK && st.Uid != uint32(os.Geteuid()) && st.Uid != 0 {
		return nil, &store.UnsafeError{
			Path: path, Hint: hint,
			Reason: fmt.Sprintf("is a symbolic link of user %d, and the daemon runs as user %d",
				st.Uid, os.Geteuid()),
		}
	}
	fd, err := openat(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := &Directory{disk, path, path, fd}
	if err := d.check(); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// Path returns the path of the directory when it was opened.
func (d *Directory) Path() string { return d.path }

// check refuses a directory to which others could have written.
func (d *Directory) check() error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(d.fd, &st) }); err != nil {
		return &fs.PathError{Op: "stat", Path: d.path, Err: err}
	}
	return safe(&st, d.path, d.cache)
}

// safe returns an error for a file or directory that belongs to another user or is writable by
// others.
func safe(st *unix.Stat_t, path, cache string) error {
	e := &store.UnsafeError{Path: path}
	other := fmt.Sprintf("choose another directory, such as %s, which is then created",
		filepath.Join(cache, "hdmlp"))
	switch me := os.Geteuid(); {
	case int64(st.Uid) != int64(me):
		e.Reason = fmt.Sprintf("belongs to user %d (mode %04o), and the daemon runs as user %d: "+
			"the samples in it may be forged", st.Uid, st.Mode&0o7777, me)
		e.Hint = "choose another directory, which is then created, or have the owner give it to " +
			"you empty (chown, chmod 700)"
	case st.Mode&0o022 != 0 && kind(st) == unix.S_IFDIR:
		e.Reason = fmt.Sprintf("is writable by others than its owner (user %d, mode %04o): "+
			"the samples in it may be forged", st.Uid, st.Mode&0o7777)
		e.Hint = "empty it, if others may have written to it, and chmod 700 it, or " + other
	case st.Mode&0o022 != 0:
		e.Reason = fmt.Sprintf("is writable by others than its owner (user %d, mode %04o): "+
			"the samples in it may be forged", st.Uid, st.Mode&0o7777)
		e.Hint = "remove it, or " + other
	case kind(st) == unix.S_IFLNK:
		e.Reason = fmt.Sprintf("is a symbolic link (of user %d), which is not allowed in a cache",
			st.Uid)
		e.Hint = "remove it, or " + other
	case kind(st) != unix.S_IFDIR && kind(st) != unix.S_IFREG:
		e.Reason = fmt.Sprintf("is neither a file nor a directory (user %d, mode %07o)", st.Uid,
			st.Mode)
		e.Hint = "remove it, or " + other
	case kind(st) == unix.S_IFREG && st.Nlink > 1:
		e.Reason = fmt.Sprintf("has %d names (hard links; user %d, mode %04o), so writing to it "+
			"may change a file elsewhere", st.Nlink, st.Uid, st.Mode&0o7777)
		e.Hint = "remove it, or " + other
	default:
		return nil
	}
	return e
}

// CheckFile returns the size of the file with this name; 0 if it does not exist. It returns an
// error if the entry is not safe, or not a file.
func (d *Directory) CheckFile(name string) (size int64, err error) {
	size, _, err = d.checkEntry(name, unix.S_IFREG)
	return size, err
}

// CheckDirectory is like CheckFile for a directory, and returns its modification time.
func (d *Directory) CheckDirectory(name string) (modified time.Time, err error) {
	_, modified, err = d.checkEntry(name, unix.S_IFDIR)
	return modified, err
}

// Has reports whether there is an entry with this name.
func (d *Directory) Has(name string) (bool, error) {
	_, err := lstat(d.fd, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// Is reports whether the entry with this name is the open file.
func (d *Directory) Is(name string, f File) bool {
	var open unix.Stat_t
	st, err := lstat(d.fd, name)
	return err == nil && unix.Fstat(int(f.Fd()), &open) == nil && st.Dev == open.Dev &&
		st.Ino == open.Ino
}

func (d *Directory) checkEntry(name string,
	want uint32,
) (size int64, modified time.Time, err error) {
	st, err := lstat(d.fd, name)
	path := filepath.Join(d.path, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, time.Time{}, nil
	case err != nil:
		return 0, time.Time{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if kind(&st) == unix.S_IFLNK {
		st.Mode &^= 0o777 // a link's mode has no meaning
	}
	if err := safe(&st, path, d.cache); err != nil {
		return 0, time.Time{}, err
	}
	if kind(&st) != want {
		what := "a file"
		if want == unix.S_IFDIR {
			what = "a directory"
		}
		return 0, time.Time{}, &store.UnsafeError{
			Path:   path,
			Reason: "is not " + what,
			Hint:   "remove it, or choose another directory, which is then created",
		}
	}
	return st.Size, time.Unix(st.Mtim.Unix()), nil
}

// Names returns the names of the directory's entries.
func (d *Directory) Names() ([]string, error) {
	fd, err := openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close() //nolint:errcheck // it was only read
	return f.Readdirnames(-1)
}

// Make opens the directory with this name below d, and creates it if it is missing.
func (d *Directory) Make(name string) (*Directory, error) {
	err := d.disk.Mkdir(d.fd, name)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &fs.PathError{Op: "mkdir", Path: filepath.Join(d.path, name), Err: err}
	}
	return d.OpenDirectory(name)
}

// OpenDirectory opens the directory with this name below d.
func (d *Directory) OpenDirectory(name string) (*Directory, error) {
	if _, err := d.CheckDirectory(name); err != nil { // for an error that says what is wrong
		return nil, err
	}
	path := filepath.Join(d.path, name)
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	s := &Directory{d.disk, path, d.cache, fd}
	if err := s.check(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Create opens the file with this name for reading and writing, and creates it if it is missing.
func (d *Directory) Create(name string) (File, error) {
	return d.Open(name, unix.O_RDWR|unix.O_CREAT)
}

// Open opens the file with this name, with flags of open(2).
func (d *Directory) Open(name string, flags int) (File, error) {
	if _, err := d.CheckFile(name); err != nil { // so that no FIFO or device is opened
		return nil, err
	}
	path := filepath.Join(d.path, name)
	f, err := d.disk.Open(d.fd, name, path, flags|unix.O_NOFOLLOW)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err = retry(func() error { return unix.Fstat(int(f.Fd()), &st) }); err == nil {
		err = safe(&st, path, d.cache)
	}
	if err == nil && kind(&st) != unix.S_IFREG {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// CreateNew creates the file with this name, and replaces an existing one.
func (d *Directory) CreateNew(name string) (File, error) {
	if err := d.Remove(name); err != nil {
		return nil, err
	}
	path := filepath.Join(d.path, name)
	f, err := d.disk.Open(d.fd, name, path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return f, nil
}

// Rename renames a file in the directory.
func (d *Directory) Rename(from, to string) error {
	if err := d.disk.Rename(d.fd, from, to); err != nil {
		return &fs.PathError{Op: "rename", Path: filepath.Join(d.path, from), Err: err}
	}
	return nil
}

// Remove deletes the file with this name, if it exists; for a symbolic link, the link.
func (d *Directory) Remove(name string) error {
	if err := d.disk.Remove(d.fd, name); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}

// RemoveEmpty deletes the directory with this name, if it is empty.
func (d *Directory) RemoveEmpty(name string) { _ = d.disk.RemoveDirectory(d.fd, name) }

// Sync makes the directory's entries survive a power failure.
func (d *Directory) Sync() error {
	if err := d.disk.Sync(d.fd); err != nil {
		return &fs.PathError{Op: "sync", Path: d.path, Err: err}
	}
	return nil
}

// Touch sets the directory's access and modification times.
func (d *Directory) Touch(t time.Time) {
	tv := unix.NsecToTimeval(t.UnixNano())
	_ = unix.Futimes(d.fd, []unix.Timeval{tv, tv})
}

// Free returns the bytes of the directory's disk that this user can use, and its size.
func (d *Directory) Free() (free, total int64, err error) {
	if free, total, err = d.disk.Free(d.fd); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", d.path, err)
	}
	return free, total, nil
}

// Close closes the descriptor.
func (d *Directory) Close() error { return unix.Close(d.fd) }
