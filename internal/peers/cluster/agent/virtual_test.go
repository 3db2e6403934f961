package agent_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/agent"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
)

// virtual is three nodes of a job, in memory and in virtual time: each is in the cluster and has an
// exchange server and clients.
type virtual struct {
	t        *testing.T
	network  *networktest.Network
	secret   auth.Secret
	tls      *tls.Config
	clusters [3]*agent.Agent
	news     [3]chan string // the events that each node is notified of
	servers  [3]*exchange.Server
	clients  [3][3]*exchange.Client
	serving  sync.WaitGroup
	began    time.Time
}

func ip(node int) string { return fmt.Sprintf("10.0.0.%d", node+1) }

// start forms the cluster and connects the exchanges. It must be called in a synctest bubble.
func start(t *testing.T) *virtual {
	t.Helper()
	drawn, err := auth.DrawTLS()
	if err != nil {
		t.Fatal(err)
	}
	v := &virtual{
		t:       t,
		network: networktest.New(),
		secret:  auth.Nonce(),
		tls:     drawn,
		began:   time.Now(),
	}
	var all sync.WaitGroup
	for n := range v.clusters {
		v.news[n] = make(chan string, 100)
		all.Go(func() { v.startNode(n) })
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return v
}

func (v *virtual) startNode(n int) {
	host := v.network.Host(ip(n))
	listener, err := cluster.Listen(v.t.Context(), host, n, "samples", ip(n), 7000)
	if err != nil {
		v.t.Error(err)
		return
	}
	v.servers[n] = exchange.NewServer(v.identity(n), held(n), exchange.ServerOptions{})
	v.serving.Go(func() {
		if err := v.servers[n].Serve(context.Background(), listener); err != nil {
			v.t.Error(err)
		}
	})
	o := cluster.Options{
		Job: "job", Node: n, Nodes: 3, WorldSize: 3, Ranks: []int{n}, Secret: v.secret, TLS: v.tls,
		Network:  host,
		Exchange: ip(n) + ":7000", Payload: []byte{byte(n)},
		Answer: func(_ context.Context, what string) []byte {
			return fmt.Appendf(nil, "%s: %d", what, n)
		},
	}
	if n == 0 {
		o.Listen, o.Broadcast = ip(0)+":6000", []byte("seed")
	} else {
		o.Join = ip(0) + ":6000"
	}
	if v.clusters[n], err = agent.Form(v.t.Context(), o); err != nil {
		v.t.Error(err)
		return
	}
	v.clusters[n].Notify(func(node int, alive bool) {
		v.news[n] <- fmt.Sprintf("%d %v", node, alive)
	})
	for other := range v.clusters {
		if other == n {
			continue
		}
		dial := func(ctx context.Context) (net.Conn, error) {
			return v.clusters[n].Dial(ctx, other)
		}
		v.clients[n][other] = exchange.NewClient(v.identity(n), other, dial,
			exchange.ClientOptions{})
	}
}

func (v *virtual) identity(n int) exchange.Identity {
	return exchange.Identity{Job: "job", Node: n, Nodes: 3, Secret: v.secret, TLS: v.tls}
}

func (v *virtual) stop() {
	for n := range v.clusters {
		for _, c := range v.clients[n] {
			if c != nil {
				_ = c.Close()
			}
		}
		_ = v.servers[n].Close()
	}
	v.serving.Wait()
	var all sync.WaitGroup
	for _, c := range v.clusters {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
}

// Waits until a node is notified of an event, and returns how long that took.
func (v *virtual) hears(n int, what string) time.Duration {
	v.t.Helper()
	began := time.Now()
	select {
	case got := <-v.news[n]:
		if got != what {
			v.t.Errorf("node %d is notified of %q, not %q", n, got, what)
		}
	case <-time.After(time.Hour):
		v.t.Fatalf("node %d is never notified of %q", n, what)
	}
	return time.Since(began)
}

// held is a node's samples: those whose ID is the node's number modulo three.
type held int

func (h held) Held(id int32, _ exchange.Want) (c exchange.Copy, held bool) {
	if int(id)%3 != int(h) {
		return c, false
	}
	data := sample(id)
	return exchange.Copy{Data: data, Digest: digest.Of(data)}, true
}

func (h held) Sample(context.Context, int32, exchange.Want, func(exchange.Copy, bool) error) error {
	return exchange.ErrNotHeld
}

func sample(id int32) []byte { return bytes.Repeat([]byte{byte(id), 1}, 1000*int(id)) }

// fetch has a node fetch a sample of another.
func (v *virtual) fetch(n int, id int32) error {
	want := sample(id)
	got := make([]byte, len(want))
	within, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w := exchange.Want{Size: len(got)}
	if _, err := v.clients[n][id%3].Fetch(within, id, got, w); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("another sample")
	}
	return nil
}

// TestClusterRunsInMemory: three nodes form a cluster, gather, ask, and exchange samples over TLS,
// without a socket and in virtual time.
func TestClusterRunsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t)
		defer v.stop()
		var all sync.WaitGroup
		for n, c := range v.clusters {
			all.Go(func() {
				if string(c.Broadcast()) != "seed" || len(c.Members()) != 3 ||
					c.Members()[2].Exchange != ip(2)+":7000" {
					t.Errorf("node %d knows %+v", n, c.Members())
				}
				parts, err := c.Gather(t.Context(), "what", []byte{byte(n)})
				if err != nil || !bytes.Equal(bytes.Join(parts, nil), []byte{0, 1, 2}) {
					t.Errorf("node %d gathered %v, %v", n, parts, err)
				}
				for other, answer := range c.Ask(t.Context(), "who") {
					if want := fmt.Sprintf("who: %d", other); other != n && string(answer) != want {
						t.Errorf("node %d was answered %q, not %q", n, answer, want)
					}
				}
				for id := range int32(30) {
					if int(id)%3 == n {
						continue
					}
					if err := v.fetch(n, id); err != nil {
						t.Errorf("node %d: %v", n, err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(v.began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestDisconnectedNodeIsMissedAndRejoins: a node is disconnected and reconnected twice, in the
// course of half an hour of virtual time.
func TestDisconnectedNodeIsMissedAndRejoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t)
		defer v.stop()
		for round := range 2 {
			time.Sleep(10 * time.Minute)
			for n := range v.news {
				if len(v.news[n]) > 0 {
					t.Fatalf("round %d: all nodes are connected, but node %d is notified of %q",
						round, n, <-v.news[n])
				}
			}
			v.network.Cut(ip(2))
			for n := range 2 {
				if took := v.hears(n, "2 false"); took > 30*time.Second {
					t.Errorf("node %d misses node 2 after %v", n, took)
				}
			}
			if err := v.fetch(0, 2); !errors.Is(err, exchange.ErrUnavailable) {
				t.Errorf("a sample of a disconnected node: %v", err)
			}
			if err := v.fetch(0, 1); err != nil {
				t.Errorf("a sample of a connected node: %v", err)
			}
			v.network.Join(ip(2))
			for n := range 2 {
				v.hears(n, "2 true")
			}
			v.clients[0][2].Reconnect()
			if err := v.fetch(0, 2); err != nil {
				t.Errorf("a sample of a rejoined node: %v", err)
			}
			time.Sleep(time.Minute)
			for len(v.news[2]) > 0 { // it missed the others
				<-v.news[2]
			}
			for n, c := range v.clusters {
				for other := range v.clusters {
					if !c.Alive(other) {
						t.Errorf("round %d: node %d considers node %d gone", round, n, other)
					}
				}
			}
		}
	})
}
