package staging

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// returns are the slots that the process has noted as free, in the page of shared memory behind the
// ring (docs/FORMATS.md, "Returns"). To note one costs the process two stores, where to send a
// frame costs it a system call that wakes the daemon, on a processor that may be asleep: a tenth of
// what handing a batch over takes. The price is that somebody has to look: the buffer does, but
// only while it waits for room.
//
// The page is words of 64 bits: how many entries have been taken, which only the daemon writes; a
// ring of entries, which only the process writes; and where the stream ends (Buffer.End). Entry n,
// counted from 1, is n modulo 2^32 in the upper half and the slot in the lower one: one store,
// which says by itself that it is there. The process writes entry n+entries only once n was taken.
//
// The store must not be seen before what the process did with the slot's memory. Python has no
// fences; x86 keeps the order of stores, and of loads before stores, and elsewhere slots are
// returned by frames.
type returns struct {
	words []uint64
	taken uint64 // entries
}

const (
	returnsSize = 4096 // bytes
	entries     = returnsSize/8 - 2

	ordered = runtime.GOARCH == "amd64"
)

// newReturns returns those in a page that is zero.
func newReturns(page []byte) returns {
	return returns{words: unsafe.Slice((*uint64)(unsafe.Pointer(&page[0])), returnsSize/8)}
}

// next takes the next entry; ok: there is one.
func (r *returns) next() (slot uint32, ok bool) {
	n := r.taken + 1
	entry := atomic.LoadUint64(&r.words[1+n%entries])
	if uint32(entry>>32) != uint32(n) {
		return 0, false
	}
	r.taken = n
	atomic.StoreUint64(&r.words[0], n)
	return uint32(entry), true
}

// end is the word that says where the stream ends.
func (r *returns) end() *uint64 { return &r.words[1+entries] }

// looking is when somebody who waits for room looks at the returns again: after half the time that
// he has waited so far. So what was noted is seen at most half as late again, and to wait for a
// step of a second costs a few dozen looks.
type looking struct {
	began time.Time
	timer *time.Timer
}

const (
	soonest = 250 * time.Microsecond
	latest  = 10 * time.Millisecond
)

// again calls wake when it is time to look.
func (l *looking) again(wake func()) {
	switch {
	case !ordered:
	case l.timer == nil:
		l.began = time.Now()
		l.timer = time.AfterFunc(soonest, wake)
	default:
		l.timer.Reset(min(max(time.Since(l.began)/2, soonest), latest))
	}
}

func (l *looking) end() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
