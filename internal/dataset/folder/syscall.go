package folder

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The two system calls of Read, as package unix has them but for what those
// allocate: a copy of the path, a list of buffers.

// openat opens path, which ends with a zero, below dir.
func openat(dir int, path []byte, flags int) (int, error) {
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT,
		uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(path))), uintptr(flags), 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// preadv reads from fd at offset into the parts in turn.
func preadv(fd int, parts []unix.Iovec, offset int64) (int, error) {
	low := uintptr(offset)
	high := uintptr(uint64(offset) >> 32 >> (8*unsafe.Sizeof(low) - 32)) // where it takes two words
	n, _, errno := unix.Syscall6(unix.SYS_PREADV,
		uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(parts))), uintptr(len(parts)), low, high, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
