package cache

import (
	"context"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// # Dynamic migration
//
// A plan that replaces another while jobs run (thesis chapter 7) finds the classes full of the
// samples of the old one. Release makes room for it (store.Migration), once every job has a plan,
// so that none loses what its first plan will count on, and once no read is in progress that began
// by an old plan.
//
// Batches flow meanwhile. A sample is in one of the classes at all times, or else is read from the
// source as any other; no lock is held that a read takes. A plan that is set while samples are
// dropped waits for these, for some milliseconds (migrating.dropping): the plan before drops none
// of the new one's samples.

// migrating serialises Release.
type migrating struct {
	turn chan struct{} // holds a token while Release runs
	// dropping holds a token while samples are dropped by the plans, and while a plan is replaced. It
	// is taken before uses.
	dropping chan struct{}
}

// longDrop is for how long a plan waits for samples that are being dropped. If a class hangs, the
// plan does not wait any longer: its samples may be dropped then, and are read again.
const longDrop = 2 * time.Second

// settled waits until no samples are dropped, and lets none be until release is called.
func (m *migrating) settled() (release func()) {
	timeout := time.NewTimer(longDrop)
	defer timeout.Stop()
	select {
	case m.dropping <- struct{}{}:
		return func() { <-m.dropping }
	case <-timeout.C:
		return func() {}
	}
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

// unsettled is how long Release waits for jobs without a plan, and for reads, before it goes on
// without them: a job loses copies at worst, which it reads again.
const unsettled = 30 * time.Second

// Release makes room for the plans that jobs have set with Keep: it drops from a class what none of
// them assigns to it, except from classes that keep everything. What another class of this node is
// to hold is copied there first if it has room, without a read from the source. Keep comes before,
// and Fill after it.
//
// It returns when the room can be used, which takes seconds if processes still view what was
// dropped, or when the job's use is closed: if a class hangs then, Cache.Close reports it. One call
// at a time makes room; others wait for it.
func (u *Use) Release() {
	c := u.cache
	u.migrates.Store(true)
	select {
	case c.migrating.turn <- struct{}{}:
	case <-u.ctx.Done():
		return
	}
	done := make(chan struct{})
	go func() { // owned by the cache: Close waits for its turn
		defer close(done)
		defer func() { <-c.migrating.turn }()
		u.release()
	}()
	select {
	case <-done:
		return
	case <-u.ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(time.Second): // a class hangs
	}
}

// release is Release when it is the job's turn.
func (u *Use) release() {
	c := u.cache
	m := migration{Cache: c, ctx: u.ctx, version: -1}
	m.decide()
	m.settle()
	stores := store.Migration{Samples: c.index.Len(), Size: c.index.Size, Wishes: &m}
	for j := range c.classes {
		cl := &c.classes[j]
		s := store.Migrating{
			Store: cl.Store, Fixed: cl.KeepAll,
			Occupy: c.meters[FirstClass+Tier(j)].Occupy,
		}
		if cl.writer != nil {
			s.Write = cl.writer.Write
		}
		stores.Stores = append(stores.Stores, s)
	}
	stores.Run(u.ctx)
	// There may be room now for samples for which there was none, as reads that end now found too.
	m.settle()
	c.demoted.clear()
}

// migration is one Release. It implements store.Wishes.
type migration struct {
	*Cache
	ctx     context.Context
	version int      // of the plans that wanted is of
	wanted  []bitset // by class, what some job's plan assigns to it
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
	for _, fl := range m.flights.Flying() {
		select {
		case <-fl.Done():
		case <-ctx.Done():
		}
	}
	for _, cl := range m.classes {
		if cl.writer != nil {
			cl.writer.Flush(ctx)
		}
	}
}

// Hold implements store.Wishes.
func (m *migration) Hold(f func()) {
	m.migrating.dropping <- struct{}{}
	defer func() { <-m.migrating.dropping }()
	m.refresh()
	f()
}

// Wanted implements store.Wishes.
func (m *migration) Wanted(class, id int) bool { return m.wanted[class].has(id) }

// Home implements store.Wishes.
func (m *migration) Home(id int) int { return m.class(id) - 1 }

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
