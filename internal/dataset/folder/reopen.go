package folder

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/dataset/tree"
	"github.com/hdmlp/hdmlp/internal/printable"
)

// mostRoots is how often a folder is opened anew: each time takes a descriptor.
const mostRoots = 100

// reopen is for a call that failed with err below the root was. Where the file system was mounted
// again, it opens the root anew and returns nil: the call can be made again. Else it returns what
// the call is to fail with.
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
		return err // the root is still there: it is the file's own fault
	}
	if len(f.roots) == 0 || len(f.roots) > mostRoots {
		return err // it is closed; or the file system comes and goes
	}
	r, again := f.openAgain(ctx, was)
	if again != nil {
		return fmt.Errorf("%w; opened again: %w", err, again)
	}
	f.roots = append(f.roots, r)
	f.root.Store(r)
	return nil
}

// openAgain opens the root that is there now. It must hold the same dataset: the contents that
// belong to the dataset's version are compared. Stamps are not, because a file system that was
// mounted again may number its inodes anew.
func (f *Folder) openAgain(ctx context.Context, was *tree.Root) (*tree.Root, error) {
	var view *dataset.View
	if was.Foreign() {
		if f.renew == nil {
			return nil, errors.New("the process that opened it is gone")
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
	digests, _, err := contents(ctx, r, f.index, func() *caller { return new(caller) })
	if _, same := dataset.SameContents(digests, f.index.Contents()); err == nil && !same {
		err = fmt.Errorf("another dataset is mounted at %s now", printable.Name(f.path))
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}
