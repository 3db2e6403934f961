package prefetch

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

// watcher is a Cache's watchdog. A system call that hangs, as on a network file
// system whose server is gone, can not be interrupted. So that its batch fails in
// time all the same, the watchdog gives the read up: it ends the flight with an
// error, for the leader's batch and for all followers, and starts another worker
// in the place of the one that hangs. The read itself goes on, so:
//
//   - its batch is done, but its room in the staging buffer is not used again,
//     nor unmapped, before the read has ended (batch.hung);
//   - in a storage class it stays what it is, a Fill under way;
//   - followers have buffers of their own, which it never touches;
//   - Cache.Close says that not all has ended.
//
// A read that comes back late finds its flight gone (land): its worker ends, and
// touches nothing of the batch. What it read is kept, if it was read.
//
// Every read that hangs holds a thread of the system. Once there are as many as the
// pool has workers, and fewHung at least, the source is not asked any more until
// one comes back.
//
// The rejected alternative, a goroutine per read that its caller waits for with a
// timer, costs every read a switch of goroutines for the sake of the rare hang.
type watcher struct {
	stop chan struct{} // nil: there is no watchdog
	done sync.WaitGroup

	hanging atomic.Int32 // len(mu.hung)
	mu      struct {
		sync.Mutex
		hung map[*flight]int // reads given up and not yet come back: their samples
	}
}

// fewHung reads that hang do not make a source one that is gone.
const fewHung = 4

func (w *watcher) start(c *Cache) {
	w.mu.hung = make(map[*flight]int)
	if c.timeout <= 0 {
		return
	}
	w.stop = make(chan struct{})
	w.done.Go(func() {
		ticker := time.NewTicker(max(c.timeout/20, time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-w.stop:
				return
			case now := <-ticker.C:
				// A tenth more than the timeout, because a patient source makes its
				// last attempt when that is over.
				c.giveUp(now.Add(-c.timeout - c.timeout/10))
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

// giveUp gives up the reads that began before the given time.
func (c *Cache) giveUp(before time.Time) {
	var late []*flight
	for i := range c.flight {
		s := &c.flight[i]
		s.mu.Lock()
		for id, fl := range s.byID {
			if fl.since.Before(before) {
				late = append(late, fl)
				delete(s.byID, id)
				fl.err = c.hangs(int(id), fl)
				// Here, because the leader may come back as soon as the lock is free.
				c.watcher.note(fl, int(id))
				if b := fl.batch; b != nil {
					b.hung.Add(1)
				}
			}
		}
		s.mu.Unlock()
	}
	for _, fl := range late {
		close(fl.done)
		if !fl.leader.guest {
			c.pool.replace(fl.batch == nil)
		}
		if b := fl.batch; b != nil {
			b.fail(len(b.IDs), fl.err) // what failed by itself comes first
			b.arrived()
		}
	}
}

func (c *Cache) hangs(id int, fl *flight) error {
	return &dataset.SampleError{
		ID: id, Path: c.path(id), Kind: dataset.ErrUnavailable,
		Err: fmt.Errorf("the read hangs since %v, longer than source_timeout (%v); see whether what the path lies on still answers",
			time.Since(fl.since).Round(time.Millisecond), c.timeout),
	}
}

func (w *watcher) note(fl *flight, id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.hung[fl] = id
	w.hanging.Store(int32(len(w.mu.hung)))
}

// returned takes note that a read which was given up has ended.
func (w *watcher) returned(fl *flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.hung, fl)
	w.hanging.Store(int32(len(w.mu.hung)))
}

// refuse fails a read where too many hang already.
func (w *watcher) refuse(c *Cache, id int) error {
	n := int(w.hanging.Load())
	if n < max(c.pool.threads, fewHung) {
		return nil
	}
	return &dataset.SampleError{
		ID: id, Path: c.path(id), Kind: dataset.ErrUnavailable,
		Err: fmt.Errorf("not tried, because %d reads before it hang for longer than source_timeout (%v)", n, c.timeout),
	}
}

// Waiting is a read that is under way.
type Waiting struct {
	Sample int
	Path   string // where the source has it
	Since  time.Time
}

// Waiting describes the read that has been under way longest; ok is false where
// none is.
func (c *Cache) Waiting() (longest Waiting, ok bool) {
	look := func(id int, fl *flight) {
		if !ok || fl.since.Before(longest.Since) {
			longest.Sample, longest.Since, ok = id, fl.since, true
		}
	}
	for i := range c.flight {
		s := &c.flight[i]
		s.mu.Lock()
		for id, fl := range s.byID {
			look(int(id), fl)
		}
		s.mu.Unlock()
	}
	c.watcher.mu.Lock()
	for fl, id := range c.watcher.mu.hung {
		look(id, fl)
	}
	c.watcher.mu.Unlock()
	if ok {
		longest.Path = c.path(longest.Sample)
	}
	return longest, ok
}
