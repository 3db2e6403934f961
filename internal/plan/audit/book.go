package audit

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// Kept is the number of epochs that can be audited, counted back from the last that a rank has
// finished.
const Kept = 16

// Book records the progress of a node's ranks through epochs, and the results of audits. Its
// methods are safe for concurrent use.
type Book struct {
	ranks []int

	mu   sync.Mutex   // guards what follows
	ways map[way]Part // by epoch and rank
	left map[int]bool // ranks that have left and not joined again
	// by epoch; those that succeeded stay as long as their epoch can be audited
	audits  map[int]*flight
	last    int           // the last epoch that a rank has finished
	changed chan struct{} // closed and replaced when ways or left change
}

// way identifies one rank's pass through one epoch.
type way struct{ epoch, rank int }

// flight is an audit that is run once for all callers.
type flight struct {
	done   chan struct{}
	result *Result
	err    error
}

// NewBook returns an empty book for a node with these ranks.
func NewBook(ranks []int) *Book {
	return &Book{
		ranks:   ranks,
		ways:    make(map[way]Part),
		left:    make(map[int]bool),
		audits:  make(map[int]*flight),
		changed: make(chan struct{}),
	}
}

// Join records that a rank takes part, for the first time or again.
func (b *Book) Join(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.left, rank)
}

// Leave records that a rank has left, so that Parts no longer waits for it.
func (b *Book) Leave(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left[rank] = true
	b.signal()
}

// Begin records that a rank begins an epoch at a step. It discards what the rank had finished in
// this epoch and later ones.
func (b *Book) Begin(rank, epoch, step int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.ways, func(w way, _ Part) bool { return w.rank == rank && w.epoch > epoch })
	maps.DeleteFunc(b.audits, func(e int, _ *flight) bool { return e >= epoch })
	b.ways[way{epoch, rank}] = Part{Rank: rank, From: step}
	b.signal()
}

// Finish records what was delivered to a rank in an epoch that it has finished.
func (b *Book) Finish(rank, epoch int, d Delivered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.ways[way{epoch, rank}]
	p.Finished, p.Delivered = true, d
	b.ways[way{epoch, rank}] = p
	b.last = max(b.last, epoch)
	maps.DeleteFunc(b.ways, func(w way, _ Part) bool {
		return w.rank == rank && w.epoch <= epoch-Kept
	})
	maps.DeleteFunc(b.audits, func(e int, _ *flight) bool { return e <= b.last-Kept })
	b.signal()
}

// signal wakes the calls that wait for ranks. b.mu must be held.
func (b *Book) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Check returns an error if an epoch is too old to be audited. Ranks may not have begun it yet.
func (b *Book) Check(epoch int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	oldest := b.last - Kept + 1
	if epoch >= oldest {
		return nil
	}
	for w := range b.ways {
		if w.epoch == epoch {
			return nil
		}
	}
	return fmt.Errorf("the last %d epochs can be audited, from epoch %d on", Kept, oldest)
}

// Last returns the latest epoch that a rank has finished.
func (b *Book) Last() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// Parts waits until each rank has finished the epoch or cannot finish it any more, and returns the
// parts in the order of ranks.
func (b *Book) Parts(ctx context.Context, epoch int) ([]Part, error) {
	for {
		b.mu.Lock()
		changed := b.changed
		parts, waiting := b.parts(epoch)
		b.mu.Unlock()
		if !waiting {
			return parts, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// parts lists the ranks' parts, and reports whether any are still outstanding. b.mu must be held.
func (b *Book) parts(epoch int) (out []Part, waiting bool) {
	for _, rank := range b.ranks {
		p := b.ways[way{epoch, rank}]
		p.Rank = rank
		if !p.Finished {
			p.Left = b.left[rank] || b.beyond(epoch, rank)
			waiting = waiting || !p.Left
		}
		out = append(out, p)
	}
	return out, waiting
}

// beyond reports whether a rank has begun a later epoch. b.mu must be held.
func (b *Book) beyond(epoch, rank int) bool {
	for w := range b.ways {
		if w.rank == rank && w.epoch > epoch {
			return true
		}
	}
	return false
}

// Once runs an epoch's audit once for all callers, including later ones, until a rank begins the
// epoch again. If the audit fails because its caller's ctx has ended, the next waiting caller runs
// it.
func (b *Book) Once(ctx context.Context, epoch int,
	audit func(context.Context) (*Result, error),
) (*Result, error) {
	b.mu.Lock()
	f := b.audits[epoch]
	mine := f == nil
	if mine {
		f = &flight{done: make(chan struct{})}
		b.audits[epoch] = f
	}
	b.mu.Unlock()
	if mine {
		defer close(f.done)
		if f.result, f.err = audit(ctx); f.err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.audits[epoch] == f {
				delete(b.audits, epoch)
			}
		}
		return f.result, f.err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if f.err != nil {
		return b.Once(ctx, epoch, audit)
	}
	return f.result, nil
}
