package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// direntBytes is the size of the buffer for listing directories: some thousand entries take one
// system call and, on a network file system, few round trips.
const direntBytes = 256 << 10

// Lister lists directories. It uses Linux system calls directly, so that a directory costs one open
// and a file one fstatat, and nothing else. It is safe for concurrent use.
type Lister struct {
	buffers sync.Pool // of *[]byte
}

// NewLister returns a Lister.
func NewLister() *Lister {
	return &Lister{buffers: sync.Pool{New: func() any {
		b := make([]byte, direntBytes)
		return &b
	}}}
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Kind uint8 // unix.DT_*
}

// List returns the entries of the open directory fd except "." and "..", in no particular order.
// All names share one string. List calls begin before each system call.
func (l *Lister) List(fd int, begin func()) ([]Entry, error) {
	buffer := l.buffers.Get().(*[]byte)
	defer l.buffers.Put(buffer)
	var (
		names []byte
		ends  []int
		kinds []uint8
	)
	for {
		begin()
		n, err := RetryEINTR(func() (int, error) { return unix.Getdents(fd, *buffer) })
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		for b := (*buffer)[:n]; len(b) >= direntHeader; {
			// struct linux_dirent64: u64 inode, u64 offset, u16 length of the record, u8 type, name
			// with a terminating NUL.
			length := int(binary.NativeEndian.Uint16(b[16:]))
			if length < direntHeader || length > len(b) {
				return nil, unix.EIO
			}
			name := b[direntHeader:length]
			if end := bytes.IndexByte(name, 0); end >= 0 {
				name = name[:end]
			}
			if s := string(name); s != "." && s != ".." && s != "" {
				names = append(names, name...)
				ends = append(ends, len(names))
				kinds = append(kinds, b[18])
			}
			b = b[length:]
		}
	}
	all := string(names)
	entries := make([]Entry, len(ends))
	first := 0
	for i, end := range ends {
		entries[i] = Entry{Name: all[first:end], Kind: kinds[i]}
		first = end
	}
	return entries, nil
}

const direntHeader = 19

// Stat returns the status of path relative to fd. It follows symbolic links unless flags say
// otherwise.
func Stat(fd int, path string, flags int) (unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(fd, path, &st, flags)
		if err != unix.EINTR {
			return st, err
		}
	}
}

// StatOpen returns the status of the open file fd.
func StatOpen(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(fd, &st)
		if err != unix.EINTR {
			return st, err
		}
	}
}

// IsDir reports whether st is a directory's.
func IsDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsReg reports whether st is a regular file's.
func IsReg(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }

// IsLnk reports whether st is a symbolic link's.
func IsLnk(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// Times returns a file's mtime and ctime in nanoseconds since 1970.
func Times(st *unix.Stat_t) (modified, changed int64) {
	return st.Mtim.Nano(), st.Ctim.Nano()
}

// openDirectory opens the directory at path below relative to fd; "" reopens fd itself.
func openDirectory(fd int, below string) (int, error) {
	if below == "" {
		below = "."
	}
	return RetryEINTR(func() (int, error) {
		return unix.Openat(fd, below, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
}

// RetryEINTR calls f until its error is not EINTR.
func RetryEINTR[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}
