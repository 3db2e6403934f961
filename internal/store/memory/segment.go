package memory

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/arena"
)

const (
	// defaultSegment is the size of a segment, in bytes, unless the store is small or large.
	defaultSegment = 64 << 20
	// least is the smallest size of a segment, in bytes.
	leastSegment = 1 << 20
	// A store is divided into at least fewest segments, so that some can be given back, and about
	// most: the daemon and each process that samples are delivered to have a map and a descriptor
	// for each.
	fewest, most = 16, 128
	// See formSize.
	formSegment, mostForms = 4 << 20, 1024
)

// segmentSize returns how large the segments of a store with so much room are, in bytes.
func segmentSize(room int64) int64 {
	wanted := max(min(room/fewest, defaultSegment), room/most, leastSegment)
	page := int64(os.Getpagesize())
	return (wanted + page - 1) / page * page
}

// formSize returns how large the segments for forms are, in bytes. When memory is short, forms
// become samples a segment at a time, and until one is empty, its samples take as much besides: at
// most formSegment, a quarter of the least reserve that package pressure keeps, by which more than
// the reserve is free once some was given back. So that takes no more to be given back. No process
// maps these segments, so there may be more of them: mostForms.
func (s *classStore) formSize() int64 {
	return min(s.mu.size, max(formSegment, s.mu.capacity/mostForms))
}

// segment is one memfd with samples.
//
//	      GiveBack, emptied     all tenants have settled,      no process
//	live ---------> dropping ------------------------> lent ------------> closed
//	  |                        nothing holds a view        maps it
//	  |                                                                     ^
//	  +---------------------------------------------------------------------+
//	                     the store is evicted, or never used it
//
//	live      Samples may be added and located.
//	dropping  Its samples are not held any more, and none is added. Batches that were planned before
//	          may name it, so its descriptor can still be passed to processes; what the daemon reads
//	          in place stays mapped.
//	lent      The daemon has unmapped it and closed its descriptor. The kernel frees its memory when
//	          the last process has done so too. Until the processes say so, it counts as taken.
//	closed    Final. Its memory is free, as far as the processes have said.
//
// The memory of a segment is never used for anything else, nor punched: whatever maps it sees the
// bytes that were put there, for as long as it maps it. That holds for views in training processes,
// their workers and what these fork, whether or not they keep to the protocol.
type segment struct {
	store  *classStore
	number uint32
	file   *os.File
	mapped []byte // writable
	size   int64
	form   bool // it holds forms, and else samples as read
	// uses counts the views of its samples, and 1 until all tenants have settled. At 0 the segment
	// is unmapped.
	uses atomic.Int64
	// populated is up to which byte its pages were mapped ahead of what fills them. Set with
	// store.mu held.
	populated atomic.Int64

	// Guarded by store.mu:
	state   segmentState
	space   arena.Space       // in which the bytes of samples that were dropped stay allocated
	poison  invariants.Poison // of the free bytes in space
	backed  int64             // bytes from its start that have pages
	adding  int               // samples that are being added
	samples []int32           // that were added; some may be dropped
	held    int               // of samples
	dead    int64             // bytes of samples that are not held any more
	// of the tenants that were notified of its end, those that have not settled, and those whose
	// processes may map it
	unsettled, mapping int
	unmapped           bool
	since              time.Time // when it was given back
}

type segmentState uint8

const (
	live segmentState = iota
	dropping
	lent
	closed
)

func (s segmentState) String() string {
	return [...]string{"live", "dropping", "lent", "closed"}[s]
}

// follows reports whether state s may come after from.
func (s segmentState) follows(from segmentState) bool {
	switch s {
	case dropping:
		return from == live
	case lent:
		return from == dropping
	case closed:
		return from == lent || from == live
	}
	return false
}

// to changes the state. store.mu must be held.
func (g *segment) to(next segmentState) {
	if invariants.Enabled {
		invariants.Check(next.follows(g.state), "segment %d: from %v to %v", g.number, g.state, next)
	}
	g.state = next
}

// newSegment makes a segment of at least length bytes without pages.
func newSegment(s *classStore, number uint32, length int64) (*segment, error) {
	page := int64(os.Getpagesize())
	length = max((length+page-1)/page*page, page)
	file, mapped, err := mapMemory(length)
	if err != nil {
		return nil, err
	}
	g := &segment{store: s, number: number, file: file, mapped: mapped, size: length}
	g.space = arena.New(length, true)
	g.uses.Store(1)
	return g, nil
}

