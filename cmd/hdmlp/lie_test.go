package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"

	"github.com/hdmlp/hdmlp/internal/node"
)

// lies are what a node may do that knows the job's secret: what it makes of what it would send.
var lies = map[string]func(honest []byte) []byte{
	"garbage": func(honest []byte) []byte {
		lie := make([]byte, len(honest))
		for i := range lie {
			lie[i] = byte(rand.Uint32())
		}
		return lie
	},
	"another-byte": func(honest []byte) []byte {
		lie := slices.Clone(honest)
		lie[len(lie)-1] ^= 1
		return lie
	},
	"too-long": func(honest []byte) []byte {
		lie := slices.Clone(honest)
		if len(lie) >= 16 {
			lie[15] = 0x7F // the length's last byte, if this is a frame's beginning
		}
		return lie
	},
	"half":    func(honest []byte) []byte { return honest[:len(honest)/2] },
	"nothing": func([]byte) []byte { return nil },
}

// lieTo is the real daemon, but for what it tells the other nodes of a job when they ask for
// samples. Tests of the Python package build it (go test -c), and start it in place of the real
// one.
func lieTo(how string) int {
	lie := lies[how]
	if lie == nil || len(os.Args) < 2 || os.Args[1] != "serve" {
		fmt.Fprintf(os.Stderr,
			"TEST_LIE=%s: there is no such lie, or the command is not serve: %q\n", how, os.Args)
		return 2
	}
	cmd := newServeCommand(func(log *slog.Logger, processors int) node.Options {
		k := nodeOptions(log, processors)
		k.Samples = func(l net.Listener) net.Listener { return liar{l, lie} }
		return k
	})
	cmd.SetArgs(os.Args[2:])
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// liar is a listener whose connections are honest up to the end of the handshake.
type liar struct {
	net.Listener
	lie func([]byte) []byte
}

func (l liar) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lyingConn{Conn: conn, lie: l.lie, honest: 2}, nil
}

// lyingConn is used by one goroutine at a time: the handshake's, then the writer's.
type lyingConn struct {
	net.Conn
	lie    func([]byte) []byte
	honest int // writes that are: who it is, and the verdict with its proof
}

func (c *lyingConn) Write(b []byte) (int, error) {
	if c.honest > 0 {
		c.honest--
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(c.lie(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
