// Package index stores the index of a folder in a file: next to the samples or, if that is not
// writable, elsewhere. It determines the paths of such files, reads them as untrusted input, and
// writes them atomically. The contents of an index are package source's concern.
//
// A Files is not safe for concurrent use.
package index

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// An index file comes with the dataset, which may be untrusted, so it is opened defensively:
// relative to a descriptor of its directory, without following a link, without blocking (a FIFO),
// and only if it is a regular file whose bytes are stored. The permissions of the dataset's
// directory determine which owners are trusted: a user who may replace samples does not need a
// forged index.

// errDistrust means that the index file must not be used, whatever it holds.
var errDistrust = errors.New("it is not trusted")

// Location is a possible location of an index file.
type Location struct {
	dir, name string
	beside    bool // in the dataset's root itself
	given     bool // the user's choice, of which only the last component is created
}

// Path returns the file's path.
func (p Location) Path() string { return filepath.Join(p.dir, p.name) }

// Remove removes the index file at p. A file that cannot be removed is found outdated again at the
// next start.
func (p Location) Remove(rootFD int) {
	if p.beside {
		_ = unix.Unlinkat(rootFD, p.name, 0)
		return
	}
	_ = os.Remove(p.Path())
}

// Files reads and writes the index files of one folder.
type Files struct {
	Root      string
	RootFD    int  // descriptor of Root
	Rootless  bool // Root is no directory, and no location is in it
	Locations []Location
	Memory    func() (int64, error) // available memory in bytes; nil: no limit
	// called with the reason if an existing index file is not used; may be nil
	Warn  func(text string)
	Calls Calls
	Disk  files.Disk // writes; nil: the operating system's
}

// Calls monitors system calls, each of which may hang.
type Calls interface {
	// Begin records the start of a call on name in the directory dir, or on dir itself.
	Begin(op, dir, name string)
	// End records that the call has returned.
	End()
}

// Check returns an error if the directory that the user gave for the index is none and cannot be
// created.
func (x *Files) Check() error {
	p := x.Locations[0]
	if !p.given {
		return nil
	}
	x.Calls.Begin("stat", p.dir, "")
	defer x.Calls.End()
	if err := host.Directory(p.dir); err != nil {
		return &source.Error{
			Path: x.Root, Kind: source.ErrIndexDirectory,
			Hint: fmt.Sprintf("index directory %s: %v", human.Name(p.dir), err),
		}
	}
	return nil
}

