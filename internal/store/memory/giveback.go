package memory

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// # Giving memory back
//
// GiveBack clears the places of a segment's samples first, and notifies the tenants then. So what a
// tenant plans after it was notified cannot name the segment, and each only has to wait for what it
// had planned before. When all have settled, the segment is unmapped as soon as the last view of it
// is released.

// tenancy is a tenant of a store.
type tenancy struct{ store.Tenant }

// Join implements store.Shrinker.
func (s *classStore) Join(t store.Tenant) (leave func()) {
	joined := &tenancy{t}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tenants = append(s.mu.tenants, joined)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.tenants = slices.DeleteFunc(slices.Clone(s.mu.tenants), func(o *tenancy) bool {
			return o == joined
		})
	}
}

// Segments implements store.Shrinker.
func (s *classStore) Segments() (out []store.Extent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.segments.Load().list {
		if g == nil || g.state != live || g.adding > 0 || g.backed == 0 {
			continue
		}
		e := store.Extent{Number: g.number, Bytes: g.backed, Dead: g.dead}
		for _, id := range g.samples {
			if g.holds(id) {
				e.Held = append(e.Held, id)
			}
		}
		out = append(out, e)
	}
	return out
}

// holds reports whether the segment holds a sample that was added to it. store.mu must be held.
func (g *segment) holds(id int32) bool {
	at := packed(g.store.where[id].Load())
	return at > 0 && at.segment() == g.number
}

// GiveBack implements store.Shrinker.
func (s *classStore) GiveBack(number uint32, why string) bool {
	return s.giveBack(number, func(r *store.Returned, bytes int64) {
		r.Segments++
		r.Bytes += bytes
		r.Now += bytes
		r.Last, r.Why = time.Now(), why
	})
}

// giveBack is GiveBack, and has count count the segment's memory.
func (s *classStore) giveBack(number uint32,
	count func(r *store.Returned, bytes int64),
) bool {
	s.mu.Lock()
	g := s.segments.Load().of(number)
	if g == nil || g.state != live || g.adding > 0 {
		s.mu.Unlock()
		return false
	}
	g.to(dropping)
	var ids []int32
	for _, id := range g.samples {
		if g.holds(id) {
			if at := packed(s.where[id].Load()); at.form() {
				s.uncount(int(id), g.head(at))
			}
			s.where[id].Store(absent)
			s.mu.order.Gone(s.holds)
			ids = append(ids, id)
		}
	}
	g.held = 0
	_, used := g.space.Capacity()
	s.mu.used -= used
	for i, current := range s.mu.current {
		if current == g {
			s.mu.current[i] = nil
		}
	}
	g.since = time.Now()
	s.mu.leaving = append(s.mu.leaving, g)
	s.mu.lent += g.backed
	count(&s.mu.returned, g.backed)
	tenants := s.mu.tenants
	g.unsettled, g.mapping = len(tenants), len(tenants)
	s.mu.Unlock()
	if len(tenants) == 0 {
		g.Release()
	}
	for _, t := range tenants {
		t.Vacate(number, ids, sync.OnceFunc(g.settled), sync.OnceFunc(g.gone))
	}
	return true
}

// settled notes that a tenant refers to the segment by number no more.
func (g *segment) settled() {
	g.store.mu.Lock()
	g.unsettled--
	last := g.unsettled == 0
	g.store.mu.Unlock()
	if last {
		g.Release()
	}
}

// gone notes that no process of a tenant maps the segment any more.
func (g *segment) gone() {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	g.mapping--
	g.end()
}

// unmapped notes that the daemon has unmapped a segment.
func (s *classStore) unmapped(g *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments.Store(s.segments.Load().without(g))
	g.unmapped = true
	if g.state == closed { // with its store
		s.class.taken.Add(-g.backed)
		return
	}
	g.to(lent)
	g.end()
}

// end closes a segment that neither the daemon nor a process maps. store.mu must be held.
func (g *segment) end() {
	s := g.store
	if !g.unmapped || g.mapping > 0 {
		return
	}
	g.to(closed)
	s.class.taken.Add(-g.backed)
	s.class.returns.note(time.Since(g.since))
	s.mu.leaving = slices.DeleteFunc(s.mu.leaving, func(o *segment) bool { return o == g })
	s.mu.lent -= g.backed
}

// Returned implements store.Shrinker.
func (s *classStore) Returned() store.Returned {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.returned
	r.Used = s.mu.lent
	return r
}

// returns measures how long it takes until a segment that is given back is free.
type returns struct {
	sync.Mutex
	longest time.Duration // at a time, since when it has decayed
	at      time.Time
}

// returnsHalve is the time in which half of a measured time is forgotten.
const returnsHalve = 30 * time.Second

// note records one segment's time.
func (r *returns) note(took time.Duration) {
	r.Lock()
	defer r.Unlock()
	r.longest, r.at = max(took, r.now()), time.Now()
}

// now returns the longest of the last times. r must be locked.
func (r *returns) now() time.Duration {
	if r.longest == 0 {
		return 0
	}
	passed := float64(time.Since(r.at)) / float64(returnsHalve)
	return time.Duration(float64(r.longest) * math.Exp2(-passed))
}

// Delay returns how long it takes until a segment that is given back is free: the longest of the
// last times that were measured, decaying, or what a tenant estimates if that is more.
func (c *Class) Delay() time.Duration {
	c.returns.Lock()
	longest := c.returns.now()
	c.returns.Unlock()
	for _, s := range c.all() {
		s.mu.Lock()
		tenants := s.mu.tenants
		s.mu.Unlock()
		for _, t := range tenants {
			longest = max(longest, t.Delay())
		}
	}
	return longest
}

