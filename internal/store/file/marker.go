package file

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// Another process may lock the marker briefly, to see whether the cache is in use (Existing). So
// the lock is retried before the directory counts as in use.
const (
	lockAttempts = 20
	lockPause    = 10 * time.Millisecond
)

// takeDirectory creates, checks, marks and locks the directory.
func (c *Class) takeDirectory() (err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	if c.dir, err = disk.OpenCache(c.Disk, c.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = c.dir.Close()
		}
	}()
	other, err := contents(c.dir)
	if err != nil {
		return err
	}
	marker, err := c.dir.Create(markerName)
	if err != nil {
		return err
	}
	err = lockMarker(marker, other != "")
	if err == nil && other == "" {
		// A power failure must not leave what is created next without a marker: the directory would
		// be refused from then on.
		err = errors.Join(marker.Sync(), c.dir.Sync())
	}
	if err != nil {
		_ = marker.Close()
		return err
	}
	c.marker = marker
	return nil
}

// contents returns the name of an entry of the directory besides its marker; "" if there is none.
// Its error is ErrNotOurs if there are entries without a marker.
func contents(dir *disk.Directory) (other string, err error) {
	names, err := dir.Names()
	if err != nil {
		return "", err
	}
	marked := false
	for _, name := range names {
		switch name {
		case markerName:
			marked = true
		case "lost+found":
		default:
			other = name
		}
	}
	if other != "" && !marked {
		return "", fmt.Errorf("%w: it contains %q; choose a directory that does not exist yet",
			ErrNotOurs, other)
	}
	return other, nil
}

// Check returns ErrNotOurs if a directory holds something else than a cache. Other errors are left
// to New.
func Check(dir string) error {
	d, err := disk.OpenCache(disk.System{}, dir)
	if err != nil {
		return nil
	}
	defer d.Close() //nolint:errcheck // it was only read
	if _, err := contents(d); errors.Is(err, ErrNotOurs) {
		return err
	}
	return nil
}

// lockMarker locks the marker, checks its contents, and writes this process's ID into it.
// hasContents reports whether the directory has other contents. If it has none, a marker that is
// empty or does not begin like one was left by a process that was killed, or a power failure, while
// the marker was created.
func lockMarker(marker disk.File, hasContents bool) error {
	err := disk.Flock(marker, unix.LOCK_EX)
	for attempt := 1; errors.Is(err, unix.EWOULDBLOCK) && attempt < lockAttempts; attempt++ {
		time.Sleep(lockPause)
		err = disk.Flock(marker, unix.LOCK_EX)
	}
	text := disk.Head(marker)
	n := len(text)
	var st unix.Stat_t
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return inUse(marker.Name(), markerPID(text))
	case err == nil && unix.Fstat(int(marker.Fd()), &st) == nil && st.Nlink == 0:
		return fmt.Errorf("%w: it is being removed by `hdmlp cache rm`; try again", ErrInUse)
	case err != nil:
		return fmt.Errorf("lock %s: %w", marker.Name(), err)
	case !hasContents && !bytes.HasPrefix(text, []byte(markerName+" ")):
	case n == 0:
		return fmt.Errorf("%w: %s is empty", ErrNotOurs, markerName)
	case !bytes.HasPrefix(text, []byte(markerVersion)):
		line, _, _ := bytes.Cut(text[:min(n, 80)], []byte("\n"))
		return fmt.Errorf("%w of this version: %s contains %q, not %q", ErrNotOurs, markerName,
			line, markerVersion[:len(markerVersion)-1])
	}
	mine := fmt.Appendf(nil, "%s%10d\n", markerText, os.Getpid())
	if _, err := marker.WriteAt(mine, 0); err != nil {
		return err
	}
	return marker.Truncate(int64(len(mine)))
}

// inUse returns the error for a marker that another process has locked.
func inUse(marker, pid string) error {
	if pid != UnknownPID {
		return fmt.Errorf("%w by process %s", ErrInUse, pid)
	}
	// A daemon writes its ID as soon as it has the lock.
	return fmt.Errorf("%w: a process has locked %s, which does not say which one, because its "+
		"contents were removed meanwhile: end the daemon that uses the directory, which "+
		"`fuser -v %[2]s` names, or choose another directory", ErrInUse, marker)
}

// UnknownPID is the ID of a process that a marker does not name.
const UnknownPID = "unknown"

// markerPID returns the ID of the process that a marker names, or UnknownPID.
func markerPID(text []byte) string {
	if _, after, ok := bytes.Cut(text, []byte("\npid ")); ok {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(after))); err == nil {
			return strconv.Itoa(pid)
		}
	}
	return UnknownPID
}
