package folder

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/source"
)

// probeSize is how much of a file Probe reads: one page, the least that a disk reads.
const probeSize = 4096

// Probe reads the first bytes of sample id, even if the file has become shorter or longer. It first
// drops them from the page cache, which would say nothing about the state of the disk or server.
func (f *Folder) Probe(ctx context.Context, id int) error {
	return f.within(ctx, id, func(fd int) error {
		_ = unix.Fadvise(fd, 0, probeSize, unix.FADV_DONTNEED)
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) // no read-ahead
		var room [probeSize]byte
		for {
			n, err := unix.Pread(fd, room[:], 0)
			switch {
			case n > 0:
				return nil
			case err == nil:
				return f.sampleError(id, source.ErrEmpty, nil)
			case !errors.Is(err, unix.EINTR) || ctx.Err() != nil:
				return f.systemError(id, fmt.Errorf("read: %w", err))
			}
		}
	})
}

// Drop implements source.Dropper.
func (f *Folder) Drop(ctx context.Context, id int) (cached bool, err error) {
	err = f.within(ctx, id, func(fd int) error { cached = host.DropCached(fd, 0, 0); return nil })
	return cached, err
}

// within calls do with the open file of sample id.
func (f *Folder) within(ctx context.Context, id int, do func(fd int) error) error {
	if err := f.check(ctx, id); err != nil {
		return err
	}
	b := f.buffers.Get().(*readBuffer)
	defer f.buffers.Put(b)
	b.path = append(f.index.AppendName(b.path[:0], id), 0)
	fd, err := f.open(ctx, f.root.Load(), b)
	if err != nil {
		return f.systemError(id, fmt.Errorf("open: %w", err))
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	return do(fd)
}
