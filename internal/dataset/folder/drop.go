package folder

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/probe"
)

// Drop implements dataset.Dropper.
func (f *Folder) Drop(ctx context.Context, id int) (cached bool, err error) {
	if err := f.check(ctx, id); err != nil {
		return false, err
	}
	b := f.buffers.Get().(*readBuffer)
	defer f.buffers.Put(b)
	b.path = append(f.index.AppendName(b.path[:0], id), 0)
	fd, err := f.open(ctx, f.root.Load(), b)
	if err != nil {
		return false, f.systemError(id, fmt.Errorf("open: %w", err))
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	return probe.DropCached(fd), nil
}
