package exchange

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/pacing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

const (
	// A write stops collecting samples at either limit. The deadline of a write is per writeBytes:
	// it bounds how slowly a peer may read its answers.
	writeBytes = 1 << 20
	writeCount = 256
	// The kernel buffers at most this much ahead of the network link (not counting what is in
	// flight): a sample is better left where it lies than copied into memory that is cold by the
	// time it is sent. This saves a third of the processor time over loopback. Below 64 KiB, the
	// largest segment, the link runs dry.
	unsentBytes = 96 << 10
	// TLS makes a record, and a system call, of every write, up to 16 KiB; so writes to it are
	// buffered into a few whole records.
	recordBytes = 64 << 10
)

// serverConn is one connection of a server, from its handshake to its end.
//
// The reader receives requests. Samples in memory become ready answers at once; the others are read
// by goroutines of their own (turns.go). The writer sends all answers that are ready, headers and
// samples in one writev from where they lie.
//
// A tag is free again when the writer takes its answer, before the answer is sent: the client
// cannot receive the answer earlier, and may reuse the tag as soon as it does.
type serverConn struct {
	s          *Server
	conn       net.Conn
	records    *bufio.Writer  // buffers whole TLS records; nil without TLS
	pace       *pacing.Socket // the writer's
	node       int
	wake       chan struct{}
	writerDone chan struct{} // closed when the writer has ended and nothing is being sent
	ctx        context.Context
	cancel     context.CancelCauseFunc
	reads      sync.WaitGroup

	// Guarded by Server.mu.
	waiting []turn // requests that wait to be read
	reading int    // calls of Holder.Sample in progress
	sending int    // of these, those whose answer is being sent
	queued  bool
	source  time.Duration // see sourced
	changed time.Time     // when reading or sending last changed

	mu struct { // guards the following
		invariants.Mutex[serverConn]
		table    []entry  // by tag
		ready    []uint32 // tags of ready answers, in order
		pong     bool
		inFlight int
		stats    PeerStats
	}
}

func newServerConn(s *Server, conn net.Conn, node, window int) *serverConn {
	c := &serverConn{
		s:          s,
		conn:       conn,
		node:       node,
		wake:       make(chan struct{}, 1),
		writerDone: make(chan struct{}),
		changed:    time.Now(),
	}
	c.mu.table = make([]entry, window)
	socket := conn
	if session, ok := conn.(*tls.Conn); ok {
		socket = session.NetConn()
		if pending, ok := socket.(*auth.Conn); ok {
			socket = pending.NetConn()
		}
		c.records = bufio.NewWriterSize(session, recordBytes)
	}
	c.pace = pacing.Of(socket, unsentBytes)
	return c
}

// run serves the connection until it ends, and returns the reason.
func (c *serverConn) run(ctx context.Context) error {
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { _ = auth.Sever(c.conn) })
	c.s.add(c)
	var writer sync.WaitGroup
	writer.Go(c.write)
	c.cancel(c.read())
	writer.Wait()
	c.s.remove(c)
	c.reads.Wait()
	c.mu.Lock()
	for i := range c.mu.table {
		c.mu.table[i].unsent()
	}
	c.mu.Unlock()
	if stop() {
		_ = auth.Sever(c.conn)
	}
	return context.Cause(c.ctx)
}

