package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/invariants"
)

// errBroken: the connection ended under a call that was not the reason for it.
var errBroken = errors.New("connection lost")

// One call in so many is timed.
const measured = 8

// Neighbours in the list of deadlines.
const (
	none     = -1 // the list ends here
	unlisted = -2 // the call is not under way
)

// link is one connection of a client, from its handshake to its end.
//
// Callers put their requests into a buffer; the writer takes all that has
// gathered and sends it at once, so that the more callers there are the larger
// its writes become. The reader finds the call of each answer by its tag. The
// watch ends calls that take too long, and the connection if it is to blame.
//
// Whoever finds the connection at fault calls fail, which closes it. The reader
// then ends, and it alone settles the calls that are left: it is the
// only one who writes to their destinations.
type link struct {
	c      *Client
	conn   net.Conn
	in     *inlet
	free   chan uint32 // tags that may be taken
	calls  []call      // by tag
	wake   chan struct{}
	tick   time.Duration // of the watch
	dead   chan struct{} // closed by fail
	flying atomic.Int32
	down   atomic.Bool // fail was called

	mu struct { // guards the following
		invariants.Mutex[link]
		out         []byte   // requests that are not sent yet
		cancels     []uint32 // tags, the same
		ask         []byte   // samples, the same
		ping        bool     // to be sent
		pinged      bool     // and was asked for since the last whole frame
		frames      uint64   // whole ones that came
		now         int64    // ticks of the watch: the time, as far as deadlines go
		heard       int64    // the tick at which frames last grew
		asked       uint64   // calls so far
		first, last int32    // calls under way, by deadline
		err         error    // why it ended
		latency     time.Duration
	}
}

func newLink(c *Client, conn net.Conn, window int) *link {
	l := &link{
		c: c, conn: conn, in: newInlet(conn),
		free: make(chan uint32, window), calls: make([]call, window),
		wake: make(chan struct{}, 1), dead: make(chan struct{}),
	}
	for tag := range l.calls {
		c := &l.calls[tag]
		c.tag, c.done, c.prev, c.next = uint32(tag), make(chan error, 1), unlisted, unlisted
		l.free <- uint32(tag)
	}
	l.mu.first, l.mu.last = none, none
	l.tick = min(c.o.Timeout/4, c.o.KeepAlive/2)
	return l
}

// run serves the connection until it ends, and says why.
func (l *link) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.fail(ErrClosed) })
	defer stop()
	var others sync.WaitGroup
	others.Go(l.write)
	others.Go(l.watch)
	l.fail(l.read())
	others.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.first != none {
		c := &l.calls[l.mu.first]
		l.unlist(c)
		c.settle(errBroken)
	}
	return l.mu.err
}

// fail ends the connection. The first reason stays.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err == nil {
		l.mu.err = err
		l.down.Store(true)
		close(l.dead)
		sever(l.conn)
	}
}

// worked reports whether anything came that was whole.
func (l *link) worked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.frames > 0
}

// fetch asks for one sample, and returns its digest. Errors without a kind are the context's.
func (l *link) fetch(ctx context.Context, id int32, dst []byte) (sum uint32, err error) {
	var tag uint32
	select {
	case tag = <-l.free:
	default:
		select {
		case tag = <-l.free:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-l.dead:
			return 0, errBroken
		}
	}
	c := &l.calls[tag]
	l.flying.Add(1)
	if !l.send(c, id, dst) {
		l.flying.Add(-1)
		return 0, errBroken
	}
	select {
	case err = <-c.done:
	case <-ctx.Done():
		if !c.leave() {
			l.cancel(c)
			return 0, ctx.Err()
		}
		err = <-c.done
	}
	if err == nil {
		if sum = digest.Of(dst); !sealed(c.head[:], sum) {
			err = fmt.Errorf("%w: its checksum does not hold", ErrCorrupt)
		}
	} else if expired := (*expiry)(nil); err == errBroken || errors.As(err, &expired) {
		return 0, err // the tag is not ours
	}
	l.release(c)
	return sum, err
}

// send puts a request into the buffer, and wakes the writer if that was empty.
func (l *link) send(c *call, id int32, dst []byte) bool {
	c.mu.Lock()
	c.dst, c.left, c.told, c.settled = dst, false, false, false
	c.mu.Unlock()
	l.mu.Lock()
	if l.mu.err != nil {
		l.mu.Unlock()
		return false
	}
	c.sample, c.length, c.since = id, uint32(len(dst)), time.Time{}
	c.deadline, c.frames = l.mu.now+l.ticks(l.c.o.Timeout), l.mu.frames
	c.receiving, c.expired, c.cancelled = false, false, false
	if l.mu.asked++; l.mu.asked%measured == 0 {
		c.since = time.Now()
	}
	l.list(c)
	idle := len(l.mu.out) == 0
	if idle {
		l.mu.out = append(l.mu.out, make([]byte, headerSize)...)
	}
	l.mu.out = appendRequest(l.mu.out, request{tag: c.tag, sample: id, length: c.length})
	l.mu.Unlock()
	if idle {
		l.kick()
	}
	return true
}

