package cache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// # Dynamic migration
//
// A plan that replaces another while jobs run (thesis chapter 7) finds the classes full of what the
// old one wanted. Release makes room for it:
//
//  1. It waits until every job has a plan, so that none loses what its first plan will count on,
//     and until no read is in progress that began by an old plan.
//  2. Each class drops what no job's plan wants there, unless another class is to hold it and does
//     not yet. The room of what was dropped from memory becomes usable (storageclass.InPlace's
//     Compact).
//  3. The rest is copied to the classes that are to hold it, as far as these have room, and then
//     dropped. If two full classes are to exchange samples, none has room. Then a few are dropped
//     without a copy, so that the others can move by turns.
//
// Batches flow meanwhile. A sample is in one of the classes at all times, or else is read from the
// source as any other; no lock is held that a read takes. Plans that change while samples are
// dropped wait for these, at most a thousand (migrating.dropping): what a plan has just begun to
// want is not dropped by the one before.

// migrating serialises Release.
type migrating struct {
	turn chan struct{} // holds a token while Release runs
	// dropping is held while samples are dropped by the plans, and while a plan is replaced. It is
	// taken before uses.
	dropping sync.Mutex
}

// end waits until no Release runs, and lets none begin. It reports whether it has succeeded within
// patience.
func (m *migrating) end(patience time.Duration) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case m.turn <- struct{}{}:
		return true
	case <-timeout.C:
		return false
	}
}

const (
	// unsettled is how long Release waits for jobs without a plan, and for reads, before it goes on
	// without them: a job loses copies at worst, which it reads again.
	unsettled = 30 * time.Second
	// dropTogether is how many samples are dropped while no plan may change.
	dropTogether = 1024
	// If no sample can be copied for lack of room, as many are dropped as take 1/yieldShare of their
	// class.
	yieldShare = 16
)

// Release makes room for the plans that jobs have set with Keep: it drops what none of them wants
// in a class, except in classes that keep everything. What another class of this node is to hold is
// copied there first if it has room, without a read from the source. Keep comes before, and Fill
// after it.
//
// It returns when the room can be used, which takes seconds if processes still view what was
// dropped, or the job's use is closed. One call at a time does so; others wait for it. It must not
// be called after Close.
func (u *Use) Release() {
	c := u.cache
	select {
	case c.migrating.turn <- struct{}{}:
	case <-u.ctx.Done():
		return
	}
	defer func() { <-c.migrating.turn }()
	m := migration{Cache: c, ctx: u.ctx, version: -1}
	m.decide()
	m.settle()
	m.drop(func(_, to int, id int32) bool { return to == 0 || c.classes[to-1].Store.Has(int(id)) })
	m.compact()
	for more := true; more && u.ctx.Err() == nil; {
		copied, left := m.copy()
		if more = len(left.ids) > 0; more && copied == 0 {
			m.dropFrom(left.class, left.ids, nil)
		}
		m.compact()
	}
	// There may be room now for samples for which there was none, as reads that end now found too.
	m.settle()
	c.demoted.clear()
}

// migration is one Release.
type migration struct {
	*Cache
	ctx    context.Context
	buffer []byte

	version int      // of the plans that wanted is of
	wanted  []bitset // by class, what some job's plan wants there
}

// decide waits for jobs without a plan.
func (m *migration) decide() {
	timeout := time.NewTimer(unsettled)
	defer timeout.Stop()
	for {
		m.uses.Lock()
		changed := m.uses.changed
		wait := slices.ContainsFunc(m.uses.list, func(u *Use) bool { return !u.decided })
		m.uses.Unlock()
		if !wait {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			return
		case <-m.ctx.Done():
			return
		}
	}
}

// settle waits for the reads in progress, and until what they have brought is written.
func (m *migration) settle() {
	ctx, cancel := context.WithTimeout(m.ctx, unsettled)
	defer cancel()
	var reads []*flight
	m.flights.each(func(fl *flight) { reads = append(reads, fl) })
	for _, fl := range reads {
		select {
		case <-fl.done:
		case <-ctx.Done():
		}
	}
	for _, cl := range m.classes {
		if cl.writer != nil {
			cl.writer.Flush(ctx)
		}
	}
}

// refresh brings wanted up to date.
func (m *migration) refresh() {
	m.uses.Lock()
	defer m.uses.Unlock()
	if m.version == m.uses.version {
		return
	}
	m.version, m.wanted = m.uses.version, make([]bitset, len(m.classes))
	for j := range m.wanted {
		m.wanted[j] = newBitset(m.index.Len())
		for _, u := range m.uses.list {
			if j < len(u.plan) {
				for _, id := range u.plan[j] {
					m.wanted[j].set(int(id))
				}
			}
		}
	}
}

