package daemon

import (
	"fmt"
	"sync"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
)

// lent are the segments of storage classes that were announced to a process. A segment is announced
// when a batch first names it, so none is announced to a process whose samples are transformed.
type lent struct {
	mu    sync.Mutex // guards the following
	told  stage.Announced
	gone  map[uint32]func() // by number: to be called when the process has dropped the segment
	ended bool              // the connection has ended
}

// end has the process count as mapping nothing any more.
func (l *lent) end() {
	l.mu.Lock()
	gone := l.gone
	l.gone, l.ended = nil, true
	l.mu.Unlock()
	for _, f := range gone {
		f()
	}
}

// sendSegments announces the segments of storage classes that a batch names and that have not been
// announced to the process.
func (x *conn) sendSegments(b *stage.Batch) error {
	var fresh []uint32
	x.lent.mu.Lock()
	for _, number := range b.Segments {
		if at, ok := stage.OfClass(number); ok && x.lent.told.First(at) {
			fresh = append(fresh, number)
		}
	}
	x.lent.mu.Unlock()
	for _, number := range fresh {
		s, ok := x.rank.Load().Segment(number)
		if !ok {
			return fmt.Errorf("batch %d of epoch %d names segment %#x, which does not exist", b.Step,
				b.Epoch, number)
		}
		if err := x.sendWithFile(protocol.AppendSegment(nil, number, 0, uint64(s.Size)),
			s.File); err != nil {
			return err
		}
	}
	return nil
}

// dropSegment has the process drop a segment that no later batch names, and gone called when it has
// done so. It implements the function that node.Rank.OnDrop takes.
func (x *conn) dropSegment(number uint32, gone func()) {
	at, _ := stage.OfClass(number)
	x.lent.mu.Lock()
	if x.lent.ended || !x.lent.told.Was(at) {
		x.lent.mu.Unlock()
		gone()
		return
	}
	x.lent.gone[number] = gone
	// Not in this goroutine, which may be the one that frees memory for the whole node: the process
	// may not be reading. Batches that follow do not name the segment.
	x.tasks.Go(func() { _ = x.send(protocol.AppendDrop(nil, number)) })
	x.lent.mu.Unlock()
}

// gone handles GONE, the answer to DROP. One for a segment that was not dropped is ignored, such as
// that of an extra segment of the staging buffer.
func (x *conn) gone(p []byte) error {
	number, err := protocol.DecodeGone(p)
	if err != nil {
		return err
	}
	x.lent.mu.Lock()
	f := x.lent.gone[number]
	delete(x.lent.gone, number)
	x.lent.mu.Unlock()
	if f != nil {
		f()
	}
	return nil
}