// mapMemory creates a memfd, maps it and seals it, in this order: once it is sealed, it can no
// longer be mapped for writing.
func mapMemory(length int64) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("hdmlp-memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		return nil, nil, fmt.Errorf("%w: %w", errNoMemfd, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, length); err != nil {
		unix.Close(fd)
		return nil, nil, fmt.Errorf("resize a memfd to %s: %w", human.Format(length), err)
	}
	mapped, err := unix.Mmap(fd, 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, nil, fmt.Errorf("map a memfd of %s: %w", human.Format(length), err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE |
		unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Munmap(mapped)
		unix.Close(fd)
		return nil, nil, fmt.Errorf("seal a memfd (Linux 5.1 or later is needed): %w", err)
	}
	return os.NewFile(uintptr(fd), "hdmlp-memory"), mapped, nil
}

// errNoMemfd reports that memfd_create is blocked, or missing in the kernel.
var errNoMemfd = errors.New("memfd_create")

// limited turns err into a *store.LimitError if a limit of the system denies the process
// such memory at all.
func limited(room int64, err error) error {
	e := &store.LimitError{What: "a store in memory", Need: room}
	var limit unix.Rlimit
	switch {
	case errors.Is(err, unix.EFBIG) && unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil:
		e.Limit = int64(min(limit.Cur, math.MaxInt64))
		e.Hint = fmt.Sprintf("shared memory counts as files, of %s each for a store of this size, "+
			"and RLIMIT_FSIZE allows %d bytes: raise it (ulimit -f) before the daemon starts, or "+
			"reduce memory", human.Format(segmentSize(room)), limit.Cur)
	case errors.Is(err, errNoMemfd):
		e.Hint = fmt.Sprintf("%v: samples in memory need memfd_create; allow that system call in "+
			"the container's seccomp profile (it needs Linux 3.17 or later)", err)
	default:
		return err
	}
	return e
}

// add makes the segment's copy of a sample the one that is held. store.mu must be held.
func (g *segment) add(id int, offset int64, form bool) {
	g.held++
	g.samples = append(g.samples, int32(id))
	g.store.where[id].Store(int64(pack(g.number, offset, form)))
	g.adding--
}

// use counts a view. It returns false if the segment is unmapped, or about to be.
func (g *segment) use() bool {
	for {
		n := g.uses.Load()
		if n == 0 {
			return false
		}
		if g.uses.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release implements store.Hold.
func (g *segment) Release() {
	switch n := g.uses.Add(-1); {
	case n == 0:
		g.unmap()
	case n < 0:
		panic(fmt.Sprintf("memory class: segment %d: a view was released twice", g.number))
	}
}

// unmap unmaps a segment that nothing uses, closes its descriptor, and notes that.
func (g *segment) unmap() {
	_ = unix.Munmap(g.mapped)
	_ = g.file.Close()
	g.store.unmapped(g)
}

// back allocates pages up to the segment's byte end, a chunk at a time, and reports whether it
// could. beyond: the class's allowance does not limit it. store.mu must be held.
func (g *segment) back(end int64, beyond bool) bool {
	s := g.store
	if end <= g.backed {
		return true
	}
	if s.mu.refused {
		return false
	}
	chunk := min(maxChunk, max(g.size/fewest, minChunk))
	to := max(end, min(g.backed+chunk, g.size, s.mu.capacity, g.backed+s.most()))
	if !s.class.take(to-g.backed, beyond) {
		if to = end; !s.class.take(to-g.backed, beyond) {
			return false
		}
	}
	for {
		err := unix.Fallocate(int(g.file.Fd()), 0, g.backed, to-g.backed)
		switch {
		case err == nil:
			g.backed = to
			return true
		case errors.Is(err, unix.EINTR):
		default:
			s.class.taken.Add(g.backed - to)
			s.mu.refused = true
			return false
		}
	}
}

// populate maps the pages up to byte end for writing, which the kernel clears for that, so that
// what fills them does not fault at each of them; at least minChunk at a time, as the call itself
// takes longer than the page of a small sample. It does nothing before Linux 5.14: then they fault.
func (g *segment) populate(end int64) {
	if end <= g.populated.Load() {
		return
	}
	page := int64(os.Getpagesize())
	g.store.mu.Lock()
	from := g.populated.Load()
	to := max(from, (min(max(end, from+minChunk), g.backed)+page-1)/page*page)
	g.populated.Store(to)
	g.store.mu.Unlock()
	if to > from {
		_ = unix.Madvise(g.mapped[from:to], unix.MADV_POPULATE_WRITE)
	}
}

// Memory is allocated in chunks of a size between these, in bytes.
const minChunk, maxChunk = 64 << 10, 4 << 20
