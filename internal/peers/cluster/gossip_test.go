package cluster

import (
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// TestFewNodesLookForALostOneAtATime: in each round some do, for each lost node and about as many;
// and each node comes to look for each.
func TestFewNodesLookForALostOneAtATime(t *testing.T) {
	for _, nodes := range []int{2, 3, 8, 9, 64, 250} {
		for _, lost := range []int{1, 2, 3, nodes / 2, nodes - 1} {
			if lost < 1 || lost >= nodes {
				continue
			}
			found := map[[2]int]bool{}
			for round := range nodes {
				look := make([]int, lost)
				for node := range nodes {
					if n, looks := looksFor(nodes, node, lost, round); looks {
						look[n]++
						found[[2]int{node, n}] = true
					}
				}
				if least := min(nodes/lost, seekers); slices.Min(look) < least ||
					slices.Max(look) > 2*seekers {
					t.Fatalf("%d nodes, %d lost, round %d: %d to %d nodes look for one", nodes, lost,
						round, slices.Min(look), slices.Max(look))
				}
			}
			if len(found) < nodes*lost && lost < 4 {
				t.Errorf("%d nodes, %d lost: only %d pairs found", nodes, lost, len(found))
			}
		}
	}
}

// TestGossipIsSealed: the datagrams and streams of failure detection can only be opened with the
// job's key.
func TestGossipIsSealed(t *testing.T) {
	o := Options{
		Node:    0,
		Nodes:   3,
		Job:     "job",
		Secret:  jobSecret,
		Network: system{},
		Log:     slog.New(slog.DiscardHandler),
	}
	g, err := newGossip(t.Context(), &o, "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	if err := g.start(gossipName(0, "a"), g.address, func(int, string, bool) {}); err != nil {
		t.Fatal(err)
	}
	there := newTransport(t, jobSecret)
	at := func(port int) *memberlist.Node {
		return &memberlist.Node{
			Name: gossipName(1, "b"),
			Addr: net.IPv4(127, 0, 0, 1),
			Port: uint16(port),
		}
	}

	heard, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	_ = heard.SetReadDeadline(time.Now().Add(time.Minute))
	if err := g.list.SendBestEffort(at(heard.LocalAddr().(*net.UDPAddr).Port),
		[]byte("words")); err != nil {
		t.Fatal(err)
	}
	var datagram, scratch [datagramLimit]byte
	if n, err := heard.Read(datagram[:]); err != nil || !there.sealed(datagram[:n], scratch[:0]) {
		t.Errorf("a datagram of %d bytes is not sealed under the job's key: % x, %v", n,
			datagram[:n], err)
	}

	sent := make(chan error, 1)
	go func() { sent <- g.list.SendReliable(at(there.port()), []byte("words")) }()
	stream := <-there.StreamCh()
	defer stream.Close()
	said, err := io.ReadAll(stream)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	// Memberlist's framing: a byte for the kind and four for the length, which the seal covers; the
	// rest is sealed like a datagram.
	const header, nonce = 5, 12
	if err != nil || len(said) < header+1+nonce {
		t.Fatalf("a stream of %d bytes, %v", len(said), err)
	}
	body := said[header:]
	if _, err := there.aead.Open(nil, body[1:1+nonce], body[1+nonce:], said[:header]); err != nil {
		t.Errorf("a stream is not sealed under the job's key: % x", said)
	}
}
