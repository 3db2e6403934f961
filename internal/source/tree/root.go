// Package tree accesses the files below one directory: it opens, lists and stats them by paths
// relative to a descriptor, so that they resolve as they did when the directory was opened, and as
// they do for the process that opened it.
//
// All methods of a Root are safe for concurrent use, except that Close must be the last call. So is
// a Lister. Functions that take a NUL-terminated path do not allocate.
package tree

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Root is an open root directory, relative to which all paths are resolved.
//
// A process with another mount namespace or root directory than this one opened it itself and
// passed the descriptor. Below that descriptor the kernel follows the process's mounts, but an
// absolute symbolic link would lead to this process's files. So in such a foreign view, paths are
// first resolved without symbolic links; absolute links are resolved from the process's own "/"
// (openat2, Linux 5.6).
type Root struct {
	fd      int
	slash   int  // "/" of the process that opened the root
	foreign bool // that "/" is not this process's
	local   bool // its file system has all times without a request to a server
	path    string
	dev     uint64
	ino     uint64
}

// Open opens the folder at path as this process sees it or, if view is not nil, as the view sees
// it. The root has descriptors of its own.
func Open(path string, view *source.View) (*Root, error) {
	r := &Root{fd: -1, slash: -1, path: path}
	var err error
	if view == nil {
		r.fd, err = RetryEINTR(func() (int, error) {
			return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		})
	} else if r.fd, err = duplicate(view.Root); err == nil {
		if r.foreign, err = foreign(view.Slash); err == nil && r.foreign {
			r.slash, err = duplicate(view.Slash)
		}
	}
	var st unix.Stat_t
	if err == nil {
		st, err = StatOpen(r.fd)
	}
	if err == nil && !IsDir(&st) {
		err = unix.ENOTDIR
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	r.dev, r.ino = st.Dev, st.Ino
	var fs unix.Statfs_t
	if unix.Fstatfs(r.fd, &fs) == nil {
		r.local = slices.Contains(localFileSystems, fs.Type)
	}
	return r, nil
}

// FD returns the descriptor of the directory.
func (r *Root) FD() int { return r.fd }

// Path returns the absolute path at which the directory was opened.
func (r *Root) Path() string { return r.path }

// DirectoryID returns the device and inode of the directory.
func (r *Root) DirectoryID() (device, inode uint64) { return r.dev, r.ino }

// Foreign reports whether the directory was opened by a process with another mount namespace or
// root directory than this one.
func (r *Root) Foreign() bool { return r.foreign }

func duplicate(f *os.File) (int, error) {
	return RetryEINTR(func() (int, error) { return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3) })
}

// foreign reports whether slash is not this process's root directory, or is in another mount
// namespace.
func foreign(slash *os.File) (bool, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	own := os.NewFile(uintptr(fd), "/")
	defer own.Close() //nolint:errcheck // it was only looked at
	theirs, err := source.VantageOf(slash)
	if err != nil {
		return false, err
	}
	ours, err := source.VantageOf(own)
	return !ours.Same(theirs), err
}

// Close closes the descriptors.
func (r *Root) Close() {
	for _, fd := range []int{r.fd, r.slash} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// FileFlags open a file for reading; opening what is no regular file does not block.
const FileFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// Open opens the NUL-terminated path relative to the root. It does not allocate unless the root is
// foreign.
func (r *Root) Open(path []byte, flags int) (int, error) {
	if !r.foreign {
		return openat(r.fd, path, flags)
	}
	return r.openForeign(string(path[:len(path)-1]), flags)
}

func (r *Root) openForeign(path string, flags int) (int, error) {
	fd, err := openat2(r.fd, path, flags, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) { // a symbolic link
		fd, err = r.follow(path, flags)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) && !r.canOpenat2() {
		return -1, fmt.Errorf("the daemon runs in another container and cannot follow the "+
			"process's mounts here (openat2, Linux 5.6): "+
			"give each container a daemon of its own by another HDMLP_SOCKET: %w", unix.EXDEV)
	}
	return fd, err
}

func openat2(dir int, path string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS,
	}
	return RetryEINTR(func() (int, error) { return unix.Openat2(dir, path, &how) })
}

// mostLinks is how many symbolic links a path may have, as in the kernel.
const mostLinks = 40

// follow opens path, which has a symbolic link in it, relative to the root. It resolves path
// component by component, so that the root is the directory that was opened, whatever its path
// leads to now. After an absolute link the kernel continues from the process's "/".
func (r *Root) follow(path string, flags int) (int, error) {
	dir, err := openat2(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(dir) }()
	parts := strings.Split(path, "/")
	buffer := make([]byte, unix.PathMax)
	for links := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		if part == "" || part == "." {
			continue
		}
		n, err := RetryEINTR(func() (int, error) { return unix.Readlinkat(dir, part, buffer) })
		switch {
		case err == nil && string(buffer[:min(n, 1)]) == "/":
			return openat2(r.slash, strings.Join(append([]string{string(buffer[:n])}, parts...),
				"/"), flags, unix.RESOLVE_IN_ROOT)
		case err == nil:
			if links++; links > mostLinks {
				return -1, unix.ELOOP
			}
			parts = append(strings.Split(string(buffer[:n]), "/"), parts...)
			continue
		case !errors.Is(err, unix.EINVAL): // an error other than "not a link"
			return -1, err
		}
		if len(parts) == 0 {
			return openat2(dir, part, flags, unix.RESOLVE_NO_SYMLINKS)
		}
		if part == ".." && r.atTop(dir) {
			continue
		}
		next, err := openat2(dir, part, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return -1, err
		}
		_ = unix.Close(dir)
		dir = next
	}
	return openat2(dir, ".", flags, 0)
}

