package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/hdmlp/hdmlp/internal/lib/wait"
)

// ErrLate reports that the store did not return the sample in time, or does not respond.
var ErrLate = errors.New("the storage class did not return the sample in time")

const (
	// readMemory is how many bytes the buffers of reads may take, besides a single larger one. What
	// is more waits.
	readMemory = 32 << 20
	// Of the buffers, so many of at most so many bytes are kept for later reads.
	spareBuffers = 16
	spareBytes   = 1 << 20
	// reportDelay is for how long the store has not responded when that is reported.
	reportDelay = 2 * time.Second
	// stopLateness is how late a timer is at least if the process itself was stopped.
	stopLateness = time.Second
)

// Reader reads from a store whose disk may hang, for a limited time. Its methods are safe for
// concurrent use.
//
// A system call that hangs cannot be interrupted, and may write to its buffer whenever it returns.
// So a read that may have to wait for the disk is done by a goroutine of its own, into a buffer of
// its own, whose contents are copied if they come in time. If not, the read is given up: it ends by
// itself. What the operating system has in memory needs no wait, and is read into its destination
// (Prompt).
//
// While a read that was given up has not returned, the store does not respond, and is not read. So
// no more reads hang than were in progress when the disk began to hang, and their return shows that
// it responds again. Rejected: trying again with another read from time to time, which costs a
// batch the limit each time, and a thread for as long as the disk hangs. The price is that a single
// read that never returns ends all reads of the store.
//
// If the process itself was stopped, as by SIGSTOP, a control group's freezer or a virtual machine
// that is paused, the store is not at fault: reads that were in progress have the whole time from
// its end. A timer that is a second late shows that.
type Reader struct {
	store  Store
	prompt Prompt     // store; nil: it always may have to wait
	forms  FormReader // store; nil: it keeps samples as read
	tell   func(responds bool)
	memory *semaphore.Weighted
	reads  sync.WaitGroup // and drops

	late   atomic.Int32 // calls of Do that were not waited for and have not returned
	silent atomic.Bool  // len(mu.hung) > 0
	mu     struct {     // guards the following
		sync.Mutex
		hung  map[*timedRead]struct{} // given up and not yet returned
		spare []*timedRead            // unused
		alarm *time.Timer             // calls alarmed; nil: all reads have returned
		due   time.Time               // when the alarm ends
		told  bool                    // that the store does not respond
		since time.Time               // the first read of hung began; while there is one
		past  Hangs                   // without the present one
	}
}

// Hangs is how often, and for how long, a store did not respond.
type Hangs struct {
	Silent time.Duration // for how long it does not respond now
	Reads  int           // that were given up
	Times  int           // that it did not respond for 2 seconds or more
	Took   time.Duration // sum of these times
	Last   time.Time     // end of the last of them; now, if it has not ended; zero: there was none
}

// timedRead is a read by a goroutine. Its state:
//
//	reading   the buffer is the goroutine's
//	returned  final: the buffer is the caller's
//	givenUp   final: the buffer is the goroutine's
type timedRead struct {
	buffer  []byte
	done    chan error // holds the result when it has returned
	timer   *time.Timer
	due     time.Time // when the timer ends
	begun   time.Time // or when the process continued; guarded by Reader.mu once it is given up
	givenUp bool      // guarded by Reader.mu
}

// NewReader returns a reader. tell is called when the store has not responded for 2 seconds, and
// when it responds again after that.
func NewReader(store Store, tell func(responds bool)) *Reader {
	r := &Reader{store: store, tell: tell, memory: semaphore.NewWeighted(readMemory)}
	r.prompt, _ = store.(Prompt)
	r.forms, _ = store.(FormReader)
	r.mu.hung = map[*timedRead]struct{}{}
	return r
}

// Responds reports whether the store may be read: no read that was given up is still in progress.
func (r *Reader) Responds() bool { return !r.silent.Load() }

