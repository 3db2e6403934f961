// Package link is a client's half of one connection of an exchange of samples, from its handshake
// to its end: any number of calls at a time, found again by their tags, and what ends those that
// take too long.
//
//   - dst belongs to Fetch until Fetch returns, and never longer, whatever is on its way for it (call.go).
//   - Every Fetch ends, within the options' bound and within its context's time.
//   - Nothing that the server sends takes memory.
//
// A Link may be used by many goroutines at a time. Run owns those that it starts, and waits for
// them. Who connects, and what becomes of a call whose connection was lost, is package exchange's.
package link

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
	"github.com/hdmlp/hdmlp/internal/exchange/wire"
	"github.com/hdmlp/hdmlp/internal/identity"
	"github.com/hdmlp/hdmlp/internal/invariants"
)

// ErrBroken: the connection ended under a call that was not the reason for it.
var ErrBroken = errors.New("connection lost")

// One call in so many is timed.
const measured = 8

// Neighbours in the list of deadlines.
const (
	none     = -1 // the list ends here
	unlisted = -2 // the call is not under way
)

// Options say how long things may take, and where they are counted.
type Options struct {
	Timeout   time.Duration // for an answer
	KeepAlive time.Duration // of silence before a sign of life is asked for
	Counts    *Counts
}

// Counts are the samples that came whole, of all links that count there.
type Counts struct{ Samples, Bytes atomic.Int64 }

// Link is one connection of a client, from its handshake to its end.
//
// Callers put their requests into a buffer; the writer takes all that has
// gathered and sends it at once, so that the more callers there are the larger
// its writes become. The reader finds the call of each answer by its tag. The
// watch ends calls that take too long, and the connection if it is to blame.
//
// Whoever finds the connection at fault calls Fail, which closes it. The reader
// then ends, and it alone settles the calls that are left: it is the
// only one who writes to their destinations.
type Link struct {
	o      Options
	conn   net.Conn
	in     *inlet
	free   chan uint32 // tags that may be taken
	calls  []call      // by tag
	wake   chan struct{}
	tick   time.Duration // of the watch
	dead   chan struct{} // closed by Fail
	flying atomic.Int32
	down   atomic.Bool // Fail was called

	mu struct { // guards the following
		invariants.Mutex[Link]
		out         []byte   // requests that are not sent yet
		cancels     []uint32 // tags, the same
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

// New makes a Link of a connection whose handshake is over, with as many tags as the window. It
// starts nothing.
func New(conn net.Conn, window int, o Options) *Link {
	l := &Link{
		o: o, conn: conn, in: newInlet(conn),
		free: make(chan uint32, window), calls: make([]call, window),
		wake: make(chan struct{}, 1), dead: make(chan struct{}),
	}
	for tag := range l.calls {
		c := &l.calls[tag]
		c.tag, c.done, c.prev, c.next = uint32(tag), make(chan error, 1), unlisted, unlisted
		l.free <- uint32(tag)
	}
	l.mu.first, l.mu.last = none, none
	l.tick = min(o.Timeout/4, o.KeepAlive/2)
	return l
}

// Run serves the connection until it ends, and says why.
func (l *Link) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.Fail(wire.ErrClosed) })
	defer stop()
	var others sync.WaitGroup
	others.Go(l.write)
	others.Go(l.watch)
	l.Fail(l.read())
	others.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.first != none {
		c := &l.calls[l.mu.first]
		l.unlist(c)
		c.settle(ErrBroken)
	}
	return l.mu.err
}

// Fail ends the connection. The first reason stays.
func (l *Link) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err == nil {
		l.mu.err = err
		l.down.Store(true)
		close(l.dead)
		_ = identity.Sever(l.conn)
	}
}

// Worked reports whether anything came that was whole.
func (l *Link) Worked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.frames > 0
}

// Down reports whether the connection has ended, or is about to.
func (l *Link) Down() bool { return l.down.Load() }

// InFlight is how many calls are under way.
func (l *Link) InFlight() int { return int(l.flying.Load()) }

