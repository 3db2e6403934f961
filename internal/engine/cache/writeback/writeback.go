// Package writeback writes samples into a storage class beside the reads that bring them.
package writeback

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/wait"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Writer writes samples into a class that is not in memory, on a number of goroutines of its own,
// so that no batch waits for a class that is slower than the source. It keeps a copy of what it has
// not written yet, which is as good as one in the class: no sample is read again because its copy
// is late.
//
// The copies take at most Memory bytes, besides a single larger one. A class that cannot keep
// up therefore misses samples (Put), which are then read again when they are next needed. That
// costs bytes; waiting for the class would cost time, and without end if the class hangs. What is
// read ahead of time has memory reserved for its copy before the read begins (Reserve), so that
// the class does not miss it.
type Writer struct {
	class   store.Store
	kept    func(id int, origin store.Origin) // see New
	room    func()                            // called when Reserve may succeed again
	reads   *meter.Meter                      // of the class, which writes delay
	meter   meter.Meter
	workers sync.WaitGroup

	mu      sync.Mutex // guards the following
	changed *sync.Cond // signals new copies, copies that were written, and closed
	queue   []*copyOf  // not yet begun, in order
	byID    map[int32]*copyOf
	bytes   int64    // of byID
	spare   [][]byte // unused buffers
	closed  bool
	// reserved are samples with memory for a copy that has not come yet, and their bytes; promised
	// is their sum.
	reserved map[int32]int64
	promised int64
	refused  bool // Reserve has found no memory since room was last called
	timed    timed
}

// copyOf is a copy of a sample that is to be written.
type copyOf struct {
	id     int32
	data   []byte
	origin store.Origin
	doubt  bool // its file may have changed since: it must not be read
}

const (
	// Memory is how many bytes copies may take.
	Memory       = routing.CopyMemory
	spareBuffers = 16
)

// New returns a writer, and starts its goroutines, one for each sample that is written at the same
// time. reads measures the reads from the class. kept is called after each sample that is not in
// doubt, with a lock held that Doubt takes, and room when Reserve, which has found no memory, may
// do so again. Close ends them.
func New(class store.Store, threads int, reads *meter.Meter,
	kept func(id int, origin store.Origin), room func(),
) *Writer {
	w := &Writer{
		class: class, reads: reads, kept: kept, room: room,
		byID: map[int32]*copyOf{}, reserved: map[int32]int64{},
	}
	w.changed = sync.NewCond(&w.mu)
	for range max(threads, 1) {
		w.workers.Go(w.work)
	}
	return w
}

// Know makes the writer predict by what is known of the class until it has written to it.
func (w *Writer) Know(k model.Known) { w.meter.Know(k) }

// Meter returns what measures the writes to the class.
func (w *Writer) Meter() *meter.Meter { return &w.meter }

// taken returns how many bytes copies take, and may yet take. w.mu must be held.
func (w *Writer) taken() int64 { return w.bytes + w.promised }

// fits reports whether there is memory for n more bytes. w.mu must be held.
func (w *Writer) fits(n int64) bool { return w.taken() == 0 || w.taken()+n <= Memory }

// Reserve reserves memory for the copy of a sample of n bytes, which is to be read ahead of time,
// and reports whether there was some, or none is needed: Put will then find it. Unreserve must
// follow.
func (w *Writer) Reserve(id int, n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, already := w.reserved[int32(id)]; already || w.has(id) {
		return true
	}
	if w.taken() >= routing.AheadMemory || !w.fits(n) {
		w.refused = true
		return false
	}
	w.reserved[int32(id)] = n
	w.promised += n
	return true
}

// Unreserve returns the memory that Reserve has reserved, if no copy came. It does not call room.
func (w *Writer) Unreserve(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unreserve(id)
}

// unreserve is Unreserve for callers that hold w.mu.
func (w *Writer) unreserve(id int) {
	w.promised -= w.reserved[int32(id)]
	delete(w.reserved, int32(id))
}

// has reports whether the class has the sample, or a copy waits to be written to it. w.mu must be
// held.
func (w *Writer) has(id int) bool { return w.byID[int32(id)] != nil || w.class.Has(id) }

