package scale

import (
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Use is what a part of a program has used.
type Use struct {
	All       int64   // bytes of heap and stacks at its end, without the network's buffers
	Zero      int64   // of them, those of node 0 alone
	Peak      int64   // the most of Zero in its course, without stacks
	Processor float64 // seconds
}

// Meter measures until it is stopped.
type Meter struct {
	before float64
	stop   chan struct{}
	ended  sync.WaitGroup
	peak   int64 // of samples; read after ended
}

// first is when the first sample for the peak is taken; the times between samples grow.
const first = time.Millisecond

// Start starts a meter, in a bubble of testing/synctest.
func Start() *Meter {
	m := &Meter{before: processor(), stop: make(chan struct{})}
	m.ended.Go(func() {
		for pause := first; ; pause += pause / 2 {
			select {
			case <-m.stop:
				return
			case <-time.After(pause):
				zero, _ := allocated()
				m.peak = max(m.peak, zero)
			}
		}
	})
	return m
}

// Stop returns what was used since Start.
func (m *Meter) Stop() (u Use) {
	u.Processor = processor() - m.before
	close(m.stop)
	m.ended.Wait()
	runtime.GC()
	runtime.GC() // profiles are those of the cycle before
	zero, network := allocated()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	u.Peak = max(m.peak, zero)
	stacks := int64(s.StackInuse) * served() / int64(runtime.NumGoroutine())
	u.All = int64(s.HeapAlloc+s.StackInuse) - network
	u.Zero = zero + stacks
	return u
}

func processor() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// onZero are functions that only node 0 runs: the hub and the server of the control port.
var onZero = []string{
	"internal/peers/cluster/hub.", "internal/peers/cluster/session.(*Server).",
	"internal/peers/cluster/session.(*Accepted).", "internal/peers/cluster/session.NewServer",
	"net/http.(*http2serverConn)", "net/http.(*conn).serve", "http2.(*serverConn)",
}

const inNetwork = "internal/lab/networktest."

// allocated returns the bytes in use that were allocated on node 0 alone, and by the network.
func allocated() (zero, network int64) {
	n, _ := runtime.MemProfile(nil, true)
	records := make([]runtime.MemProfileRecord, n+100)
	n, ok := runtime.MemProfile(records, true)
	if !ok {
		return 0, 0
	}
	for _, r := range records[:n] {
		bytes := r.InUseBytes()
		if bytes == 0 {
			continue
		}
		// What a sampled allocation stands for: the profile is not scaled.
		size := float64(bytes) / float64(r.InUseObjects())
		if size < float64(runtime.MemProfileRate) {
			bytes = int64(float64(bytes) * float64(runtime.MemProfileRate) / size)
		}
		switch {
		case runs(r.Stack(), inNetwork):
			network += bytes
		case runs(r.Stack(), onZero...):
			zero += bytes
		}
	}
	return zero, network
}

// served returns the number of goroutines that run on node 0 alone.
func served() (count int64) {
	records := make([]runtime.StackRecord, 2*runtime.NumGoroutine())
	n, _ := runtime.GoroutineProfile(records)
	for _, r := range records[:n] {
		if runs(r.Stack(), onZero...) {
			count++
		}
	}
	return count
}

var (
	mu    sync.Mutex // guards names
	names = map[uintptr]string{}
)

// runs reports whether a stack has a function with one of these texts in its name.
func runs(stack []uintptr, texts ...string) bool {
	mu.Lock()
	defer mu.Unlock()
	for _, pc := range stack {
		name, ok := names[pc]
		if !ok {
			frames := runtime.CallersFrames([]uintptr{pc})
			for more := true; more; {
				var f runtime.Frame
				f, more = frames.Next()
				name += f.Function + "\n"
			}
			names[pc] = name
		}
		for _, text := range texts {
			if strings.Contains(name, text) {
				return true
			}
		}
	}
	return false
}
