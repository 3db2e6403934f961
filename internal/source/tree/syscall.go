package tree

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// openat opens the NUL-terminated path relative to dir. Unlike unix.Openat it does not allocate a
// copy of the path.
func openat(dir int, path []byte, flags int) (int, error) {
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT,
		uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(path))), uintptr(flags), 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
