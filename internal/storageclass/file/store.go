package file

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/arena"
)

// What store.where says of a sample that is not held. One that is held has its
// offset + 1 there.
const (
	absent = 0
	coming = -1 // a Put runs, or it is being dropped
)

// store holds the samples of one dataset.
//
// A sample goes from absent to coming by compare-and-swap, so one Put at a time
// has it. Putting takes five steps: reserve bytes (under mu), write them and
// compute their checksum (parallel), note the record (under the journal's lock;
// every 64th writes), note the sample as held (under mu), store its offset.
// Dropping a corrupt sample is the way back, and its record is written before
// its bytes can be given out again.
type store struct {
	class       *Class
	fingerprint [16]byte
	sampleSize  func(id int) int64
	data        *os.File
	journal     journal
	opened      time.Time
	where       []atomic.Int64
	sums        []atomic.Uint32 // CRC-32C of what is held; stored before where

	opens int // class.mu guards it

	mu struct {
		sync.Mutex
		space arena.Space
		held  []int32
	}
}

var _ storageclass.Store = (*store)(nil)

// Has is storageclass.Store's.
func (s *store) Has(id int) bool {
	return uint(id) < uint(len(s.where)) && s.where[id].Load() > 0
}

// Held is storageclass.Store's.
func (s *store) Held() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.held)
}

// Room is storageclass.Store's. Samples cost their bytes and nothing else; the
// index, 32 bytes a sample, comes out of the disk's reserve.
func (s *store) Room() (total, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.space.Room()
}

// Put is storageclass.Store's.
func (s *store) Put(id int, data []byte) error {
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
	sum := crc32.Checksum(data, castagnoli)
	s.sums[id].Store(sum)
	err = s.journal.add(record{uint32(id), sum, uint64(offset), uint64(len(data))}, false)
	if err != nil {
		s.class.stop(err.Error())
	}
	s.mu.Lock()
	s.mu.held = append(s.mu.held, int32(id))
	s.where[id].Store(offset + 1)
	s.mu.Unlock()
	s.class.wrote(int64(len(data)))
	return nil
}

// write reserves bytes and writes data there.
func (s *store) write(id int, data []byte) (offset int64, err error) {
	if s.class.full.Load() {
		return 0, storageclass.ErrFull
	}
	n := int64(len(data))
	s.mu.Lock()
	offset, ok := s.mu.space.Reserve(n)
	s.mu.Unlock()
	if !ok {
		return 0, storageclass.ErrFull
	}
	if _, err = s.data.WriteAt(data, offset); err == nil {
		return offset, nil
	}
	s.mu.Lock()
	s.mu.space.Release(offset, n)
	s.mu.Unlock()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		s.class.stop(err.Error())
		return 0, storageclass.ErrFull
	}
	return 0, fmt.Errorf("file class: put sample %d: %w", id, err)
}

// Read is storageclass.Store's. A sample that the disk does not give back is
// ErrCorrupt as well.
func (s *store) Read(id int, dst []byte) error {
	if uint(id) >= uint(len(s.where)) {
		return storageclass.ErrNotHeld
	}
	at := s.where[id].Load()
	if at <= 0 {
		return storageclass.ErrNotHeld
	}
	if int64(len(dst)) != s.sampleSize(id) {
		return fmt.Errorf("file class: read: %w", s.check(id, len(dst)))
	}
	sum := s.sums[id].Load()
	_, err := s.data.ReadAt(dst, at-1)
	if err == nil && crc32.Checksum(dst, castagnoli) == sum {
		return nil
	}
	s.drop(id, at)
	if err != nil {
		return fmt.Errorf("file class: read sample %d: %w: %w", id, storageclass.ErrCorrupt, err)
	}
	return storageclass.ErrCorrupt
}

// drop forgets the sample, if it is still that which lies at where == at.
func (s *store) drop(id int, at int64) {
	if !s.where[id].CompareAndSwap(at, coming) {
		return
	}
	if err := s.journal.add(record{id: uint32(id), offset: uint64(at - 1), length: dropped}, true); err != nil {
		s.class.stop(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.mu.held, int32(id)); i >= 0 {
		s.mu.held = slices.Delete(s.mu.held, i, i+1)
	}
	s.mu.space.Release(at-1, s.sampleSize(id))
	s.where[id].Store(absent)
}

// Close is storageclass.Store's.
func (s *store) Close() error { return s.class.closeStore(s) }

// shut writes what waits, closes the files, and returns the data file's size.
func (s *store) shut() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.data.Close(), s.journal.shut())
	return s.mu.space.End(), err
}

// check refuses an ID out of range, and a length that is not the sample's.
func (s *store) check(id, length int) error {
	if id < 0 || id >= len(s.where) {
		return fmt.Errorf("sample %d is not in [0, %d)", id, len(s.where))
	}
	if size := s.sampleSize(id); int64(length) != size {
		return fmt.Errorf("sample %d has %d bytes, not %d", id, size, length)
	}
	return nil
}
