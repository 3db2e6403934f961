// Package writeback writes samples into a storage class beside the reads that bring them.
package writeback

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/meter"
	"github.com/hdmlp/hdmlp/internal/patience"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Writer writes samples into a class that is not in memory, on a number of goroutines of its own,
// so that no batch waits for a class that is slower than the source. It keeps a copy of what it has
// not written yet, which is as good as one in the class: no sample is read again because its copy
// is late.
//
// The copies take at most Memory bytes, besides a single larger one. A class that cannot keep
// up therefore misses samples (Put), which are then read again when they are next needed. That
// costs bytes; waiting for the class would cost time.
type Writer struct {
	class   storageclass.Store
	kept    func(id int, origin storageclass.Origin) // called after each sample that was written
	room    func()                                   // called when Room may have become true
	reads   *meter.Meter                             // of the class, which writes delay
	meter   meter.Meter
	workers sync.WaitGroup

	mu      sync.Mutex // guards the following
	changed *sync.Cond // signals new copies, memory that is free again, and closed
	queue   []*copyOf  // not yet begun, in order
	byID    map[int32]*copyOf
	bytes   int64    // of byID
	spare   [][]byte // unused buffers
	closed  bool
}

// copyOf is a copy of a sample that is to be written.
type copyOf struct {
	id     int32
	data   []byte
	origin storageclass.Origin
	doubt  bool // its file may have changed since: it must not be read
}

const (
	// Memory is how many bytes copies may take.
	Memory       = 32 << 20
	spareBuffers = 16
)

// New returns a writer, and starts its goroutines, one for each sample that is written at the same
// time. reads measures the reads from the class. kept is called after each, and room when Room
// becomes true. Close ends them.
func New(class storageclass.Store, threads int, reads *meter.Meter,
	kept func(id int, origin storageclass.Origin), room func(),
) *Writer {
	w := &Writer{class: class, reads: reads, kept: kept, room: room, byID: map[int32]*copyOf{}}
	w.changed = sync.NewCond(&w.mu)
	for range max(threads, 1) {
		w.workers.Go(w.work)
	}
	return w
}

// Know makes the writer predict by what is known of the class until it has written to it.
func (w *Writer) Know(k perfmodel.Known) { w.meter.Know(k) }

// Meter returns what measures the writes to the class.
func (w *Writer) Meter() *meter.Meter { return &w.meter }

// Room reports whether samples should be read ahead of time for the class. It leaves a quarter of
// the memory to those that are read for batches, which cost no read of their own.
func (w *Writer) Room() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roomLocked()
}

func (w *Writer) roomLocked() bool { return w.bytes < Memory/4*3 }

// Put copies a sample, to be written. If there is no memory for the copy, it waits for some if
// patient, and else leaves the sample out.
func (w *Writer) Put(id int, data []byte, origin storageclass.Origin, patient bool) {
	n := int64(len(data))
	w.mu.Lock()
	for w.bytes > 0 && w.bytes+n > Memory && patient && !w.closed {
		w.changed.Wait()
	}
	if w.bytes > 0 && w.bytes+n > Memory || w.closed || w.byID[int32(id)] != nil ||
		w.class.Has(id) {
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
func (w *Writer) Read(id int, dst []byte) (storageclass.Origin, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.byID[int32(id)]
	if c == nil || c.doubt {
		return storageclass.Origin{}, false
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
func (w *Writer) Write(id int, data []byte, origin storageclass.Origin) error {
	w.reads.Occupy(len(data))
	defer w.reads.Occupy(-len(data))
	write := w.meter.Begin(time.Now(), len(data))
	err := w.class.Put(id, data, origin)
	w.meter.End(time.Now(), write, err)
	return err
}

// Doubt makes the copies unreadable: their files may have changed.
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
			w.write(c)
			w.mu.Lock()
			delete(w.byID, c.id)
			had := w.roomLocked()
			w.bytes -= int64(len(c.data))
			gained := !had && w.roomLocked()
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

// write writes a copy. A class that refuses it costs another read later.
func (w *Writer) write(c *copyOf) {
	_ = w.Write(int(c.id), c.data, c.origin)
	w.kept(int(c.id), c.origin)
}

// Close ends the writer once everything is written. It reports whether it has ended within `most`
// time: if not, a write hangs.
func (w *Writer) Close(most time.Duration) bool {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.changed.Broadcast()
	return patience.Within(most, w.workers.Wait)
}
