package daemon

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// sendBatch sends a batch's description, after any segments that it needs.
func (x *conn) sendBatch(generation uint64, b *stage.Batch) error {
	for _, e := range b.Extras {
		flags := uint32(protocol.SegmentWritable)
		if stage.InWindow(e.Segment) {
			flags |= protocol.SegmentPrivate
		}
		if err := x.sendWithFile(protocol.AppendSegment(nil, e.Segment, flags, uint64(e.Size)),
			e.File); err != nil {
			return err
		}
	}
	if err := x.sendSegments(b); err != nil {
		return err
	}
	x.wmu.Lock()
	defer x.wmu.Unlock()
	m := batchMessage(generation, b)
	x.wmu.buf = protocol.AppendBatch(x.wmu.buf[:0], &m)
	_, err := x.c.Write(x.wmu.buf)
	return err
}

func (x *conn) send(frame []byte) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	_, err := x.c.Write(frame)
	return err
}

// sendJSON sends v. It returns protocol.ErrProtocol if v does not fit into a frame; the caller must
// then send something else.
func (x *conn) sendJSON(t protocol.Type, v any) error {
	frame, err := protocol.AppendJSON(nil, t, v)
	if err != nil {
		x.log.Error("encode frame", "type", t, "error", err)
		return err
	}
	return x.send(frame)
}

// sendWithFile sends a frame together with a file descriptor, which goes with its first byte.
func (x *conn) sendWithFile(frame []byte, f *os.File) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	n, _, err := x.c.WriteMsgUnix(frame, unix.UnixRights(int(f.Fd())), nil)
	if err == nil && n < len(frame) {
		_, err = x.c.Write(frame[n:])
	}
	return err
}

// warn sends warnings, which the process logs.
func (x *conn) warn(said []string) {
	for _, text := range said {
		_ = x.sendJSON(protocol.Progress, protocol.ProgressMessage{What: text, Warning: true})
	}
}

// progress returns a function that reports progress to the process. Updates of the same step are
// limited to five per second; warnings and new steps are sent at once.
func (x *conn) progress() request.Progress {
	var mu sync.Mutex
	var last time.Time
	var what string
	return func(m request.Step) {
		mu.Lock()
		due := m.What != what || m.Warning || time.Since(last) > 200*time.Millisecond
		if due {
			last, what = time.Now(), m.What
		}
		mu.Unlock()
		if due {
			_ = x.sendJSON(protocol.Progress, progressMessage(m))
		}
	}
}
