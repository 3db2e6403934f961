package exchange

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestDifferencesAreNamedOnBothSides: client and server report what differs and its values.
func TestDifferencesAreNamedOnBothSides(t *testing.T) {
	tests := map[string]struct {
		change func(id *Identity)
		peer   int
		what   string
		values [2]string // that both must name
	}{
		"secret": {func(id *Identity) {
			id.Secret = []byte("another secret, as long")
		}, 0, "secret", [2]string{}},
		"job": {func(id *Identity) {
			id.Job = "other"
		}, 0, "job", [2]string{`"job"`, `"other"`}},
		"number of nodes": {func(id *Identity) {
			id.Nodes = 8
		}, 0, "nodes", [2]string{"4", "8"}},
		"another node there": {func(*Identity) {}, 2, "node", [2]string{"0", "2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ln, dial := overTCP(t)
			refused := make(chan error, 100)
			serve(t, ln, node(0), newHolder(1),
				ServerOptions{Refused: func(_ net.Addr, err error) { refused <- err }})
			id := node(1)
			test.change(&id)
			c := NewClient(id, test.peer, dial, ClientOptions{})
			defer c.Close()
			for side, err := range map[string]error{
				"client": fetched(c, context.Background(), 0, make([]byte, 1)),
				"server": receive(t, refused),
			} {
				var differs *HandshakeError
				if !errors.Is(err, ErrRefused) || !errors.As(err, &differs) ||
					differs.What != test.what {
					t.Errorf("the %s reports: %v", side, err)
				} else if !strings.Contains(err.Error(), test.values[0]) ||
					!strings.Contains(err.Error(), test.values[1]) {
					t.Errorf("the %s does not name %v: %v", side, test.values, err)
				}
			}
		})
	}
}

func TestAnotherVersionIsNamed(t *testing.T) {
	mine, theirs := net.Pipe()
	defer mine.Close()
	go func() {
		defer theirs.Close()
		readHello(theirs)
		theirs.Write([]byte{'H', 'D', 'M', 'X', 7, 0, 4, 0, 1, 2, 3, 4})
	}()
	_, err := node(1).greet(context.Background(), mine, 0, 1, time.Second)
	var differs *HandshakeError
	if !errors.As(err, &differs) || differs.What != "version" || differs.Theirs != "7" ||
		differs.Mine != fmt.Sprint(wire.Version) {
		t.Error(err)
	}
}

func TestInvalidIdentityIsRefused(t *testing.T) {
	for name, change := range map[string]func(id *Identity){
		"short secret": func(id *Identity) { id.Secret = []byte("short") },
		"long name":    func(id *Identity) { id.Job = strings.Repeat("x", maxJob+1) },
		"node 4 of 4":  func(id *Identity) { id.Node = 4 },
	} {
		id := node(1)
		change(&id)
		ln, dial := overTCP(t)
		if err := NewServer(id, newHolder(), ServerOptions{}).Serve(context.Background(),
			ln); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: the server reports %v", name, err)
		}
		c := NewClient(id, 0, dial, ClientOptions{})
		if err := c.Connect(context.Background()); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: the client reports %v", name, err)
		}
		c.Close()
	}
}

// TestReplayedProofIsRefused: a proof is valid neither in another handshake nor in the other
// direction.
func TestReplayedProofIsRefused(t *testing.T) {
	ln, dial := overTCP(t)
	refused := make(chan error, 10)
	serve(t, ln, node(0), newHolder(1),
		ServerOptions{Refused: func(_ net.Addr, err error) { refused <- err }})
	var said bytes.Buffer
	conn, err := dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node(1).greet(context.Background(), tee{conn, &said}, 0, 8,
		time.Second); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	again, err := dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write(said.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, refused); !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	client, server := []byte("client's hello"), []byte("server's hello")
	if bytes.Equal(proof(secret, labelClient, client, server),
		proof(secret, labelServer, client, server)) {
		t.Error("a proof is valid in the other direction")
	}
}

type tee struct {
	net.Conn
	said io.Writer
}

func (t tee) Write(b []byte) (int, error) {
	t.said.Write(b)
	return t.Conn.Write(b)
}

// TestPendingConnectionsAreLimited: silent connections are limited in number and in time, and do
// not keep others out.
func TestPendingConnectionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		var refused, crowded, late atomic.Int32
		s := NewServer(node(0), newHolder(1),
			ServerOptions{
				Pending: 3, PendingTime: 5 * time.Second,
				Refused: func(_ net.Addr, err error) {
					refused.Add(1)
					if errors.Is(err, auth.ErrCrowded) {
						crowded.Add(1)
					}
					if errors.Is(err, auth.ErrTime) || errors.Is(err, os.ErrDeadlineExceeded) {
						late.Add(1)
					}
				},
			})
		go s.Serve(t.Context(), p)
		for range 5 {
			conn, err := p.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		synctest.Wait()
		if got := crowded.Load(); got != 2 || refused.Load() != 2 {
			t.Errorf("%d of %d refused connections were replaced, not 2", got, refused.Load())
		}
		c := NewClient(node(1), 0, p.dial, ClientOptions{})
		if err := fetched(c, t.Context(), 0, make([]byte, 1)); err != nil {
			t.Error("at the limit of pending connections:", err)
		}
		time.Sleep(5 * time.Second) // in the bubble
		synctest.Wait()
		if got := late.Load(); got != 2 || refused.Load() != 5 {
			t.Errorf("%d timed out and %d were refused, not 2 and 5", got, refused.Load())
		}
		c.Close()
		s.Close()
	})
}

