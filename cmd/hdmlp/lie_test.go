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

// lies maps names to what an authenticated but faulty node may do: each corrupts the bytes that an
// honest node would send.
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
			lie[15] = 0x7F // the last byte of the length, if a frame begins here
		}
		return lie
	},
	"half":    func(honest []byte) []byte { return honest[:len(honest)/2] },
	"nothing": func([]byte) []byte { return nil },
}

// lieTo runs the real daemon, except that it corrupts the samples that it sends to other nodes of a
// job. Tests of the Python package build it (go test -c) and start it instead of the real one.
func lieTo(how string) int {
	lie := lies[how]
	if lie == nil || len(os.Args) < 2 || os.Args[1] != "serve" {
		fmt.Fprintf(os.Stderr,
			"TEST_LIE=%s: unknown value, or the command is not serve: %q\n", how, os.Args)
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

// liar is a listener whose connections send correct bytes up to the end of the handshake, and
// corrupt ones after it.
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

// lyingConn corrupts what is written after the handshake. It is used by one goroutine at a time:
// the handshake's, then the writer's.
type lyingConn struct {
	net.Conn
	lie    func([]byte) []byte
	honest int // number of correct writes: the node's identity, and the verdict with its proof
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