// Put copies a sample, to be written. It does not wait: if there is no memory for the copy, the
// sample is left out.
func (w *Writer) Put(id int, data []byte, origin store.Origin) {
	n := int64(len(data))
	w.mu.Lock()
	w.unreserve(id)
	if w.closed || w.has(id) || !w.fits(n) {
		w.mu.Unlock()
		return
	}
	w.bytes += n
	buffer := w.buffer(len(data))
	w.mu.Unlock()
	c := &copyOf{id: int32(id), data: append(buffer, data...), origin: origin}
	w.mu.Lock()
	w.byID[c.id] = c // a flight of the sample ends only after this: there is one at a time
	w.queue = append(w.queue, c)
	w.mu.Unlock()
	w.changed.Broadcast()
}

// buffer returns an empty buffer with this capacity. w.mu must be held.
func (w *Writer) buffer(n int) []byte {
	for i, b := range w.spare {
		if cap(b) >= n {
			w.spare = slices.Delete(w.spare, i, i+1)
			return b[:0]
		}
	}
	return make([]byte, 0, n)
}

// Read copies a sample that is not written yet into dst.
func (w *Writer) Read(id int, dst []byte) (store.Origin, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.byID[int32(id)]
	if c == nil || c.doubt {
		return store.Origin{}, false
	}
	copy(dst, c.data)
	return c.origin, true
}

// Flush waits until everything is written, or ctx is done.
func (w *Writer) Flush(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
	})()
	w.mu.Lock()
	defer w.mu.Unlock()
	for (w.bytes > 0 || len(w.byID) > 0) && ctx.Err() == nil { // an empty file takes no bytes
		w.changed.Wait()
	}
}

// Write writes a sample at once, on the goroutine of the caller.
func (w *Writer) Write(id int, data []byte, origin store.Origin) error {
	w.reads.Occupy(len(data))
	defer w.reads.Occupy(-len(data))
	now := time.Now()
	write := w.meter.Begin(now, len(data))
	end := w.timed.begin(now)
	err := w.class.Put(id, data, origin)
	now = time.Now()
	end(now)
	w.meter.End(now, write, err)
	return err
}

// Longest returns for how long the write in progress that began first has not returned (0: there is
// none), and how long the longest write so far has taken, with those in progress. A nil Writer has
// none.
func (w *Writer) Longest(now time.Time) (present, ever time.Duration) {
	if w == nil {
		return 0, 0
	}
	return w.timed.longest(now)
}

// Doubt makes the copies unreadable: their files may have changed. They are still written, but kept
// is not called for them any more.
func (w *Writer) Doubt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byID {
		c.doubt = true
	}
}

// work writes copies until the writer is closed and none is left.
func (w *Writer) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case len(w.queue) > 0:
			c := w.queue[0]
			w.queue = w.queue[1:]
			w.mu.Unlock()
			// A class that refuses it costs another read later.
			_ = w.Write(int(c.id), c.data, c.origin)
			w.mu.Lock()
			if !c.doubt {
				w.kept(int(c.id), c.origin)
			}
			delete(w.byID, c.id)
			w.bytes -= int64(len(c.data))
			gained := w.refused && w.taken() < routing.AheadMemory
			if gained {
				w.refused = false
			}
			if len(w.spare) < spareBuffers {
				w.spare = append(w.spare, c.data)
			}
			w.changed.Broadcast()
			if gained {
				w.mu.Unlock()
				w.room()
				w.mu.Lock()
			}
		case w.closed:
			return
		default:
			w.spare = nil
			w.changed.Wait()
		}
	}
}

// Close ends the writer once everything is written. It reports whether it has ended within `most`
// time: if not, the class is too slow, or a write hangs, and what is not being written then is
// lost.
func (w *Writer) Close(most time.Duration) bool {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.changed.Broadcast()
	if wait.Within(most, w.workers.Wait) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.queue {
		delete(w.byID, c.id)
		w.bytes -= int64(len(c.data))
	}
	w.queue = nil
	return false
}

// Wait waits, after Close, until no write is in progress: forever, if one hangs forever.
func (w *Writer) Wait() { w.workers.Wait() }

// Writers are those of the classes into which a sample is written.
type Writers []*Writer

// Reserve is Writer.Reserve for all of them, or none. One call runs at a time.
func (all Writers) Reserve(id int, n int64) bool {
	for i, w := range all {
		if !w.Reserve(id, n) {
			all[:i].Unreserve(id)
			return false
		}
	}
	return true
}

// Unreserve is Writer.Unreserve for all of them.
func (all Writers) Unreserve(id int) {
	for _, w := range all {
		w.Unreserve(id)
	}
}