// open opens the location's directory; the caller closes it with p.close.
func (x *Files) open(p Location) (int, error) {
	if p.beside {
		return x.RootFD, nil
	}
	x.Calls.Begin("open", p.dir, "")
	defer x.Calls.End()
	return tree.RetryEINTR(func() (int, error) {
		return unix.Open(p.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
}

func (p Location) close(dir int) {
	if !p.beside {
		_ = unix.Close(dir)
	}
}

// read reads the index file at p.
func (x *Files) read(p Location) (_ *source.Index, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read dataset index %s: %w", p.Path(), err)
		}
	}()
	fd, st, err := x.openFile(p)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	limit := int64(math.MaxInt64)
	if x.Memory != nil {
		available, err := x.Memory()
		if err != nil {
			return nil, err
		}
		limit = available / indexShare
	}
	return source.DecodeWithin(&reader{fd: fd, calls: x.Calls, location: p}, st.Size, limit)
}

// openFile opens the file at p for reading, if it is trusted; the caller closes the descriptor.
func (x *Files) openFile(p Location) (fd int, st unix.Stat_t, err error) {
	dir, err := x.open(p)
	if err != nil {
		return -1, st, err
	}
	defer p.close(dir)
	// Opened only after it is known to be a regular file: opening a device can have side effects.
	x.Calls.Begin("stat", p.dir, p.name)
	st, err = tree.Stat(dir, p.name, unix.AT_SYMLINK_NOFOLLOW)
	x.Calls.End()
	if err != nil {
		return -1, st, err
	}
	if !tree.IsReg(&st) {
		return -1, st, fmt.Errorf("%w: it is not a regular file; remove it", errDistrust)
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	x.Calls.Begin("open", p.dir, p.name)
	fd, err = tree.RetryEINTR(func() (int, error) { return unix.Openat(dir, p.name, flags, 0) })
	x.Calls.End()
	if err != nil {
		return -1, st, err
	}
	x.Calls.Begin("stat", p.dir, p.name)
	st, err = tree.StatOpen(fd)
	x.Calls.End()
	if err == nil {
		err = x.trust(p, &st)
	}
	if err == nil {
		err = stored(fd, &st)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// indexShare is the divisor of the available memory that an index file may take.
const indexShare = 4

// trust returns an error if a user who may not change the samples could have written the file.
func (x *Files) trust(p Location, st *unix.Stat_t) error {
	x.Calls.Begin("stat", x.Root, "")
	root := unix.Stat_t{Uid: uint32(os.Geteuid())}
	var err error
	if !x.Rootless {
		root, err = tree.StatOpen(x.RootFD)
	}
	x.Calls.End()
	if err != nil {
		return err
	}
	if !tree.IsReg(st) {
		return fmt.Errorf("%w: it is not a regular file; remove it", errDistrust)
	}
	me := uint32(os.Geteuid())
	ours := st.Uid == me || st.Uid == 0
	// Without the sticky bit, every user with write permission may replace a directory's files.
	open := p.beside && root.Mode&0o022 != 0 && root.Mode&unix.S_ISVTX == 0
	if !ours && st.Uid != root.Uid && !open {
		return fmt.Errorf("%w: it belongs to user %d, not to this user (%d), root or the owner "+
			"of the dataset's directory (%d); remove it, and it is rebuilt",
			errDistrust, st.Uid, me, root.Uid)
	}
	var allowed uint32
	if open {
		if allowed = root.Mode & 0o002; st.Gid == root.Gid || allowed != 0 {
			allowed |= 0o020
		}
	}
	if wide := st.Mode & 0o022 &^ allowed; wide != 0 {
		return fmt.Errorf("%w: users other than its owner may write to it (mode %04o); run chmod "+
			"go-w on it, or remove it", errDistrust, st.Mode&0o7777)
	}
	return nil
}

// compression is the largest plausible compression ratio of an index on a file system that
// compresses. Names and sizes of files compress far less.
const compression = 64

// stored returns an error for a file with holes, or with far fewer bytes on disk than its size: an
// index is written as a whole, and has neither. If the file system does not report this, reading
// the file decides.
func stored(fd int, st *unix.Stat_t) error {
	if hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE); err == nil && hole < st.Size {
		return fmt.Errorf("%w: it has holes: its size is %s, but only %s are stored; remove it, "+
			"and it is rebuilt",
			errDistrust, human.Format(st.Size), human.Format(512*st.Blocks))
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	if st.Blocks > 0 && st.Size/compression > 512*st.Blocks {
		return fmt.Errorf("%w: its size is %s, but only %s are stored; remove it, and "+
			"it is rebuilt",
			errDistrust, human.Format(st.Size), human.Format(512*st.Blocks))
	}
	return nil
}

// reader reads from a descriptor in monitored system calls.
type reader struct {
	fd       int
	calls    Calls
	location Location
}

func (r *reader) Read(b []byte) (int, error) {
	if len(b) > 8<<20 {
		b = b[:8<<20] // so that a slow call is not mistaken for one that hangs
	}
	r.calls.Begin("read", r.location.dir, r.location.name)
	defer r.calls.End()
	n, err := tree.RetryEINTR(func() (int, error) { return unix.Read(r.fd, b) })
	switch {
	case err != nil:
		return 0, err
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// write writes the index file at p.
func (x *Files) write(p Location, index *source.Index) error {
	if err := x.replace(p, index.Encode); err != nil {
		return fmt.Errorf("write dataset index %s: %w", p.Path(), tooLong(err))
	}
	return nil
}

// makeDirectory creates the directory of p, if there is none.
func (x *Files) makeDirectory(p Location) error {
	if p.beside {
		return nil
	}
	create := os.MkdirAll
	if p.given {
		create = os.Mkdir
	}
	x.Calls.Begin("mkdir", p.dir, "")
	defer x.Calls.End()
	if err := create(p.dir, 0o777); err != nil && !(p.given && errors.Is(err, fs.ErrExist)) {
		return err
	}
	return nil
}

// replace replaces the file at p atomically.
func (x *Files) replace(p Location, encode func(io.Writer) error) (err error) {
	if err := x.makeDirectory(p); err != nil {
		return err
	}
	dir, err := x.open(p)
	if err != nil {
		return err
	}
	defer p.close(dir)
	x.Calls.Begin("write", p.dir, p.name)
	defer x.Calls.End()
	// The users who may read the dataset may read its index, and no others: it has the names of its
	// files.
	mode := os.FileMode(0o600)
	if root, err := tree.StatOpen(x.RootFD); err == nil && !x.Rootless {
		mode |= os.FileMode(root.Mode & 0o044)
	}
	disk := x.Disk
	if disk == nil {
		disk = files.System{}
	}
	return files.Replace(disk, dir, p.Path(), mode, func(f files.File) error {
		return encode(&writer{f, x.Calls, p})
	})
}

// tooLong adds the file size limit that was exceeded to err.
func tooLong(err error) error {
	var limit unix.Rlimit
	if errors.Is(err, unix.EFBIG) && unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil &&
		limit.Cur != unix.RLIM_INFINITY {
		return fmt.Errorf("%w: RLIMIT_FSIZE allows files of %d bytes; raise it (ulimit -f)", err,
			limit.Cur)
	}
	return err
}

// writer writes to a file in monitored system calls.
type writer struct {
	file     io.Writer
	calls    Calls
	location Location
}

func (w *writer) Write(b []byte) (written int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), 8<<20)]
		w.calls.Begin("write", w.location.dir, w.location.name)
		n, err := w.file.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		b = b[n:]
	}
	return written, nil
}
