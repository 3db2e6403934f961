package file

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/arena"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// Values of store.where for samples that are not held. For a sample that is held it is the offset +
// 1, and formBit if its copy is in another form than as read.
const (
	absent  = 0
	coming  = -1 // a Put or a drop is in progress
	formBit = 1 << 62
)

// store holds the samples of one dataset.
//
// A sample goes from absent to coming by compare-and-swap, so only one Put at a time has it. Put
// takes five steps: reserve bytes (under mu), write them (in parallel), add the record (under the
// journal's lock; every 64th writes), note the sample as held (under mu), store its offset.
// Dropping samples is the reverse: they are coming, their records are written, and only then are
// their bytes free to be reused. A read in progress may then see the bytes of another sample; it
// distinguishes that from a corrupt copy by drops.
type classStore struct {
	class       *Class
	fingerprint [16]byte
	sampleSize  func(id int) int64
	data        disk.File
	prompt      disk.Prompt // data; nil: it cannot be read without waiting
	journal     journal
	opened      time.Time
	where       []atomic.Int64
	// Of held samples; stored before where.
	sums      []atomic.Uint32 // the samples' digests
	instances []atomic.Uint64 // directory << 32 | instance
	// drops counts how often bytes were freed. A read during which it has not changed has seen no
	// byte of another sample.
	drops atomic.Uint64

	opens int // guarded by class.mu

	mu struct { // guards the following
		invariants.Mutex[classStore]
		space  arena.Space
		order  arena.Order
		total  int64 // bytes that samples as read may take
		forms  []form
		formed store.Formed // of forms
		coming int64        // bytes of copies that are to replace others
	}
}

var (
	_ store.FormReader = (*classStore)(nil)
	_ store.Refuser    = (*classStore)(nil)
)

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

// Capacity implements store.Store. Samples take their bytes and nothing else; the index, 40
// bytes per sample, is taken from the disk's reserve. What forms take more is added to the total.
func (s *classStore) Capacity() (total, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.space.Capacity()
}

// Refuses implements store.Refuser.
func (s *classStore) Refuses() string {
	if why := s.class.stopped.Load(); why != nil {
		return *why
	}
	return ""
}

// Put implements store.Store.
func (s *classStore) Put(id int, data []byte, origin store.Origin) error {
	if err := s.check(id, len(data)); err != nil {
		return fmt.Errorf("file class: put: %w", err)
	}
	if !s.where[id].CompareAndSwap(absent, coming) {
		return nil
	}
	offset, err := s.write(id, data)
	if err != nil {
		s.where[id].Store(absent)
		return err
	}
	s.note(id, origin)
	err = s.journal.add(false, Record{
		ID: uint32(id), Offset: uint64(offset), Length: uint64(len(data)), Origin: origin,
	})
	if err != nil {
		s.class.stop(disk.Why(err))
	}
	s.mu.Lock()
	s.mu.order.Came(int32(id))
	s.where[id].Store(offset + 1)
	s.mu.Unlock()
	s.class.wrote(int64(len(data)))
	return nil
}

// note stores the origin of a sample that is coming.
func (s *classStore) note(id int, origin store.Origin) {
	s.sums[id].Store(origin.Digest)
	s.instances[id].Store(uint64(origin.Directory)<<32 | uint64(origin.Instance))
}

// Origin implements store.Store.
func (s *classStore) Origin(id int) (store.Origin, bool) {
	if !s.Has(id) {
		return store.Origin{}, false
	}
	return s.origin(id), true
}

func (s *classStore) origin(id int) store.Origin {
	at := s.instances[id].Load()
	return store.Origin{
		Digest:    s.sums[id].Load(),
		Directory: uint32(at >> 32),
		Instance:  uint32(at),
	}
}

// dropBatch is how many samples are dropped together: with one write to the index, and one pass
// over the free bytes.
const dropBatch = 16 << 10

// Drop implements store.Store.
func (s *classStore) Drop(ids ...int) {
	for part := range slices.Chunk(ids, dropBatch) {
		taken := make([]located, 0, len(part))
		for _, id := range part {
			if uint(id) >= uint(len(s.where)) {
				continue
			}
			if l := (located{id, s.where[id].Load()}); l.at > 0 && s.take(l) {
				taken = append(taken, l)
			}
		}
		s.remove(taken)
	}
}

// located is a sample and its value in where.
type located struct {
	id int
	at int64
}

