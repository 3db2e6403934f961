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

// DropCached drops an open file from the page cache, except for what is not written to the disk or
// is in use, and reports whether its first page is still in memory. Where that cannot be found out,
// it is believed to be dropped, unless the file system is one in memory.
func DropCached(fd int) (cached bool) {
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) == nil && (fs.Type == tmpfs || fs.Type == ramfs) {
		return true
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Size == 0 ||
		int(st.Uid) != os.Geteuid() && os.Geteuid() != 0 {
		return false // mincore would say of other users' files that they are in memory
	}
	page, err := unix.Mmap(fd, 0, 1, unix.PROT_READ, unix.MAP_PRIVATE) // reads nothing
	if err != nil {
		return false
	}
	defer unix.Munmap(page) //nolint:errcheck // nothing was written
	var in [1]byte
	_, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&page[0])), 1,
		uintptr(unsafe.Pointer(&in[0])))
	return failed == 0 && in[0]&1 != 0
}
