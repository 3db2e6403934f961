package memory

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/size"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/arena"
)

// chunk is how much memory is allocated at a time, in bytes.
const chunk = 4 << 20

// Values of store.where for samples that are not held. For a sample that is held it is the offset +
// 1.
const (
	absent = 0
	coming = -1 // a Put or Fill is in progress
)

// store holds the samples of one dataset.
//
// A sample goes from absent to coming by compare-and-swap, which makes the caller its only writer.
// Its bytes are written without a lock, since they are not visible to others yet; the offset is
// stored last, so a reader that finds the offset finds the bytes complete. The lock covers
// allocation, not writing.
type store struct {
	class       *Class
	fingerprint [16]byte
	sampleSize  func(id int) int64
	segment     *os.File
	mapped      []byte // the whole segment, writable
	size        int64  // of the segment
	where       []atomic.Int64
	// Of held samples; stored before where.
	digests   []atomic.Uint32
	instances []atomic.Uint64 // place << 32 | instance

	opens  int   // guarded by class.mu
	opened int64 // guarded by class.mu: value of class.mu.clock when the store was last opened

	mu struct { // guards the following
		invariants.Mutex[store]
		space    arena.Space
		poison   invariants.Poison // of the free bytes in space
		backed   int64             // bytes from the segment's start that have pages
		refused  bool              // the kernel refused more pages
		order    arena.Order
		released bool
	}
}

var _ storageclass.InPlace = (*store)(nil)

// newStore creates an empty store. Its segment is as large as the dataset or, if address space is
// limited, as capacity.
func newStore(c *Class, ds storageclass.Dataset, capacity int64) (*store, error) {
	var all int64
	for id := range ds.Samples {
		all += ds.Size(id)
	}
	s := &store{
		class:       c,
		fingerprint: ds.Fingerprint,
		sampleSize:  ds.Size,
		where:       make([]atomic.Int64, ds.Samples),
		digests:     make([]atomic.Uint32, ds.Samples),
		instances:   make([]atomic.Uint64, ds.Samples),
	}
	err := s.mapSegment(max(all, capacity))
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EFBIG) || errors.Is(err, unix.EINVAL) {
		err = s.mapSegment(capacity)
	}
	if err != nil {
		return nil, limited(capacity, err)
	}
	s.mu.space = arena.New(capacity, true)
	return s, nil
}

// limited turns err into a *storageclass.LimitError if a limit of the system denies the process
// such memory at all.
func limited(capacity int64, err error) error {
	e := &storageclass.LimitError{What: "a store in memory", Need: capacity}
	var limit unix.Rlimit
	switch {
	case errors.Is(err, unix.EFBIG) && unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil:
		e.Limit = int64(min(limit.Cur, math.MaxInt64))
		e.Hint = fmt.Sprintf("shared memory counts as a file, and RLIMIT_FSIZE allows %d "+
			"bytes: raise it (ulimit -f) before the daemon starts, or reduce memory",
			limit.Cur)
	case errors.Is(err, errNoMemfd):
		e.Hint = fmt.Sprintf("%v: samples in memory need memfd_create; allow that system call in "+
			"the container's seccomp profile (it needs Linux 3.17 or later)", err)
	default:
		return err
	}
	return e
}

// errNoMemfd reports that memfd_create is blocked, or missing in the kernel.
var errNoMemfd = errors.New("memfd_create")

// mapSegment creates the memfd, maps it and seals it, in this order: once it is sealed, it can no
// longer be mapped for writing.
func (s *store) mapSegment(length int64) error {
	page := int64(os.Getpagesize())
	length = max((length+page-1)/page*page, page)
	fd, err := unix.MemfdCreate("hdmlp-memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: %w", errNoMemfd, err)
	}
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, length); err != nil {
		unix.Close(fd)
		return fmt.Errorf("resize a memfd to %s: %w", size.Format(length), err)
	}
	mapped, err := unix.Mmap(fd, 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("map a memfd of %s: %w", size.Format(length), err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE |
		unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Munmap(mapped)
		unix.Close(fd)
		return fmt.Errorf("seal a memfd (Linux 5.1 or later is needed): %w", err)
	}
	s.segment = os.NewFile(uintptr(fd), "hdmlp-memory")
	s.mapped, s.size = mapped, length
	return nil
}

func (s *store) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.released {
		return
	}
	s.mu.released = true
	_ = unix.Munmap(s.mapped)
	_ = s.segment.Close()
	s.mapped = nil
	s.class.taken.Add(-s.mu.backed)
}

// Has implements storageclass.Store.
func (s *store) Has(id int) bool {
	return uint(id) < uint(len(s.where)) && s.where[id].Load() > 0
}

// Held implements storageclass.Store.
func (s *store) Held() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.order.Held(s.holds)
}

// Capacity implements storageclass.Store. Samples take their bytes and nothing else.
func (s *store) Capacity() (total, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.space.Capacity()
}

// Put implements storageclass.Store.
func (s *store) Put(id int, data []byte, origin storageclass.Origin) error {
	if err := s.check(id, len(data)); err != nil {
		return fmt.Errorf("memory class: put: %w", err)
	}
	if !s.where[id].CompareAndSwap(absent, coming) {
		return nil
	}
	offset, err := s.reserve(id)
	if err != nil {
		return err
	}
	copy(s.mapped[offset:], data)
	s.publish(id, offset, origin)
	return nil
}

