// Package admission bounds what connections may cost before the other side has proved that it
// belongs to the job.
//
// A Listener wraps another one. What it accepts is pending until Conn.Admit: pending connections
// have a budget of time and bytes each, and of number, per address and in total. Where one too many
// comes, the oldest pending connection of the address that has the most makes room for it. So a
// flood ends its own connections: another address keeps its few, and even from the flood's own
// address a handshake passes that takes no longer than a whole budget of connections takes to
// arrive. Rejected: to refuse the newest, which lets whoever came first keep everybody out.
//
// The package does not know how anybody proves anything, and has no say in what is admitted.
package admission

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits are the budget of connections that are pending. What is 0 is not limited.
type Limits struct {
	Total      int           // how many there may be
	PerAddress int           // of them, from one address; of IPv6, from one /64 network
	Time       time.Duration // how long each may be pending
	Bytes      int64         // how many bytes may be read from each
}

// Why a pending connection was closed. Its Read and Write return these.
var (
	ErrCrowded = errors.New("closed before its handshake was over, as the oldest one: too many " +
		"connections had not proved themselves yet")
	ErrTime  = errors.New("closed: its handshake took too long")
	ErrBytes = errors.New("closed: it sent too much before its handshake was over")
)

// Listener accepts connections that are pending. They are all *Conn.
type Listener struct {
	net.Listener
	limits Limits

	mu struct { // guards the following
		sync.Mutex
		pending []*Conn        // oldest first
		of      map[string]int // how many of them, by address
	}
}

// Listen makes a Listener of l.
func Listen(l net.Listener, limits Limits) *Listener {
	out := &Listener{Listener: l, limits: limits}
	out.mu.of = map[string]int{}
	return out
}

// Accept waits for the next connection, which is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
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

// Pending is how many connections are pending.
func (l *Listener) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.pending)
}

// enter takes c in, and returns who is to make room for it.
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
	l.mu.pending = append(l.mu.pending, c)
	l.mu.of[c.address]++
	if l.limits.Time > 0 {
		c.timer = time.AfterFunc(l.limits.Time, func() { c.expel(ErrTime) })
	}
	return victim
}

// most is how many an address has at the most; under mu.
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

// remove reports whether c was pending; under mu.
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

func (l *Listener) leave(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(c)
}

// Conn is a connection that is pending at first.
type Conn struct {
	net.Conn
	listener *Listener
	address  string
	timer    *time.Timer // guarded by the listener's mu
	left     atomic.Int64
	admitted atomic.Bool
	why      atomic.Pointer[error] // it was ended
}

// Admit lifts the connection's limits. Call it as soon as the other side has proved itself, and
// before it can know so: what it sends from then on does not count. It fails where the connection
// has been ended meanwhile.
func (c *Conn) Admit() error {
	if !c.listener.leave(c) {
		return c.because(net.ErrClosed)
	}
	c.admitted.Store(true)
	return nil
}

// NetConn is the connection beneath.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read counts what it reads while the connection is pending.
func (c *Conn) Read(b []byte) (int, error) {
	if c.listener.limits.Bytes == 0 || c.admitted.Load() {
		n, err := c.Conn.Read(b)
		return n, c.because(err)
	}
	if left := c.left.Load(); left > 0 {
		b = b[:min(int64(len(b)), left)]
	} else {
		c.expel(ErrBytes) // or it was admitted just now
	}
	n, err := c.Conn.Read(b)
	c.left.Add(-int64(n))
	return n, c.because(err)
}

func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.because(err)
}

// SetDeadline, SetReadDeadline and SetWriteDeadline name the reason where the connection was ended.
func (c *Conn) SetDeadline(t time.Time) error { return c.because(c.Conn.SetDeadline(t)) }

// SetReadDeadline is net.Conn's.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.because(c.Conn.SetReadDeadline(t)) }

// SetWriteDeadline is net.Conn's.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.because(c.Conn.SetWriteDeadline(t)) }

// Close closes the connection, pending or not.
func (c *Conn) Close() error {
	c.listener.leave(c)
	return c.Conn.Close()
}

// expel ends it, if it is pending still.
func (c *Conn) expel(why error) {
	if c.listener.leave(c) {
		c.end(why)
	}
}

// end closes a connection that is pending no more, and was not admitted.
func (c *Conn) end(why error) {
	c.why.Store(&why)
	_ = c.Conn.Close()
}

// because makes the reason of err, if c was ended for one.
func (c *Conn) because(err error) error {
	if why := c.why.Load(); err != nil && why != nil {
		return *why
	}
	return err
}

// addressOf is what counts as one address: a host, or of IPv6 a network, since whoever has one
// address there has many.
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
