package exchange

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/admission"
	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/invariants"
)

const (
	// A write takes no further sample from here on. There is a deadline for so
	// much: a bound on how slowly a peer may take what it asked for.
	writeBytes = 1 << 20
	writeCount = 256
	// The kernel takes samples ahead of the link only as far as this (not
	// counting what is on its way): what waits is better left where it lies than copied into
	// memory that is cold by the time it is sent. Takes a third off the processor time
	// over loopback. Below 64 KiB, the largest segment, the link runs dry.
	unsentBytes = 96 << 10
	// TLS makes a record, and a system call, of whatever it is given, up to 16 KiB: so it is given a few whole ones.
	recordBytes = 64 << 10
)

// peer is one connection of a server, from its handshake to its end.
//
// The reader takes requests, and answers at once what lies in memory, by
// putting it among those that are ready; the others are read by goroutines of their
// own (turns.go). The writer sends what is ready, as much as there is, headers and samples
// in one writev from where they lie.
//
// A tag is free again when the writer takes its answer, before it is sent: the
// client can not know the answer before that, and may ask again the moment it does.
type peer struct {
	s      *Server
	conn   net.Conn
	whole  *bufio.Writer // makes whole records of what TLS is given; nil without it
	node   int
	wake   chan struct{}
	quiet  chan struct{} // closed when the writer has ended: nothing is being sent
	ctx    context.Context
	cancel context.CancelCauseFunc
	reads  sync.WaitGroup

	// Guarded by Server.mu.
	waiting []uint32 // tags whose samples have to be read
	reading int      // calls of Holder.Sample
	queued  bool

	mu struct { // guards the following
		invariants.Mutex[peer]
		table    []entry  // by tag
		ready    []uint32 // tags, in the order in which they became so
		pong     bool
		inFlight int
		stats    PeerStats
	}
}

// entry is one request.
type entry struct {
	request
	taken     bool
	cancelled bool
	since     time.Time
	cancel    context.CancelFunc // while it is being read
	data      []byte             // the answer: a sample, with its sum,
	sum       uint32
	code      code // or a failure with a text
	text      string
	sent      chan struct{} // closed when data was written; may be nil
}

func newPeer(s *Server, conn net.Conn, node, window int) *peer {
	p := &peer{s: s, conn: conn, node: node, wake: make(chan struct{}, 1), quiet: make(chan struct{})}
	p.mu.table = make([]entry, window)
	socket := conn
	if session, ok := conn.(*tls.Conn); ok {
		socket = session.NetConn()
		if guest, ok := socket.(*admission.Conn); ok {
			socket = guest.NetConn()
		}
		p.whole = bufio.NewWriterSize(session, recordBytes)
	}
	if tcp, ok := socket.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				// Without it, it is only slower.
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
			})
		}
	}
	return p
}

// run serves until the connection ends, and says why it did.
func (p *peer) run(ctx context.Context) error {
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { sever(p.conn) })
	p.s.join(p)
	var writer sync.WaitGroup
	writer.Go(p.write)
	p.cancel(p.read())
	writer.Wait()
	p.s.part(p)
	p.reads.Wait()
	if stop() {
		sever(p.conn)
	}
	return context.Cause(p.ctx)
}

// read takes requests until the connection ends.
func (p *peer) read() error {
	var (
		r        = bufio.NewReaderSize(p.conn, 64<<10)
		head     [headerSize]byte
		payload  = make([]byte, max(4*maxAnnounced, requestSize*len(p.mu.table)))
		ids      = make([]int32, 0, maxAnnounced)
		ahead, _ = p.s.h.(ReadAhead)
	)
	for {
		if r.Buffered() < headerSize {
			if err := p.conn.SetReadDeadline(time.Now().Add(p.s.o.Idle)); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		h, err := parse(head[:], false)
		if err != nil {
			return err
		}
		if int(h.length) > len(payload) {
			return malformed("frame of kind %d with %d bytes; the window is %d", h.kind, h.length, len(p.mu.table))
		}
		b := payload[:h.length]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		if !sealed(head[:], digest.Of(b)) {
			return malformed("frame of kind %d with a wrong checksum", h.kind)
		}
		switch h.kind {
		case kindRequest:
			err = p.request(b)
		case kindCancel:
			err = p.drop(b)
		case kindAsk:
			ids = ids[:0]
			for ; len(b) > 0; b = b[4:] {
				id := int32(binary.LittleEndian.Uint32(b))
				if id < 0 {
					return malformed("sample %d", id)
				}
				ids = append(ids, id)
			}
			p.mu.Lock()
			p.mu.stats.Asked += int64(len(ids))
			p.mu.Unlock()
			if ahead != nil {
				ahead.ReadAhead(p.node, ids)
			}
		case kindPing:
			p.mu.Lock()
			p.mu.pong = true
			p.mu.Unlock()
			p.kick()
		}
		if err != nil {
			return err
		}
	}
}

// request takes the requests in b: those whose samples lie in memory are ready, the others wait for their turn.
func (p *peer) request(b []byte) error {
	now := time.Now()
	missing := 0
	for ; len(b) > 0; b = b[requestSize:] {
		r, err := parseRequest(b, len(p.mu.table))
		if err != nil {
			return err
		}
		data, sum, held := p.s.h.Held(r.sample)
		p.mu.Lock()
		e := &p.mu.table[r.tag]
		if e.taken {
			p.mu.Unlock()
			return malformed("request with tag %d, which is taken", r.tag)
		}
		*e = entry{request: r, taken: true, since: now}
		p.mu.inFlight++
		if held {
			e.answer(data, sum)
			p.mu.ready = append(p.mu.ready, r.tag)
		}
		p.mu.Unlock()
		if !held {
			p.s.wait(p, r.tag)
			missing++
		}
	}
	if missing > 0 {
		p.s.dispatch()
	}
	p.kick()
	return nil
}

// answer makes data the answer, or a failure where it is not as long as the client expects.
func (e *entry) answer(data []byte, sum uint32) {
	if len(data) != int(e.length) {
		e.code, e.text = codeLength, fmt.Sprintf("%d bytes, not %d", len(data), e.length)
		return
	}
	e.data, e.sum = data, sum
}

// fail makes err the answer.
func (e *entry) fail(err error) {
	e.text = err.Error()
	switch {
	case errors.Is(err, ErrNotHeld):
		e.code, e.text = codeNotHeld, ""
	case e.cancelled:
		e.code = codeCancelled
	default:
		e.code = codeFailed
	}
}

// drop cancels requests. Those that were answered meanwhile are none of the client's mistakes.
func (p *peer) drop(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; len(b) > 0; b = b[4:] {
		tag := binary.LittleEndian.Uint32(b)
		if tag >= uint32(len(p.mu.table)) {
			return malformed("tag %d; the window is %d", tag, len(p.mu.table))
		}
		if e := &p.mu.table[tag]; e.taken {
			e.cancelled = true
			if e.cancel != nil {
				e.cancel()
			}
		}
	}
	return nil
}

// settle makes err the answer of a request that was being read.
func (p *peer) settle(tag uint32, err error) {
	p.mu.Lock()
	p.mu.table[tag].fail(err)
	p.mu.ready = append(p.mu.ready, tag)
	p.mu.Unlock()
	p.kick()
}

func (p *peer) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// write sends what is ready until the connection ends.
func (p *peer) write() {
	defer close(p.quiet)
	out := outlet{p: p}
	for {
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return
		}
		for out.gather() {
			if err := out.send(); err != nil {
				p.cancel(err)
				return
			}
		}
	}
}

