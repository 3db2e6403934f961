package auth

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits are the limits of pending connections; 0 means no limit.
type Limits struct {
	Total      int           // number of pending connections
	PerAddress int           // of them, from one address; for IPv6, from one /64 network
	Time       time.Duration // for which each may be pending
	Bytes      int64         // that may be read from each
}

// The reasons why a pending connection was closed, as returned by its Read and Write.
var (
	ErrCrowded = errors.New("closed as the oldest unauthenticated connection: there were too many")
	ErrTime    = errors.New("closed: the handshake took too long")
	ErrBytes   = errors.New("closed: too many bytes before the end of the handshake")
)

// Listener accepts connections, which are pending at first. They are all *Conn.
type Listener struct {
	net.Listener
	limits Limits
	freed  chan struct{} // has one, if it is empty, after open has become less

	mu struct { // guards the following
		sync.Mutex
		pending []*Conn        // oldest first
		of      map[string]int // their number by address
		open    int            // connections that were not admitted, and not closed by their user
	}
}

const (
	// dying is the share of Total that may be closed by the Listener, and not yet by their users.
	dying = 1.0 / 8
	// closeTimeout is how long Accept waits for a user that does not close a connection.
	closeTimeout = time.Second
)

// Listen returns a Listener that wraps l.
func Listen(l net.Listener, limits Limits) *Listener {
	out := &Listener{Listener: l, limits: limits, freed: make(chan struct{}, 1)}
	out.mu.of = map[string]int{}
	return out
}

// Accept waits for the next connection, which is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	l.wait()
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw, listener: l, address: addressOf(raw.RemoteAddr())}
	c.left.Store(l.limits.Bytes)
	if victim := l.enter(c); victim != nil {
		victim.end(ErrCrowded)
	}
	return c, nil
}

// wait waits until enough of the connections that the Listener has closed are closed by their
// users.
func (l *Listener) wait() {
	var late <-chan time.Time
	for l.full() {
		if late == nil {
			timer := time.NewTimer(closeTimeout)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-l.freed:
		case <-late:
			return
		}
	}
}

// full reports whether no more connections may be accepted now.
func (l *Listener) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limits.Total > 0 && l.mu.open > l.limits.Total+int(dying*float64(l.limits.Total))
}

// forget no longer counts c as open; mu is held.
func (l *Listener) forget(c *Conn) {
	if !c.open {
		return
	}
	c.open = false
	l.mu.open--
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// Pending returns the number of pending connections.
func (l *Listener) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.pending)
}

// enter adds c to the pending connections, and returns the one that it replaces, if any.
func (l *Listener) enter(c *Conn) (victim *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch most := l.most(); {
	case l.limits.PerAddress > 0 && l.mu.of[c.address] >= l.limits.PerAddress:
		victim = l.oldest(func(other *Conn) bool { return other.address == c.address })
	case l.limits.Total > 0 && len(l.mu.pending) >= l.limits.Total:
		victim = l.oldest(func(other *Conn) bool { return l.mu.of[other.address] == most })
	}
	if victim != nil {
		l.remove(victim)
	}
	c.open = true
	l.mu.open++
	l.mu.pending = append(l.mu.pending, c)
	l.mu.of[c.address]++
	if l.limits.Time > 0 {
		c.timer = time.AfterFunc(l.limits.Time, func() { c.expel(ErrTime) })
	}
	return victim
}

// most returns the largest number of pending connections of an address; mu is held.
func (l *Listener) most() int {
	most := 0
	for _, n := range l.mu.of {
		most = max(most, n)
	}
	return most
}

func (l *Listener) oldest(is func(*Conn) bool) *Conn {
	return l.mu.pending[slices.IndexFunc(l.mu.pending, is)]
}

// remove removes c, and reports whether it was pending; mu is held.
func (l *Listener) remove(c *Conn) bool {
	at := slices.Index(l.mu.pending, c)
	if at < 0 {
		return false
	}
	l.mu.pending = slices.Delete(l.mu.pending, at, at+1)
	if l.mu.of[c.address]--; l.mu.of[c.address] == 0 {
		delete(l.mu.of, c.address)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	return true
}

// leave removes c, and reports whether it was pending. user is true if c's user admits or closes
// it.
func (l *Listener) leave(c *Conn, user bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if user {
		l.forget(c)
	}
	return l.remove(c)
}

// Conn is an accepted connection, which is pending until it is admitted or closed.
type Conn struct {
	net.Conn
	listener *Listener
	address  string
	timer    *time.Timer // guarded by the listener's mu
	open     bool        // it counts as open; guarded by the listener's mu
	left     atomic.Int64
	admitted atomic.Bool
	why      atomic.Pointer[error] // why it was closed by the Listener
}

// Admit lifts the connection's limits. Call it as soon as the other side has proved itself, before
// telling it so: what it sends afterwards does not count. Admit fails if the connection has been
// closed.
func (c *Conn) Admit() error {
	if !c.listener.leave(c, true) {
		return c.because(net.ErrClosed)
	}
	c.admitted.Store(true)
	return nil
}

// NetConn returns the wrapped connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read counts the bytes that it reads while the connection is pending.
func (c *Conn) Read(b []byte) (int, error) {
	if c.listener.limits.Bytes == 0 || c.admitted.Load() {
		n, err := c.Conn.Read(b)
		return n, c.because(err)
	}
	if left := c.left.Load(); left > 0 {
		b = b[:min(int64(len(b)), left)]
	} else {
		c.expel(ErrBytes) // a no-op if it was admitted just now
	}
	n, err := c.Conn.Read(b)
	c.left.Add(-int64(n))
	return n, c.because(err)
}

func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.because(err)
}

// SetDeadline is net.Conn's; like Read, it returns the reason if the Listener closed the
// connection.
func (c *Conn) SetDeadline(t time.Time) error { return c.because(c.Conn.SetDeadline(t)) }

// SetReadDeadline is like SetDeadline, for reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.because(c.Conn.SetReadDeadline(t)) }

// SetWriteDeadline is like SetDeadline, for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.because(c.Conn.SetWriteDeadline(t)) }

// Close closes the connection, pending or not.
func (c *Conn) Close() error {
	c.listener.leave(c, true)
	return c.Conn.Close()
}

// expel closes the connection if it is still pending.
func (c *Conn) expel(why error) {
	if c.listener.leave(c, false) {
		c.end(why)
	}
}

// end closes a connection that is no longer pending and was not admitted.
func (c *Conn) end(why error) {
	c.why.Store(&why)
	_ = c.Conn.Close()
}

// because replaces err by the reason why the Listener closed c, if it did.
func (c *Conn) because(err error) error {
	if why := c.why.Load(); err != nil && why != nil {
		return *why
	}
	return err
}

// addressOf returns what counts as one address: a host, or for IPv6 a /64 network, whose hosts have
// many addresses.
func addressOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