// Leaving returns the memory, in bytes, of segments that were given back since a time, and is not
// free yet.
func (c *Class) Leaving(since time.Time) (sum int64) {
	for _, s := range c.all() {
		s.mu.Lock()
		for _, g := range s.mu.leaving {
			if g.since.After(since) {
				sum += g.backed
			}
		}
		s.mu.Unlock()
	}
	return sum
}

func (c *Class) all() (stores []*classStore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.mu.stores {
		stores = append(stores, s)
	}
	return stores
}

// Allow sets how many bytes the stores may allocate in addition to what they have, until it is
// called again; negative counts as 0. If they may grow again after they could not, for this reason
// or because memory that was given back was not free, their tenants are notified. If it is never
// called, there is no limit.
//
// While it is 0, they may still use again what becomes free of what they have, as when forms become
// samples: up to a ceiling, which GiveBack lowers.
func (c *Class) Allow(bytes int64) {
	before := c.allowance.Swap(max(bytes, 0))
	if bytes <= 0 {
		c.ceiling.CompareAndSwap(noCeiling, c.taken.Load())
		return
	}
	c.ceiling.Store(noCeiling)
	for _, s := range c.all() {
		s.mu.Lock()
		again := s.mu.waits && (s.mu.lent == 0 || s.room() >= s.mu.size)
		if before <= 0 {
			again = true
			s.mu.refused = false
			s.mu.returned.Now = 0
		}
		if again {
			s.mu.waits = false
		}
		tenants := s.mu.tenants
		s.mu.Unlock()
		for _, t := range tenants {
			if again {
				t.Refill()
			}
		}
	}
}

// SetHorizon sets for how long ahead of their use samples should be located.
func (c *Class) SetHorizon(d time.Duration) { c.horizon.Store(int64(d)) }

// take counts n bytes more as taken, of the allowance or below the ceiling, or beyond both. It
// reports whether it did.
func (c *Class) take(n int64, beyond bool) bool {
	allowed := c.allow(n)
	if now := c.taken.Add(n); allowed || beyond || now <= c.ceiling.Load() {
		return true
	}
	c.taken.Add(-n)
	return false
}

// allow takes n bytes of the allowance. If there are too few, none are left afterwards, so that the
// samples that follow need not try.
func (c *Class) allow(n int64) bool {
	for {
		left := c.allowance.Load()
		switch {
		case left == math.MaxInt64:
			return true
		case left < n && c.allowance.CompareAndSwap(left, 0):
			return false
		case left >= n && c.allowance.CompareAndSwap(left, left-n):
			return true
		}
	}
}

// GiveBack gives back at least so many bytes, if the stores have as many, and returns how many it
// began to give back. They are free when nothing uses them any more. First come the stores that no
// job has open, as a whole, the one opened longest ago first. Then come segments, the least useful
// first: the one whose samples its tenants can do without first, by the mean over its samples
// (store.Tenant.Rank); of equal ones, the newest.
func (c *Class) GiveBack(bytes int64, why string) (begun int64) {
	taken := c.taken.Load()
	defer func() {
		if ceiling := c.ceiling.Load(); ceiling != noCeiling {
			c.ceiling.Store(max(min(ceiling, taken)-begun, 0))
		}
	}()
	begun = c.evictIdle(bytes)
	type candidate struct {
		store *classStore
		store.Extent
		rank float64
	}
	var all []candidate
	if begun >= bytes {
		return begun
	}
	for _, s := range c.all() {
		rank := s.rank()
		for _, e := range s.Segments() {
			x := candidate{s, e, 2}
			if len(e.Held) > 0 {
				x.rank = 0
			}
			for _, id := range e.Held {
				x.rank += rank(id) / float64(len(e.Held))
			}
			all = append(all, x)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.Number, a.Number))
	})
	for _, x := range all {
		if begun >= bytes {
			break
		}
		if x.store.GiveBack(x.Number, why) {
			begun += x.Bytes
		}
	}
	return begun
}

// rank returns the least rank of a sample over the store's tenants.
func (s *classStore) rank() func(id int32) float64 {
	s.mu.Lock()
	tenants := s.mu.tenants
	s.mu.Unlock()
	ranks := make([]func(int32) float64, len(tenants))
	for i, t := range tenants {
		ranks[i] = t.Rank()
	}
	return func(id int32) float64 {
		least := 2.0
		for _, rank := range ranks {
			least = min(least, rank(id))
		}
		return least
	}
}

// evictIdle evicts idle stores, the one opened longest ago first, until so many bytes are freed or
// none is left.
func (c *Class) evictIdle(bytes int64) (freed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for freed < bytes {
		oldest := c.oldest(nil)
		if oldest == nil {
			break
		}
		freed += oldest.live()
		c.evict(oldest)
	}
	return freed
}

// live returns the memory, in bytes, that evicting the store frees.
func (s *classStore) live() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backed()
}

// backed returns the memory that the live segments have allocated, in bytes. s.mu must be held.
func (s *classStore) backed() (sum int64) {
	for _, g := range s.segments.Load().list {
		if g != nil && g.state == live {
			sum += g.backed
		}
	}
	return sum
}

// promised returns how many bytes the store may still allocate. s.class.mu must be held.
func (s *classStore) promised() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.mu.capacity-s.backed(), 0)
}
