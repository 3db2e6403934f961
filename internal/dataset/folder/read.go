package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

// readBuffer is what one Read needs beside dst; it is used again by others.
type readBuffer struct {
	path  []byte // with a zero behind it
	iovec [2]unix.Iovec
	probe [1]byte // takes what lies behind the sample: nothing, if all is well
}

const openFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// Read fills dst with sample id. The read asks for one byte more than the sample
// has, so that a file that has grown is found out as one that has shrunk, with
// neither fstat nor a second read: open, read, close, and no allocation. A path
// that is no regular file can not block it. A system call that hangs, as on a
// network file system that is gone, can not be cancelled: ctx is looked at
// before each.
func (f *Folder) Read(ctx context.Context, id int, dst []byte) error {
	if id < 0 || id >= f.index.Len() {
		return &dataset.SampleError{ID: id, Kind: dataset.ErrNoSample}
	}
	if size := f.index.Size(id); int64(len(dst)) != size {
		return f.sampleError(id, dataset.ErrLength, fmt.Errorf("%d bytes, not %d", len(dst), size))
	}
	if f.closed.Load() {
		return f.sampleError(id, dataset.ErrUnreadable, fs.ErrClosed)
	}
	b := f.buffers.Get().(*readBuffer)
	err := f.read(ctx, b, id, dst)
	b.iovec = [2]unix.Iovec{} // dst is the caller's again
	f.buffers.Put(b)
	return err
}

func (f *Folder) read(ctx context.Context, b *readBuffer, id int, dst []byte) error {
	if err := ctx.Err(); err != nil {
		return f.sampleError(id, dataset.ErrUnavailable, err)
	}
	b.path = append(f.index.AppendName(b.path[:0], id), 0)
	fd, err := f.open(ctx, b)
	if err != nil {
		return f.systemError(id, "open", err)
	}
	n, err := readProbed(ctx, fd, b, dst)
	_ = unix.Close(fd) // nothing was written
	switch {
	case err != nil:
		return f.systemError(id, "read", err)
	case n == 0:
		return f.sampleError(id, dataset.ErrEmpty, nil)
	case n < len(dst):
		return f.sampleError(id, dataset.ErrShort, fmt.Errorf("%d bytes, not %d", n, len(dst)))
	case n > len(dst):
		return f.sampleError(id, dataset.ErrLong, fmt.Errorf("more than %d bytes", len(dst)))
	}
	return nil
}

// open opens b.path below the root.
func (f *Folder) open(ctx context.Context, b *readBuffer) (int, error) {
	flags := openFlags
	if f.noAtime.Load() {
		flags |= unix.O_NOATIME
	}
	for {
		fd, err := openat(f.rootFD, b.path, flags)
		switch {
		case errors.Is(err, unix.EINTR) && ctx.Err() == nil:
		case errors.Is(err, unix.EPERM) && flags&unix.O_NOATIME != 0:
			// Only the owner of a file may leave its access time alone.
			flags &^= unix.O_NOATIME
			f.noAtime.Store(false)
		default:
			return fd, err
		}
	}
}

// readProbed reads into dst and one byte behind it, from the beginning of fd to
// its end or until both are full, and says how many bytes there were.
func readProbed(ctx context.Context, fd int, b *readBuffer, dst []byte) (int, error) {
	for n := 0; ; {
		b.iovec[0] = unix.Iovec{Base: unsafe.SliceData(dst[n:])}
		b.iovec[0].SetLen(len(dst) - n)
		b.iovec[1] = unix.Iovec{Base: &b.probe[0]}
		b.iovec[1].SetLen(1)
		// The kernel reads until the end of the file for as long as nothing
		// goes wrong: if dst is full and the probe empty, that was the end.
		k, err := preadv(fd, b.iovec[:], int64(n))
		switch {
		case err != nil && (!errors.Is(err, unix.EINTR) || ctx.Err() != nil):
			return n, err
		case err != nil:
			continue
		}
		n += k
		if k == 0 || n >= len(dst) {
			return n, nil
		}
	}
}

func (f *Folder) sampleError(id int, kind, err error) error {
	return &dataset.SampleError{ID: id, Path: f.Path(id), Kind: kind, Err: err}
}

// systemError says what an error of the system means for the sample.
func (f *Folder) systemError(id int, op string, err error) error {
	kind := kindOf(err)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		err = tooManyFiles(err)
	}
	return f.sampleError(id, kind, fmt.Errorf("%s: %w", op, err))
}

// kindOf tells what can not be mended from what may pass. What is not known
// counts as the latter: it is tried again, and after a while given up.
func kindOf(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return dataset.ErrMissing
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EISDIR),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.ESPIPE), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV),
		errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EBADF), errors.Is(err, unix.EFBIG),
		errors.Is(err, unix.EOVERFLOW):
		return dataset.ErrUnreadable
	}
	return dataset.ErrUnavailable
}

// tooManyFiles says which limit was met.
func tooManyFiles(err error) error {
	if errors.Is(err, unix.ENFILE) {
		return fmt.Errorf("%w: this machine's limit, fs.file-max", err)
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return fmt.Errorf("%w: raise RLIMIT_NOFILE (ulimit -n)", err)
	}
	return fmt.Errorf("%w: RLIMIT_NOFILE is %d; raise it (ulimit -n) up to %d", err, limit.Cur, limit.Max)
}