// take makes a sample coming if it is still there. The caller must remove it.
func (s *classStore) take(l located) bool { return s.where[l.id].CompareAndSwap(l.at, coming) }

// remove removes samples that were taken.
func (s *classStore) remove(taken []located) {
	if len(taken) == 0 {
		return
	}
	records, freed := make([]Record, len(taken)), make([]arena.Extent, len(taken))
	for i, l := range taken {
		records[i] = Record{ID: uint32(l.id), Offset: uint64(offsetOf(l.at)), Length: Dropped}
	}
	if err := s.journal.add(true, records...); err != nil {
		s.class.stop(disk.Why(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops.Add(1)
	for i, l := range taken {
		freed[i] = s.extent(l)
		s.count(s.formedOf(l), -1)
	}
	s.mu.space.ReleaseAll(freed)
	s.resize()
	for _, l := range taken {
		s.where[l.id].Store(absent)
		s.mu.order.Gone(s.holds)
	}
}

// write reserves bytes and writes data to them.
func (s *classStore) write(id int, data []byte) (offset int64, err error) {
	if s.Refuses() != "" {
		return 0, store.ErrFull
	}
	n := int64(len(data))
	s.mu.Lock()
	offset, ok := s.mu.space.Reserve(n)
	s.mu.Unlock()
	if !ok {
		return 0, store.ErrFull
	}
	if _, err = s.data.WriteAt(data, offset); err == nil {
		s.class.failed.Store(0)
		return offset, nil
	}
	s.mu.Lock()
	s.mu.space.Release(offset, n)
	s.mu.Unlock()
	if s.class.failing(err) {
		return 0, store.ErrFull
	}
	return 0, fmt.Errorf("file class: put sample %d: %w", id, err)
}

// Read implements store.Store. A sample that the disk fails to return is ErrCorrupt as well.
func (s *classStore) Read(id int, dst []byte) error {
	if uint(id) >= uint(len(s.where)) {
		return store.ErrNotHeld
	}
	for {
		drops := s.drops.Load()
		l := located{id, s.where[id].Load()}
		switch {
		case l.at <= 0:
			return store.ErrNotHeld
		case l.at&formBit != 0:
			return store.ErrForm
		}
		if int64(len(dst)) != s.sampleSize(id) {
			return fmt.Errorf("file class: read: %w", s.check(id, len(dst)))
		}
		sum := s.sums[id].Load()
		_, err := s.data.ReadAt(dst, l.at-1)
		if err == nil && digest.Of(dst) == sum {
			return nil
		}
		if s.drops.Load() != drops {
			continue // its bytes may have been another sample's already
		}
		return s.corrupt(l, err)
	}
}

// corrupt drops a copy whose checksum is wrong, or that the disk does not return, and returns the
// error for that.
func (s *classStore) corrupt(l located, err error) error {
	if s.take(l) {
		s.remove([]located{l})
	}
	if err != nil {
		return fmt.Errorf("file class: read sample %d: %w: %w", l.id, store.ErrCorrupt, err)
	}
	return store.ErrCorrupt
}

// ReadNow implements store.Prompt.
func (s *classStore) ReadNow(id int, dst []byte) error {
	if s.prompt == nil || uint(id) >= uint(len(s.where)) || int64(len(dst)) != s.sampleSize(id) {
		return store.ErrWait
	}
	at, sum := s.where[id].Load(), s.sums[id].Load()
	if at <= 0 || at&formBit != 0 || !s.prompt.ReadNow(dst, at-1) || digest.Of(dst) != sum {
		return store.ErrWait // Read drops a corrupt copy, which writes to the disk
	}
	return nil
}

// holds reports whether sample id is held.
func (s *classStore) holds(id int32) bool { return s.where[id].Load() > 0 }

// Close implements store.Store.
func (s *classStore) Close() error { return s.class.closeStore(s) }

// shut writes pending records, closes the files, and returns the data file's size.
func (s *classStore) shut() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.data.Close(), s.journal.shut())
	return s.mu.space.End(), err
}

// check returns an error for an ID out of range, or a length that is not the sample's.
func (s *classStore) check(id, length int) error {
	if id < 0 || id >= len(s.where) {
		return fmt.Errorf("sample %d is not in [0, %d)", id, len(s.where))
	}
	if size := s.sampleSize(id); int64(length) != size {
		return fmt.Errorf("sample %d has %d bytes, not %d", id, size, length)
	}
	return nil
}
