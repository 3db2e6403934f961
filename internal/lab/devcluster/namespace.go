package devcluster

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrUnsupported marks errors because privileges or parts of the kernel are missing. The message
// states which.
var ErrUnsupported = errors.New("not supported here")

// unsupported is an error that matches ErrUnsupported, without its text.
type unsupported struct{ error }

func (unsupported) Is(target error) bool { return target == ErrUnsupported }

// namespace identifies the network namespace that a thread holds, also for other processes.
type namespace struct {
	PID int `json:"pid"`
	TID int `json:"tid"`
	// Inode is the namespace's inode, which guards against reused PIDs and TIDs.
	Inode uint64 `json:"inode"`
}

// open opens the namespace if it still has the same inode; kind is "net" or "mnt".
func (n namespace) open(kind string) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/task/%d/ns/", n.PID, n.TID)
	var s unix.Stat_t
	if err := unix.Stat(dir+"net", &s); err != nil || s.Ino != n.Inode {
		return nil, fmt.Errorf("open %snet: its node is gone", dir)
	}
	f, err := os.Open(dir + kind)
	if err != nil {
		return nil, fmt.Errorf("open a node's namespace: %w", err)
	}
	return f, nil
}

// privileged returns an error that says why this process may not create namespaces; nil if it may.
func privileged() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read this process's capabilities: %w", err)
	}
	for _, c := range []struct {
		bit  uint
		name string
	}{{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}} {
		if data[0].Effective&(1<<c.bit) == 0 {
			return unsupported{fmt.Errorf("network namespaces need %s, which this process (user "+
				"%d) does not have; run it as root", c.name, os.Geteuid())}
		}
	}
	return nil
}

// unshare moves the calling thread to a new network namespace and, if there are mounts, to a new
// mount namespace that hides them from other threads.
func unshare(mounts []mount) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return kernelError("create a network namespace", "network namespaces (CONFIG_NET_NS)", err)
	}
	if len(mounts) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return kernelError("create a mount namespace", "mount namespaces", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return kernelError("make mounts private to a node", "", err)
	}
	for _, m := range mounts {
		if err := unix.Mount(m.from, m.to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return kernelError(fmt.Sprintf("mount %s at %s", m.from, m.to), "", err)
		}
	}
	return nil
}

// kernelError returns the error of an operation that needs privileges and, unless it is empty, a
// part of the kernel.
func kernelError(doing, part string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return unsupported{fmt.Errorf("%s: %w: this process lacks the privileges; it needs "+
			"CAP_NET_ADMIN and CAP_SYS_ADMIN, which containers and seccomp profiles may remove",
			doing, err)}
	case part != "" && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)):
		return unsupported{fmt.Errorf("%s: %w: this kernel has no %s", doing, err, part)}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