// Hangs returns how often, and for how long, the store has not responded; a nil Reader always does.
func (r *Reader) Hangs(now time.Time) Hangs {
	if r == nil {
		return Hangs{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.mu.past
	for a := range r.mu.hung {
		h.Silent = max(h.Silent, now.Sub(a.begun))
	}
	if r.mu.told {
		h.add(r.mu.since, now)
	}
	return h
}

// add counts a time.
func (h *Hangs) add(from, to time.Time) {
	h.Times++
	h.Took += to.Sub(from)
	h.Last = to
}

// Read is the store's Read, for a limited time. Its error is ErrLate if the store did not answer in
// that time, or does not respond: dst is not written to any more. limit is called only if the disk
// may have to be waited for.
func (r *Reader) Read(id int, dst []byte, limit func() time.Duration) error {
	return r.read(id, FormInfo{}, dst, limit)
}

// ReadForm is Read of a form that the store, a FormReader, holds.
func (r *Reader) ReadForm(id int, form FormInfo, dst []byte, limit func() time.Duration) error {
	return r.read(id, form, dst, limit)
}

// read is Read; form is the form that is read, if it has a Kind.
func (r *Reader) read(id int, form FormInfo, dst []byte, limit func() time.Duration) error {
	if !r.Responds() {
		return ErrLate
	}
	err := ErrWait
	switch {
	case form.Kind != 0:
		err = r.forms.ReadFormNow(id, form, dst)
	case r.prompt != nil:
		err = r.prompt.ReadNow(id, dst)
	}
	if !errors.Is(err, ErrWait) {
		return err
	}
	most := limit()
	weight := min(int64(len(dst)), readMemory)
	begun := time.Now()
	if !r.memory.TryAcquire(weight) {
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		if r.memory.Acquire(ctx, weight) != nil {
			return ErrLate // the reads before it, which have the memory, say whether it responds
		}
		if most -= time.Since(begun); most <= 0 {
			r.memory.Release(weight)
			return ErrLate
		}
	}
	a := r.begin(begun, len(dst), most)
	r.reads.Add(1)
	go func() {
		defer r.reads.Done()
		defer r.memory.Release(weight)
		if form.Kind != 0 {
			r.end(a, r.forms.ReadForm(id, form, a.buffer))
		} else {
			r.end(a, r.store.Read(id, a.buffer))
		}
	}()
	return r.wait(a, dst, most)
}

// wait waits until a read has returned, or its limit is over.
func (r *Reader) wait(a *timedRead, dst []byte, limit time.Duration) error {
	for {
		select {
		case err := <-a.done:
			return r.take(a, dst, err)
		case <-a.timer.C:
		}
		now := time.Now()
		if now.Sub(a.due) < stopLateness {
			break
		}
		a.begun = now
		a.start(limit)
	}
	if r.giveUp(a) {
		return ErrLate
	}
	return r.take(a, dst, <-a.done)
}

// Drop is the store's Drop of a sample, for a limited time. It reports whether that has returned.
// If not, it goes on by itself, or was not begun, because an earlier one has not returned: then the
// sample may still be held.
func (r *Reader) Drop(id int, most time.Duration) bool {
	return r.Do(func() { r.store.Drop(id) }, most)
}

// Do does something with the store, for a limited time, and reports whether it has returned. If
// not, it goes on by itself, or was not begun, because an earlier one has not returned.
func (r *Reader) Do(do func(), most time.Duration) bool {
	if r.late.Load() > 0 {
		return false
	}
	done := make(chan struct{})
	r.reads.Go(func() {
		do()
		close(done)
	})
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	r.late.Add(1)
	r.reads.Go(func() {
		<-done
		r.late.Add(-1)
	})
	return false
}

// start starts the timer.
func (a *timedRead) start(limit time.Duration) {
	a.due = time.Now().Add(limit)
	a.timer.Reset(limit)
}

// begin returns a read whose timer runs.
func (r *Reader) begin(now time.Time, bytes int, limit time.Duration) *timedRead {
	r.mu.Lock()
	var a *timedRead
	if n := len(r.mu.spare); n > 0 {
		a = r.mu.spare[n-1]
		r.mu.spare = r.mu.spare[:n-1]
	}
	r.mu.Unlock()
	if a == nil {
		a = &timedRead{done: make(chan error, 1), timer: time.NewTimer(limit)}
	}
	a.start(limit)
	if cap(a.buffer) < bytes {
		a.buffer = make([]byte, bytes)
	}
	a.buffer, a.begun = a.buffer[:bytes], now
	return a
}

// take copies what a read has returned, and keeps the read for another one.
func (r *Reader) take(a *timedRead, dst []byte, err error) error {
	a.timer.Stop()
	if err == nil {
		copy(dst, a.buffer)
	}
	if cap(a.buffer) <= spareBytes {
		r.mu.Lock()
		if len(r.mu.spare) < spareBuffers {
			r.mu.spare = append(r.mu.spare, a)
		}
		r.mu.Unlock()
	}
	return err
}

// end records that a read has returned.
func (r *Reader) end(a *timedRead, err error) {
	r.mu.Lock()
	if !a.givenUp {
		a.done <- err // does not block: there is room for one
		r.mu.Unlock()
		return
	}
	delete(r.mu.hung, a)
	tell := false
	if len(r.mu.hung) == 0 {
		r.silent.Store(false)
		r.mu.alarm.Stop()
		if r.mu.told {
			r.mu.past.add(r.mu.since, time.Now())
		}
		r.mu.alarm = nil
		tell = r.mu.told
		r.mu.told = false
	}
	r.mu.Unlock()
	if tell {
		r.tell(true)
	}
}

// giveUp gives a read up, unless it has returned.
func (r *Reader) giveUp(a *timedRead) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(a.done) > 0 {
		return false
	}
	a.givenUp = true
	if len(r.mu.hung) == 0 || a.begun.Before(r.mu.since) {
		r.mu.since = a.begun
	}
	r.mu.past.Reads++
	r.mu.hung[a] = struct{}{}
	r.silent.Store(true)
	if r.mu.alarm == nil {
		now := time.Now()
		wait := max(reportDelay-now.Sub(a.begun), 0)
		r.mu.due = now.Add(wait)
		r.mu.alarm = time.AfterFunc(wait, r.alarmed)
	}
	return true
}

// alarmed reports that the store does not respond.
func (r *Reader) alarmed() {
	r.mu.Lock()
	now := time.Now()
	tell := len(r.mu.hung) > 0 && !r.mu.told
	if tell && now.Sub(r.mu.due) >= stopLateness {
		r.restart(now)
		tell = false
	}
	r.mu.told = r.mu.told || tell
	r.mu.Unlock()
	if tell {
		r.tell(false)
	}
}

// restart has the reads that were given up begin when the process continued. r.mu must be held.
func (r *Reader) restart(now time.Time) {
	for a := range r.mu.hung {
		a.begun = now
	}
	r.mu.since, r.mu.due = now, now.Add(reportDelay)
	r.mu.alarm.Reset(reportDelay)
}

// Close waits for all reads and drops to end. It reports whether they have within that time: if
// not, one hangs, and the store must remain open. None may begin any more.
func (r *Reader) Close(within time.Duration) bool {
	return wait.Within(within, r.reads.Wait)
}

// Wait waits, after Close, until all reads and drops have ended: forever, if one hangs forever.
func (r *Reader) Wait() { r.reads.Wait() }
