// Package link is the client's half of one connection of the sample exchange, after its handshake:
// it runs any number of concurrent calls, matches answers to calls by their tags, and ends calls
// that take too long.
//
//   - dst belongs to Fetch until Fetch returns, and no longer, even if an answer is still being
//     received (call.go).
//   - Every Fetch ends, within the options' bound and within its context's time.
//   - No input from the server makes a Link allocate memory.
//
// A Link is safe for concurrent use. Run owns the goroutines that it starts, and waits for them.
// Package exchange makes the connections, and repeats calls whose connection was lost.
package link

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// ErrBroken reports that the connection ended during a call that was not the cause.
var ErrBroken = errors.New("connection lost")

// latencySampleRate: one call in 8 is timed.
const latencySampleRate = 8

// Neighbours in the list of deadlines.
const (
	none     = -1 // the end of the list
	unlisted = -2 // the call is not in flight
)

// Options configure a Link.
type Options struct {
	Timeout   time.Duration // for an answer
	KeepAlive time.Duration // of silence before a PING is sent
	Counts    *Counts       // counters of intact samples
}

// Counts are the samples that were received intact, over all links that share the counters.
type Counts struct{ Samples, Bytes atomic.Int64 }

// Link is one connection of a client, after its handshake.
//
// Callers append their requests to a buffer; the writer sends all that has accumulated at once, so
// the more callers there are, the larger its writes become. The reader finds the call of each
// answer by its tag. The watch ends calls that take too long, and the connection if it is the
// cause.
//
// A goroutine that finds the connection at fault calls Fail, which closes it. The reader then ends,
// and it alone settles the remaining calls, since only it writes to their destinations.
type Link struct {
	o        Options
	conn     net.Conn
	in       *inlet
	arrived  []*call     // of the reader: see several
	free     chan uint32 // free tags
	calls    []call      // by tag
	wake     chan struct{}
	tick     time.Duration // of the watch
	dead     chan struct{} // closed by Fail
	inFlight atomic.Int32
	down     atomic.Bool // Fail was called

	mu struct { // guards the following
		invariants.Mutex[Link]
		out         []byte   // requests that have not been sent
		cancels     []uint32 // tags of cancellations that have not been sent
		ping        bool     // a PING has to be sent
		pinged      bool     // a PING was requested since the last intact frame
		frames      uint64   // intact frames received
		now         int64    // coarse clock, in ticks of the watch, for deadlines
		heard       int64    // the tick at which frames last grew
		asked       uint64   // calls made
		first, last int32    // calls in flight, by deadline
		err         error    // why the connection ended
		latency     time.Duration
	}
}

// New returns a Link for a connection whose handshake is complete, with as many tags as the window.
// It starts no goroutine.
func New(conn net.Conn, window int, o Options) *Link {
	l := &Link{
		o: o, conn: conn, in: newInlet(conn),
		free: make(chan uint32, window), calls: make([]call, window),
		wake: make(chan struct{}, 1), dead: make(chan struct{}),
	}
	for tag := range l.calls {
		c := &l.calls[tag]
		c.tag = uint32(tag)
		c.done = make(chan error, 1)
		c.prev = unlisted
		c.next = unlisted
		l.free <- uint32(tag)
	}
	l.mu.first, l.mu.last = none, none
	l.tick = min(o.Timeout/4, o.KeepAlive/2)
	return l
}

// Run serves the connection until it ends, and returns the reason.
func (l *Link) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.Fail(wire.ErrClosed) })
	defer stop()
	var helpers sync.WaitGroup
	helpers.Go(l.write)
	helpers.Go(l.watch)
	l.Fail(l.read())
	helpers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.first != none {
		c := &l.calls[l.mu.first]
		l.unlist(c)
		c.settle(ErrBroken)
	}
	return l.mu.err
}

// Fail ends the connection. The first call's reason is kept.
func (l *Link) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err == nil {
		l.mu.err = err
		l.down.Store(true)
		close(l.dead)
		_ = auth.Sever(l.conn)
	}
}

