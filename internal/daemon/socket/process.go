package socket

import (
	"os"

	"golang.org/x/sys/unix"
)

// WatchProcess calls ended when a process at the other end of a connection ends. The returned
// function stops watching; it is nil if the process cannot be watched, because it is in another PID
// namespace or the kernel is too old.
func WatchProcess(pid int, ended func()) (stop func()) {
	if pid <= 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		gone := false
		// The runtime's poller calls this function whenever the pidfd may be readable, which it is
		// once the process has ended.
		_ = raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(p, 0)
			gone = n > 0
			return gone
		})
		if gone {
			ended()
		}
	}()
	return func() {
		f.Close()
		<-done
	}
}
