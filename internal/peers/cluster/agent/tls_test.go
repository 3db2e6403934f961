package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

func TestTLSFailuresNameTheirCause(t *testing.T) {
	pair, pool := authtest.Certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}
	_, errs := newLab(t, 3).form(t.Context(), upTo(3), func(o *cluster.Options) { o.TLS = config })
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	demanding := config.Clone()
	demanding.ClientAuth, demanding.ClientCAs = tls.RequireAndVerifyClientCert, pool
	without := &tls.Config{RootCAs: pool}
	const (
		both  = ": set tls to the same value on all nodes"
		here  = "this node uses TLS, that one does not" + both
		there = "that node uses TLS, this one does not" + both
	)
	for name, c := range map[string]struct {
		zero, one      *tls.Config
		zeros, oneSays string
	}{
		"node 0 is not trusted": {
			config, &tls.Config{RootCAs: x509.NewCertPool()},
			"that node rejected this one's certificate (tls: bad certificate)",
			"that node's certificate was rejected: x509: certificate signed by unknown authority",
		},
		"node 1 is not trusted": {
			demanding, without,
			"tls: client didn't provide a certificate",
			"that node rejected this one's certificate (tls: certificate required)",
		},
		"only node 0 uses it": {config, nil, here, there},
		"only node 1 uses it": {nil, config, there, here},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			l.wait = 4 * time.Second
			_, errs := l.form(t.Context(), upTo(2), func(o *cluster.Options) {
				o.TLS = []*tls.Config{c.zero, c.one}[o.Node]
			})
			var mine *cluster.TLSError
			if !errors.As(errs[1], &mine) || mine.Node != 1 || mine.Why != c.oneSays {
				t.Errorf("node 1: %v", errs[1])
			}
			var missing *cluster.MissingError
			if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 ||
				!like(missing.Refused[0],
					"127.0.0.1:* was refused during the TLS handshake: "+c.zeros) {
				t.Errorf("node 0: %v", errs[0])
			}
		})
	}
}

// TestRelayIsDetected: where certificates prove nothing, a relay between two nodes cannot pass the
// handshake.
func TestRelayIsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair, _ := authtest.Certificate(t)
		config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
		l := newVirtualLab(t, 2)
		listener, err := l.network.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.wait = 4 * time.Second
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				<-l.at
				l.relay(tls.Server(c, config), config)
			}
		}()
		clusters, errs := l.form(t.Context(), upTo(2), func(o *cluster.Options) {
			o.TLS = config
			if o.Node == 1 {
				o.Join = listener.Addr().String()
			}
		})
		for _, c := range clusters { // none, if the test passes
			if c != nil {
				_ = c.Close()
			}
		}
		listener.Close()
		<-ended
		if !errors.As(errs[1], new(*cluster.SecretError)) {
			t.Errorf("node 1: %v", errs[1])
		}
		var missing *cluster.MissingError
		if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 ||
			!strings.Contains(missing.Refused[0], "secret") {
			t.Errorf("node 0: %v", errs[0])
		}
	})
}

// relay forwards one connection to node 0, both ways, until it ends.
func (l *lab) relay(from net.Conn, config *tls.Config) {
	defer from.Close()
	raw, err := l.network.Dial(l.t.Context(), l.join)
	if err != nil {
		return
	}
	onward := tls.Client(raw, config)
	defer onward.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, onward}, {onward, from}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}
