package cache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

// watcher is a Cache's watchdog. A system call that hangs, as on a network file system whose server
// is gone, cannot be interrupted. So that its batch fails in time all the same, the watchdog gives
// the read up: it ends the flight with an error, for the leader's consumer and for all followers,
// and starts another worker in the place of the one that hangs. The read itself goes on, so:
//
//   - its batch is done, but its room in the staging buffer is not used again, nor unmapped, before the read has
//     ended (Consumer.GivenUp);
//   - in a storage class it stays what it is, a Fill under way;
//   - followers have buffers of their own, which it never touches;
//   - Cache.Close says that not all has ended.
//
// A read that comes back late finds its flight given up (land): its worker ends, and touches
// nothing of the batch. What it read is kept, if it was read.
//
// Every read that hangs holds a thread of the system. Once there are as many as the pool has
// workers, and fewHung at least, the source is not asked any more until one comes back.
//
// The rejected alternative, a goroutine per read that its caller waits for with a timer, costs
// every read a switch of goroutines for the sake of the rare hang.
type watcher struct {
	stop chan struct{} // nil: there is no watchdog
	done sync.WaitGroup

	hanging atomic.Int32 // len(mu.hung)
	mu      struct {
		sync.Mutex
		hung map[*flight]struct{} // given up and not yet returned
	}
}

// fewHung reads that hang do not make a source one that is gone.
const fewHung = 4

// start has giveUp called with the time before which a read that is still under way must have begun
// to be late.
func (w *watcher) start(timeout time.Duration, giveUp func(before time.Time)) {
	w.mu.hung = make(map[*flight]struct{})
	if timeout <= 0 {
		return
	}
	w.stop = make(chan struct{})
	w.done.Go(func() {
		ticker := time.NewTicker(max(timeout/20, time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-w.stop:
				return
			case now := <-ticker.C:
				// A tenth more than the timeout, because a patient source makes its
				// last attempt when that is over.
				giveUp(now.Add(-timeout - timeout/10))
			}
		}
	})
}

// end ends the watchdog.
func (w *watcher) end() {
	if w.stop != nil {
		close(w.stop)
		w.done.Wait()
	}
}

// gaveUp takes note of a read that was given up; returned, that it has ended.
func (w *watcher) gaveUp(fl *flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.hung[fl] = struct{}{}
	w.hanging.Store(int32(len(w.mu.hung)))
}

func (w *watcher) returned(fl *flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.hung, fl)
	w.hanging.Store(int32(len(w.mu.hung)))
}

// giveUp gives up the reads that began before the given time. done is closed last: a leader that
// comes back waits for it (land), and so finds that its consumer knows.
func (c *Cache) giveUp(before time.Time) {
	for _, fl := range c.flights.giveUp(before) {
		fl.err = c.hangs(fl)
		c.watcher.gaveUp(fl)
		if !fl.by.remote {
			c.pool.replace(fl.by.Consumer == nil)
		}
		if fl.by.Consumer != nil {
			fl.by.Consumer.GivenUp(fl.err)
		}
		close(fl.done)
	}
}

func (c *Cache) hangs(fl *flight) error {
	return &dataset.SampleError{
		ID: int(fl.id), Path: c.path(int(fl.id)), Kind: dataset.ErrUnavailable,
		Err: fmt.Errorf("the read hangs since %v, longer than source_timeout (%v); see whether "+
			"what the path lies on still answers",
			time.Since(fl.since).Round(time.Millisecond), c.timeout),
	}
}

// refuse fails a read where too many hang already.
func (c *Cache) refuse(id int) error {
	n := int(c.watcher.hanging.Load())
	if n < max(c.pool.threads, fewHung) {
		return nil
	}
	return &dataset.SampleError{
		ID: id, Path: c.path(id), Kind: dataset.ErrUnavailable,
		Err: fmt.Errorf("not tried, because %d reads before it hang for longer than "+
			"source_timeout (%v)", n, c.timeout),
	}
}

// Waiting is a read that is under way.
type Waiting struct {
	Sample int
	Path   string // where the source has it
	Since  time.Time
}

// Waiting describes the read that has been under way longest; ok is false where none is.
func (c *Cache) Waiting() (longest Waiting, ok bool) {
	look := func(fl *flight) {
		if !ok || fl.since.Before(longest.Since) {
			longest.Sample, longest.Since, ok = int(fl.id), fl.since, true
		}
	}
	c.flights.each(look)
	c.watcher.mu.Lock()
	for fl := range c.watcher.mu.hung {
		look(fl)
	}
	c.watcher.mu.Unlock()
	if ok {
		longest.Path = c.path(longest.Sample)
	}
	return longest, ok
}
