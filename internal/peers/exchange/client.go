package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/link"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// ClientOptions configure a Client. The zero value is valid.
type ClientOptions struct {
	// Conns is the number of connections; 0 means 1.
	Conns int
	// Window is how many requests may be in flight on one connection, at most wire.MaxWindow; 0
	// means 512. The server may grant less.
	Window int
	// Timeout is how long the peer may take to answer, and to accept a connection; 0 means 10
	// seconds. A Fetch ends within 1.25 times Timeout, or twice that if its connection is lost.
	Timeout time.Duration
	// KeepAlive is how long a connection may be silent before the client sends a PING; 0 means 10
	// seconds.
	KeepAlive time.Duration
	// LastPause is the longest pause between attempts to connect; 0 means 5 seconds.
	LastPause time.Duration
	// Changed, if not nil, is called with nil when a connection was made, and with the reason when
	// one was lost or an attempt failed. It is called from the Client's own goroutines, and must
	// not call Close.
	Changed func(err error)
}

const firstPause = 50 * time.Millisecond

func (o ClientOptions) filled() ClientOptions {
	if o.Conns <= 0 {
		o.Conns = 1
	}
	if o.Window <= 0 {
		o.Window = 512
	}
	o.Window = min(o.Window, wire.MaxWindow)
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 10 * time.Second
	}
	if o.LastPause <= 0 {
		o.LastPause = 5 * time.Second
	}
	return o
}

// Client fetches samples from one peer. It connects on first use, keeps its connections, and
// replaces those that are lost.
type Client struct {
	id   Identity
	peer int
	dial func(ctx context.Context) (net.Conn, error)
	o    ClientOptions

	ctx   context.Context // ends with Close
	close context.CancelFunc
	lanes sync.WaitGroup

	links  atomic.Pointer[[]*link.Link] // open connections; replaced, never modified
	counts link.Counts
	failed atomic.Int64

	mu struct { // guards the following
		invariants.Mutex[Client]
		started bool
		closed  bool
		// by lane: a connection is open or being made; false after an attempt has failed
		trying  []bool
		made    int64         // connections
		err     error         // of the last failure; nil at first
		changed chan struct{} // closed, and replaced, when any of this changes
		attempt context.Context
		again   context.CancelFunc // ends attempt, so that lanes connect again at once
	}
}

// NewClient returns a Client of node id for node peer. dial connects to the peer.
func NewClient(id Identity, peer int, dial func(ctx context.Context) (net.Conn, error),
	o ClientOptions,
) *Client {
	c := &Client{id: id, peer: peer, dial: dial, o: o.filled()}
	c.ctx, c.close = context.WithCancel(context.Background())
	c.mu.changed = make(chan struct{})
	c.mu.attempt, c.mu.again = context.WithCancel(c.ctx)
	c.links.Store(new([]*link.Link))
	return c
}

// Connect waits until a connection is open, or returns why connecting failed.
func (c *Client) Connect(ctx context.Context) error {
	_, err := c.connection(ctx)
	return err
}

// Fetch reads sample id, or a form of it, if w takes one, into dst, which must have at least w.Size
// and w.Most bytes, and returns what the peer reported of it: what is in dst was verified against
// its digest. The error is a *FetchError, whose kind determines what to do; the contents of dst are
// then undefined. Fetch may be called concurrently.
func (c *Client) Fetch(ctx context.Context, id int32, dst []byte, w Want) (Answer, error) {
	if id < 0 || len(dst) > wire.MaxSample || len(dst) < max(w.Size, w.Most) {
		c.failed.Add(1)
		return Answer{}, &FetchError{
			Peer: c.peer,
			ID:   id,
			Kind: ErrNotHeld,
			Err: fmt.Errorf("an ID must not be negative, and a sample may have at most %d bytes, for "+
				"which there must be a buffer; this one has %d and %d", wire.MaxSample, w.Size, w.Most),
		}
	}
	for attempt := 1; ; attempt++ {
		l, err := c.connection(ctx)
		if err == nil {
			var a Answer
			if a, err = l.Fetch(ctx, id, dst, w); err == nil {
				return a, nil
			}
			if err == link.ErrBroken {
				if attempt == 1 {
					continue
				}
				err = lost(l.Err())
			}
		}
		c.failed.Add(1)
		return Answer{}, &FetchError{Peer: c.peer, ID: id, Kind: kindOf(err), Err: err}
	}
}

