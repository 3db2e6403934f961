package probe

import "golang.org/x/sys/unix"

const (
	nowait = 8 // RWF_NOWAIT
	tmpfs  = 0x01021994
	ramfs  = 0x858458f6
)

// DropCached drops an open file from the page cache, except for what is not written to the disk or
// is in use, and reports whether its first byte is still in memory. A file system that cannot say so
// is believed to have dropped it, unless it is one in memory.
func DropCached(fd int) (cached bool) {
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	var one [1]byte
	n, err := unix.Preadv2(fd, [][]byte{one[:]}, 0, nowait)
	if err == nil {
		return n > 0
	}
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && (st.Type == tmpfs || st.Type == ramfs)
}
