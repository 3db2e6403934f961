package folder

import (
	"bytes"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// direntBytes is the size of the buffer into which directories are listed: one
// system call, and on a network file system few round trips, for some thousand
// entries.
const direntBytes = 256 << 10

// lister lists directories and asks for files; it is Linux's own, so that a
// directory costs one open and a file one fstatat, nothing else.
type lister struct {
	buffers sync.Pool // of *[]byte
}

func newLister() *lister {
	return &lister{buffers: sync.Pool{New: func() any {
		b := make([]byte, direntBytes)
		return &b
	}}}
}

// dirent is one name in a directory.
type dirent struct {
	name string
	kind uint8 // unix.DT_*
}

// list gives what is in the open directory fd, without "." and "..", in no
// particular order. All names share one string. begin is called before each
// system call.
func (l *lister) list(fd int, begin func()) ([]dirent, error) {
	buffer := l.buffers.Get().(*[]byte)
	defer l.buffers.Put(buffer)
	var (
		names []byte
		ends  []int
		kinds []uint8
	)
	for {
		begin()
		n, err := retryEINTR(func() (int, error) { return unix.Getdents(fd, *buffer) })
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		for b := (*buffer)[:n]; len(b) >= direntHeader; {
			// struct linux_dirent64: u64 inode, u64 offset, u16 length of
			// the record, u8 type, name with a zero behind it.
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
	entries := make([]dirent, len(ends))
	first := 0
	for i, end := range ends {
		entries[i] = dirent{name: all[first:end], kind: kinds[i]}
		first = end
	}
	return entries, nil
}

const direntHeader = 19

// stat asks for path below fd, following symbolic links unless flags say
// otherwise.
func stat(fd int, path string, flags int) (unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(fd, path, &st, flags)
		if err != unix.EINTR {
			return st, err
		}
	}
}

// statOpen asks for the open file fd.
func statOpen(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(fd, &st)
		if err != unix.EINTR {
			return st, err
		}
	}
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
func isReg(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }
func isLnk(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// times are a file's mtime and ctime in nanoseconds since 1970.
func times(st *unix.Stat_t) (modified, changed int64) {
	return st.Mtim.Nano(), st.Ctim.Nano()
}

// openDirectory opens the directory at path below fd; "" is fd itself, opened
// anew.
func openDirectory(fd int, below string) (int, error) {
	if below == "" {
		below = "."
	}
	return retryEINTR(func() (int, error) {
		return unix.Openat(fd, below, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
}
