package folder

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestChangesInLowerLayersOfOverlaysAreSeen: a file that is added to a lower layer of an overlayfs
// does not change the times of a directory that the upper layer also has.
func TestChangesInLowerLayersOfOverlaysAreSeen(t *testing.T) {
	top := t.TempDir()
	// not every file system can be a layer
	if err := unix.Mount("hdmlp-test", top, "tmpfs", 0, ""); err != nil {
		t.Skip("cannot mount a tmpfs:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(top, unix.MNT_DETACH) })
	tr := &settled{t: t, root: filepath.Join(top, "merged"), now: newSettled(t).now}
	for _, dir := range []string{"lower", "upper/a", "work", "merged"} {
		tr.do(os.MkdirAll(filepath.Join(top, dir), 0o755))
	}
	for _, f := range []string{
		"lower/a/1.jpg", "lower/a/sub/2.jpg", "lower/b/1.jpg",
		"upper/a/note.txt",
	} {
		write(t, filepath.Join(top, f), f)
	}
	layers := "lowerdir=" + filepath.Join(top, "lower") + ",upperdir=" +
		filepath.Join(top, "upper") + ",workdir=" + filepath.Join(top, "work")
	if err := unix.Mount("hdmlp-test", tr.root, "overlay", 0, layers); err != nil {
		t.Skip("cannot mount an overlayfs:", err)
	}
	tr.open()
	f := tr.check("nothing changed", 4)
	same := f.Index().Fingerprint()

	tr.do(unix.Unmount(tr.root, 0))
	// a layer may be changed only while it is not mounted
	write(t, filepath.Join(top, "lower/a/0.jpg"), "new")
	tr.do(unix.Mount("hdmlp-test", tr.root, "overlay", 0, layers))
	if f = tr.check("a file added to the lower layer", 4); f.Index().Len() != 4 ||
		f.Index().Fingerprint() == same {
		t.Errorf("%d samples, not 4: the file added to the lower layer is not seen",
			f.Index().Len())
	}
	tr.do(unix.Unmount(tr.root, 0))

	// An overlayfs that is mounted below a root on another file system.
	tr.root = filepath.Join(top, "root")
	inner := filepath.Join(tr.root, "c")
	tr.do(os.MkdirAll(inner, 0o755))
	write(t, tr.path("plain/1.jpg"), "plain")
	tr.do(unix.Mount("hdmlp-test", inner, "overlay", 0, layers))
	defer unix.Unmount(inner, unix.MNT_DETACH) //nolint:errcheck // the tmpfs is unmounted as well
	tr.open()
	tr.check("nothing changed below", 1+4)
}