// Worked reports whether an intact frame was received.
func (l *Link) Worked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.frames > 0
}

// Down reports whether the connection has ended, or is about to end.
func (l *Link) Down() bool { return l.down.Load() }

// InFlight returns the number of calls in flight.
func (l *Link) InFlight() int { return int(l.inFlight.Load()) }

// Latency returns a moving average of the time to an answer, 0 if it is not known.
func (l *Link) Latency() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.latency
}

// Err returns why the connection has ended, nil if it has not.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// Fetch fetches one sample, or a form of it. An error without a kind is the context's.
func (l *Link) Fetch(ctx context.Context, id int32, dst []byte, w routing.Want) (a routing.Answer,
	err error,
) {
	var tag uint32
	select {
	case tag = <-l.free:
	default:
		select {
		case tag = <-l.free:
		case <-ctx.Done():
			return a, ctx.Err()
		case <-l.dead:
			return a, ErrBroken
		}
	}
	c := &l.calls[tag]
	l.inFlight.Add(1)
	if !l.send(c, id, dst, w) {
		l.inFlight.Add(-1)
		return a, ErrBroken
	}
	select {
	case err = <-c.done:
	case <-ctx.Done():
		if !c.leave() {
			l.cancel(c)
			return a, ctx.Err()
		}
		err = <-c.done
	}
	if err == nil {
		a, err = c.answer(dst)
	} else if expired := (*expiry)(nil); err == ErrBroken || errors.As(err, &expired) {
		return a, err // the tag is released elsewhere
	}
	l.release(c)
	return a, err
}

// send appends a request to the buffer, and wakes the writer if the buffer was empty.
func (l *Link) send(c *call, id int32, dst []byte, w routing.Want) bool {
	c.mu.Lock()
	c.dst = dst
	c.left = false
	c.resultSent = false
	c.settled = false
	c.mu.Unlock()
	l.mu.Lock()
	if l.mu.err != nil {
		l.mu.Unlock()
		return false
	}
	c.sample = id
	c.length, c.most = uint32(w.Size), uint32(w.Most)
	c.since = time.Time{}
	c.deadline, c.frames = l.mu.now+l.ticks(l.o.Timeout), l.mu.frames
	c.receiving = false
	c.expired = false
	c.cancelled = false
	if l.mu.asked++; l.mu.asked%latencySampleRate == 0 {
		c.since = time.Now()
	}
	l.list(c)
	idle := len(l.mu.out) == 0
	if idle {
		l.mu.out = append(l.mu.out, make([]byte, wire.HeaderSize)...)
	}
	l.mu.out = wire.AppendRequest(l.mu.out,
		wire.Request{
			Tag: c.tag, Sample: id, Length: c.length, Most: c.most, Unpack: w.Unpack,
		})
	l.mu.Unlock()
	if idle {
		l.wakeWriter()
	}
	return true
}

func (l *Link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// cancel notifies the server that c's answer is no longer needed; an answer still arrives.
func (l *Link) cancel(c *call) {
	l.mu.Lock()
	l.cancelLocked(c)
	l.mu.Unlock()
	l.wakeWriter()
}

func (l *Link) cancelLocked(c *call) {
	if c.next != unlisted && !c.cancelled {
		c.cancelled = true
		l.mu.cancels = append(l.mu.cancels, c.tag)
	}
}

func (l *Link) release(c *call) {
	l.inFlight.Add(-1)
	l.free <- c.tag
}

// write sends what has accumulated, until the connection ends.
func (l *Link) write() {
	var out, spare []byte
	for {
		select {
		case <-l.wake:
		case <-l.dead:
			return
		}
		// Yield so that concurrent requests coalesce into one write.
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

// appendCancels appends a CANCEL of the cancelled calls that are still in flight. A tag that was
// answered in the meantime, and may be in use by another call, is left out, unless that call was
// cancelled as well.
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