// read receives frames until the connection ends.
func (c *serverConn) read() error {
	var (
		r    = bufio.NewReaderSize(c.conn, 64<<10)
		head [wire.HeaderSize]byte
		// the longest CANCEL or REQUEST
		payload = make([]byte, max(4*wire.MaxWindow, wire.RequestSize*len(c.mu.table)))
	)
	for {
		if r.Buffered() < wire.HeaderSize {
			if err := c.conn.SetReadDeadline(time.Now().Add(c.s.o.Idle)); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		h, err := wire.Parse(head[:], false)
		if err != nil {
			return err
		}
		if int(h.Length) > len(payload) {
			return wire.Malformed("frame of kind %d with %d bytes; the window is %d", h.Kind,
				h.Length, len(c.mu.table))
		}
		b := payload[:h.Length]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		if !wire.Sealed(head[:], digest.Of(b)) {
			return wire.Malformed("frame of kind %d with a wrong checksum", h.Kind)
		}
		switch h.Kind {
		case wire.KindRequest:
			err = c.request(b)
		case wire.KindCancel:
			err = c.drop(b)
		case wire.KindPing:
			c.mu.Lock()
			c.mu.pong = true
			c.mu.Unlock()
			c.wakeWriter()
		}
		if err != nil {
			return err
		}
	}
}

// request handles the requests in b: samples in memory become ready answers, the others wait for
// their turn to be read.
func (c *serverConn) request(b []byte) error {
	now := time.Now()
	missing := 0
	for ; len(b) > 0; b = b[wire.RequestSize:] {
		r, err := wire.ParseRequest(b, len(c.mu.table))
		if err != nil {
			return err
		}
		next := entry{Request: r, taken: true, since: now}
		copy, held := c.s.h.Held(r.Sample, next.want())
		c.mu.Lock()
		e := &c.mu.table[r.Tag]
		if e.taken {
			c.mu.Unlock()
			if held && copy.Hold != nil {
				copy.Hold.Release()
			}
			return wire.Malformed("request with tag %d, which is taken", r.Tag)
		}
		*e = next
		c.mu.inFlight++
		if held {
			e.answer(copy)
			c.mu.ready = append(c.mu.ready, r.Tag)
		}
		c.mu.Unlock()
		if !held {
			c.s.wait(c, r.Tag)
			missing++
		}
	}
	if missing > 0 {
		c.s.dispatch()
	}
	c.wakeWriter()
	return nil
}

// drop cancels requests. A request that was answered in the meantime is ignored.
func (c *serverConn) drop(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(b) > 0; b = b[4:] {
		tag := binary.LittleEndian.Uint32(b)
		if tag >= uint32(len(c.mu.table)) {
			return wire.Malformed("tag %d; the window is %d", tag, len(c.mu.table))
		}
		if e := &c.mu.table[tag]; e.taken {
			e.cancelled = true
			if e.cancel != nil {
				e.cancel()
			}
		}
	}
	return nil
}

// settle makes err the answer of a request that was being read.
func (c *serverConn) settle(tag uint32, err error) {
	c.mu.Lock()
	c.mu.table[tag].fail(err)
	c.mu.ready = append(c.mu.ready, tag)
	c.mu.Unlock()
	c.wakeWriter()
}

func (c *serverConn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write sends ready answers until the connection ends.
func (c *serverConn) write() {
	defer close(c.writerDone)
	out := outlet{c: c}
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		for out.gather() {
			if err := out.send(); err != nil {
				c.cancel(err)
				return
			}
		}
	}
}

// outlet is one write: the answers that it sends and the buffers for them.
type outlet struct {
	c       *serverConn
	entries []entry
	heads   []byte
	bytes   int // of samples
	vecs    net.Buffers
	// To send vecs a part at a time, without an allocation: what has not been sent, the part that is
	// being sent, and what is left of that.
	rest, part, sending net.Buffers
}

// gather takes ready answers and frees their tags. It returns false if there are none.
func (o *outlet) gather() bool {
	c := o.c
	o.entries = o.entries[:0]
	c.mu.Lock()
	n, most := 0, c.pace.Burst(writeBytes)
	for o.bytes = 0; n < len(c.mu.ready) && n < writeCount && o.bytes < most; n++ {
		e := &c.mu.table[c.mu.ready[n]]
		if e.cancelled && e.copy.Data != nil {
			// The client no longer needs the sample.
			e.done()
			e.copy.Data = nil
			e.code = wire.CodeCancelled
			e.text = "cancelled"
		}
		o.bytes += len(e.copy.Data)
		o.entries = append(o.entries, *e)
		*e = entry{}
	}
	c.mu.ready = c.mu.ready[:copy(c.mu.ready, c.mu.ready[n:])]
	c.mu.inFlight -= n
	pong := c.mu.pong
	c.mu.pong = false
	c.mu.Unlock()
	if n == 0 && !pong {
		return false
	}
	if cap(o.heads) < writeCount*wire.HeaderSize+wire.HeaderSize {
		o.heads = make([]byte, writeCount*wire.HeaderSize+wire.HeaderSize)
	}
	o.vecs = o.vecs[:0]
	for i := range o.entries {
		e := &o.entries[i]
		head := o.heads[i*wire.HeaderSize : (i+1)*wire.HeaderSize]
		h := wire.Header{
			Kind:   wire.KindSample,
			Tag:    e.Tag,
			Sample: e.Sample,
			Length: uint32(len(e.copy.Data)),
		}
		switch {
		case e.code != 0:
			text := []byte(e.text[:min(len(e.text), wire.MaxMessage)])
			e.copy.Data, e.copy.Digest = text, digest.Of(text)
			h.Kind = wire.KindFailure
			h.Code = e.code
			h.Length = uint32(len(text))
		case e.copy.Kind != 0:
			h.Kind = wire.KindForm
			h.Code = wire.Code(e.copy.Kind)
		default:
			h.Waited = wire.Wait(e.waited)
		}
		h.Put(head, e.copy.Digest)
		o.vecs = append(o.vecs, head)
		if len(e.copy.Data) > 0 {
			o.vecs = append(o.vecs, e.copy.Data)
		}
	}
	if pong {
		head := o.heads[writeCount*wire.HeaderSize:][:wire.HeaderSize]
		wire.Header{Kind: wire.KindPong}.Put(head, digest.Of(nil))
		o.vecs = append(o.vecs, head)
	}
	return true
}

// take moves up to so many bytes from what has not been sent to what is being sent.
func (o *outlet) take(most int) {
	o.part = o.part[:0]
	for len(o.rest) > 0 && most > 0 {
		next := o.rest[0]
		if len(next) > most {
			next, o.rest[0] = next[:most], next[most:]
		} else {
			o.rest = o.rest[1:]
		}
		o.part = append(o.part, next)
		most -= len(next)
	}
	o.sending = o.part
}

// send writes what gather collected, and notifies the lenders.
func (o *outlet) send() error {
	c := o.c
	timeout := c.s.o.Timeout * time.Duration(1+o.bytes/writeBytes)
	if err := c.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	var err error
	for o.rest = o.vecs; len(o.rest) > 0 && err == nil; {
		c.pace.Adjust(time.Now())
		if o.take(c.pace.Burst(writeBytes)); c.records == nil {
			_, err = o.sending.WriteTo(c.conn)
		} else if _, err = o.sending.WriteTo(c.records); err == nil {
			err = c.records.Flush()
		}
	}
	clear(o.vecs)
	clear(o.part)
	if err != nil {
		for i := range o.entries {
			o.entries[i].unsent()
		}
		return err
	}
	now := time.Now()
	c.mu.Lock()
	for i := range o.entries {
		e := &o.entries[i]
		e.done()
		if e.code != 0 {
			c.mu.stats.Failures++
		} else {
			c.mu.stats.Samples++
			c.mu.stats.Bytes += int64(len(e.copy.Data))
			c.mu.stats.Latency += (now.Sub(e.since) - c.mu.stats.Latency) / 16
		}
	}
	c.mu.Unlock()
	clear(o.entries)
	return nil
}
