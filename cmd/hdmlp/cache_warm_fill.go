package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// warming copies samples from a source into a store, several at the same time.
type warming struct {
	source    source.Indexed
	index     *source.Index
	order     []int32 // nil: by ID
	directory uint32  // hash of the dataset's
	progress  func(done, of int64)

	mu       sync.Mutex // guards the following
	next     int        // position in the order
	done     int64      // bytes
	added    int
	full     bool
	failed   int
	failures []string // the first mostFindings
}

// run copies the samples that the store does not have. An error means that it cannot go on.
func (w *warming) run(ctx context.Context, to store.Store) error {
	memory := semaphore.NewWeighted(packMemory)
	group, ctx := errgroup.WithContext(ctx)
	for range packStreams {
		group.Go(func() error {
			for ctx.Err() == nil {
				id, ok := w.take()
				if !ok {
					return nil
				}
				need := min(w.index.Size(id), packMemory)
				if err := memory.Acquire(ctx, need); err != nil {
					return err
				}
				err := w.copy(ctx, to, id)
				memory.Release(need)
				if err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	err := group.Wait()
	if refuser, ok := to.(store.Refuser); ok && err == nil && refuser.Refuses() != "" {
		return fmt.Errorf("the disk of the cache failed: %s", refuser.Refuses())
	}
	return err
}

// take returns the next sample; ok is false if there is none, or no more fit.
func (w *warming) take() (id int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full || w.next == w.index.Len() {
		return 0, false
	}
	id = w.next
	if w.order != nil {
		id = int(w.order[w.next])
	}
	w.next++
	return id, true
}

// copy copies a sample, unless there is a copy of what the file is now.
func (w *warming) copy(ctx context.Context, to store.Store, id int) error {
	now := store.Origin{Directory: w.directory, Instance: w.index.Stamp(id).Instance()}
	if has, ok := to.Origin(id); ok && has.SameInstance(now) {
		w.note(id, nil, false)
		return nil
	}
	to.Drop(id)
	data := make([]byte, w.index.Size(id))
	stamp, err := w.source.Read(ctx, id, data)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, source.ErrUnavailable):
		return err // other reads would fail, too
	case err != nil:
		w.note(id, err, false)
		return nil
	}
	now.Digest, now.Instance = digest.Of(data), stamp.Instance()
	switch err := to.Put(id, data, now); {
	case errors.Is(err, store.ErrFull):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.full = true
	case err != nil:
		return err
	default:
		w.note(id, nil, true)
	}
	return nil
}

// note records what became of a sample.
func (w *warming) note(id int, failed error, added bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += w.index.Size(id)
	if added {
		w.added++
	}
	if failed != nil {
		if w.failed++; len(w.failures) < mostFindings {
			w.failures = append(w.failures, failed.Error())
		}
	}
	if w.progress != nil {
		w.progress(w.done, w.index.Bytes())
	}
}