// outlet is one write: answers, and what they are made of.
type outlet struct {
	p       *peer
	entries []entry
	heads   []byte
	bytes   int // of samples
	vecs    net.Buffers
	rest    net.Buffers // what send has not written; a field, so that it need not be allocated
}

// gather takes ready answers, and frees their tags. false: there are none.
func (o *outlet) gather() bool {
	p := o.p
	o.entries = o.entries[:0]
	p.mu.Lock()
	n := 0
	for o.bytes = 0; n < len(p.mu.ready) && n < writeCount && o.bytes < writeBytes; n++ {
		e := &p.mu.table[p.mu.ready[n]]
		if e.cancelled && e.data != nil {
			// Nobody waits for it: don't send it all.
			if e.sent != nil {
				close(e.sent)
			}
			e.data, e.sent, e.code, e.text = nil, nil, codeCancelled, "cancelled"
		}
		o.bytes += len(e.data)
		o.entries = append(o.entries, *e)
		*e = entry{}
	}
	p.mu.ready = p.mu.ready[:copy(p.mu.ready, p.mu.ready[n:])]
	p.mu.inFlight -= n
	pong := p.mu.pong
	p.mu.pong = false
	p.mu.Unlock()
	if n == 0 && !pong {
		return false
	}
	if cap(o.heads) < writeCount*headerSize+headerSize {
		o.heads = make([]byte, writeCount*headerSize+headerSize)
	}
	o.vecs = o.vecs[:0]
	for i := range o.entries {
		e := &o.entries[i]
		head := o.heads[i*headerSize : (i+1)*headerSize]
		h := header{kind: kindSample, tag: e.tag, sample: e.sample, length: uint32(len(e.data))}
		if e.code != 0 {
			text := e.text[:min(len(e.text), maxMessage)]
			e.data, e.sum = []byte(text), digest.Of([]byte(text))
			h.kind, h.code, h.length = kindFailure, e.code, uint32(len(text))
		}
		h.put(head, e.sum)
		o.vecs = append(o.vecs, head)
		if len(e.data) > 0 {
			o.vecs = append(o.vecs, e.data)
		}
	}
	if pong {
		head := o.heads[writeCount*headerSize:][:headerSize]
		header{kind: kindPong}.put(head, digest.Of(nil))
		o.vecs = append(o.vecs, head)
	}
	return true
}

// send writes what gather took, and tells those who lent it.
func (o *outlet) send() error {
	p := o.p
	patience := p.s.o.Timeout * time.Duration(1+o.bytes/writeBytes)
	if err := p.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var err error
	if o.rest = o.vecs; p.whole == nil {
		_, err = o.rest.WriteTo(p.conn)
	} else if _, err = o.rest.WriteTo(p.whole); err == nil {
		err = p.whole.Flush()
	}
	clear(o.vecs)
	if err != nil {
		return err
	}
	now := time.Now()
	p.mu.Lock()
	for i := range o.entries {
		e := &o.entries[i]
		if e.sent != nil {
			close(e.sent)
		}
		if e.code != 0 {
			p.mu.stats.Failures++
		} else {
			p.mu.stats.Samples++
			p.mu.stats.Bytes += int64(len(e.data))
			p.mu.stats.Latency += (now.Sub(e.since) - p.mu.stats.Latency) / 16
		}
	}
	p.mu.Unlock()
	clear(o.entries)
	return nil
}
