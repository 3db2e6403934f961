package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
)

// TestLinksBelowForeignRootResolveInItsView: the "/" of the other process's view is a directory
// here.
func TestLinksBelowForeignRootResolveInItsView(t *testing.T) {
	top := t.TempDir()
	for _, f := range []string{"data/a/1.jpg", "data/b/2.jpg", "store/3.jpg", "outside.jpg"} {
		write(t, filepath.Join(top, f), f)
	}
	for link, to := range map[string]string{
		"data/a/same.jpg":      "1.jpg",
		"data/a/next.jpg":      "../b/2.jpg",
		"data/c":               "/store",
		"data/d":               "../store",
		"data/e":               "c",
		"data/a/deep.jpg":      "../e/3.jpg",
		"data/above.jpg":       "../../../../outside.jpg",
		"data/a/absolute.jpg":  "/data/b/2.jpg",
		"data/a/loop.jpg":      "loop.jpg",
		"data/a/nowhere.jpg":   "/etc/hostname-of-nobody",
		"data/a/of-system.jpg": "/proc/version",
	} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	r := &Root{fd: open(filepath.Join(top, "data")), slash: open(top), foreign: true, path: "/data"}
	defer r.Close()
	if !r.canOpenat2() {
		t.Skip("openat2 is not allowed here")
	}
	// Another dataset is now at the root's path.
	if err := os.Rename(filepath.Join(top, "data"), filepath.Join(top, "moved")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(top, "data/a/1.jpg"), "another")
	write(t, filepath.Join(top, "data/b/2.jpg"), "another")
	for path, want := range map[string]string{
		"a/1.jpg": "data/a/1.jpg", "a/same.jpg": "data/a/1.jpg", "a/next.jpg": "data/b/2.jpg",
		"c/3.jpg": "store/3.jpg", "d/3.jpg": "store/3.jpg",
		"e/3.jpg": "store/3.jpg", "a/deep.jpg": "store/3.jpg", "above.jpg": "outside.jpg",
		"a/absolute.jpg": "another",
	} {
		fd, err := r.Open(append([]byte(path), 0), unix.O_RDONLY|unix.O_CLOEXEC)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		got := make([]byte, 100)
		n, _ := unix.Read(fd, got)
		_ = unix.Close(fd)
		if string(got[:n]) != want {
			t.Errorf("%s has %q, want %q", path, got[:n], want)
		}
		if st, err := r.Stat(path); err != nil || !IsReg(&st) || st.Size != int64(len(want)) {
			t.Errorf("stat %s: %d bytes, %v", path, st.Size, err)
		}
	}
	for path, want := range map[string]error{
		"a/loop.jpg": unix.ELOOP, "a/nowhere.jpg": unix.ENOENT, "a/of-system.jpg": unix.ENOENT,
		"a/none.jpg": unix.ENOENT, "a/1.jpg/x": unix.ENOTDIR,
	} {
		if fd, err := r.Open(append([]byte(path), 0), unix.O_RDONLY|unix.O_CLOEXEC); !errors.Is(err,
			want) {
			t.Errorf("%s: %d, %v, want %v", path, fd, err, want)
		}
	}
	if fd, err := r.Directory("c"); err != nil {
		t.Error(err)
	} else {
		_ = unix.Close(fd)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGone checks which errors mean that a file system has gone, and not only a file.
func TestGone(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ENOTCONN: true, unix.ESTALE: true, unix.ENODEV: true, unix.ENOENT: false,
		unix.EIO: false, &os.PathError{Op: "open", Path: "a", Err: unix.ESTALE}: true,
	} {
		if Gone(err) != want {
			t.Errorf("%v: %v, want %v", err, !want, want)
		}
	}
}

func TestKindOfErrno(t *testing.T) {
	for kind, errnos := range map[error][]unix.Errno{
		source.ErrMissing: {unix.ENOENT, unix.ENOTDIR},
		source.ErrUnreadable: {
			unix.EACCES, unix.EPERM, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG,
			unix.ESPIPE, unix.EINVAL,
		},
		source.ErrUnavailable: {
			unix.EIO, unix.ESTALE, unix.ETIMEDOUT, unix.EINTR, unix.EAGAIN, unix.ENETDOWN,
			unix.ENETUNREACH,
			unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENOTCONN, unix.ECONNREFUSED, unix.ECONNRESET,
			unix.EREMOTEIO,
			unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EBUSY,
		},
	} {
		for _, errno := range errnos {
			if got := Kind(errno); got != kind {
				t.Errorf("%v is %q, not %q", errno, got, kind)
			}
		}
	}
}
