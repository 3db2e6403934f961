package session

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

const (
	handshakeTime = 10 * time.Second
	pingAfter     = 10 * time.Second // of silence on a connection
	pingTime      = 15 * time.Second // without an answer, after which the connection is closed
	// flushTime is the time for what was sent when a session ends.
	flushTime = 500 * time.Millisecond
	// greetingBytes may be read before the proof: for HTTP/2, and TLS with its certificates.
	greetingBytes = 64 << 10
	// proofTime is the time for the proof on a connection.
	proofTime = 5 * time.Second
)

// PendingLimits returns the limits of unauthenticated connections to a port to which all nodes may
// connect at once.
func PendingLimits(nodes int, bytes int64) auth.Limits {
	return auth.Limits{
		Total:      192 + min(nodes, 1024),
		PerAddress: 64,
		Time:       proofTime,
		Bytes:      bytes,
	}
}

// Handler is what a server connects nodes to: node 0's hub. Its methods are called from several
// goroutines.
type Handler interface {
	// Attend serves a node's session; it calls Run.
	Attend(*Accepted)
	// Refuse notes that a connection was refused.
	Refuse(address string, err error)
	// Running reports whether the job has begun.
	Running() bool
}

// ServerOptions are what a server is for.
type ServerOptions struct {
	Nodes    int
	Instance string // of node 0's daemon, which does not connect to itself
	Secret   auth.Secret
	TLS      *tls.Config // nil: no TLS
	Log      *slog.Logger
}

// Server is node 0's side of the sessions: it accepts connections, and passes those to the handler
// whose other side has proved that it has the secret.
type Server struct {
	o       ServerOptions
	handler Handler
	web     *http.Server

	mu     sync.Mutex // guards closed, and tasks.Add
	closed bool
	tasks  sync.WaitGroup
}

// NewServer returns a server, which serves once Serve is called.
func NewServer(o ServerOptions, handler Handler) *Server {
	s := &Server{o: o, handler: handler}
	mux := http.NewServeMux()
	mux.Handle(pb.NewControlHandler(s, connect.WithReadMaxBytes(maxFrame),
		connect.WithCompression("gzip", nil, nil)))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS is done by tlsListener
	s.web = &http.Server{
		Handler: withDeadlines(mux), Protocols: protocols, ReadHeaderTimeout: handshakeTime,
		IdleTimeout:    handshakeTime,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1,
			MaxReadFrameSize:     16 << 10,
			SendPingTimeout:      pingAfter,
			PingTimeout:          pingTime,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	return s
}

// Serve accepts connections until Flush or Close is called, and returns when all sessions have
// ended.
func (s *Server) Serve(listener net.Listener) error {
	err := s.web.Serve(&tlsListener{
		auth.Listen(listener, PendingLimits(s.o.Nodes, greetingBytes)), s.o.TLS,
		func(address, why string) {
			s.handler.Refuse(address, &cluster.TLSError{
				Node:    0,
				Address: address,
				Why:     why,
			})
		},
	})
	if errors.Is(err, http.ErrServerClosed) {
		s.tasks.Wait()
		return nil
	}
	return err
}

// Flush waits for a moment until sessions that were closed have sent what was queued. The server
// takes no more of them.
func (s *Server) Flush() {
	s.refuse()
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	_ = s.web.Shutdown(ctx)
}

// Close ends all sessions.
func (s *Server) Close() {
	s.refuse()
	_ = s.web.Close()
}

// refuse makes begin return false.
func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// begin notes that a stream is served, for whose end Serve waits; false: none is any more.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.tasks.Add(1)
	}
	return !s.closed
}

type (
	connKey      struct{} // key of the stream's connection
	deadlinesKey struct{}
)

// withDeadlines makes a stream's deadlines available to its handler, which connect does not.
func withDeadlines(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), deadlinesKey{}, http.NewResponseController(w))
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Accepted is a node's session, as node 0 has it.
type Accepted struct {
	*Session
	Seen      string       // host:port of the node, as node 0 sees it
	Local     string       // host:port of node 0 that the node dialed
	Register  *pb.Register // the node's first message
	done      <-chan struct{}
	deadlines *http.ResponseController
}

// Attend serves one node's stream (clusterpb.ControlHandler).
func (s *Server) Attend(ctx context.Context, st *connect.BidiStream[pb.Frame, pb.Frame]) error {
	if !s.begin() {
		return connect.NewError(connect.CodeUnavailable, cluster.ErrClosed)
	}
	defer s.tasks.Done()
	deadlines := ctx.Value(deadlinesKey{}).(*http.ResponseController)
	_ = deadlines.SetReadDeadline(time.Now().Add(handshakeTime))
	seen := st.Peer().Addr
	c, reg, err := s.meet(ctx, st)
	if err != nil {
		return s.rejectHandshake(seen, err)
	}
	_ = deadlines.SetReadDeadline(time.Time{})

	c.cut = func() { _ = deadlines.SetReadDeadline(time.Unix(1, 0)) }
	a := &Accepted{
		Session: c, Seen: seen, Register: reg, done: ctx.Done(), deadlines: deadlines,
	}
	if local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok {
		a.Local = local.String()
	}
	s.handler.Attend(a)
	return nil
}

// Run sends what is queued and handles what is received, until either ends. Then it calls ended,
// after which nothing more is queued, and flushes.
func (c *Accepted) Run(handle func(*pb.Message) error, ended func()) {
	pumped := make(chan struct{})
	go func() { // ends with the box, or with the stream; Run waits for it
		defer close(pumped)
		_ = c.pump(c.done)
		c.cut() // so that handle returns
	}()
	_ = c.handle(handle)
	ended()
	c.Close()
	_ = c.deadlines.SetWriteDeadline(time.Now().Add(flushTime))
	<-pumped
}

// meet performs the handshake and receives the Register message.
func (s *Server) meet(ctx context.Context, st stream) (*Session, *pb.Register, error) {
	v := ctx.Value(connKey{}).(*acceptedConn)
	binding, err := auth.Binding(v.Conn, labelBinding)
	if err != nil {
		return nil, nil, err
	}
	c, err := admit(st, s.o.Secret, binding, v.admit)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.receive()
	if err != nil {
		return nil, nil, err
	}
	reg := m.GetRegister()
	if reg == nil || int(reg.GetNode()) != c.node ||
		reg.GetNode() == 0 && reg.GetInstance() == s.o.Instance {
		return nil, nil, ErrHandshake
	}
	return c, reg, nil
}

// rejectHandshake logs on node 0 why a handshake failed, and returns what the client may learn of
// it.
func (s *Server) rejectHandshake(seen string, err error) error {
	var version versionMismatch
	var claimed unauthenticated
	switch {
	case errors.As(err, &claimed):
		s.handler.Refuse(seen, &cluster.SecretError{Address: seen, Claimed: int(claimed)})
		if s.handler.Running() {
			return connect.NewError(connect.CodeAborted, errors.New("another job is running here"))
		}
		return connect.NewError(connect.CodeUnauthenticated, ErrSecret)
	case errors.As(err, &version):
		s.handler.Refuse(seen, &cluster.VersionError{
			Node:    0,
			Address: seen,
			Mine:    Version,
			Theirs:  uint32(version),
		})
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("another version"))
	default:
		s.o.Log.Debug("a handshake failed", "address", seen, "reason", err)
		return connect.NewError(connect.CodeInvalidArgument, ErrHandshake)
	}
}
