package exchange

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
)

// proof returns the proof of the side with the label for these HELLOs, without TLS.
func proof(secret []byte, label string, client, server []byte) []byte {
	return auth.Transcript{Secret: secret, Said: [][]byte{client, server}}.Proof(label)
}

// TestServerWithoutTheSecretIsRefused: the client accepts no answer that can be given without the
// secret as the server's proof, nor a proof of another connection.
func TestServerWithoutTheSecretIsRefused(t *testing.T) {
	hello, verdict := overheard(t)
	for name, proved := range map[string]func(clients, clientsProof []byte) []byte{
		"only an acceptance": func(_, _ []byte) []byte {
			return make([]byte, auth.ProofSize)
		},
		"the client's own proof": func(_, proof []byte) []byte { return proof },
		"a proof under another secret": func(clients, _ []byte) []byte {
			return proof([]byte("another secret, as long"), labelServer, clients, hello)
		},
		"a proof of another connection": func(_, _ []byte) []byte { return verdict[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			mine, theirs := net.Pipe()
			defer mine.Close()
			defer theirs.Close()
			go func() {
				_, clients, err := readHello(theirs)
				if err != nil {
					return
				}
				_, _ = theirs.Write(hello)
				var clientsProof [auth.ProofSize]byte
				if _, err := io.ReadFull(theirs, clientsProof[:]); err != nil {
					return
				}
				_, _ = theirs.Write(append([]byte{accepted}, proved(clients, clientsProof[:])...))
			}()
			_, err := node(1).greet(t.Context(), mine, 0, 8, time.Minute)
			var differs *HandshakeError
			if !errors.Is(err, ErrRefused) || !errors.As(err, &differs) ||
				differs.What != "secret" {
				t.Errorf("the client reports: %v", err)
			}
		})
	}
}

// overheard returns what the server sends in a successful handshake.
func overheard(t *testing.T) (hello, verdict []byte) {
	t.Helper()
	mine, theirs := net.Pipe()
	defer mine.Close()
	defer theirs.Close() // after the handshake
	var said bytes.Buffer
	welcomed := make(chan error, 1)
	go func() {
		_, _, err := node(0).welcome(t.Context(), tee{theirs, &said}, 8, time.Minute,
			func(int) error {
				return nil
			})
		welcomed <- err
	}()
	_, err := node(1).greet(t.Context(), mine, 0, 8, time.Minute)
	if err := errors.Join(err, <-welcomed); err != nil {
		t.Fatal(err)
	}
	all := said.Bytes()
	return all[:len(all)-verdictSize], all[len(all)-verdictSize:]
}

// TestManInTheMiddleIsDetected: where certificates prove nothing, both sides detect a relay that
// has a TLS session with each of them.
func TestManInTheMiddleIsDetected(t *testing.T) {
	pair, _ := authtest.Certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	ln, dial := overTCP(t)
	middle, toMiddle := overTCP(t)
	id, mine := node(0), node(1)
	id.TLS, mine.TLS = config, config
	refused := make(chan error, 100)
	serve(t, ln, id, newHolder(1),
		ServerOptions{Refused: func(_ net.Addr, err error) { refused <- err }})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := middle.Accept()
			if err != nil {
				return
			}
			server, err := dial(context.Background())
			if err != nil {
				client.Close()
				return
			}
			passOn(&all, tls.Server(client, config), tls.Client(server, config))
		}
	})
	c := NewClient(mine, 0, toMiddle, ClientOptions{})
	clientSays := c.Connect(t.Context())
	c.Close()
	middle.Close()
	all.Wait()
	if clientSays == nil {
		t.Fatal("the client accepted the relay as the server")
	}
	for side, err := range map[string]error{"client": clientSays, "server": receive(t, refused)} {
		var differs *HandshakeError
		if !errors.As(err, &differs) || differs.What != "secret" {
			t.Errorf("the %s reports: %v", side, err)
		}
	}
}

// passOn relays two connections to each other, until one ends.
func passOn(all *sync.WaitGroup, a, b net.Conn) {
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		all.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = auth.Sever(way[0])
			_ = auth.Sever(way[1])
		})
	}
}

// TestOnlyAProvedNodeIsAdmitted: admit is called only for a connection that has proved that it has
// the secret, as a node of the job.
func TestOnlyAProvedNodeIsAdmitted(t *testing.T) {
	impostor := node(1)
	impostor.Secret = []byte("another secret, as long")
	beyond := node(4)
	beyond.Nodes = 4
	other := node(1)
	other.Job = "other"
	for name, id := range map[string]Identity{
		"another secret":        impostor,
		"a node beyond the job": beyond,
		"another job":           other,
		"a valid proof":         node(1),
	} {
		mine, theirs := net.Pipe()
		admitted := 0
		welcomed := make(chan error, 1)
		go func() {
			_, _, err := node(0).welcome(t.Context(), theirs, 8, time.Minute, func(int) error {
				admitted++
				return nil
			})
			welcomed <- err
			if err != nil {
				theirs.Close()
			}
		}()
		_, err := id.greet(t.Context(), mine, 0, 8, time.Minute)
		if err != nil {
			mine.Close()
		}
		serverSays := <-welcomed
		if valid := name == "a valid proof"; valid != (err == nil) ||
			valid != (serverSays == nil) ||
			valid != (admitted == 1) {
			t.Errorf("%s: admitted %d times; the client reports %v, the server %v", name, admitted,
				err, serverSays)
		}
		mine.Close()
		theirs.Close()
	}
}
