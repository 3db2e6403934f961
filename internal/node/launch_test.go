package node

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

const launchHost = "10.0.0.1"

// launchOf returns what a process of a launch of two nodes sends.
func launchOf(name string, node int) *request.Launch {
	return &request.Launch{
		Name: name, Nodes: 2, Node: node, Address: launchHost + ":29510",
		Secret: "a secret of the nodes of a test",
	}
}

// host returns a node of a network, as far as launches need it.
func host(network *networktest.Host) *Node {
	n := &Node{log: slog.New(slog.DiscardHandler)}
	n.options.Network = network
	return n
}

// exchangeOf returns a node's exchange of indexes.
func exchangeOf(t *testing.T, n *Node, r *request.Launch) source.Exchange {
	t.Helper()
	x, err := n.newExchange(r, &config.Config{StartTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// smallIndex returns an index.
func smallIndex(t *testing.T) *source.Index {
	t.Helper()
	b := source.NewRecordBuilder([]string{"jpg"}, nil, nil)
	b.Object(source.Object{Name: "a.tar", Size: 10})
	b.Add(source.Record{Ranges: []source.Range{{Length: 10}}})
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestNode0GivesIndexes from when a dataset is opened until start_timeout after the last one, and
// those of one launch to its nodes only.
func TestNode0GivesIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := networktest.New()
		at := network.Host(launchHost)
		zero, one := host(at), host(network.Host("10.0.0.2"))
		listening := func() bool { _, listeners, _ := network.Open(at); return listeners > 0 }
		receive := func(launch string, name byte) (int, error) {
			x := exchangeOf(t, one, launchOf(launch, 1))
			r, size, err := x.Receive(t.Context(), [16]byte{name}, func(int, int) {})
			if err != nil {
				return 0, err
			}
			got, err := io.ReadAll(r)
			if err != nil || int64(len(got)) != size {
				t.Errorf("%d bytes of %d, %v", len(got), size, err)
			}
			return len(got), r.Close()
		}
		first := exchangeOf(t, zero, launchOf("one", 0))
		if !first.Makes() || exchangeOf(t, one, launchOf("one", 1)).Makes() {
			t.Error("another node than node 0 makes indexes")
		}
		if listening() {
			t.Error("it listens although no dataset is opened")
		}
		index := smallIndex(t)
		a, err := first.Offer([16]byte{1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := exchangeOf(t, zero, launchOf("one", 0)).Offer([16]byte{2}, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Step()
		a.Ready(index)
		time.Sleep(time.Hour) // the other one is being made
		if n, err := receive("one", 1); err != nil || n != len(index.Encoded()) {
			t.Errorf("%d bytes, %v", n, err)
		}
		b.Failed(errors.New("no such bucket"))
		if _, err := receive("one", 2); err == nil || !strings.Contains(err.Error(), "such bucket") {
			t.Error(err)
		}
		time.Sleep(4 * time.Minute)
		if !listening() {
			t.Error("it does not listen within start_timeout")
		}
		time.Sleep(2 * time.Minute)
		if listening() {
			t.Error("it still listens")
		}
		// A later launch, by the same port, takes the place of the one before.
		again, err := first.Offer([16]byte{1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		other, err := exchangeOf(t, zero, launchOf("two", 0)).Offer([16]byte{1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		again.Ready(index) // which is of no use any more
		if _, err := receive("one", 1); err == nil || !strings.Contains(err.Error(), "another launch") {
			t.Error(err)
		}
		other.Ready(index)
		if n, err := receive("two", 1); err != nil || n != len(index.Encoded()) {
			t.Errorf("%d bytes, %v", n, err)
		}
		zero.launches.close()
		if listening() {
			t.Error("it listens although the node is closed")
		}
		if _, err := first.Offer([16]byte{1}, 1); !errors.Is(err, errEnding) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // until timers of connections have ended
	})
}

// TestNode0CannotListen is told once for a launch, whose ranks do not all wait for the port.
func TestNode0CannotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := networktest.New()
		at := network.Host(launchHost)
		zero := host(at)
		taken, err := at.Listen(launchHost + ":29513")
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"one", "one", "two"} {
			begin := time.Now()
			o, err := exchangeOf(t, zero, launchOf(name, 0)).Offer([16]byte{1}, 1)
			if o != nil || (err == nil) != (i == 1) || (time.Since(begin) == 0) != (i == 1) {
				t.Errorf("rank %d: %v, %v after %v", i, o, err, time.Since(begin))
			}
			if err != nil && !strings.Contains(err.Error(), "the port is in use") {
				t.Error(err)
			}
		}
		if err := taken.Close(); err != nil {
			t.Error(err)
		}
		zero.launches.close()
	})
}

// TestLaunchesWithoutAnExchange have one node, or do not say where the others are.
func TestLaunchesWithoutAnExchange(t *testing.T) {
	n := host(nil)
	alone := launchOf("one", 0)
	alone.Nodes = 1
	for _, r := range []*request.Launch{nil, alone} {
		if x := exchangeOf(t, n, r); x != nil {
			t.Errorf("%+v has one", r)
		}
	}
	wrong := launchOf("one", 0)
	wrong.Address = "host"
	if x, err := n.newExchange(wrong, &config.Config{}); x != nil || err == nil {
		t.Errorf("%v, %v", x, err)
	}
	if x, err := n.newExchange(launchOf("one", 0), &config.Config{
		TLS: true, TLSCert: "/nonexistent",
	}); x != nil || err == nil {
		t.Errorf("%v, %v", x, err)
	}
}
