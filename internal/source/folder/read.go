package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// readBuffer is the scratch memory of one Read or Stat. It is pooled.
type readBuffer struct {
	path []byte // NUL-terminated
	st   unix.Statx_t
}

// Read fills dst with sample id. It stats the file after its bytes have been read, so that a change
// during the read is detected as well, and compares the bytes that the dataset's version covers. It
// does not block on a path that is not a regular file. A system call that hangs, as on a network
// file system whose server is down, cannot be cancelled: Read checks ctx before each call.
func (f *Folder) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	if err := f.check(ctx, id); err != nil {
		return 0, err
	}
	if size := f.index.Size(id); int64(len(dst)) != size {
		return 0,
			f.sampleError(id, source.ErrLength, fmt.Errorf("%d bytes, not %d", len(dst), size))
	}
	b := f.buffers.Get().(*readBuffer)
	defer f.buffers.Put(b)
	b.path = append(f.index.AppendName(b.path[:0], id), 0)
	r := f.root.Load()
	n, err := f.read(ctx, r, b, dst)
	if err != nil {
		if err = f.reopen(ctx, r, err); err == nil {
			return f.Read(ctx, id, dst)
		}
		return 0, f.systemError(id, err)
	}
	stamp, err := f.judge(id, b, n)
	if c, ok := f.covered[id]; ok && err == nil && !c.has(dst) {
		return 0, f.changed(id, source.ErrChanged, errors.New("its bytes are not those that "+
			"identified the dataset when it was opened, although size and modification time are "+
			"the same; restart the job to use the files as they are now"))
	}
	return stamp, err
}

// Stat returns the current stamp of sample id's file without reading the file.
func (f *Folder) Stat(ctx context.Context, id int) (source.Stamp, error) {
	if err := f.check(ctx, id); err != nil {
		return 0, err
	}
	b := f.buffers.Get().(*readBuffer)
	defer f.buffers.Put(b)
	b.path = append(f.index.AppendName(b.path[:0], id), 0)
	r := f.root.Load()
	if err := r.Statx(b.path, &b.st); err != nil {
		if err = f.reopen(ctx, r, err); err == nil {
			return f.Stat(ctx, id)
		}
		return 0, f.systemError(id, fmt.Errorf("stat: %w", err))
	}
	return f.judge(id, b, f.index.Size(id))
}

func (f *Folder) check(ctx context.Context, id int) error {
	switch {
	case id < 0 || id >= f.index.Len():
		return &source.SampleError{ID: id, Kind: source.ErrNoSample}
	case f.closed.Load():
		return f.sampleError(id, source.ErrUnreadable, fs.ErrClosed)
	case ctx.Err() != nil:
		return f.sampleError(id, source.ErrUnavailable, ctx.Err())
	}
	return nil
}

// read reads the file at b.path into dst, and then stats it.
func (f *Folder) read(ctx context.Context, r *tree.Root, b *readBuffer,
	dst []byte,
) (n int64, err error) {
	fd, err := f.open(ctx, r, b)
	if err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	for n < int64(len(dst)) {
		k, err := unix.Pread(fd, dst[n:], n)
		switch {
		case errors.Is(err, unix.EINTR) && ctx.Err() == nil:
			continue
		case err != nil:
			return n, fmt.Errorf("read: %w", err)
		}
		if k == 0 {
			break
		}
		n += int64(k)
	}
	if err := r.Ask(fd, &b.st); err != nil {
		return n, fmt.Errorf("stat: %w", err)
	}
	return n, nil
}

// judge compares the file of sample id, of which n bytes were read, with the index.
func (f *Folder) judge(id int, b *readBuffer, n int64) (source.Stamp, error) {
	size, has := f.index.Size(id), int64(b.st.Size)
	if b.st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, f.sampleError(id, source.ErrUnreadable, errors.New("it is not a regular file"))
	}
	stamp := tree.StampOf(&b.st)
	switch {
	case has == 0 && size == 0:
		return 0, f.sampleError(id, source.ErrEmpty, nil)
	case has == 0:
		return 0, f.changed(id, source.ErrEmpty, nil)
	case has < size:
		return 0, f.changed(id, source.ErrShort, fmt.Errorf("%d bytes, not %d", has, size))
	case has > size:
		return 0, f.changed(id, source.ErrLong, fmt.Errorf("%d bytes, not %d", has, size))
	case stamp.Written(f.index.Stamp(id)):
		return 0, f.changed(id, source.ErrChanged,
			fmt.Errorf("it was last written to on %s; restart the job to use the files as "+
				"they are now",
				time.Unix(0, tree.Nanos(b.st.Mtime)).UTC().Format(time.RFC3339)))
	case n < size:
		return 0, f.sampleError(id, source.ErrShort,
			fmt.Errorf("%d of its %d bytes can be read", n, size))
	}
	return stamp, nil
}

// changed returns the error of a file that is not as listed. It removes the index file, so that the
// next Open lists all files again.
func (f *Folder) changed(id int, kind, err error) error {
	f.stale.Do(func() {
		for _, p := range f.locations {
			if p.Path() == f.indexPath {
				p.Remove(f.root.Load().FD())
			}
		}
	})
	return f.sampleError(id, kind, err)
}

// open opens b.path relative to the root.
func (f *Folder) open(ctx context.Context, r *tree.Root, b *readBuffer) (int, error) {
	flags := tree.FileFlags
	if f.noAtime.Load() {
		flags |= unix.O_NOATIME
	}
	for {
		fd, err := r.Open(b.path, flags)
		switch {
		case errors.Is(err, unix.EINTR) && ctx.Err() == nil:
		case errors.Is(err, unix.EPERM) && flags&unix.O_NOATIME != 0:
			// Only the owner of a file may open it with O_NOATIME.
			flags &^= unix.O_NOATIME
			f.noAtime.Store(false)
		default:
			return fd, err
		}
	}
}

func (f *Folder) sampleError(id int, kind, err error) error {
	return &source.SampleError{ID: id, Path: f.Path(id), Kind: kind, Err: err}
}

// systemError returns the SampleError for an error of a system call.
func (f *Folder) systemError(id int, err error) error {
	kind := tree.Kind(err)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		err = host.TooManyFiles(err)
	}
	return f.sampleError(id, kind, err)
}