// Origin implements storageclass.Store.
func (s *store) Origin(id int) (storageclass.Origin, bool) {
	if !s.Has(id) {
		return storageclass.Origin{}, false
	}
	at := s.instances[id].Load()
	return storageclass.Origin{
		Digest:   s.digests[id].Load(),
		Place:    uint32(at >> 32),
		Instance: uint32(at),
	}, true
}

// Drop implements storageclass.Store. The sample's bytes are not reused, because processes may have
// them mapped; they are freed when the store is evicted.
func (s *store) Drop(id int) {
	if !s.Has(id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Has(id) { // no other Drop was faster
		s.where[id].Store(absent)
		s.mu.order.Gone(s.holds)
	}
}

// holds reports whether sample id is held.
func (s *store) holds(id int32) bool { return s.where[id].Load() > 0 }

// Fill implements storageclass.InPlace.
func (s *store) Fill(id int, read func(dst []byte) (storageclass.Origin, error)) error {
	if err := s.check(id, -1); err != nil {
		return fmt.Errorf("memory class: fill: %w", err)
	}
	if !s.where[id].CompareAndSwap(absent, coming) {
		return fmt.Errorf("memory class: fill: sample %d is held or being filled", id)
	}
	offset, err := s.reserve(id)
	if err != nil {
		return err
	}
	n := s.sampleSize(id)
	done := false
	defer func() {
		if !done { // read failed, or panicked
			s.mu.Lock()
			s.mu.poison.Release(s.mapped, offset, offset+n)
			s.mu.space.Release(offset, n)
			s.mu.Unlock()
			s.where[id].Store(absent)
		}
	}()
	origin, err := read(s.mapped[offset : offset+n : offset+n])
	if err != nil {
		return err
	}
	done = true
	s.publish(id, offset, origin)
	return nil
}

// Locate implements storageclass.InPlace.
func (s *store) Locate(id int) (offset int64, ok bool) {
	if uint(id) >= uint(len(s.where)) {
		return 0, false
	}
	at := s.where[id].Load()
	return at - 1, at > 0
}

// View implements storageclass.InPlace.
func (s *store) View(id int) (data []byte, ok bool) {
	offset, ok := s.Locate(id)
	if !ok {
		return nil, false
	}
	end := offset + s.sampleSize(id)
	return s.mapped[offset:end:end], true
}

// Read implements storageclass.Store. It never returns ErrCorrupt: memory is trusted.
func (s *store) Read(id int, dst []byte) error {
	offset, ok := s.Locate(id)
	if !ok {
		return storageclass.ErrNotHeld
	}
	if int64(len(dst)) != s.sampleSize(id) {
		return fmt.Errorf("memory class: read: %w", s.check(id, len(dst)))
	}
	copy(dst, s.mapped[offset:])
	return nil
}

// Segment implements storageclass.InPlace.
func (s *store) Segment() (memfd *os.File, size int64) { return s.segment, s.size }

// Close implements storageclass.Store.
func (s *store) Close() error { return s.class.closeStore(s) }

// check returns an error for an ID out of range, or a length (unless negative) that is not the
// sample's.
func (s *store) check(id, length int) error {
	if id < 0 || id >= len(s.where) {
		return fmt.Errorf("sample %d is not in [0, %d)", id, len(s.where))
	}
	if size := s.sampleSize(id); length >= 0 && int64(length) != size {
		return fmt.Errorf("sample %d has %d bytes, not %d", id, size, length)
	}
	return nil
}

// reserve allocates the sample's bytes and their pages. The sample must be coming; if there is no
// capacity, it becomes absent.
func (s *store) reserve(id int) (int64, error) {
	n := s.sampleSize(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	offset, ok := s.mu.space.Reserve(n)
	if ok && !s.back(offset+n) {
		s.mu.space.Release(offset, n)
		ok = false
	}
	if !ok {
		s.where[id].Store(absent)
		return 0, storageclass.ErrFull
	}
	s.mu.poison.Reserve(s.mapped, offset, offset+n)
	return offset, nil
}

// back allocates pages up to the segment's byte end, a chunk at a time, and reports whether it
// could. s.mu is held.
func (s *store) back(end int64) bool {
	if end <= s.mu.backed {
		return true
	}
	if s.mu.refused {
		return false
	}
	capacity, _ := s.mu.space.Capacity()
	to := min(max(end, s.mu.backed+chunk), max(capacity, end))
	for {
		err := unix.Fallocate(int(s.segment.Fd()), 0, s.mu.backed, to-s.mu.backed)
		switch {
		case err == nil:
			s.class.taken.Add(to - s.mu.backed)
			s.mu.backed = to
			return true
		case errors.Is(err, unix.EINTR):
		default:
			s.mu.refused = true
			return false
		}
	}
}

// publish makes the sample, whose bytes are complete, visible to readers.
func (s *store) publish(id int, offset int64, origin storageclass.Origin) {
	s.digests[id].Store(origin.Digest)
	s.instances[id].Store(uint64(origin.Place)<<32 | uint64(origin.Instance))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.order.Came(int32(id))
	s.where[id].Store(offset + 1)
}

// resize sets the capacity of a store that no job has open.
func (s *store) resize(capacity int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.space.Resize(capacity)
	s.mu.refused = false
}

// end returns the end of the part of the segment that was ever used.
func (s *store) end() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.space.End()
}

// taken returns the memory that the store has allocated, in bytes.
func (s *store) taken() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.backed
}
