package audit

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// Kept is for how many epochs, counted back from the last that a rank has finished, an audit can be
// asked for.
const Kept = 16

// Book keeps the ways of a node's ranks through epochs, and what was found of epochs that were
// audited. Its methods are safe for concurrent use.
type Book struct {
	ranks []int

	mu   sync.Mutex   // guards what follows
	ways map[way]Part // by epoch and rank
	left map[int]bool // ranks that have left, and not joined again
	// by epoch; those that succeeded stay, while their epoch may be asked for
	audits  map[int]*flight
	last    int           // the last epoch that a rank has finished
	changed chan struct{} // closed and replaced when ways or left change
}

// way is one rank's way through one epoch.
type way struct{ epoch, rank int }

// flight is an audit that was begun once for all who ask.
type flight struct {
	done   chan struct{}
	result *Result
	err    error
}

// NewBook returns an empty book of a node that has these ranks.
func NewBook(ranks []int) *Book {
	return &Book{
		ranks:   ranks,
		ways:    make(map[way]Part),
		left:    make(map[int]bool),
		audits:  make(map[int]*flight),
		changed: make(chan struct{}),
	}
}

// Join notes that a rank takes part, be it again.
func (b *Book) Join(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.left, rank)
}

// Leave notes that a rank has gone: it is waited for no more.
func (b *Book) Leave(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left[rank] = true
	b.signal()
}

// Begin notes that a rank begins to go through an epoch, with a step. What it finished there and
// behind it before counts no more.
func (b *Book) Begin(rank, epoch, step int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.ways, func(w way, _ Part) bool { return w.rank == rank && w.epoch > epoch })
	maps.DeleteFunc(b.audits, func(e int, _ *flight) bool { return e >= epoch })
	b.ways[way{epoch, rank}] = Part{Rank: rank, From: step}
	b.signal()
}

// Finish notes what a rank was given in an epoch that it is through.
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

// signal wakes who waits for ranks. b.mu is held.
func (b *Book) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Check tells whether an epoch, with which ranks may not have begun yet, can be audited, or is too
// long ago.
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

// Last is the latest epoch that a rank has finished.
func (b *Book) Last() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// Parts waits until each rank has finished the epoch, or will not, and returns their parts, in the
// order of ranks.
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

// parts lists the ranks' parts, and tells whether there are any to be waited for. b.mu is held.
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

// beyond tells whether a rank has begun a later epoch. b.mu is held.
func (b *Book) beyond(epoch, rank int) bool {
	for w := range b.ways {
		if w.rank == rank && w.epoch > epoch {
			return true
		}
	}
	return false
}

// Once has an epoch audited, once for all who ask, also later; until a rank begins there again. If
// who audits fails, because its ctx has ended, the next one of those that wait does.
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
