package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// burst is how far a late reader may catch up. Without it, the time between the end of a transfer
// and the next request would be lost on a source that several readers keep busy; with it, at most
// burst worth of bytes arrive faster than the bandwidth after a pause, and never more than
// bandwidth * (t + burst) in any time t.
const burst = 5 * time.Millisecond

// bucket shares a bandwidth among all readers, first come, first served.
//
// It is a token bucket, kept as a point in time: free, at which everything promised so far has been
// transferred. A request advances free by its own transfer time and may be answered at the new
// free. So requests larger than the burst go into debt instead of being split, a reader that wakes
// up late delays no other, and the rate is exact over a long run, whatever the accuracy of a single
// sleep.
type bucket struct {
	now func() int64 // monotonic, ns

	mu struct { // guards the following
		sync.Mutex
		free int64 // ns
	}
}

// take promises n bytes at the given rate and returns when they have been transferred.
func (b *bucket) take(n int, bytesPerSecond int64) (due int64) {
	if bytesPerSecond <= 0 || n <= 0 {
		return 0
	}
	cost := int64(float64(n) / float64(bytesPerSecond) * 1e9)
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.free = max(b.mu.free, now-int64(burst)) + cost
	return b.mu.free
}

// monotonic returns the time of the clock by which sleeper sleeps.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock exists on every Linux
	}
	return ts.Nano()
}

// sleeper blocks until a point in time, accurate to a few dozen microseconds: the runtime's own
// timers may be a millisecond late.
//
// A blocking system call costs the runtime more than the rest of a request: every 20 us it checks
// whether to take the processor away from the blocked thread. So sleeps are hidden from the runtime
// and keep their processor, which costs nothing as long as others are left; beyond that number they
// release it.
type sleeper struct {
	keeping atomic.Int32
}

// until sleeps until the given time of the monotonic clock.
func (s *sleeper) until(t int64) {
	if t <= 0 {
		return
	}
	ts := unix.NsecToTimespec(t)
	defer s.keeping.Add(-1)
	if s.keeping.Add(1) > processors-spareProcessors {
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
		}
		return
	}
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC,
			unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno != unix.EINTR {
			return
		}
		runtime.Gosched() // the signal may come from the garbage collector
	}
}

var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"B", 1},
	{"", 1},
}

// parseBytes parses "40MB", "1.5GiB" or a plain number of bytes.
func parseBytes(s string) (int64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v >= 0 && v*u.bytes <= 1e18) {
			break
		}
		return int64(v * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is not a size such as 40MB or 64MiB", s)
}
