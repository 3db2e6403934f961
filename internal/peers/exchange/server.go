package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// ServerOptions configure a Server. The zero value is valid.
type ServerOptions struct {
	// Window is how many requests may be in flight on one connection, at most wire.MaxWindow; 0
	// means 512.
	Window int
	// Reading limits the calls of Holder.Sample that have not called send yet; 0 means 64. The
	// connections take turns.
	Reading int
	// ReadingPerConn limits the calls of Holder.Sample of one connection, including those whose
	// bytes are still being sent; 0 means 16.
	ReadingPerConn int
	// ConnsPerNode limits the connections of one node; 0 means 8.
	ConnsPerNode int
	// Pending and PendingPerAddress limit the connections in the handshake, in total and per
	// address, and PendingTime limits its duration; 0 means 256, 64 and 5 seconds. At the limit a
	// new connection replaces an older one (auth.Listener).
	Pending, PendingPerAddress int
	PendingTime                time.Duration
	// Timeout is how long it may take to send up to a megabyte; 0 means 10 seconds.
	Timeout time.Duration
	// Idle is how long a client may be silent, keep-alives included; 0 means a minute. It must be
	// longer than the clients' KeepAlive.
	Idle time.Duration
	// Refused, if not nil, is called for every connection that failed the handshake, and Lost for
	// every connection that ended, with the reason: io.EOF if the client closed it. They may be
	// called from any goroutine, and must not call Close.
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

// Server serves the samples of one node to the other nodes.
//
// # Turns
//
// Samples in memory are answered directly by their connection: each connection has its own writer,
// and the kernel shares the network link among them. Samples that have to be read go through
// Holder.Sample, of which at most Reading calls run at a time. Connections with such requests form
// a queue; the first one starts one of its requests and moves to the end. So a peer with many
// requests delays each other peer by one of them, not by all. A call that has called send no longer
// counts against Reading, but still counts for its connection, so a peer that does not read its
// answers only delays itself.
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
		queue   []*serverConn     // connections whose next read may start
	}
}

// NewServer returns a Server of the samples of h. It starts no goroutine.
func NewServer(id Identity, h Holder, o ServerOptions) *Server {
	s := &Server{id: id, h: h, o: o.filled()}
	s.ctx, s.close = context.WithCancel(context.Background())
	s.mu.serving = map[*serverConn]struct{}{}
	s.mu.conns = map[int]int{}
	s.mu.past = map[int]PeerStats{}
	return s
}

// Serve accepts connections until ctx ends or Close is called, for which it returns nil, or ln is
// closed. It closes ln, and returns when all its connections have ended.
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
	pending := auth.Listen(ln,
		auth.Limits{
			Total:      s.o.Pending,
			PerAddress: s.o.PendingPerAddress,
			Time:       s.o.PendingTime,
			Bytes:      pendingBytes,
		})
	for pause := 5 * time.Millisecond; ; {
		conn, err := pending.Accept()
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
			conns.Go(func() { s.serve(ctx, conn.(*auth.Conn)) })
			continue
		case errors.Is(err, net.ErrClosed):
			return err
		}
		// Out of file descriptors or of memory, for example, which may be temporary.
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-ctx.Done():
		}
	}
}

// Close ends all connections and waits for them. After it, bytes returned by Held may change.
func (s *Server) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.close()
	s.all.Wait()
	return nil
}

// enter registers a connection for Close to wait for. It returns false if the Server is closed.
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
func (s *Server) serve(ctx context.Context, conn *auth.Conn) {
	defer s.all.Done()
	session := s.id.newSession(conn, true)
	if own, ok := conn.NetConn().(*tls.Conn); ok {
		// TLS is the listener's, as auth.Binding has to see it. admission limits the number and
		// time of such connections, but not their bytes.
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
		session = conn.NetConn() // which supports writev
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