func (l *link) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// cancel tells the server that nobody waits for c any more. Its answer comes all the same.
func (l *link) cancel(c *call) {
	l.mu.Lock()
	l.cancelLocked(c)
	l.mu.Unlock()
	l.kick()
}

func (l *link) cancelLocked(c *call) {
	if c.next != unlisted && !c.cancelled {
		c.cancelled = true
		l.mu.cancels = append(l.mu.cancels, c.tag)
	}
}

func (l *link) release(c *call) {
	l.flying.Add(-1)
	l.free <- c.tag
}

// announce queues samples for an ASK; what is too much is left out.
func (l *link) announce(ids []int32) {
	l.mu.Lock()
	for _, id := range ids[:min(len(ids), maxAnnounced-len(l.mu.ask)/4)] {
		l.mu.ask = binary.LittleEndian.AppendUint32(l.mu.ask, uint32(id))
	}
	l.mu.Unlock()
	l.kick()
}

// write sends what has gathered, until the connection ends.
func (l *link) write() {
	var out, spare []byte
	for {
		select {
		case <-l.wake:
		case <-l.dead:
			return
		}
		// Those who are about to ask may do so first: one write for all of them.
		runtime.Gosched()
		l.mu.Lock()
		out, l.mu.out = l.mu.out, spare[:0]
		if len(out) > 0 {
			h := header{kind: kindRequest, length: uint32(len(out) - headerSize)}
			h.put(out, digest.Of(out[headerSize:]))
		}
		out = l.appendCancels(out)
		if len(l.mu.ask) > 0 {
			out = appendFrame(out, header{kind: kindAsk}, l.mu.ask)
			l.mu.ask = l.mu.ask[:0]
		}
		if l.mu.ping {
			out = appendFrame(out, header{kind: kindPing}, nil)
			l.mu.ping = false
		}
		l.mu.Unlock()
		if len(out) > 0 {
			if _, err := l.conn.Write(out); err != nil {
				l.fail(err)
				return
			}
		}
		spare = out
	}
}

// appendCancels appends a CANCEL of the calls that are still under way. A tag
// that was answered meanwhile, and may have been taken again, is left out; one
// that was cancelled again stands for the new call.
func (l *link) appendCancels(out []byte) []byte {
	var tags []byte
	for _, tag := range l.mu.cancels {
		if c := &l.calls[tag]; c.next != unlisted && c.cancelled && len(tags) < 4*MaxWindow {
			tags = binary.LittleEndian.AppendUint32(tags, tag)
		}
	}
	l.mu.cancels = l.mu.cancels[:0]
	if len(tags) == 0 {
		return out
	}
	return appendFrame(out, header{kind: kindCancel}, tags)
}

// read takes answers until the connection ends, and says why it did.
func (l *link) read() error {
	for {
		b, err := l.in.peek(headerSize)
		if err != nil {
			return err
		}
		h, err := parse(b, true)
		if err != nil {
			return err
		}
		if h.kind == kindPong {
			if !sealed(b, digest.Of(nil)) {
				return malformed("a PONG with a wrong checksum")
			}
			l.in.r += headerSize
			l.mu.Lock()
			l.hear()
			l.mu.Unlock()
			continue
		}
		c, err := l.expect(h)
		if err != nil {
			return err
		}
		copy(c.head[:], b) // settle publishes it
		l.in.r += headerSize
		var verdict error
		if h.kind == kindSample {
			err = l.in.payload(c, int(h.length))
		} else {
			verdict, err = l.failure(c, h)
		}
		if err != nil {
			return l.blame(c, err)
		}
		l.answered(c, h, verdict)
	}
}

