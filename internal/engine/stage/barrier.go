package stage

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
)

// ClassSegment returns the number by which batches refer to a segment of a storage class. Smaller
// numbers than that of any are segments of the staging buffer.
func ClassSegment(s cache.Segment) uint32 {
	return firstClassSegment + uint32(s.Class)<<classBits + s.Number
}

// FirstWindow is the first of the Windows numbers by which a process refers to memory of its
// group's window (package engine/share/feed). Smaller numbers are of its own staging buffer.
const (
	FirstWindow = 1 << 30
	Windows     = firstClassSegment - FirstWindow
)

// InWindow reports whether a segment is one of a group's window.
func InWindow(number uint32) bool { return number >= FirstWindow && number < firstClassSegment }

const (
	firstClassSegment = 1 << 31
	classBits         = 23 // store.MaxSegments is 1 << classBits
)

// OfClass returns the storage class's segment to which batches refer by a number. ok is false if
// that is a segment of the staging buffer.
func OfClass(number uint32) (s cache.Segment, ok bool) {
	n := number - firstClassSegment
	return cache.Segment{Class: int(n >> classBits), Number: n & (1<<classBits - 1)},
		number >= firstClassSegment
}

// Announced has a bit for each segment of a storage class that was announced to a process, by class
// and number. The zero value has none. It is not safe for concurrent use.
type Announced [][]uint64

// First reports whether a segment was not announced yet, and counts it as announced.
func (a *Announced) First(s cache.Segment) bool {
	if a.Was(s) {
		return false
	}
	for s.Class >= len(*a) {
		*a = append(*a, nil)
	}
	for int(s.Number/64) >= len((*a)[s.Class]) {
		(*a)[s.Class] = append((*a)[s.Class], 0)
	}
	(*a)[s.Class][s.Number/64] |= 1 << (s.Number % 64)
	return true
}

// Was reports whether a segment was announced.
func (a *Announced) Was(s cache.Segment) bool {
	return s.Class < len(*a) && int(s.Number/64) < len((*a)[s.Class]) &&
		(*a)[s.Class][s.Number/64]&(1<<(s.Number%64)) != 0
}

// barriers lets others wait until the batches in progress have been emitted or discarded: a segment
// of a storage class that is given back may be named by these, and by none that is begun later.
//
// The walker counts a batch as begun before it locates samples, and what gives a segment back stops
// samples from being located before it reads that count. So a batch that is not counted cannot name
// the segment.
type barriers struct {
	begun, ended atomic.Int64 // batches of all Runs
	some         atomic.Bool  // fast path: list is not empty

	mu   sync.Mutex // guards list
	list []barrier
}

type barrier struct {
	at int64 // batches that must have ended
	f  func()
}

// begin counts a batch as begun.
func (b *barriers) begin() { b.begun.Add(1) }

// end counts a batch as emitted.
func (b *barriers) end() {
	b.ended.Add(1)
	if b.some.Load() {
		b.pass()
	}
}

// endAll counts all batches as emitted or discarded. None may be begun at the same time.
func (b *barriers) endAll() {
	b.ended.Store(b.begun.Load())
	b.pass()
}

// pass calls what no longer has to wait.
func (b *barriers) pass() {
	var due []barrier
	b.mu.Lock()
	ended, rest := b.ended.Load(), b.list[:0]
	for _, x := range b.list {
		if x.at <= ended {
			due = append(due, x)
		} else {
			rest = append(rest, x)
		}
	}
	b.list = rest
	b.some.Store(len(rest) > 0)
	b.mu.Unlock()
	for _, x := range due {
		x.f()
	}
}

// Barrier calls f once all batches that were begun before have been emitted or discarded: at once,
// or from the goroutine of Run, after emit has returned. f must not block.
func (s *Stager) Barrier(f func()) {
	b := &s.barriers
	b.mu.Lock()
	b.list = append(b.list, barrier{b.begun.Load(), f})
	b.some.Store(true)
	b.mu.Unlock()
	b.pass()
}

// Delay estimates how long the process takes to take all batches that were begun: the time until it
// learns of a segment that is given back now.
func (s *Stager) Delay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.laidOut-s.taken) * s.perBatch()
}

// reach returns how many batches that may name segments of classes may be laid out ahead of the
// process: so many that it has taken them within the cache's horizon, and at least 2. s.mu must be
// held.
func (s *Stager) reach() int {
	each, horizon := s.perBatch(), s.o.Cache.Horizon()
	if each == 0 || horizon == 0 || len(s.o.Outputs) > 0 {
		return math.MaxInt
	}
	return max(int(horizon/each), 2)
}

// perAck is how many batches a process may take before it acknowledges them.
const perAck = 16

// perBatch returns how long the process works on a batch; 0: that is not known. It is more than its
// pace if the process has not been heard of for so long that it must have become slower. s.mu must
// be held.
func (s *Stager) perBatch() time.Duration {
	perBatch, ok := s.pace.Least(1)
	if !ok {
		return 0
	}
	each := time.Duration(perBatch * float64(time.Second))
	if s.waiting {
		return each
	}
	return max(each, time.Since(s.pace.Last())/perAck)
}
