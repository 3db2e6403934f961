package memory

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/arena"
)

// store holds the samples of one dataset.
//
// A sample goes from absent to coming by compare-and-swap, which makes the caller its only writer.
// Its bytes are written without a lock, since they are not visible to others yet; the location is
// stored last, so a reader that finds the location finds the bytes complete. The lock covers
// allocation, not writing.
//
// A reader in place takes no lock either: it reads the location, counts itself as a user of the
// segment (segment.use), and reads the location again. If that has not changed, the sample was in
// the segment when it could no longer be unmapped. Numbers of segments are never used twice, so the
// location of a sample that was added again is another one.
type classStore struct {
	class   *Class
	dataset store.Dataset
	where   []atomic.Int64 // packed location, or one of the values above
	// Of held samples; stored before where.
	digests   []atomic.Uint32
	instances []atomic.Uint64 // directory << 32 | instance
	// segments has those that are mapped, by number. A table is replaced, never modified.
	segments atomic.Pointer[table]

	opens  int   // guarded by class.mu
	opened int64 // guarded by class.mu: value of class.mu.clock when the store was last opened

	mu struct { // guards the following, and the fields of segments that say so
		invariants.Mutex[classStore]
		capacity int64       // bytes that samples may take
		used     int64       // bytes that samples take
		size     int64       // of new segments
		current  [2]*segment // for samples as read, and for forms
		last     uint32      // number of the segment that was made last, plus 1
		refused  bool        // the kernel refused more memory
		order    arena.Order
		tenants  []*tenancy
		leaving  []*segment // dropping or lent
		lent     int64      // bytes of memory of leaving
		// waits is set when a sample was refused that will fit once what is leaving is free.
		waits    bool
		returned store.Returned
		formed   store.Formed
		released bool
	}
}

var _ interface {
	store.Forms
	store.Shrinker
} = (*classStore)(nil)

// newStore creates an empty store. Its first segment is made at once, so that a system that denies
// such memory is noticed.
func newStore(c *Class, ds store.Dataset, capacity int64) (*classStore, error) {
	s := &classStore{
		class:     c,
		dataset:   ds,
		where:     make([]atomic.Int64, ds.Samples),
		digests:   make([]atomic.Uint32, ds.Samples),
		instances: make([]atomic.Uint64, ds.Samples),
	}
	s.segments.Store(&table{})
	s.resize(capacity)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.extend(0, capacity, place{}); err != nil {
		return nil, limited(capacity, err)
	}
	return s, nil
}

// extend makes a segment that has n bytes free, and no more than room if n allows it, and makes it
// the current one for what is placed so. s.mu must be held.
func (s *classStore) extend(n, room int64, p place) error {
	if s.mu.last == store.MaxSegments {
		return store.ErrFull
	}
	size := s.mu.size
	if p.form {
		size = s.formSize()
	}
	g, err := newSegment(s, s.mu.last, max(n, min(size, room)))
	if err != nil {
		return err
	}
	s.mu.last++
	g.form = p.form
	s.mu.current[p.which()] = g
	s.segments.Store(s.segments.Load().with(g))
	return nil
}

// release frees the memory of a store that no job has open.
func (s *classStore) release() {
	s.mu.Lock()
	if s.mu.released {
		s.mu.Unlock()
		return
	}
	s.mu.released = true
	var all []*segment
	for _, g := range s.segments.Load().list {
		if g != nil && g.state == live {
			g.to(closed)
			all = append(all, g)
		}
	}
	s.mu.Unlock()
	for _, g := range all {
		g.Release()
	}
}

// Has implements store.Store.
func (s *classStore) Has(id int) bool {
	return uint(id) < uint(len(s.where)) && s.where[id].Load() > 0
}

// Held implements store.Store.
func (s *classStore) Held() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.order.Held(s.holds)
}

// Capacity implements store.Store. Samples take their bytes and nothing else.
func (s *classStore) Capacity() (total, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.capacity, s.mu.used
}

// Put implements store.Store.
func (s *classStore) Put(id int, data []byte, origin store.Origin) error {
	if err := s.check(id, len(data)); err != nil {
		return fmt.Errorf("memory class: put: %w", err)
	}
	if !s.where[id].CompareAndSwap(absent, coming) {
		return nil
	}
	g, offset, err := s.reserve(id)
	if err != nil {
		return err
	}
	copy(g.mapped[offset:], data)
	s.publish(id, g, offset, false, origin)
	return nil
}