// expect finds the call that h answers. A wrong answer is settled as such, and
// ends the connection: nothing behind it can be trusted.
func (l *link) expect(h header) (*call, error) {
	if h.tag >= uint32(len(l.calls)) {
		return nil, malformed("an answer with tag %d; the window is %d", h.tag, len(l.calls))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.calls[h.tag]
	if c.next == unlisted {
		return nil, malformed("an answer with tag %d, which nobody asked for", h.tag)
	}
	if c.sample != h.sample || (h.kind == kindSample && c.length != h.length) {
		err := malformed("sample %d of %d bytes as the answer to sample %d of %d bytes", h.sample, h.length, c.sample, c.length)
		l.unlist(c)
		if c.settle(fmt.Errorf("%w: %w", ErrCorrupt, err)) {
			l.flying.Add(-1)
		}
		return nil, err
	}
	c.receiving = true
	return c, nil
}

// failure reads a FAILURE's text, and makes an error of it.
func (l *link) failure(c *call, h header) (verdict, err error) {
	b, err := l.in.peek(int(h.length))
	if err != nil {
		return nil, err
	}
	if !sealed(c.head[:], digest.Of(b)) {
		return nil, malformed("a FAILURE with a wrong checksum")
	}
	text := fmt.Errorf("it says: %q", b)
	l.in.r += int(h.length)
	switch h.code {
	case codeNotHeld:
		return ErrNotHeld, nil
	case codeLength:
		return fmt.Errorf("%w: its length differs: %w", ErrCorrupt, text), nil
	case codeCancelled:
		return fmt.Errorf("%w: %w", ErrUnavailable, text), nil
	}
	return fmt.Errorf("%w: %w", ErrFailed, text), nil
}

// blame settles the call in whose payload the connection broke.
func (l *link) blame(c *call, err error) error {
	if errors.Is(err, errFrame) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unlist(c)
		if c.settle(fmt.Errorf("%w: %w", ErrCorrupt, err)) {
			l.flying.Add(-1)
		}
	}
	return err
}

func (l *link) answered(c *call, h header, verdict error) {
	l.mu.Lock()
	l.unlist(c)
	l.hear()
	if !c.since.IsZero() && h.kind == kindSample {
		l.mu.latency += (time.Since(c.since) - l.mu.latency) / 16
	}
	l.mu.Unlock()
	if h.kind == kindSample {
		l.c.samples.Add(1)
		l.c.bytes.Add(int64(h.length))
	}
	if c.settle(verdict) {
		l.release(c)
	}
}

// watch ends what takes too long, and asks for a sign of life where nothing is heard.
//
// A call whose time is up ends alone if whole frames came since it was
// made: the peer works, and only this sample is slow. Otherwise, and where its
// own payload is what does not come, the connection is at fault. The call's tag
// stays taken; that it is cancelled is answered within as long again, or the
// peer does not keep to the rules.
//
// Time is counted in ticks: a clock that is read for every call costs more than
// the rest of the watch.
func (l *link) watch() {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.dead:
			return
		}
		if err := l.inspect(); err != nil {
			l.fail(err)
			return
		}
	}
}

// ticks is how many make d, at least: the first may be short.
func (l *link) ticks(d time.Duration) int64 { return int64((d+l.tick-1)/l.tick) + 1 }

// hear notes a whole frame.
func (l *link) hear() {
	l.mu.frames++
	l.mu.heard, l.mu.pinged = l.mu.now, false
}

func (l *link) inspect() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.kick()
	l.mu.now++
	for l.mu.first != none {
		c := &l.calls[l.mu.first]
		if l.mu.now < c.deadline {
			break
		}
		slow := fmt.Errorf("%w: no answer within %v", ErrUnavailable, l.c.o.Timeout)
		switch {
		case c.receiving:
			slow = fmt.Errorf("%w: sample %d did not come to its end within %v", ErrUnavailable, c.sample, l.c.o.Timeout)
		case l.mu.frames == c.frames:
			slow = fmt.Errorf("%w: nothing was heard within %v", ErrUnavailable, l.c.o.Timeout)
		case c.expired:
			slow = fmt.Errorf("%w: a request that was cancelled had no answer", ErrUnavailable)
		default:
			l.unlist(c)
			c.expired, c.deadline = true, l.mu.now+l.ticks(l.c.o.Timeout)
			l.list(c)
			c.expire(slow)
			l.cancelLocked(c)
			continue
		}
		// Whose time is up is told so; the others, that the connection was lost.
		for at := l.mu.first; at != none; at = l.calls[at].next {
			if late := &l.calls[at]; l.mu.now >= late.deadline {
				late.expire(slow)
			}
		}
		return slow
	}
	switch quiet := l.mu.now - l.mu.heard; {
	case l.mu.pinged && quiet >= l.ticks(l.c.o.KeepAlive)+l.ticks(l.c.o.Timeout):
		return fmt.Errorf("%w: nothing was heard for %v", ErrUnavailable, time.Duration(quiet)*l.tick)
	case !l.mu.pinged && quiet >= l.ticks(l.c.o.KeepAlive):
		l.mu.ping, l.mu.pinged = true, true
	}
	return nil
}

// list puts c at the end of the calls under way; deadlines never go down.
func (l *link) list(c *call) {
	c.prev, c.next = l.mu.last, none
	if l.mu.last == none {
		l.mu.first = int32(c.tag)
	} else {
		l.calls[l.mu.last].next = int32(c.tag)
	}
	l.mu.last = int32(c.tag)
}

func (l *link) unlist(c *call) {
	if c.prev == none {
		l.mu.first = c.next
	} else {
		l.calls[c.prev].next = c.next
	}
	if c.next == none {
		l.mu.last = c.prev
	} else {
		l.calls[c.next].prev = c.prev
	}
	c.prev, c.next = unlisted, unlisted
}
