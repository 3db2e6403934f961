package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// FuzzFrames sends arbitrary bytes after HELLO: the connection must be served or ended, and leave
// nothing behind. Slots and jobs are real.
func FuzzFrames(f *testing.F) {
	open, err := protocol.AppendJSON(nil, protocol.Open, openMessage())
	if err != nil {
		f.Fatal(err)
	}
	call := func(method, params string) []byte {
		return protocol.AppendFrame(nil, protocol.Call,
			[]byte(`{"id":1,"method":"`+method+`","params":`+params+`}`))
	}
	with := func(change func(*protocol.OpenMessage)) []byte {
		b, err := protocol.AppendJSON(nil, protocol.Open, openMessage(change))
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	given := with(func(m *protocol.OpenMessage) {
		m.Stream.Shuffle, m.Stream.Given = "given",
			&protocol.GivenMessage{Batches: 2, Entries: 7, Epochs: 1}
	})
	give := func(text string) []byte {
		return protocol.AppendFrame(nil, protocol.Give, []byte(text))
	}
	f.Add(with(func(m *protocol.OpenMessage) {
		m.Stream.Subset = &protocol.SubsetMessage{Count: 9}
	}))
	f.Add(bytes.Join([][]byte{
		given, iterate(1, 0, 0), give(`{"epoch":1,"entries":7}`),
		iterate(2, 1, 1), give(`{"epoch":1,"entries":1}`),
	}, nil))
	f.Add(bytes.Join([][]byte{give(`{"epoch":1,"entries":7}`), given}, nil))
	f.Add([]byte{})
	f.Add(open)
	f.Add(iterate(1, 0, 0))
	f.Add(bytes.Join([][]byte{open, iterate(1, 0, 0), wait(1), ack(1, 0, 0, 5, 1)}, nil))
	f.Add(bytes.Join([][]byte{
		open, iterate(1, 1, 3), iterate(2, 0, 1), wait(2),
		call("report", "{}"),
	}, nil))
	f.Add(bytes.Join([][]byte{call("stats", "null"), call("explain", `{"epoch":-1}`), open, open},
		nil))
	f.Add(bytes.Join([][]byte{open, iterate(1, 1<<32-1, 1<<32-1), ack(1, 1<<32-1, 1<<32-1, 0)},
		nil))
	f.Add(bytes.Join([][]byte{open, iterate(1, 0, 0), gone(1 << 31), gone(0), iterate(2, 1, 0)},
		nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var sources atomic.Int64
		d := New(Config{
			Version: "test",
			Node:    fakeNode(&sources, memory.New(memory.Options{})),
			Log:     slog.New(slog.DiscardHandler),
			LogFile: os.Stderr,
		})
		ctx, cancel := context.WithCancel(context.Background())
		d.stop = cancel
		near, far := pair(t)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, far)
		}()
		x := newConn(d, near)
		in := newInbox(near)
		defer in.close()
		for range 3 { // for frames that carry a list: batch sizes 3 and 4, then samples
			in.files = append(in.files, memfd(t, 3, 4, 1, 1, 2, 3, 5, 8, 13))
		}
		_ = x.frames(ctx, &paced{x: x, r: bytes.NewReader(data)}, in)
		cancel()
		near.Close()
		x.stopStage()
		x.tasks.Wait()
		if r := x.rank.Load(); r != nil {
			r.Close()
		}
		for _, ds := range x.datasets {
			ds.Close()
		}
		<-drained
		far.Close()
		if reports := d.cfg.Node.Reports(); len(reports) > 0 {
			t.Errorf("%d jobs are left", len(reports))
		}
		if n := sources.Load(); n != 0 {
			t.Errorf("%d datasets are left", n)
		}
		if err := d.cfg.Node.Close(); err != nil {
			t.Error(err)
		}
	})
}

// paced waits for the end of an OPEN before it returns what follows, as a process would.
type paced struct {
	x *conn
	r *bytes.Reader
}

func (p *paced) Read(b []byte) (int, error) {
	deadline := time.Now().Add(time.Second) // for a dataset that never opens
	for p.x.openSeen && p.x.holdsJob.Load() && p.x.rank.Load() == nil &&
		time.Now().Before(deadline) {
		runtime.Gosched()
	}
	return p.r.Read(b)
}