// Latency is how long an answer takes, a moving average; 0: not known.
func (l *Link) Latency() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.latency
}

// Err is why the connection has ended.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// Fetch asks for one sample, and returns its digest. Errors without a kind are the context's.
func (l *Link) Fetch(ctx context.Context, id int32, dst []byte) (sum uint32, err error) {
	var tag uint32
	select {
	case tag = <-l.free:
	default:
		select {
		case tag = <-l.free:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-l.dead:
			return 0, ErrBroken
		}
	}
	c := &l.calls[tag]
	l.flying.Add(1)
	if !l.send(c, id, dst) {
		l.flying.Add(-1)
		return 0, ErrBroken
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
		if sum = digest.Of(dst); !wire.Sealed(c.head[:], sum) {
			err = fmt.Errorf("%w: its checksum does not hold", wire.ErrCorrupt)
		}
	} else if expired := (*expiry)(nil); err == ErrBroken || errors.As(err, &expired) {
		return 0, err // the tag is not ours
	}
	l.release(c)
	return sum, err
}

// send puts a request into the buffer, and wakes the writer if that was empty.
func (l *Link) send(c *call, id int32, dst []byte) bool {
	c.mu.Lock()
	c.dst, c.left, c.told, c.settled = dst, false, false, false
	c.mu.Unlock()
	l.mu.Lock()
	if l.mu.err != nil {
		l.mu.Unlock()
		return false
	}
	c.sample, c.length, c.since = id, uint32(len(dst)), time.Time{}
	c.deadline, c.frames = l.mu.now+l.ticks(l.o.Timeout), l.mu.frames
	c.receiving, c.expired, c.cancelled = false, false, false
	if l.mu.asked++; l.mu.asked%measured == 0 {
		c.since = time.Now()
	}
	l.list(c)
	idle := len(l.mu.out) == 0
	if idle {
		l.mu.out = append(l.mu.out, make([]byte, wire.HeaderSize)...)
	}
	l.mu.out = wire.AppendRequest(l.mu.out, wire.Request{Tag: c.tag, Sample: id, Length: c.length})
	l.mu.Unlock()
	if idle {
		l.kick()
	}
	return true
}

func (l *Link) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// cancel tells the server that c is no longer waited for. Its answer comes all the same.
func (l *Link) cancel(c *call) {
	l.mu.Lock()
	l.cancelLocked(c)
	l.mu.Unlock()
	l.kick()
}

func (l *Link) cancelLocked(c *call) {
	if c.next != unlisted && !c.cancelled {
		c.cancelled = true
		l.mu.cancels = append(l.mu.cancels, c.tag)
	}
}

func (l *Link) release(c *call) {
	l.flying.Add(-1)
	l.free <- c.tag
}

// write sends what has gathered, until the connection ends.
func (l *Link) write() {
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
			h := wire.Header{Kind: wire.KindRequest, Length: uint32(len(out) - wire.HeaderSize)}
			h.Put(out, digest.Of(out[wire.HeaderSize:]))
		}
		out = l.appendCancels(out)
		if l.mu.ping {
			out = wire.AppendFrame(out, wire.Header{Kind: wire.KindPing}, nil)
			l.mu.ping = false
		}
		l.mu.Unlock()
		if len(out) > 0 {
			if _, err := l.conn.Write(out); err != nil {
				l.Fail(err)
				return
			}
		}
		spare = out
	}
}

// appendCancels appends a CANCEL of the calls that are still under way. A tag
// that was answered meanwhile, and may have been taken again, is left out; one
// that was cancelled again stands for the new call.
func (l *Link) appendCancels(out []byte) []byte {
	var tags []byte
	for _, tag := range l.mu.cancels {
		if c := &l.calls[tag]; c.next != unlisted && c.cancelled && len(tags) < 4*wire.MaxWindow {
			tags = binary.LittleEndian.AppendUint32(tags, tag)
		}
	}
	l.mu.cancels = l.mu.cancels[:0]
	if len(tags) == 0 {
		return out
	}
	return wire.AppendFrame(out, wire.Header{Kind: wire.KindCancel}, tags)
}
