package staging

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// returnRing holds the slots that the process has released, in the page of shared memory after the
// ring (docs/FORMATS.md, "Returns"). Releasing a slot here costs the process two stores. Sending a
// frame would cost it a system call that wakes the daemon, possibly on a sleeping processor: a
// tenth of the cost of delivering a batch. The price is that the buffer must poll, which it does
// only while it waits for memory.
//
// The page consists of 64-bit words: the number of entries taken, which only the daemon writes; a
// ring of entries, which only the process writes; and where the stream ends (Buffer.End). Entry n,
// counted from 1, has n modulo 2^32 in its upper half and the slot in its lower half, so a single
// store shows that it is valid. The process writes entry n+entries only after n was taken.
//
// The store must not become visible before what the process did with the slot's memory. Python has
// no fences. x86 keeps stores in order, and loads before later stores; on other processors slots
// are returned by frames.
type returnRing struct {
	words []uint64
	taken uint64 // number of entries taken
}

const (
	returnsSize = 4096 // bytes
	entries     = returnsSize/8 - 2

	ordered = runtime.GOARCH == "amd64"
)

// newReturnRing returns the return ring in a zeroed page.
func newReturnRing(page []byte) returnRing {
	return returnRing{words: unsafe.Slice((*uint64)(unsafe.Pointer(&page[0])), returnsSize/8)}
}

// next takes the next entry; ok reports whether there is one.
func (r *returnRing) next() (slot uint32, ok bool) {
	n := r.taken + 1
	entry := atomic.LoadUint64(&r.words[1+n%entries])
	if uint32(entry>>32) != uint32(n) {
		return 0, false
	}
	r.taken = n
	atomic.StoreUint64(&r.words[0], n)
	return uint32(entry), true
}

// end returns the word that holds where the stream ends.
func (r *returnRing) end() *uint64 { return &r.words[1+entries] }

// poller schedules the polls of the return ring while an allocation waits: each after half the time
// waited so far. So a release is seen at most half as late again, and waiting for a step of one
// second costs a few dozen polls.
type poller struct {
	began time.Time
	timer *time.Timer
}

const (
	minPollInterval = 250 * time.Microsecond
	maxPollInterval = 10 * time.Millisecond
)

// again schedules the next call of wake.
func (l *poller) again(wake func()) {
	switch {
	case !ordered:
	case l.timer == nil:
		l.began = time.Now()
		l.timer = time.AfterFunc(minPollInterval, wake)
	default:
		l.timer.Reset(min(max(time.Since(l.began)/2, minPollInterval), maxPollInterval))
	}
}

func (l *poller) end() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