// Origin implements store.Store.
func (s *classStore) Origin(id int) (store.Origin, bool) {
	if !s.Has(id) {
		return store.Origin{}, false
	}
	at := s.instances[id].Load()
	return store.Origin{
		Digest:    s.digests[id].Load(),
		Directory: uint32(at >> 32),
		Instance:  uint32(at),
	}, true
}

// holds reports whether sample id is held.
func (s *classStore) holds(id int32) bool { return s.where[id].Load() > 0 }

// Fill implements store.InPlace.
func (s *classStore) Fill(id int, read func(dst []byte) (store.Origin, error)) error {
	if err := s.check(id, -1); err != nil {
		return fmt.Errorf("memory class: fill: %w", err)
	}
	if !s.where[id].CompareAndSwap(absent, coming) {
		return fmt.Errorf("memory class: fill: sample %d is held or being filled", id)
	}
	g, offset, err := s.reserve(id)
	if err != nil {
		return err
	}
	n := s.dataset.Size(id)
	done := false
	defer func() {
		if !done { // read failed, or panicked
			s.mu.Lock()
			s.abandon(g, offset, s.takes(id))
			s.mu.Unlock()
			s.where[id].Store(absent)
		}
	}()
	g.populate(offset + n)
	origin, err := read(g.mapped[offset : offset+n : offset+n])
	if err != nil {
		return err
	}
	done = true
	s.publish(id, g, offset, false, origin)
	return nil
}

// Growing implements store.Shrinker.
func (s *classStore) Growing() bool { return s.class.allowance.Load() > 0 }

// Freed implements store.Shrinker.
func (s *classStore) Freed() int64 {
	if s.Growing() {
		return 0
	}
	return max(s.class.ceiling.Load()-s.class.taken.Load(), 0)
}

// Horizon implements store.Shrinker.
func (s *classStore) Horizon() time.Duration { return time.Duration(s.class.horizon.Load()) }

// Locate implements store.InPlace.
func (s *classStore) Locate(id int) (at store.Position, ok bool) {
	if uint(id) >= uint(len(s.where)) {
		return store.Position{}, false
	}
	p := packed(s.where[id].Load())
	if p <= 0 || p.form() {
		return store.Position{}, false
	}
	return store.Position{Segment: p.segment(), Offset: p.offset()}, true
}

// View implements store.InPlace.
func (s *classStore) View(id int) (v store.View, ok bool) {
	g, at, ok := s.find(id)
	if !ok {
		return v, false
	}
	if at.form() {
		g.Release()
		return v, false
	}
	offset := at.offset()
	end := offset + s.dataset.Size(id)
	return store.View{
		Hold: g, Data: g.mapped[offset:end:end],
		At: store.Position{Segment: g.number, Offset: offset},
	}, true
}

// find returns the segment of a sample, which the caller must release, and the sample's location.
func (s *classStore) find(id int) (g *segment, at packed, ok bool) {
	if uint(id) >= uint(len(s.where)) {
		return nil, 0, false
	}
	for {
		p := packed(s.where[id].Load())
		if p <= 0 {
			return nil, 0, false
		}
		if g := s.segments.Load().of(p.segment()); g != nil && g.use() {
			if packed(s.where[id].Load()) == p {
				return g, p, true
			}
			g.Release()
		}
	}
}

// Read implements store.Store. It never returns ErrCorrupt: memory is trusted.
func (s *classStore) Read(id int, dst []byte) error {
	g, at, ok := s.find(id)
	if !ok {
		return store.ErrNotHeld
	}
	defer g.Release()
	if at.form() {
		return store.ErrForm
	}
	if int64(len(dst)) != s.dataset.Size(id) {
		return fmt.Errorf("memory class: read: %w", s.check(id, len(dst)))
	}
	copy(dst, g.mapped[at.offset():])
	return nil
}

// Segment implements store.InPlace.
func (s *classStore) Segment(number uint32) (memfd *os.File, size int64, ok bool) {
	g := s.segments.Load().of(number)
	if g == nil {
		return nil, 0, false
	}
	return g.file, g.size, true
}

// Close implements store.Store.
func (s *classStore) Close() error { return s.class.closeStore(s) }

