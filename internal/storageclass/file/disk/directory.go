package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// directory is a directory of the cache, held by its descriptor. Everything in it
// is reached by its name below that descriptor and never through a link, so that
// what was checked is what is used, whatever becomes of the path meanwhile.
//
// Nothing in a cache may be another user's: a sample with a right checksum is
// taken for the source's, and files are truncated and written. So all directories and files
// must belong to the effective user, give others no right to write, and be no links,
// symbolic or hard.
type directory struct {
	path string
	fd   int
}

// openCache opens the directory of a cache, which may be a symbolic link of ours or
// root's.
func openCache(path string) (*directory, error) {
	path = filepath.Clean(path)
	hint := "name another directory, which is then made"
	if st, err := lstat(unix.AT_FDCWD, path); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	} else if kind(&st) == unix.S_IFLNK && st.Uid != uint32(os.Geteuid()) && st.Uid != 0 {
		return nil, &storageclass.UnsafeError{
			Path: path, Hint: hint,
			Reason: fmt.Sprintf("is a symbolic link of user %d, and the daemon runs as user %d", st.Uid, os.Geteuid()),
		}
	}
	fd, err := openat(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := &directory{path, fd}
	if err := d.check(path); err != nil {
		_ = d.close()
		return nil, err
	}
	return d, nil
}

// check refuses a directory that others could have written to; cache is that of the
// whole cache.
func (d *directory) check(cache string) error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(d.fd, &st) }); err != nil {
		return &fs.PathError{Op: "stat", Path: d.path, Err: err}
	}
	return safe(&st, d.path, cache)
}

// safe refuses what belongs to another user, or what others may write to.
func safe(st *unix.Stat_t, path, cache string) error {
	e := &storageclass.UnsafeError{Path: path}
	other := fmt.Sprintf("name another directory, such as %s, which is then made", filepath.Join(cache, "hdmlp"))
	switch me := os.Geteuid(); {
	case int64(st.Uid) != int64(me):
		e.Reason = fmt.Sprintf("belongs to user %d (mode %04o), and the daemon runs as user %d: the samples in it may be forged", st.Uid, st.Mode&0o7777, me)
		e.Hint = "name another directory, which is then made, or have the owner give it to you, empty (chown, chmod 700)"
	case st.Mode&0o022 != 0 && kind(st) == unix.S_IFDIR:
		e.Reason = fmt.Sprintf("can be written to by others than its owner (user %d, mode %04o): the samples in it may be forged", st.Uid, st.Mode&0o7777)
		e.Hint = "empty it, if others may have been there, and chmod 700 it, or " + other
	case st.Mode&0o022 != 0:
		e.Reason = fmt.Sprintf("can be written to by others than its owner (user %d, mode %04o): the samples in it may be forged", st.Uid, st.Mode&0o7777)
		e.Hint = "remove it, or " + other
	case kind(st) == unix.S_IFLNK:
		e.Reason = fmt.Sprintf("is a symbolic link (of user %d), which a cache has none of", st.Uid)
		e.Hint = "remove it, or " + other
	case kind(st) != unix.S_IFDIR && kind(st) != unix.S_IFREG:
		e.Reason = fmt.Sprintf("is neither a file nor a directory (user %d, mode %07o)", st.Uid, st.Mode)
		e.Hint = "remove it, or " + other
	case kind(st) == unix.S_IFREG && st.Nlink > 1:
		e.Reason = fmt.Sprintf("has %d names (hard links; user %d, mode %04o), so that to write to it may change a file elsewhere", st.Nlink, st.Uid, st.Mode&0o7777)
		e.Hint = "remove it, or " + other
	default:
		return nil
	}
	return e
}

