package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// ClientOptions are how a node connects to node 0.
type ClientOptions struct {
	Node    int
	Join    string // node 0's address
	Network cluster.Network
	Secret  auth.Secret
	TLS     *tls.Config // nil: no TLS
}

// Client is a node's session with node 0, on a connection of its own. Run must be called.
type Client struct {
	*Session
	Local  string // this node's host, as the connection has it
	stream *connect.BidiStreamForClient[pb.Frame, pb.Frame]
	dialer *trackingDialer
	done   <-chan struct{} // closed by cancel
	cancel context.CancelFunc
}

// DialError is why node 0 could not be reached, other than that the nodes are set up differently.
type DialError struct {
	Why string // for a user
	err error
}

func (e *DialError) Error() string { return e.Why }

// Unwrap returns the error of the network, or of the handshake.
func (e *DialError) Unwrap() error { return e.err }

// Dial connects to node 0, and both sides prove that they have the secret, within handshakeTime.
// The session ends with ctx. The error is a *VersionError, a *SecretError, a *TLSError or a
// *DialError.
func Dial(ctx context.Context, o ClientOptions) (*Client, error) {
	ctx, cancel := context.WithCancel(ctx)
	dialer := &trackingDialer{network: o.Network, tls: o.TLS}
	c := &Client{
		stream: o.call(ctx, dialer), dialer: dialer, done: ctx.Done(), cancel: cancel,
	}
	timer := time.AfterFunc(handshakeTime, cancel)
	s, err := greet(c.stream, o.Secret, o.Node, dialer.bound)
	if !timer.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if failed := dialer.failure(); err != nil && failed != nil {
		err = failed // connect only reports EOF
	}
	if err != nil {
		err = o.explain(err)
		c.end()
		return nil, err
	}
	s.cut = cancel
	c.Session, c.Local = s, dialer.local()
	return c, nil
}

// Run sends what is queued and handles what is received, until either ends. Then it calls ended,
// after which nothing more is sent.
func (c *Client) Run(handle func(*pb.Message) error, ended func()) error {
	defer c.end()
	pumped := make(chan struct{})
	go func() { // ends with the box or with the context
		defer close(pumped)
		if c.pump(c.done) == nil {
			_ = c.stream.CloseRequest() // node 0 reads to the end and closes the stream
		} else {
			c.cancel()
		}
	}()
	err := c.handle(handle)
	ended()
	c.Close()
	c.cancel()
	<-pumped
	return err
}

func (c *Client) end() {
	_ = c.stream.CloseResponse()
	c.dialer.close()
	c.cancel()
}

// call starts an Attend call on a connection of its own.
func (o *ClientOptions) call(ctx context.Context,
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
	}}, "http://"+o.Join, connect.WithReadMaxBytes(maxFrame),
		connect.WithAcceptCompression("gzip", nil, nil))
	return client.Attend(ctx)
}

// explain turns the error of an attempt into one that a user understands.
func (o *ClientOptions) explain(err error) error {
	var version versionMismatch
	switch {
	case errors.As(err, &version):
		zero := "node 0 (" + o.Join + ")"
		return &cluster.VersionError{
			Node:    o.Node,
			Address: zero,
			Mine:    Version,
			Theirs:  uint32(version),
		}
	case errors.Is(err, ErrSecret), connect.CodeOf(err) == connect.CodeUnauthenticated:
		return &cluster.SecretError{Node: o.Node, Address: o.Join}
	case connect.CodeOf(err) == connect.CodeAborted:
		return &cluster.SecretError{Node: o.Node, Address: o.Join, Running: true}
	}
	if insecure := new(tlsError); errors.As(err, insecure) {
		if why := tlsTrouble(err); why != "" {
			return &cluster.TLSError{Node: o.Node, Address: o.Join, Why: why}
		}
	}
	// net/http does not export the type
	if o.TLS == nil && strings.Contains(err.Error(), "INADEQUATE_SECURITY") {
		return &cluster.TLSError{Node: o.Node, Address: o.Join, Why: onlyThere}
	}
	why := err.Error()
	var op *net.OpError
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		why = name.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "connection refused"
	case errors.As(err, &op) && op.Op == "dial":
		why = op.Err.Error()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		why = fmt.Sprintf("no answer within %v", handshakeTime)
	default:
		why = fmt.Sprintf("the service there is not an HDMLP daemon that is waiting for nodes (%s)",
			why)
	}
	return &DialError{why, err}
}
