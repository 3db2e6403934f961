package store

import (
	"context"
	"errors"
	"slices"
)

// Migration makes the stores of one dataset hold what is wanted in each, while they are used:
//
//  1. Each store drops what is not wanted there, unless another store is the sample's home and does
//     not hold it yet. The room of what was dropped from memory becomes usable (Compactor).
//  2. The rest is copied to the stores that are their home, as far as these have room, and then
//     dropped. If two full stores are to exchange samples, none has room. Then a few are dropped
//     without a copy, so that the others can move by turns.
//
// A sample that moves is held by one of the stores at all times. Nothing is read but the stores.
type Migration struct {
	Stores  []Migrating // fastest first
	Samples int         // IDs are in [0, Samples)
	Size    func(id int) int64
	Wishes  Wishes

	buffer []byte
}

// Migrating is a store that takes part in a Migration.
type Migrating struct {
	Store
	Fixed bool // nothing is dropped from it
	// Write is used instead of Put, and Occupy is called with the bytes that are being read, less
	// those that were.
	Write  func(id int, data []byte, origin Origin) error
	Occupy func(bytes int)
}

// Wishes are what the stores are to hold. They may change while a Migration runs.
type Wishes interface {
	// Hold calls f while wishes do not change. Between calls, answers may be out of date.
	Hold(f func())
	// Wanted reports whether a sample is to stay in a store, by number.
	Wanted(store, id int) bool
	// Home returns the number of the store that is to hold a sample; negative: none.
	Home(id int) int
}

const (
	// dropTogether is how many samples are dropped while wishes cannot change.
	dropTogether = 16 << 10
	// If no sample can be copied for lack of room, as many are dropped as take 1/yieldShare of their
	// store.
	yieldShare = 16
)

// Run ends when all is done, or ctx is done.
func (m *Migration) Run(ctx context.Context) {
	m.each(ctx, m.settled)
	m.compact(ctx)
	for more := true; more && ctx.Err() == nil; {
		copied := 0
		left := m.each(ctx, func(store, id int) bool {
			if m.settled(store, id) {
				return true
			}
			done := m.copy(m.Wishes.Home(id), store, id)
			if done {
				copied++
			}
			return done
		})
		if more = len(left.ids) > 0; more && copied == 0 {
			m.drop(ctx, left.store, m.some(left), func(int, int) bool { return true })
		}
		m.compact(ctx)
	}
}

// settled reports whether a sample that is not wanted in a store need not be copied.
func (m *Migration) settled(_, id int) bool {
	home := m.Wishes.Home(id)
	return home < 0 || m.Stores[home].Has(id)
}

// remaining are samples of a store.
type remaining struct {
	store int
	ids   []int
	bytes int64
}

// each calls do for each sample that a store holds and that is not wanted there, and drops those
// for which do returns true and that are settled. It returns the others of the store that holds
// most of them.
func (m *Migration) each(ctx context.Context, do func(store, id int) bool) (most remaining) {
	m.Wishes.Hold(func() {})
	for j, s := range m.Stores {
		if s.Fixed {
			continue
		}
		left, gone := remaining{store: j}, []int(nil)
		for _, n := range s.Held() {
			id := int(n)
			switch {
			case ctx.Err() != nil:
				return remaining{}
			case m.Wishes.Wanted(j, id):
			case do(j, id):
				if gone = append(gone, id); len(gone) == dropTogether {
					m.drop(ctx, j, gone, m.settled)
					gone = gone[:0]
				}
			default:
				left.ids = append(left.ids, id)
				left.bytes += m.Size(id)
			}
		}
		m.drop(ctx, j, gone, m.settled)
		if len(most.ids) == 0 || left.bytes > most.bytes {
			most = left
		}
	}
	return most
}

// drop drops samples from a store: those that are still not wanted there, and for which may is
// true.
func (m *Migration) drop(ctx context.Context, store int, ids []int,
	may func(store, id int) bool,
) {
	for part := range slices.Chunk(ids, dropTogether) {
		m.Wishes.Hold(func() {
			gone := make([]int, 0, len(part))
			for _, id := range part {
				if !m.Wishes.Wanted(store, id) && may(store, id) {
					gone = append(gone, id)
				}
			}
			if ctx.Err() == nil {
				m.Stores[store].Drop(gone...)
			}
		})
	}
}

// some returns as many of the samples as are worth dropping without a copy.
func (m *Migration) some(left remaining) []int {
	total, _ := m.Stores[left.store].Capacity()
	var sum int64
	for i, id := range left.ids {
		if sum += m.Size(id); sum >= total/yieldShare {
			return left.ids[:i+1]
		}
	}
	return left.ids
}

// compact makes the room of dropped samples usable, as far as it is needed.
func (m *Migration) compact(ctx context.Context) {
	for j, s := range m.Stores {
		compactor, ok := s.Store.(Compactor)
		if !ok || ctx.Err() != nil {
			continue
		}
		var need int64
		for id := range m.Samples {
			if m.Wishes.Home(id) == j && !s.Has(id) {
				need += m.Size(id)
			}
		}
		if need > 0 {
			compactor.Compact(ctx, need)
		}
	}
}

// errReplaced reports that a copy is not the one that it was a moment before.
var errReplaced = errors.New("the copy was replaced")

// copy copies a sample from a store to another, and reports whether that holds it then. It does
// nothing if there is no room.
func (m *Migration) copy(to, from, id int) bool {
	size := m.Size(id)
	target := &m.Stores[to]
	source := &m.Stores[from]
	if total, used := target.Capacity(); total-used < size {
		return false
	}
	read := func(dst []byte) (Origin, error) {
		source.Occupy(len(dst))
		defer source.Occupy(-len(dst))
		origin, _ := source.Origin(id)
		err := source.Read(id, dst)
		if now, _ := source.Origin(id); err == nil && now != origin {
			err = errReplaced
		}
		return origin, err
	}
	if inPlace, ok := target.Store.(InPlace); ok {
		_ = inPlace.Fill(id, read) // what reads the sample may be bringing it already
		return target.Has(id)
	}
	m.buffer = slices.Grow(m.buffer[:0], int(size))[:size]
	if origin, err := read(m.buffer); err == nil {
		_ = target.Write(id, m.buffer, origin)
	}
	return target.Has(id)
}
