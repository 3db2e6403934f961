package directory

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// probeSize is how many bytes Probe reads: one page, the least that a disk reads.
const probeSize = 4096

// Probe implements objects.Objects. It opens the file anew: read-ahead is turned off for it. It
// drops only the pages that it reads: a job may need the rest of the file.
func (d *Directory) Probe(ctx context.Context, o *source.Object, offset int64) error {
	return d.again(ctx, o.Name, func(p *opened) error {
		fd, err := d.open(ctx, p.root, o.Name)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer unix.Close(fd) //nolint:errcheck // it was only read
		_ = unix.Fadvise(fd, offset&^(probeSize-1), 2*probeSize, unix.FADV_DONTNEED)
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) // no read-ahead
		var room [probeSize]byte
		for {
			n, err := unix.Pread(fd, room[:], offset)
			switch {
			case n > 0:
				return nil
			case err == nil:
				return &objects.Error{
					Path: d.Path(o.Name), Kind: source.ErrShort,
					Err: fmt.Errorf("byte %d cannot be read", offset),
				}
			case !errors.Is(err, unix.EINTR) || ctx.Err() != nil:
				return fmt.Errorf("read: %w", err)
			}
		}
	})
}

// Drop implements objects.Objects.
func (d *Directory) Drop(ctx context.Context, o *source.Object, offset, length int64,
) (cached bool, err error) {
	if length == 0 {
		return false, nil
	}
	err = d.again(ctx, o.Name, func(p *opened) error {
		fd, err := p.open.take(o.Name, func() (int, error) { return d.open(ctx, p.root, o.Name) })
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer p.open.put(fd)
		cached = host.DropCached(fd.number, offset, length)
		return nil
	})
	return cached, err
}