// kindOf returns the kind of an error: one of the package's, or a context's error.
func kindOf(err error) error {
	for _, kind := range []error{
		ErrClosed, ErrNotHeld, ErrFailed, ErrCorrupt, ErrRefused,
		ErrUnavailable, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return ErrUnavailable
}

// lost returns the error for a connection that ended with err, with a kind.
func lost(err error) error {
	switch {
	case errors.Is(err, wire.ErrFrame):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the peer closed the connection", ErrUnavailable)
	case errors.Is(err, ErrClosed), errors.Is(err, ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w: connection lost: %w", ErrUnavailable, err)
}

// Close closes all connections and waits for them. Calls in progress return ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.close()
	c.lanes.Wait()
	return nil
}

// pick returns the connection with the fewest calls in flight, nil if there is none.
func (c *Client) pick() *link.Link {
	var best *link.Link
	for _, l := range *c.links.Load() {
		if l.Down() {
			continue // its lane is about to remove it
		}
		if best == nil || l.InFlight() < best.InFlight() {
			best = l
		}
	}
	return best
}

// connection returns an open connection. It waits for one that is being made for the first time, or
// again after it was lost, but not while attempts fail. Nor does it wait again if a connection was
// made and lost meanwhile: a peer that breaks every connection would block it forever.
func (c *Client) connection(ctx context.Context) (*link.Link, error) {
	if l := c.pick(); l != nil {
		return l, nil
	}
	c.start()
	for before := int64(-1); ; {
		c.mu.Lock()
		trying := slices.Contains(c.mu.trying, true)
		err := c.mu.err
		changed := c.mu.changed
		closed := c.mu.closed
		made, lost := c.mu.made, c.mu.made-int64(len(*c.links.Load()))
		c.mu.Unlock()
		if before < 0 {
			before = made
		}
		l := c.pick()
		switch {
		case closed:
			return nil, ErrClosed
		case l != nil:
			return l, nil
		case !trying, lost > before:
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}

func (c *Client) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.started || c.mu.closed {
		return
	}
	c.mu.started = true
	for i := range c.o.Conns {
		c.mu.trying = append(c.mu.trying, true)
		c.lanes.Go(func() { c.lane(i) })
	}
}

// Reconnect replaces all connections at once. It is for a peer that is known to be back: existing
// connections may be broken without the client knowing, and attempts may be waiting for a lost
// answer or for their pause to end. Calls in progress continue on the new connections.
func (c *Client) Reconnect() {
	c.mu.Lock()
	c.mu.again()
	c.mu.attempt, c.mu.again = context.WithCancel(c.ctx)
	for i := range c.mu.trying {
		c.mu.trying[i] = true
	}
	c.mu.Unlock()
	for _, l := range *c.links.Load() {
		l.Fail(fmt.Errorf("%w: the connection is being replaced", ErrUnavailable))
	}
}

// lane maintains one connection.
func (c *Client) lane(i int) {
	pauses := auth.Backoff{First: firstPause, Last: c.o.LastPause}
	for c.ctx.Err() == nil {
		c.mu.Lock()
		attempt := c.mu.attempt
		c.mu.Unlock()
		l, err := c.connect(attempt)
		up := err == nil
		c.note(i, attempt, l, err, up)
		if up {
			began := time.Now()
			err = lost(l.Run(c.ctx))
			// A peer that breaks every connection at once counts as failing to connect.
			if time.Since(began) > c.o.Timeout {
				pauses.Reset()
			}
			atOnce := pauses.Fresh()
			c.note(i, attempt, l, err, atOnce || l.Worked())
			if atOnce {
				_ = pauses.Next()
				continue
			}
		}
		select {
		case <-time.After(pauses.Next()):
		case <-attempt.Done():
			pauses.Reset()
		}
	}
}

// note records a lane's state and wakes callers that wait for it: if err is nil, connection l is
// open; otherwise l was lost, or, if l is nil, the attempt failed. If wait is true, callers should
// wait for the lane's next connection.
func (c *Client) note(lane int, attempt context.Context, l *link.Link, err error, wait bool) {
	if c.o.Changed != nil && c.ctx.Err() == nil {
		c.o.Changed(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	up := *c.links.Load()
	next := make([]*link.Link, 0, len(up)+1)
	for _, other := range up {
		if other != l {
			next = append(next, other)
		}
	}
	if l != nil && err == nil {
		next = append(next, l)
		c.mu.made++
	}
	c.links.Store(&next)
	if err != nil {
		c.mu.err = err
	}
	c.mu.trying[lane] = wait || attempt.Err() != nil
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
}

// connect makes one connection, including the handshake.
func (c *Client) connect(ctx context.Context) (*link.Link, error) {
	if err := c.id.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	session := c.id.newSession(conn, false)
	window, err := c.id.greet(ctx, session, c.peer, c.o.Window, c.o.Timeout)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return link.New(session, window,
		link.Options{Timeout: c.o.Timeout, KeepAlive: c.o.KeepAlive, Counts: &c.counts}), nil
}