// unwanted calls do with each sample that a class holds and no plan wants there, and with the class
// that is to hold it, from 1; 0: none.
func (m *migration) unwanted(do func(class, to int, id int32)) {
	m.refresh()
	for j := range m.classes {
		if m.classes[j].KeepAll {
			continue
		}
		for _, id := range m.classes[j].Store.Held() {
			if !m.wanted[j].has(int(id)) {
				do(j, m.class(int(id)), id)
			}
		}
	}
}

// drop drops the unwanted samples for which which is true.
func (m *migration) drop(which func(class, to int, id int32) bool) {
	gone := make([][]int32, len(m.classes))
	m.unwanted(func(class, to int, id int32) {
		if which(class, to, id) {
			gone[class] = append(gone[class], id)
		}
	})
	for j, ids := range gone {
		m.dropFrom(j, ids, which)
	}
}

// dropFrom drops samples from a class, those that are still unwanted and, unless it is nil, for
// which which is true.
func (m *migration) dropFrom(class int, ids []int32, which func(class, to int, id int32) bool) {
	for part := range slices.Chunk(ids, dropTogether) {
		m.migrating.dropping.Lock()
		m.refresh()
		gone := make([]int, 0, len(part))
		for _, id := range part {
			if !m.wanted[class].has(int(id)) &&
				(which == nil || which(class, m.class(int(id)), id)) {
				gone = append(gone, int(id))
			}
		}
		if m.ctx.Err() == nil {
			m.classes[class].Store.Drop(gone...)
		}
		m.migrating.dropping.Unlock()
	}
}

// compact makes the room of dropped samples usable, as much as the plans need.
func (m *migration) compact() {
	for j := range m.classes {
		p := m.classes[j].inPlace
		if p == nil || m.ctx.Err() != nil {
			continue
		}
		var need int64
		for id := range m.index.Len() {
			if m.class(id) == j+1 && !p.Has(id) {
				need += m.index.Size(id)
			}
		}
		if need > 0 {
			p.Compact(m.ctx, need)
		}
	}
}

// remaining are samples of a class.
type remaining struct {
	class int // from 0
	ids   []int32
	bytes int64
}

// copy copies the unwanted samples to the classes that are to hold them, and drops those that are
// there then. It returns how many it has copied, and some of those for which there is no room: of
// the class that holds most of them, as many as are worth dropping without a copy.
func (m *migration) copy() (copied int, left remaining) {
	full, done := make([]remaining, len(m.classes)), make([][]int32, len(m.classes))
	there := func(_, to int, id int32) bool { return to == 0 || m.classes[to-1].Store.Has(int(id)) }
	m.unwanted(func(class, to int, id int32) {
		switch {
		case m.ctx.Err() != nil:
			return
		case there(class, to, id):
		case m.copyTo(to-1, class, int(id)):
			copied++
		default:
			full[class].ids = append(full[class].ids, id)
			full[class].bytes += m.index.Size(int(id))
			return
		}
		if done[class] = append(done[class], id); len(done[class]) == dropTogether {
			m.dropFrom(class, done[class], there)
			done[class] = done[class][:0]
		}
	})
	for j := range m.classes {
		m.dropFrom(j, done[j], there)
		if full[j].bytes > left.bytes || len(left.ids) == 0 {
			left = full[j]
			left.class = j
		}
	}
	if len(left.ids) == 0 {
		return copied, left
	}
	total, _ := m.classes[left.class].Store.Capacity()
	var sum int64
	for i, id := range left.ids {
		if sum += m.index.Size(int(id)); sum >= total/yieldShare {
			left.ids = left.ids[:i+1]
			break
		}
	}
	return copied, left
}

// errOther reports that a copy is not the one that it was a moment before.
var errOther = errors.New("the copy has been replaced")

// copyTo copies a sample from a class to another, and reports whether that holds it then. It does
// nothing if there is no room.
func (m *migration) copyTo(to, from, id int) bool {
	size, target, store := m.index.Size(id), &m.classes[to], m.classes[from].Store
	if total, used := target.Store.Capacity(); total-used < size {
		return false
	}
	reads := &m.meters[FirstClass+Tier(from)] // which this one delays
	read := func(dst []byte) (storageclass.Origin, error) {
		reads.Occupy(len(dst))
		defer reads.Occupy(-len(dst))
		origin, _ := store.Origin(id)
		err := store.Read(id, dst)
		if now, _ := store.Origin(id); err == nil && now != origin {
			err = errOther
		}
		return origin, err
	}
	if target.inPlace != nil {
		_ = target.inPlace.Fill(id, read) // a read of the sample may be bringing it already
		return target.Store.Has(id)
	}
	m.buffer = slices.Grow(m.buffer[:0], int(size))[:size]
	if origin, err := read(m.buffer); err == nil {
		_ = target.writer.Write(id, m.buffer, origin)
	}
	return target.Store.Has(id)
}
