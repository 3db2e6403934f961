package host

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	tmpfs = 0x01021994
	ramfs = 0x858458f6
)

// DropCached drops a range of an open file from the page cache, except for what is not written to
// the disk or is in use, and reports whether its first page is still in memory. Where that cannot
// be found out, it is believed to be dropped, unless the file system is one in memory. A length of
// 0 means to the end of the file.
//
// The kernel keeps several pages together, and drops them only if the range has all of them: the
// whole file is dropped if the range alone cannot be.
func DropCached(fd int, offset, length int64) (cached bool) {
	page := int64(os.Getpagesize())
	first := offset &^ (page - 1)
	if length > 0 { // only whole pages are dropped
		length = (offset+length+page-1)&^(page-1) - first
	}
	_ = unix.Fadvise(fd, first, length, unix.FADV_DONTNEED)
	if !resident(fd, first) && (length == 0 || !resident(fd, first+length-page)) {
		return false
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	return resident(fd, first)
}

// resident reports whether the page at an offset of a file is in memory, as far as this process may
// know.
func resident(fd int, first int64) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) == nil && (fs.Type == tmpfs || fs.Type == ramfs) {
		return true
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Size <= first ||
		int(st.Uid) != os.Geteuid() && os.Geteuid() != 0 {
		return false // mincore would say of other users' files that they are in memory
	}
	page, err := unix.Mmap(fd, first, 1, unix.PROT_READ, unix.MAP_PRIVATE) // reads nothing
	if err != nil {
		return false
	}
	defer unix.Munmap(page) //nolint:errcheck // nothing was written
	var in [1]byte
	_, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&page[0])), 1,
		uintptr(unsafe.Pointer(&in[0])))
	return failed == 0 && in[0]&1 != 0
}
