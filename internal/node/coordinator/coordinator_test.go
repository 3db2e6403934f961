package coordinator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/peers/breaker"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/source"
)

// fakeSamples has some samples in memory, and others in its source.
type fakeSamples struct {
	held          map[int]bool
	source, reads int // the source has samples 0 to source-1
	found         streams
}

func (f *fakeSamples) Held(id int, _ exchange.Want) (cache.Copy, bool) {
	return copyOf(id), f.held[id]
}

func copyOf(id int) cache.Copy {
	data := []byte{byte(id)}
	return cache.Copy{Data: data, Digest: digest.Of(data)}
}

func (f *fakeSamples) Watch(watcher) func() { return func() {} }
func (f *fakeSamples) Has(id int) bool      { return f.held[id] }
func (f *fakeSamples) Serve(_ context.Context, id int, _ exchange.Want,
	send func(cache.Copy, bool) error,
) (int64, error) {
	switch {
	case f.held[id]:
		return 0, send(copyOf(id), true)
	case id < 0 || id >= f.source:
		return 0, source.ErrNoSample
	}
	f.reads++
	return 1000, send(copyOf(id), true)
}

// TestHolderReadsForOthersOnlyWhereSamplesAreReadOnce checks that a held sample is sent, and that
// another one is read from the source for a remote node only if the plan reads once; that read is
// charged to this node.
func TestHolderReadsForOthersOnlyWhereSamplesAreReadOnce(t *testing.T) {
	f := &fakeSamples{held: map[int]bool{3: true}, source: samples}
	var once bool
	var fails error
	var charged int64
	h := &holder{f, func(context.Context) (bool, error) {
		return once, fails
	}, func(bytes int64) { charged += bytes }}
	sample := func(id int32) (data []byte, err error) {
		err = h.Sample(t.Context(), id, exchange.Want{}, func(c exchange.Copy, _ bool) error {
			data = slices.Clone(c.Data)
			return nil
		})
		return data, err
	}
	if data, err := sample(3); err != nil || !slices.Equal(data, []byte{3}) || charged != 0 {
		t.Errorf("what is held: %v, %v; %d charged", data, err, charged)
	}
	if c, ok := h.Held(3, exchange.Want{}); !ok || !slices.Equal(c.Data, []byte{3}) ||
		c.Digest != digest.Of([]byte{3}) {
		t.Errorf("what is held is not there: %+v, %v", c, ok)
	}
	if _, err := sample(5); !errors.Is(err, exchange.ErrNotHeld) || f.reads != 0 {
		t.Errorf("where samples are not read once: %v, and %d were read", err, f.reads)
	}
	fails = context.Canceled
	if _, err := sample(5); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was cancelled: %v", err)
	}
	once, fails = true, nil
	if data, err := sample(5); err != nil || !slices.Equal(data, []byte{5}) || charged != 1000 ||
		f.reads != 1 {
		t.Errorf("where they are: %v, %v; %d charged, %d read", data, err, charged, f.reads)
	}
	for _, id := range []int32{-1, samples} {
		if _, err := sample(id); !errors.Is(err, exchange.ErrNotHeld) {
			t.Errorf("sample %d: %v", id, err)
		}
	}
}

// TestNodesGiveEachOtherSamples checks that a node fetches a sample from the node that holds it,
// with and without TLS, and that all ports speak TLS if it is on.
func TestNodesGiveEachOtherSamples(t *testing.T) {
	for _, on := range []bool{false, true} {
		c := formed(t, 2, func(o *Options) { o.TLS = on })
		for _, node := range c {
			node.Serve(&fakeSamples{held: map[int]bool{node.me: true}},
				func(context.Context) (bool, error) {
					return false, nil
				}, func(int64) {})
			node.SetOwner(func(id int) int { return id })
		}
		data := make([]byte, 1)
		second := func() time.Duration { return time.Second }
		want := exchange.Want{Size: 1}
		if a, err := c[0].Peers().Fetch(t.Context(), 1, data, want, second, 0); err != nil ||
			a.Node != 1 || a.Digest != digest.Of([]byte{1}) || data[0] != 1 {
			t.Errorf("TLS %v: fetched %v, %+v: %v", on, data, a, err)
		}
		if states := c[0].States(); len(states) != 1 || states[0].Node != 1 {
			t.Errorf("TLS %v: States returned %+v", on, states)
		}
		if on {
			for _, m := range c[0].cluster.Members() {
				speaksTLS(t, "samples", m.Exchange)
			}
			speaksTLS(t, "control", c[0].o.Address)
		}
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// TestEndOfServingIsLogged: a node that can no longer give others samples logs it.
func TestEndOfServingIsLogged(t *testing.T) {
	log := make(lines, 100)
	c := formed(t, 2, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(log, nil))
		o.Wrap = func(l net.Listener) net.Listener { l.Close(); return l }
	})[0]
	c.Serve(&fakeSamples{}, func(context.Context) (bool, error) { return false, nil },
		func(int64) {})
	<-c.ended
	for len(log) > 0 { // other lines may come first, such as that a port was in use
		if line := <-log; strings.Contains(line, "level=ERROR") &&
			strings.Contains(line, "no more samples from this node") {
			return
		}
	}
	t.Error("the log does not say so")
}

