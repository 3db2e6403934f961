package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/admission"
	"github.com/hdmlp/hdmlp/internal/exchange/wire"
	"github.com/hdmlp/hdmlp/internal/invariants"
)

// ServerOptions say what a Server allows. The zero value is of use.
type ServerOptions struct {
	// Window is how many requests may be under way on one connection, at most
	// wire.MaxWindow; 0 stands for 512.
	Window int
	// Reading is how many calls of Holder.Sample may go on that have nothing to
	// send yet; 0 stands for 64. The connections take turns.
	Reading int
	// ReadingPerConn is how many calls of Holder.Sample one connection may have,
	// those included that wait for it to take what they send; 0 stands for 16.
	ReadingPerConn int
	// ConnsPerNode is how many connections a node may have; 0 stands for 8.
	ConnsPerNode int
	// Pending is how many connections may be in the handshake, in total and from one address, and
	// for how long; 0 stands for 256, 64 and 5 seconds. Where one too many comes, an older one is
	// closed (see admission).
	Pending, PendingPerAddress int
	PendingTime                time.Duration
	// Timeout is how long the sending of up to a megabyte may take; 0 stands for 10 seconds.
	Timeout time.Duration
	// Idle is how long a client may say nothing, signs of life included; 0
	// stands for a minute. It must be more than the clients' KeepAlive.
	Idle time.Duration
	// Refused, if not nil, is told of every connection that did not pass the
	// handshake, and Lost of every one that ended, with the reason: io.EOF where the
	// client closed it. They may be called from any goroutine, and must not call Close.
	Refused func(addr net.Addr, err error)
	Lost    func(node int, err error)
}

func (o ServerOptions) filled() ServerOptions {
	or := func(v *int, otherwise int) {
		if *v <= 0 {
			*v = otherwise
		}
	}
	or(&o.Window, 512)
	or(&o.Reading, 64)
	or(&o.ReadingPerConn, 16)
	or(&o.ConnsPerNode, 8)
	or(&o.Pending, 256)
	or(&o.PendingPerAddress, 64)
	o.Window = min(o.Window, wire.MaxWindow)
	if o.PendingTime <= 0 {
		o.PendingTime = 5 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Idle <= 0 {
		o.Idle = time.Minute
	}
	return o
}

// Server serves the samples of one node to the others.
//
// # Turns
//
// What lies in memory is answered by the connection that asks, and needs no turn: each
// connection has its own writer, and the kernel shares the link. What has to be
// read goes through Holder.Sample, of which Reading calls may go on. Connections
// that have such requests stand in a queue; the first gives one of
// its requests, and goes to the end. So a peer that asks for much makes the others
// wait for one of its requests each, not for all. A call that has something to send
// gives its place to the next; it still counts for its own connection, so that a
// peer that does not take what it asked for holds up itself alone.
type Server struct {
	id Identity
	h  Holder
	o  ServerOptions

	ctx   context.Context // ends with Close
	close context.CancelFunc
	all   sync.WaitGroup

	mu struct { // guards the following; taken before serverConn.mu
		invariants.Mutex[Server]
		closed  bool
		reading int
		refused int64
		serving map[*serverConn]struct{}
		conns   map[int]int       // by node; reserved ones included
		past    map[int]PeerStats // by node: connections that ended
		queue   []*serverConn     // that have requests to be read, and may
	}
}

// NewServer makes a server of what h holds. It starts nothing.
func NewServer(id Identity, h Holder, o ServerOptions) *Server {
	s := &Server{id: id, h: h, o: o.filled()}
	s.ctx, s.close = context.WithCancel(context.Background())
	s.mu.serving, s.mu.conns, s.mu.past = map[*serverConn]struct{}{}, map[int]int{},
		map[int]PeerStats{}
	return s
}

// Serve accepts connections until ctx ends or Close is called, which is no
// error, or ln fails. It closes ln, and returns when nothing of it goes on.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if err := s.id.check(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil
	}
	s.all.Add(1)
	s.mu.Unlock()
	defer s.all.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	door := admission.Listen(ln,
		admission.Limits{
			Total:      s.o.Pending,
			PerAddress: s.o.PendingPerAddress,
			Time:       s.o.PendingTime,
			Bytes:      pendingBytes,
		})
	for pause := 5 * time.Millisecond; ; {
		conn, err := door.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case ctx.Err() != nil, s.ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err == nil:
			pause = 5 * time.Millisecond
			if !s.enter() {
				conn.Close()
				return nil
			}
			conns.Go(func() { s.serve(ctx, conn.(*admission.Conn)) })
			continue
		case !errors.As(err, &temporary) || !temporary.Temporary():
			return err
		}
		// Out of file descriptors, for one: some may come back.
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-ctx.Done():
		}
	}
}

// Close ends all connections and waits for everything. What Held gave may change from here on.
func (s *Server) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.close()
	s.all.Wait()
	return nil
}

// enter notes a connection that Close is to wait for; false: it is too late.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.all.Add(1)
	return true
}

func (s *Server) refuse(conn net.Conn, err error) {
	s.mu.Lock()
	s.mu.refused++
	s.mu.Unlock()
	if s.o.Refused != nil {
		s.o.Refused(conn.RemoteAddr(), err)
	}
	conn.Close()
}

// serve serves one connection, from its first byte to its end.
func (s *Server) serve(ctx context.Context, conn *admission.Conn) {
	defer s.all.Done()
	session := s.id.newSession(conn, true)
	if own, ok := conn.NetConn().(*tls.Conn); ok {
		// the listener's, as binding has to see; its number and time are bounded, not its bytes
		session = own
	}
	taken := -1
	node, window, err := s.id.welcome(ctx, session, s.o.Window, s.o.PendingTime,
		func(node int) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.mu.conns[node] >= s.o.ConnsPerNode {
				return errBusy
			}
			if err := conn.Admit(); err != nil {
				return err
			}
			s.mu.conns[node]++
			taken = node
			return nil
		})
	if taken >= 0 {
		defer s.leave(taken)
	}
	if err != nil {
		s.refuse(conn, err)
		return
	}
	if s.id.TLS == nil {
		session = conn.NetConn() // which can do more, such as writev
	}
	err = newServerConn(s, session, node, window).run(ctx)
	if s.o.Lost != nil {
		s.o.Lost(node, err)
	}
}

func (s *Server) leave(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.conns[node]--; s.mu.conns[node] == 0 {
		delete(s.mu.conns, node)
	}
}
