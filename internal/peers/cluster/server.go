package cluster

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

const (
	handshakeTime = 10 * time.Second
	pingAfter     = 10 * time.Second // of silence on a connection
	pingTime      = 15 * time.Second // without an answer, after which the connection is closed
	// greetingBytes may be read before the proof: for HTTP/2, and TLS with its certificates.
	greetingBytes = 64 << 10
	whatControl   = "control"
)

// server connects nodes to the hub over the network.
type server struct {
	agent *agent
	hub   *hub
}

// pendingLimits returns the limits of unauthenticated connections to a port to which all nodes may
// connect at once.
func pendingLimits(nodes int, bytes int64) auth.Limits {
	return auth.Limits{
		Total:      192 + min(nodes, 1024),
		PerAddress: 64,
		Time:       proofTime,
		Bytes:      bytes,
	}
}

// serve makes a the agent of node 0: it listens on the control port, binds the sockets of failure
// detection, creates the hub with its own agent as the first participant, and serves the other
// nodes' Attend calls until stop is called, or halt, which does not flush.
func serve(ctx context.Context, a *agent) (stop, halt func(), err error) {
	host, port, _ := splitAddress(a.o.Listen)
	listener, err := Listen(ctx, a.o.Network, 0, whatControl, host, port)
	if err != nil {
		return nil, nil, err
	}
	if found, err := resolve(host); err == nil && host != "" {
		host = found[0]
	}
	failure := a.bind(ctx, host)
	if a.o.Listening != nil {
		a.o.Listening(listener.Addr())
	}
	own := a.registration(failure)
	a.hub = newHub(own, a.o.Deadline, a.o.Log)
	a.hub.whole, a.hub.remedy = a.o.Whole, a.o.Remedy
	a.hub.check, a.hub.notify = a.check, a.o.Refused
	detach := a.attachLocal(own)

	s := &server{a, a.hub}
	mux := http.NewServeMux()
	mux.Handle(pb.NewControlHandler(s, connect.WithReadMaxBytes(maxFrame),
		connect.WithCompression("gzip", nil, nil)))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS is done by tlsListener
	web := &http.Server{
		Handler: withDeadlines(mux), Protocols: protocols, ReadHeaderTimeout: handshakeTime,
		IdleTimeout:    handshakeTime,
		MaxHeaderBytes: 16 << 10, ErrorLog: log.New(logWriter{a.o.Log}, "", 0),
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
	ln := &tlsListener{
		auth.Listen(listener, pendingLimits(a.o.Nodes, greetingBytes)), a.o.TLS,
		func(address, why string) {
			a.hub.refuse(address, &TLSError{0, address, why})
		},
	}
	a.tasks.Go(func() {
		if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			a.fail(refusal(0, whatControl, a.o.Listen, err))
		}
	})
	a.tasks.Go(a.rejoinLost)
	halt = func() {
		_ = web.Close()
		detach()
	}
	return func() {
		a.hub.shut()
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		_ = web.Shutdown(ctx) // flushes what was sent
		halt()
	}, halt, nil
}

// attachLocal makes node 0's own agent the hub's first participant.
func (a *agent) attachLocal(own *pb.Register) (detach func()) {
	box := newOutbox[*pb.Message](0)
	p := &participant{link: localLink{box}, seen: a.o.Listen, reg: own}
	a.connected(localUp{a.hub, p})
	a.hub.attach(p)
	a.tasks.Go(func() {
		for {
			m, ok := box.take(a.done)
			if !ok {
				return
			}
			_ = a.handle(m) // the own hub sends only valid messages
		}
	})
	return box.close
}

// localLink is the hub's link to its own agent.
type localLink struct{ box *outbox[*pb.Message] }

func (l localLink) Send(m *pb.Message) { l.box.put(m) }
func (l localLink) Close()             {}
func (l localLink) SendPack(p *pack) {
	for _, m := range p.messages {
		l.box.put(m)
	}
}

// localUp is the own agent's link to the hub.
type localUp struct {
	hub         *hub
	participant *participant
}

func (l localUp) Send(m *pb.Message) { _ = l.hub.receive(l.participant, m) }
func (l localUp) Close()             {}

// shut closes all links, so that streams end after what was sent was flushed.
func (h *hub) shut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.participants {
		p.Close()
	}
	for _, p := range h.contest {
		p.Close()
	}
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

// Attend serves one node's stream. Closing the agent waits for it.
func (s *server) Attend(ctx context.Context, st *connect.BidiStream[pb.Frame, pb.Frame]) error {
	over := make(chan struct{})
	defer close(over)
	if !s.agent.task(func() { <-over }) {
		return connect.NewError(connect.CodeUnavailable, ErrClosed)
	}
	deadlines := ctx.Value(deadlinesKey{}).(*http.ResponseController)
	_ = deadlines.SetReadDeadline(time.Now().Add(handshakeTime))
	seen := st.Peer().Addr
	c, reg, err := s.meet(ctx, st)
	if err != nil {
		return s.rejectHandshake(seen, err)
	}
	_ = deadlines.SetReadDeadline(time.Time{})

	c.cut = func() { _ = deadlines.SetReadDeadline(time.Unix(1, 0)) }
	p := &participant{link: c, seen: seen, reg: reg}
	if local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok {
		p.local = local.String()
	}
	pumped := make(chan error, 1)
	go func() { // ends with the box, or with the stream; Attend waits for it
		err := c.pump(ctx.Done())
		c.cut() // so that Attend returns
		pumped <- err
	}()
	s.hub.attach(p)
	for {
		m, err := c.receive()
		if err == nil {
			err = s.hub.receive(p, m)
		}
		if err != nil {
			break
		}
	}
	s.hub.detach(p)
	c.Close()
	_ = deadlines.SetWriteDeadline(time.Now().Add(flushTime))
	<-pumped
	return nil
}

// meet performs the handshake and receives the Register message.
func (s *server) meet(ctx context.Context, st stream) (*session, *pb.Register, error) {
	v := ctx.Value(connKey{}).(*acceptedConn)
	session, err := auth.Binding(v.Conn, labelBinding)
	if err != nil {
		return nil, nil, err
	}
	c, err := admit(st, s.agent.o.Secret, session, v.admit)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.receive()
	if err != nil {
		return nil, nil, err
	}
	reg := m.GetRegister()
	if reg == nil || int(reg.GetNode()) != c.node ||
		reg.GetNode() == 0 && reg.GetInstance() == s.hub.own.GetInstance() {
		return nil, nil, errHandshake
	}
	return c, reg, nil
}

// rejectHandshake logs on node 0 why a handshake failed, and returns what the client may know of
// it.
func (s *server) rejectHandshake(seen string, err error) error {
	var version versionMismatch
	var claimed unauthenticated
	switch {
	case errors.As(err, &claimed):
		s.hub.refuse(seen, &SecretError{Address: seen, Claimed: int(claimed)})
		if s.hub.runs() {
			return connect.NewError(connect.CodeAborted, errors.New("another job is running here"))
		}
		return connect.NewError(connect.CodeUnauthenticated, errSecret)
	case errors.As(err, &version):
		s.hub.refuse(seen, &VersionError{0, seen, protocolVersion, uint32(version)})
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("another version"))
	default:
		s.agent.o.Log.Debug("a handshake failed", "address", seen, "reason", err)
		return connect.NewError(connect.CodeInvalidArgument, errHandshake)
	}
}