func TestConnectionsPerNodeAreLimited(t *testing.T) {
	ln, dial := overTCP(t)
	serve(t, ln, node(0), newHolder(1), ServerOptions{ConnsPerNode: 2})
	first := client(t, dial, ClientOptions{Conns: 2})
	waitFor(t, func() bool {
		first.Connect(context.Background())
		return first.Stats().Connected == 2
	})
	second := client(t, dial, ClientOptions{})
	if err := second.Connect(context.Background()); !errors.Is(err, ErrUnavailable) ||
		!strings.Contains(err.Error(), "no further connection") {
		t.Error(err)
	}
}

func TestTLSFailuresNameTheirCause(t *testing.T) {
	pair, pool := authtest.Certificate(t)
	own := &tls.Config{Certificates: []tls.Certificate{pair}}
	demanding := &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
	}
	trusting := &tls.Config{RootCAs: pool, ServerName: "hdmlp"}
	both := &tls.Config{RootCAs: pool, ServerName: "hdmlp", Certificates: []tls.Certificate{pair}}
	for name, c := range map[string]struct {
		server, client         *tls.Config
		serverSays, clientSays string // "" if the handshake succeeds
	}{
		"trust":            {own, trusting, "", ""},
		"trust, both ways": {demanding, both, "", ""},
		"the server is not trusted": {
			own,
			&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "hdmlp"}, "bad certificate",
			"unknown authority",
		},
		"a client without a certificate": {
			demanding, trusting,
			"client didn't provide a certificate", "certificate required",
		},
		"a client without TLS": {
			own, nil,
			"only one side uses TLS: it sent 48 44 4d 58", "it may require TLS",
		},
		"a server without TLS": {
			nil, trusting,
			"only one side uses TLS: it sent 16 03 01", "TLS: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ln, dial := overTCP(t)
			id, mine := node(0), node(1)
			id.TLS, mine.TLS = c.server, c.client
			h := newHolder(112640, 3072)
			refused := make(chan error, 100)
			serve(t, ln, id, h,
				ServerOptions{Refused: func(_ net.Addr, err error) { refused <- err }})
			client := NewClient(mine, 0, dial, ClientOptions{Timeout: 2 * time.Second})
			defer client.Close()
			if c.serverSays == "" {
				for id, want := range h.samples {
					dst := make([]byte, len(want))
					if err := fetched(client, context.Background(), int32(id), dst); err != nil ||
						!bytes.Equal(dst, want) {
						t.Error("another sample:", err)
					}
				}
				return
			}
			err := client.Connect(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.clientSays) {
				t.Errorf("the client reports: %v", err)
			}
			if c.server != nil && c.client != nil && !errors.Is(err, ErrRefused) {
				t.Errorf("not a refusal: %v", err)
			}
			if err := receive(t, refused); !strings.Contains(err.Error(), c.serverSays) {
				t.Errorf("the server reports: %v", err)
			}
		})
	}
}

// TestTLSHidesSamplesOnTheNetwork: without TLS a sample can be read in transit, with TLS it cannot.
func TestTLSHidesSamplesOnTheNetwork(t *testing.T) {
	pair, pool := authtest.Certificate(t)
	for _, secure := range []bool{false, true} {
		ln, dial := overTCP(t)
		id, mine := node(0), node(1)
		if secure {
			id.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			mine.TLS = &tls.Config{RootCAs: pool, ServerName: "hdmlp"}
		}
		h := newHolder(3072)
		serve(t, ln, id, h, ServerOptions{})
		var passed bytes.Buffer
		client := NewClient(mine, 0, func(ctx context.Context) (net.Conn, error) {
			conn, err := dial(ctx)
			return tapped{conn, &passed}, err
		}, ClientOptions{})
		if err := fetched(client, context.Background(), 0, make([]byte, 3072)); err != nil {
			t.Error(err)
		}
		client.Close()
		if readable := bytes.Contains(passed.Bytes(), h.samples[0][1000:1032]); readable == secure {
			t.Errorf("TLS is %v, and the sample can be read: %v", secure, readable)
		}
	}
}

// tapped is a connection whose input is recorded.
type tapped struct {
	net.Conn
	heard io.Writer
}

func (c tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, _ = c.heard.Write(b[:n])
	return n, err
}
