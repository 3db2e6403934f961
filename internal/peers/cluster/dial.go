package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

const (
	firstPause = 50 * time.Millisecond // between attempts to dial node 0
	lastPause  = time.Second
)

// join keeps this node connected to node 0, until stop is called, or halt, which does not flush. It
// reconnects when the connection is lost, before the cluster has formed and after.
func join(a *agent) (stop, halt func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	a.tasks.Go(func() {
		defer close(ended)
		for pauses := (auth.Backoff{First: firstPause, Last: lastPause}); ; {
			met, err := a.attend(ctx)
			if met && !a.occupied() {
				pauses.Reset()
			}
			if ctx.Err() != nil || isDone(a.noReconnect) || a.fatal(err) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-a.noReconnect:
				return
			case <-time.After(pauses.Next()):
			}
		}
	})
	a.tasks.Go(a.rejoinLost)
	halt = func() {
		cancel()
		<-ended
	}
	return func() {
		a.finish()
		a.mu.Lock()
		up := a.up
		a.mu.Unlock()
		if up != nil { // flush what was sent
			up.Close()
			select {
			case <-ended:
			case <-time.After(flushTime):
			}
		}
		halt()
	}, halt
}

// fatal reports whether another attempt would fail as well.
func (a *agent) fatal(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.failure != nil {
		return true
	}
	switch err.(type) {
	case *SecretError, *VersionError, *TLSError:
	default:
		return false
	}
	if a.hasFormed { // another job's daemon is at node 0's address, perhaps not for long
		return false
	}
	a.failLocked(err)
	return true
}

// occupied reports whether another job is running at node 0's address.
func (a *agent) occupied() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused != nil
}

// noteOccupied notes that another job, which may be about to end, is running at node 0's address;
// mu is held.
func (a *agent) noteOccupied(refused error) {
	if a.refused == nil && !a.hasFormed && !a.closed {
		a.o.Progress(fmt.Sprintf("node %d is waiting for node 0: %v", a.o.Node, refused))
	}
	a.refused = refused
}

// attend runs one Attend call, from dialing to the end of the connection. met reports whether the
// handshake was completed. The steps:
//
//  1. dial and authenticate, within handshakeTime (greet);
//  2. bind the sockets of failure detection, and send Register;
//  3. send queued messages (pump) and handle received ones, until either ends;
//  4. note the disconnection, and wait for pump.
func (a *agent) attend(ctx context.Context) (met bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialer := &trackingDialer{network: a.o.Network, tls: a.o.TLS}
	defer dialer.close()
	st := a.call(ctx, dialer)
	defer func() { _ = st.CloseResponse() }()

	timer := time.AfterFunc(handshakeTime, cancel)
	c, err := greet(st, a.o.Secret, a.o.Node, dialer.bound)
	if !timer.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if failed := dialer.failure(); err != nil && failed != nil {
		err = failed // connect only reports EOF
	}
	if err != nil {
		return false, a.explain(err)
	}
	failure := a.bind(ctx, dialer.local())
	c.cut = cancel
	// before other goroutines can send
	c.Send(&pb.Message{Kind: &pb.Message_Register{Register: a.registration(failure)}})
	a.connected(c)
	if failure != nil {
		a.fail(failure) // and stay connected until it was sent
	}
	pumped := make(chan struct{})
	go func() { // ends with the box or with ctx
		defer close(pumped)
		if c.pump(ctx.Done()) == nil {
			_ = st.CloseRequest() // node 0 reads to the end and closes the stream
		} else {
			cancel()
		}
	}()
	for {
		var m *pb.Message
		if m, err = c.receive(); err == nil {
			err = a.handle(m)
		}
		if err != nil {
			break
		}
	}
	a.disconnected(c)
	c.Close()
	cancel()
	<-pumped
	return true, err
}

// call starts an Attend call on a connection of its own.
func (a *agent) call(ctx context.Context,
	dialer *trackingDialer,
) *connect.BidiStreamForClient[pb.Frame, pb.Frame] {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS is done by the dialer
	client := pb.NewControlClient(&http.Client{Transport: &http.Transport{
		DialContext: dialer.dial, Protocols: protocols, DisableCompression: true,
		MaxResponseHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter,
			PingTimeout:     pingTime,
		},
	}}, "http://"+a.o.Join, connect.WithReadMaxBytes(maxFrame),
		connect.WithAcceptCompression("gzip", nil, nil))
	return client.Attend(ctx)
}

// bind binds the sockets of failure detection, once the local address is known. It returns the
// reason why this node cannot take part, if any.
func (a *agent) bind(ctx context.Context, local string) error {
	if a.o.Failure != nil || a.gossip != nil {
		return a.o.Failure
	}
	g, err := newGossip(ctx, &a.o, a.o.Gossip, local)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.gossip = g
	a.mu.Unlock()
	return nil
}

// explain turns the error of an attempt into one that a user understands, and reports it.
func (a *agent) explain(err error) error {
	var version versionMismatch
	switch {
	case errors.As(err, &version):
		zero := "node 0 (" + a.o.Join + ")"
		return &VersionError{a.o.Node, zero, protocolVersion, uint32(version)}
	case errors.Is(err, errSecret), connect.CodeOf(err) == connect.CodeUnauthenticated:
		return &SecretError{Node: a.o.Node, Address: a.o.Join}
	case connect.CodeOf(err) == connect.CodeAborted:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.noteOccupied(&SecretError{Node: a.o.Node, Address: a.o.Join, Running: true})
		return err
	}
	if insecure := new(tlsError); errors.As(err, insecure) {
		if why := tlsTrouble(err); why != "" {
			return &TLSError{a.o.Node, a.o.Join, why}
		}
	}
	// net/http does not export the type
	if a.o.TLS == nil && strings.Contains(err.Error(), "INADEQUATE_SECURITY") {
		return &TLSError{a.o.Node, a.o.Join, onlyThere}
	}
	trouble := err.Error()
	var op *net.OpError
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		trouble = name.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		trouble = "connection refused"
	case errors.As(err, &op) && op.Op == "dial":
		trouble = op.Err.Error()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		trouble = fmt.Sprintf("no answer within %v", handshakeTime)
	default:
		trouble = fmt.Sprintf("the service there is not an HDMLP daemon that is waiting for nodes "+
			"(%s)", trouble)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = nil
	if a.trouble != trouble && !a.hasFormed && !a.closed {
		a.trouble = trouble
		a.o.Progress(fmt.Sprintf("node %d is waiting for node 0 at %s: %s", a.o.Node, a.o.Join,
			trouble))
	}
	return err
}
