package exchange

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestAnswersTellSourceAndLinkApart checks that answers blame the source for the time in which
// requests wait for it, or for others that do, and not for the time in which others are being sent.
func TestAnswersTellSourceAndLinkApart(t *testing.T) {
	const size = 10_000
	for _, takes := range []struct{ reads, sends time.Duration }{
		{4 * time.Millisecond, 40 * time.Millisecond},
		{40 * time.Millisecond, 4 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHolder(0, size, 0, size, 0, size)
			h.read = func(context.Context, int32) error { <-time.After(takes.reads); return nil }
			ln, dial := overPipes(t)
			serve(t, ln, node(0), h, ServerOptions{ReadingPerConn: 1})
			c := client(t, func(ctx context.Context) (net.Conn, error) {
				conn, err := dial(ctx)
				return slow{conn, takes.sends / size}, err
			}, ClientOptions{})
			var all sync.WaitGroup
			var waited atomic.Int64
			for _, id := range []int32{1, 3, 5} {
				all.Go(func() {
					a, err := c.Fetch(t.Context(), id, make([]byte, size), Want{Size: size})
					if waited.Add(int64(a.Waited)); err != nil {
						t.Errorf("sample %d: %v", id, err)
					}
				})
			}
			all.Wait()
			c.Close()
			// They are read one after the other.
			got, want := time.Duration(waited.Load()), (1+2+3)*takes.reads
			if got > want || got < want-3*wire.WaitUnit {
				t.Errorf("%+v: the source is blamed for %v, want %v", takes, got, want)
			}
		})
	}
}

// slow is a connection that takes so long to receive a byte.
type slow struct {
	net.Conn
	takes time.Duration
}

func (s slow) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	<-time.After(time.Duration(n) * s.takes)
	return n, err
}