// check returns an error for an ID out of range, or a length (unless negative) that is not the
// sample's.
func (s *classStore) check(id, length int) error {
	if id < 0 || id >= len(s.where) {
		return fmt.Errorf("sample %d is not in [0, %d)", id, len(s.where))
	}
	if size := s.dataset.Size(id); length >= 0 && int64(length) != size {
		return fmt.Errorf("sample %d has %d bytes, not %d", id, size, length)
	}
	return nil
}

// takes returns how many bytes of the class a sample takes as read: it begins where Dataset.Align
// says.
func (s *classStore) takes(id int) int64 { return s.aligned(s.dataset.Size(id)) }

func (s *classStore) aligned(n int64) int64 {
	if align := s.dataset.Align; align > 1 {
		n = (n + align - 1) &^ (align - 1)
	}
	return n
}

// reserve allocates the sample's bytes and their pages. The sample must be coming; if there is no
// room, it becomes absent.
func (s *classStore) reserve(id int) (*segment, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, room := s.takes(id), s.room()
	if g, offset, ok := s.allocate(n, room, place{}); ok {
		return g, offset, nil
	}
	s.mu.waits = s.mu.waits || n > room && n <= s.mu.capacity-s.mu.used
	s.where[id].Store(absent)
	return nil, 0, store.ErrFull
}

// place restricts where bytes are allocated.
type place struct {
	form   bool     // in a segment for forms
	not    *segment // not there; nil: anywhere
	beyond bool     // the class's allowance does not limit it
}

// which returns the index of the current segment for what is placed so.
func (p place) which() int {
	if p.form {
		return 1
	}
	return 0
}

// allocate allocates n of room bytes. s.mu must be held.
func (s *classStore) allocate(n, room int64, p place) (*segment, int64, bool) {
	if n > room {
		return nil, 0, false
	}
	g, offset, ok := s.fit(n, room, p)
	if !ok {
		return nil, 0, false
	}
	s.mu.used += n
	g.adding++
	g.poison.Reserve(g.mapped, offset, offset+n)
	return g, offset, true
}

// abandon frees what allocate has allocated. s.mu must be held.
func (s *classStore) abandon(g *segment, offset, n int64) {
	g.poison.Release(g.mapped, offset, offset+n)
	g.space.Release(offset, n)
	s.mu.used -= n
	g.adding--
}

// fit allocates n bytes in the current segment, or else in another one, or else in a new one. s.mu
// must be held.
func (s *classStore) fit(n, room int64, p place) (*segment, int64, bool) {
	current := s.mu.current[p.which()]
	if g := current; g != nil && g != p.not {
		if offset, ok := g.reserve(n, p.beyond); ok {
			return g, offset, true
		}
	}
	for _, g := range s.segments.Load().list {
		if g != nil && g.state == live && g.form == p.form && g != current && g != p.not {
			if offset, ok := g.reserve(n, p.beyond); ok {
				return g, offset, true
			}
		}
	}
	if s.mu.refused || n > 0 && !s.Growing() && s.Freed() < n && !p.beyond ||
		s.extend(n, room, p) != nil {
		return nil, 0, false
	}
	current = s.mu.current[p.which()]
	offset, ok := current.reserve(n, p.beyond)
	return current, offset, ok
}

// reserve allocates n bytes of the segment, and their pages; beyond as in back. store.mu must be
// held.
func (g *segment) reserve(n int64, beyond bool) (offset int64, ok bool) {
	if offset, ok = g.space.Reserve(n); ok && !g.back(offset+n, beyond) {
		g.space.Release(offset, n)
		return 0, false
	}
	return offset, ok
}

// publish makes the sample, whose bytes are complete, visible to readers.
func (s *classStore) publish(id int, g *segment, offset int64, form bool, origin store.Origin) {
	s.digests[id].Store(origin.Digest)
	s.instances[id].Store(uint64(origin.Directory)<<32 | uint64(origin.Instance))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.order.Came(int32(id))
	g.add(id, offset, form)
}

// resize sets the capacity of a store that no job has open.
func (s *classStore) resize(capacity int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.capacity, s.mu.size = capacity, s.class.segment
	if s.mu.size == 0 {
		s.mu.size = segmentSize(capacity)
	}
	s.mu.refused = false
}
