package gossip

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// TestGossipIsSealed: the datagrams and streams of failure detection can only be opened with the
// job's key.
func TestGossipIsSealed(t *testing.T) {
	g, err := New(t.Context(), Options{
		Nodes:   3,
		Job:     "job",
		Secret:  jobSecret,
		Address: "127.0.0.1:0",
		Network: cluster.OrSystem(nil),
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if err := g.Start(Name(0, "a"), g.address, func(int, string, bool) {}); err != nil {
		t.Fatal(err)
	}
	there := newTransport(t, jobSecret)
	at := func(port int) *memberlist.Node {
		return &memberlist.Node{
			Name: Name(1, "b"),
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