// speaksTLS checks that a port accepts TLS connections.
func speaksTLS(t *testing.T, what, address string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Errorf("%s at %s: %v", what, address, err)
		return
	}
	conn.Close()
}

// TestGivenCertificatesAreNotReplaced checks that no key is generated in place of files that cannot
// be read.
func TestGivenCertificatesAreNotReplaced(t *testing.T) {
	certificates := func(o Options) (*tls.Config, error) {
		return Certificates(o.TLS, o.Cert, o.Key, o.CA)
	}
	var o Options
	if c, err := certificates(o); c != nil || err != nil {
		t.Errorf("TLS is off: %v, %v", c, err)
	}
	o.TLS = true
	if c, err := certificates(o); err != nil || len(c.Certificates) != 1 {
		t.Errorf("no certificate is given: %v, %v", c, err)
	}
	dir := t.TempDir()
	o.Cert = dir + "/cert.pem"
	o.Key = dir + "/key.pem"
	o.CA = dir + "/ca.pem"
	if c, err := certificates(o); c != nil || err == nil || !strings.Contains(err.Error(), o.Cert) {
		t.Errorf("the certificate's file is missing: %v, %v", c, err)
	}
	if err := os.WriteFile(o.Cert, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := certificates(o); c != nil || err == nil || !strings.Contains(err.Error(), o.Key) {
		t.Errorf("the key's file is missing: %v, %v", c, err)
	}
}

// TestReturnedNodeIsReachedAtOnce checks that an attempt to connect whose answer was lost is given
// up once the node is known to be back.
func TestReturnedNodeIsReachedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan time.Time, 8)
		client := exchange.NewClient(exchange.Identity{
			Job:    "j",
			Nodes:  2,
			Secret: []byte("0123456789abcdef0123456789abcdef"),
		}, 1, func(ctx context.Context) (net.Conn, error) {
			dials <- time.Now()
			<-ctx.Done()
			return nil, ctx.Err()
		}, exchange.ClientOptions{})
		defer client.Close()
		c := newCoordinator(Options{Nodes: 2})
		c.clients, c.peers = []*exchange.Client{nil, client},
			breaker.NewSet(breaker.Options{Peers: []breaker.Fetcher{nil, client}})
		// it connects on first use
		go func() { _, _ = client.Fetch(t.Context(), 0, make([]byte, 1), exchange.Want{Size: 1}) }()
		<-dials
		<-time.After(time.Second)
		c.note(1, false)
		<-c.news[0].back
		known := time.Now()
		c.note(1, true)
		if again := <-dials; !again.Equal(known) {
			t.Errorf("the next attempt was made %v after the node was back", again.Sub(known))
		}
		<-c.news[0].back
	})
}

// TestDisagreeingNodesAreToldTheDifference checks that the error of each node names what differs,
// with its own value and the other's, and that nothing is left running.
func TestDisagreeingNodesAreToldTheDifference(t *testing.T) {
	address := testkit.Address(t)
	var done sync.WaitGroup
	for n := range 2 {
		o := options(t, 2, n, address)
		o.Facts[0].Value = fmt.Sprint(100 + n)
		done.Go(func() {
			c, _, err := Form(t.Context(), o)
			var e *failure.Error
			if c != nil || !errors.As(err, &e) || e.Kind != failure.Mismatch ||
				e.Details["key"] != "seed" || e.Details["mine"] != fmt.Sprint(100+n) ||
				e.Details["theirs"] != fmt.Sprint(101-n) {
				t.Errorf("node %d: %v", n, err)
			}
		})
	}
	done.Wait()
}

// TestOtherContentsAreRefused checks that nodes do not form a cluster if their datasets have the
// same names, but other bytes, or contents that cannot be compared.
func TestOtherContentsAreRefused(t *testing.T) {
	for want, other := range map[string]*source.Index{
		"sample 0 (a/0000.x) has other bytes on node 1": index(t, samples, 1),
		"contents that cannot be decoded":               index(t, samples+1, 0),
	} {
		synctest.Test(t, func(t *testing.T) {
			network := networktest.New()
			var done sync.WaitGroup
			for n := range 2 {
				o := options(t, 2, n, "")
				on(network)(&o)
				if n == 1 {
					o.Index = other
				}
				done.Go(func() {
					if _, _, err := Form(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("node %d: %v", n, err)
					}
				})
			}
			done.Wait()
			<-time.After(time.Minute) // until a probe in progress has ended
		})
	}
}