// checkEntry refuses the entry of this name if it is not safe, or not of the given
// kind; one that is not there is fine.
func (d *directory) checkEntry(name string, want uint32, cache string) (size int64, modified time.Time, err error) {
	st, err := lstat(d.fd, name)
	path := filepath.Join(d.path, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, time.Time{}, nil
	case err != nil:
		return 0, time.Time{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if kind(&st) == unix.S_IFLNK {
		st.Mode &^= 0o777 // a link's say nothing
	}
	if err := safe(&st, path, cache); err != nil {
		return 0, time.Time{}, err
	}
	if kind(&st) != want {
		what := "a file"
		if want == unix.S_IFDIR {
			what = "a directory"
		}
		return 0, time.Time{}, &storageclass.UnsafeError{Path: path, Reason: "is not " + what, Hint: "remove it, or name another directory, which is then made"}
	}
	return st.Size, time.Unix(st.Mtim.Unix()), nil
}

// names lists the directory.
func (d *directory) names() ([]string, error) {
	fd, err := openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close() //nolint:errcheck // it was only read
	return f.Readdirnames(-1)
}

// makeStore opens the directory of a store in the cache d, which is made if it is
// missing.
func (d *directory) makeStore(name string) (*directory, error) {
	err := retry(func() error { return unix.Mkdirat(d.fd, name, 0o700) })
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &fs.PathError{Op: "mkdir", Path: filepath.Join(d.path, name), Err: err}
	}
	return d.openStore(name)
}

// openStore opens the directory of a store in the cache d.
func (d *directory) openStore(name string) (*directory, error) {
	if _, _, err := d.checkEntry(name, unix.S_IFDIR, d.path); err != nil { // says what it is if it is not right
		return nil, err
	}
	path := filepath.Join(d.path, name)
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	s := &directory{path, fd}
	if err := s.check(d.path); err != nil {
		_ = s.close()
		return nil, err
	}
	return s, nil
}

// create opens the file of this name for reading and writing, and makes it if it is
// missing; cache is the directory of the whole cache.
func (d *directory) create(name, cache string) (*os.File, error) {
	return d.open(name, cache, unix.O_RDWR|unix.O_CREAT)
}

// open opens the file of this name; cache is the directory of the whole cache.
func (d *directory) open(name, cache string, flags int) (*os.File, error) {
	if _, _, err := d.checkEntry(name, unix.S_IFREG, cache); err != nil { // before a FIFO or device could be opened
		return nil, err
	}
	path := filepath.Join(d.path, name)
	fd, err := openat(d.fd, name, flags|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err = retry(func() error { return unix.Fstat(fd, &st) }); err == nil {
		err = safe(&st, path, cache)
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

// createNew makes the file of this name, in the place of what lies there.
func (d *directory) createNew(name string) (*os.File, error) {
	if err := d.remove(name); err != nil {
		return nil, err
	}
	path := filepath.Join(d.path, name)
	fd, err := openat(d.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// rename gives a file another name in the directory.
func (d *directory) rename(from, to string) error {
	if err := retry(func() error { return unix.Renameat(d.fd, from, d.fd, to) }); err != nil {
		return &fs.PathError{Op: "rename", Path: filepath.Join(d.path, from), Err: err}
	}
	return nil
}

// remove deletes the file of this name, if it is there; of a link, the link.
func (d *directory) remove(name string) error {
	err := retry(func() error { return unix.Unlinkat(d.fd, name, 0) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}

// removeStore deletes a store's files, the index first, and its directory if nothing
// else is in it.
func (d *directory) removeStore(name string) error {
	s, err := d.openStore(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.close() //nolint:errcheck // a directory has nothing to lose
	for _, file := range storeFiles() {
		if err := s.remove(file); err != nil {
			return err
		}
	}
	_ = unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR)
	return nil
}

// touch sets the directory's times.
func (d *directory) touch(t time.Time) {
	tv := unix.NsecToTimeval(t.UnixNano())
	_ = unix.Futimes(d.fd, []unix.Timeval{tv, tv})
}

// free gives the bytes that are free for us on the directory's disk, and all it has.
func (d *directory) free() (free, total int64, err error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd, &st) }); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", d.path, err)
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

func (d *directory) close() error { return unix.Close(d.fd) }

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// lstat asks for name below dir; of a link, for the link.
func lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// kind is the part of the mode that says what a thing is.
func kind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// retry calls f until no signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