// atTop reports whether the open directory is the process's "/".
func (r *Root) atTop(dir int) bool {
	here, err := StatOpen(dir)
	top, topErr := StatOpen(r.slash)
	return err == nil && topErr == nil && here.Dev == top.Dev && here.Ino == top.Ino
}

// canOpenat2 reports whether the system call is allowed; seccomp filters forbid it with EPERM.
func (r *Root) canOpenat2() bool {
	fd, err := unix.Openat2(r.fd, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// Answers reports whether the root is still accessible. It asks the file system's server and does
// not rely on cached attributes.
func (r *Root) Answers() bool {
	var st unix.Statx_t
	err := unix.Statx(r.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_TYPE, &st)
	return !Gone(err)
}

// Directory opens the directory at path relative to the root; "" reopens the root itself.
func (r *Root) Directory(path string) (int, error) {
	if path == "" {
		return openDirectory(r.fd, path)
	}
	if r.foreign {
		return r.openForeign(path, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	return openDirectory(r.fd, path)
}

// Stat returns the status of path relative to the root. It follows symbolic links.
func (r *Root) Stat(path string) (unix.Stat_t, error) {
	if !r.foreign {
		return Stat(r.fd, path, 0)
	}
	fd, err := r.openForeign(path, unix.O_PATH)
	if err != nil {
		return unix.Stat_t{}, err
	}
	defer unix.Close(fd) //nolint:errcheck // it was only looked at
	return StatOpen(fd)
}

// FileSystem returns the type of the file system of the directory at path relative to the root.
func (r *Root) FileSystem(path string) (int64, error) {
	fd, err := r.Open(append([]byte(path), 0), unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) //nolint:errcheck // it was only looked at
	var fs unix.Statfs_t
	_, err = RetryEINTR(func() (int, error) { return 0, unix.Fstatfs(fd, &fs) })
	return fs.Type, err
}

// Statx stores the status of the file at the NUL-terminated path in st. It follows symbolic links.
func (r *Root) Statx(path []byte, st *unix.Statx_t) error {
	if !r.foreign {
		return statx(r.fd, path, 0, st)
	}
	fd, err := r.openForeign(string(path[:len(path)-1]), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // it was only looked at
	return StatxOpen(fd, st)
}

// localFileSystems are those on which fstat is cheaper than statx, although it also asks for the
// access time.
var localFileSystems = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC,
	unix.TMPFS_MAGIC, unix.F2FS_SUPER_MAGIC, unix.SQUASHFS_MAGIC,
}

// Ask stores the status of the open file fd in st.
func (r *Root) Ask(fd int, st *unix.Statx_t) error {
	if !r.local {
		return StatxOpen(fd, st)
	}
	var old unix.Stat_t
	for {
		_, _, errno := unix.Syscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&old)), 0)
		switch errno {
		case 0:
			fill(st, &old)
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// fill converts the result of fstat to that of statx.
func fill(st *unix.Statx_t, old *unix.Stat_t) {
	st.Mode = uint16(old.Mode)
	st.Ino = old.Ino
	st.Size = uint64(old.Size)
	st.Mtime = unix.StatxTimestamp{Sec: old.Mtim.Sec, Nsec: uint32(old.Mtim.Nsec)}
	st.Ctime = unix.StatxTimestamp{Sec: old.Ctim.Sec, Nsec: uint32(old.Ctim.Nsec)}
}

// stampMask selects what a stamp and a check of a file need. It omits access times, for which FUSE
// and network file systems would have to ask their server.
const stampMask = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_CTIME |
	unix.STATX_INO

var emptyPath = [1]byte{}

// StatxOpen stores the status of the open file fd in st, by statx.
func StatxOpen(fd int, st *unix.Statx_t) error {
	return statx(fd, emptyPath[:], unix.AT_EMPTY_PATH, st)
}

// statx is the system call for the NUL-terminated path relative to dir.
func statx(dir int, path []byte, flags int, st *unix.Statx_t) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir),
			uintptr(unsafe.Pointer(unsafe.SliceData(path))),
			uintptr(flags), stampMask, uintptr(unsafe.Pointer(st)), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		case unix.ENOSYS, unix.EPERM: // an old seccomp filter
			return statInstead(dir, path, flags, st)
		default:
			return errno
		}
	}
}

// statInstead implements statx with fstatat.
func statInstead(dir int, path []byte, flags int, st *unix.Statx_t) error {
	var old unix.Stat_t
	var err error
	if flags&unix.AT_EMPTY_PATH != 0 {
		old, err = StatOpen(dir)
	} else {
		old, err = Stat(dir, string(path[:len(path)-1]), flags)
	}
	if err != nil {
		return err
	}
	fill(st, &old)
	return nil
}

// Nanos returns a time in nanoseconds since 1970.
func Nanos(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// StampOf returns the stamp of a file with this status.
func StampOf(st *unix.Statx_t) source.Stamp {
	return source.NewStamp(int64(st.Size), Nanos(st.Mtime), Nanos(st.Ctime), st.Ino)
}
