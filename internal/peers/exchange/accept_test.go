package exchange

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// scarce is a listener that fails a number of times before it accepts a connection.
type scarce struct {
	net.Listener
	err   error
	fails atomic.Int32
}

func (l *scarce) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept", l.err)}
	}
	return l.Listener.Accept()
}

// TestServerOutlivesErrorsOfAccept checks that connections are accepted after any error of accept,
// and that those there were remain.
func TestServerOutlivesErrorsOfAccept(t *testing.T) {
	for _, failure := range []error{unix.EMFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO} {
		t.Run(failure.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				l := &scarce{Listener: p, err: failure}
				s := NewServer(node(0), newHolder(10), ServerOptions{})
				go s.Serve(t.Context(), l)
				fetch := func(from *Client) {
					t.Helper()
					if err := fetched(from, t.Context(), 0, make([]byte, 10)); err != nil {
						t.Error(err)
					}
				}
				first := NewClient(node(1), 0, p.dial, ClientOptions{Timeout: 10 * time.Second})
				fetch(first)
				l.fails.Store(5)
				second := NewClient(node(2), 0, p.dial, ClientOptions{Timeout: 10 * time.Second})
				fetch(second) // the Accept in progress
				fetch(first)
				third := NewClient(node(1), 0, p.dial, ClientOptions{Timeout: 10 * time.Second})
				fetch(third)
				fetch(first)
				for _, c := range []*Client{first, second, third} {
					c.Close()
				}
				s.Close()
			})
		})
	}
}

// TestServeEndsWithItsListener checks that Serve returns the error of a listener that was closed.
func TestServeEndsWithItsListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		s := NewServer(node(0), newHolder(10), ServerOptions{})
		defer s.Close()
		ended := make(chan error)
		go func() { ended <- s.Serve(t.Context(), p) }()
		synctest.Wait()
		p.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}