// TestNode0WithoutItsInterfaceFailsAtOnce: without an address for other nodes, it does not wait.
func TestNode0WithoutItsInterfaceFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, 2, 0, "")
		on(networktest.New())(&o)
		o.Interface = "192.0.2.1" // reserved for documentation; a name would be looked up
		begun := time.Now()
		_, _, err := Form(t.Context(), o)
		if took := time.Since(begun); err == nil || took > 0 {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestFailedFormClosesItsPort checks that a node that finds no other node closes its port for
// samples.
func TestFailedFormClosesItsPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()                                  // node 0 does not answer
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would close leaked sockets
	before := testkit.Descriptors(t, "socket:")
	o := options(t, 2, 1, l.Addr().String())
	o.Timeout = 100 * time.Millisecond
	if _, _, err := Form(t.Context(), o); err == nil {
		t.Fatal("Form found another node")
	}
	testkit.Until(t, "all sockets are closed", func() bool {
		return testkit.Descriptors(t, "socket:") == before
	})
}

// TestWatchReportsNodesThatLeaveAndReturn checks that Watch reports nodes that were gone before it
// and changes after it, but no node that was always alive.
func TestWatchReportsNodesThatLeaveAndReturn(t *testing.T) {
	c := newCoordinator(Options{Nodes: 4})
	c.peers, c.clients = breaker.NewSet(breaker.Options{Peers: make([]breaker.Fetcher, 4)}),
		[]*exchange.Client{
			0: nil,
			1: exchange.NewClient(exchange.Identity{}, 1, nil, exchange.ClientOptions{}),
			3: nil,
		}
	defer c.clients[1].Close()
	var told []string
	c.note(1, false)
	c.note(2, false)
	c.note(1, true)
	c.Watch(func(node int, there bool) { told = append(told, fmt.Sprint(node, there)) })
	c.note(3, false)
	c.note(1, false)
	if want := []string{"2 false", "3 false", "1 false"}; !slices.Equal(told, want) {
		t.Errorf("notified of %q, want %q", told, want)
	}
}

// TestMeetingFollowsLauncherAndLoader checks where node 0 is found, by launcher, configuration and
// loader.
func TestMeetingFollowsLauncherAndLoader(t *testing.T) {
	for _, c := range []struct {
		address      string
		loader, port int // the configuration's port
		host         string
		want         int // -1: an error
	}{
		{"n0:29510", 0, 0, "n0", 29510},
		{":29510", 1, 0, "", 29514},
		{"[fe::1]:29510", 63, 0, "fe::1", 29762},
		{"n0:29510", 0, 7000, "n0", 7000},
		{"n0:29510", 2, 7000, "n0", 7008},
		{"n0:65532", 0, 0, "n0", 65532},
		{"n0:65533", 0, 0, "n0", 65533 - 32768}, // its last port would exceed 65535
		{"n0:29510", 1, 65532, "n0", 65536 - 32768},
		{"n0:29510", 256, 0, "", -1},
		{"n0:29510", -1, 0, "", -1},
		{"n0:70000", 0, 0, "", -1},
		{"n0", 0, 0, "", -1},
	} {
		o := Options{Address: c.address, Loader: c.loader, Port: c.port}
		host, port, err := o.meeting()
		var said *failure.Error
		if c.want < 0 {
			if !errors.As(err, &said) || said.Kind != failure.Config {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil || host != c.host || port != c.want {
			t.Errorf("%+v: %s, %d, %v", c, host, port, err)
		}
	}
}

// TestAnotherProtocolIsAMismatch checks that a process's error names what differs, and both
// versions.
func TestAnotherProtocolIsAMismatch(t *testing.T) {
	err := clusterError(3, &cluster.VersionError{
		Node: 3, Address: "node 0 (a:1)", Mine: 2, Theirs: 1,
	})
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != failure.Mismatch || e.Details["key"] != "control protocol" ||
		e.Details["mine"] != uint32(2) || e.Details["theirs"] != uint32(1) ||
		!strings.Contains(e.Message, "node 0 (a:1) speaks version 1") {
		t.Errorf("%+v", e)
	}
}

// TestErrorsOfTheClusterKeepTheirCause checks which errors processes get while nodes find each
// other: limits of the system are not the user's input.
func TestErrorsOfTheClusterKeepTheirCause(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind failure.Kind
		same bool // the error is passed on as it is
	}{
		{context.Canceled, "", true},
		{fmt.Errorf("listen: %w", syscall.EMFILE), "", false},
		{fmt.Errorf("listen: %w", syscall.ENFILE), "", false},
		{errors.New("a port is in use"), failure.Config, false},
		{&cluster.VersionError{Mine: 2, Theirs: 3}, failure.Mismatch, false},
	} {
		got := clusterError(1, c.err)
		var told *failure.Error
		if errors.As(got, &told) != (c.kind != "") || told != nil && told.Kind != c.kind ||
			(got == c.err) != c.same || told == nil && !errors.Is(got, c.err) {
			t.Errorf("%v: %#v", c.err, got)
		}
	}
}
