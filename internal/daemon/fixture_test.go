package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("HDMLP_TEST_PROCESS"); mode != "" {
		os.Exit(process(mode))
	}
	os.Exit(testkit.Run(m))
}

// fakeSource has samples of 100 bytes, each with the sample's number as its value.
type fakeSource struct {
	index  *source.Index
	broken error         // returned by every read, if not nil
	open   *atomic.Int64 // number of open sources
}

func (s fakeSource) Index() *source.Index { return s.index }

func (s fakeSource) Close() error {
	s.open.Add(-1)
	return nil
}

func (s fakeSource) Read(_ context.Context, id int, dst []byte) (source.Stamp, error) {
	if s.broken != nil {
		return 0, s.broken
	}
	for i := range dst {
		dst[i] = byte(id)
	}
	return 0, nil
}

func (s fakeSource) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }

// fakeNode returns a node with the dataset kind "fake". It has 20 samples; at the path /long 10,000
// with very long names, and at /wide one more than a call lists. Opening /slow blocks until the
// opener gives up, and no sample of /broken can be read. sources counts open ones.
func fakeNode(sources *atomic.Int64, ram *memory.Class) *node.Node {
	open := func(ctx context.Context, path string, _ source.OpenOptions) (source.Indexed, error) {
		n := 20
		name := "%04d.x"
		broken := error(nil)
		switch path {
		case "/long":
			n, name = 10_000, strings.Repeat("n", 2000)+"%04d.x"
		case "/wide":
			n = maxSamples + 1
		case "/broken":
			broken = errors.New("the disk is on fire")
		case "/slow":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := source.NewBuilder([]string{"a"}, []string{".x"})
		b.Directory(source.Directory{Class: -1})
		b.Directory(source.Directory{Path: "a", Class: 0})
		for i := range n {
			b.Sample(fmt.Sprintf(name, i), 100, 0, 0)
		}
		index, err := b.Build()
		sources.Add(1)
		return fakeSource{index, broken, sources}, err
	}
	return node.New(node.Options{
		Shared: node.Shared{Budget: new(budget.Budget)},
		Kinds: catalog.Kinds{
			Sources: []source.Kind{{Name: "fake", Open: open}},
			Classes: []store.Kind{memory.Kind(ram)},
		},
	}, slog.New(slog.DiscardHandler))
}

// running is a daemon under test.
type running struct {
	t       *testing.T
	d       *Daemon
	address *net.UnixAddr
	ended   chan error
	stop    context.CancelFunc
	sources atomic.Int64 // number of open sources
	ram     *memory.Class
}

var addresses atomic.Int64

// start starts a daemon that exits after its last connection.
func start(t *testing.T, change ...func(*Daemon)) *running {
	t.Helper()
	address := &net.UnixAddr{
		Name: fmt.Sprintf("@hdmlp-test-%d-%d", os.Getpid(), addresses.Add(1)),
		Net:  "unix",
	}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{
		t: t, address: address, ended: make(chan error, 1), ram: memory.New(memory.Options{}),
	}
	d := New(Config{
		Version: "test",
		Node:    fakeNode(&r.sources, r.ram),
		Log:     slog.New(slog.DiscardHandler),
		LogFile: null,
	})
	for _, c := range change {
		c(d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.d, r.stop = d, cancel
	go func() { r.ended <- d.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		null.Close()
	})
	return r
}

// end waits until the daemon has exited by itself, and checks that no dataset is open.
func (r *running) end() {
	r.t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("the daemon ended with %v", err)
		}
	case <-timeout.C:
		r.t.Error("the daemon did not end")
		r.stop()
		<-r.ended
	}
	if n := r.sources.Load(); n != 0 {
		r.t.Errorf("%d datasets are still open", n)
	}
}
