package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// View is a dataset as one process sees it. Of a directory it is descriptors that the process
// opened itself, so that a daemon with another mount namespace or root directory reads the files
// that the process would read, and not those at the same path in its own. Of a URL it is how the
// process reaches it, with the process's own keys.
type View struct {
	Root   *os.File // the dataset's root directory, open for reading; nil: it is no directory
	Slash  *os.File // the process's "/", from which absolute symbolic links are resolved
	Access *Access  // of a URL, else nil
	// Renew makes the process open both descriptors again after a file system was remounted, or find
	// its keys again before they expire; nil if it cannot.
	Renew func(ctx context.Context) (*View, error)
}

// Vantage identifies a process's "/": processes with different mount namespaces or root directories
// have different ones. It is zero where it cannot be determined (before Linux 5.8 without /proc); a
// zero Vantage equals no other.
type Vantage struct{ mount, device, inode uint64 }

// VantageOf returns the vantage of an open "/"; zero without one.
func VantageOf(slash *os.File) (Vantage, error) {
	if slash == nil {
		return Vantage{}, nil
	}
	const mask = unix.STATX_INO | unix.STATX_MNT_ID
	var st unix.Statx_t
	err := unix.Statx(int(slash.Fd()), "", unix.AT_EMPTY_PATH, mask, &st)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM),
		err == nil && st.Mask&unix.STATX_MNT_ID == 0:
		return vantageOfOld(slash)
	case err != nil:
		return Vantage{}, fmt.Errorf("look at the root directory: %w", err)
	}
	return Vantage{st.Mnt_id, unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}, nil
}

// vantageOfOld is VantageOf for systems where statx does not report the mount or is forbidden. It
// reads the mount from /proc (Linux 3.15).
func vantageOfOld(slash *os.File) (Vantage, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", slash.Fd()))
	if err != nil {
		return Vantage{}, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(slash.Fd()), &st); err != nil {
		return Vantage{}, fmt.Errorf("look at the root directory: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); key == "mnt_id" {
			if mount, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
				return Vantage{mount, st.Dev, st.Ino}, nil
			}
		}
	}
	return Vantage{}, nil
}

// Same reports whether two vantages are known to be the same.
func (v Vantage) Same(other Vantage) bool { return v == other && v != Vantage{} }

// Keep returns the view for a job that may outlive its process, with descriptors of its own, which
// the caller must close. It returns nil for a nil View.
func (v *View) Keep() (*View, error) {
	if v == nil {
		return nil, nil
	}
	kept := &View{Access: v.Access}
	for _, f := range []struct{ from, to **os.File }{
		{&v.Root, &kept.Root}, {&v.Slash, &kept.Slash},
	} {
		if *f.from == nil {
			continue
		}
		fd, err := unix.FcntlInt((*f.from).Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			_ = kept.Close()
			return nil, fmt.Errorf("keep the view of a process: %w", err)
		}
		*f.to = os.NewFile(uintptr(fd), (*f.from).Name())
	}
	return kept, nil
}

// DirectoryID identifies the dataset's root directory; it is zero without one.
func (v *View) DirectoryID() DirectoryID {
	var st unix.Stat_t
	if v == nil || v.Root == nil || unix.Fstat(int(v.Root.Fd()), &st) != nil {
		return DirectoryID{}
	}
	return DirectoryID{st.Dev, st.Ino}
}

// DirectoryID identifies a directory; zero: it is not known.
type DirectoryID struct{ device, inode uint64 }

// Same reports whether two IDs are known to be the same directory.
func (p DirectoryID) Same(other DirectoryID) bool { return p == other && p != DirectoryID{} }

// Close closes the descriptors. It does nothing on a nil View.
func (v *View) Close() error {
	if v == nil {
		return nil
	}
	var errs []error
	for _, f := range []*os.File{v.Root, v.Slash} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
