package folder

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/hangs"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// mostRoots is how often a folder may be reopened: each time takes a descriptor.
const mostRoots = 100

// reopen handles a call that failed with err below the root was. If the file system was remounted
// it reopens the root and returns nil: the call can be retried. Otherwise it returns the error that
// the call should return.
func (f *Folder) reopen(ctx context.Context, was *tree.Root, err error) error {
	if !tree.Gone(err) {
		return err
	}
	f.reopening.Lock()
	defer f.reopening.Unlock()
	if now := f.root.Load(); now != was {
		return nil // another reader was faster
	}
	if errors.Is(err, unix.ESTALE) && was.Answers() {
		return err // the root is accessible: the file is at fault
	}
	if len(f.roots) == 0 || len(f.roots) > mostRoots {
		return err // it is closed, or the file system is remounted again and again
	}
	r, again := f.openAgain(ctx, was)
	if again != nil {
		return fmt.Errorf("%w; opened again: %w", err, again)
	}
	f.roots = append(f.roots, r)
	f.root.Store(r)
	return nil
}

// openAgain opens the root that is now at the path. It must hold the same dataset: the contents
// that the dataset's version covers are compared. Stamps are not, because inode numbers may change
// when a file system is remounted. If none of these files is there, the mount point may be bare for
// the moment: that is no dataset.
func (f *Folder) openAgain(ctx context.Context, was *tree.Root) (*tree.Root, error) {
	var view *source.View
	if was.Foreign() {
		if f.renew == nil {
			return nil, errors.New("the process that opened it has exited")
		}
		var err error
		if view, err = f.renew(ctx); err != nil {
			return nil, err
		}
		defer view.Close() //nolint:errcheck // the root has descriptors of its own
	}
	r, err := tree.Open(f.path, view)
	if err != nil {
		return nil, err
	}
	found, err := Read(ctx, r, f.index, func() Calls { return new(hangs.Caller) })
	if why := source.Recognise(found.Digests, f.index.Contents()); err == nil && why != nil {
		err = fmt.Errorf("%w at %s now", why, human.Name(f.path))
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}
