package gossip

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

const (
	proofTime  = 5 * time.Second // for the proof on a stream
	retryPause = 50 * time.Millisecond
	// memberlist's datagrams are at most 1400 bytes, plus what sealing adds
	datagramLimit = 2048
	datagramRoom  = 2 << 20 // requested receive buffer of the kernel
	// Limits of a stream, one way: it carries the state of all nodes. A node's state is its name,
	// address and versions, 150 bytes.
	streamFixed   = 64 << 10
	streamPerNode = 512
)

// Labels separate the values that are derived from one secret.
const (
	labelGossip   = "hdmlp cluster 1: gossip"
	labelStream   = "hdmlp cluster 1: gossip streams"
	labelDialler  = "hdmlp cluster 1: proof of who dials a gossip stream"
	labelListener = "hdmlp cluster 1: proof of who listens for gossip streams"
)

// proofMagic begins a stream of failure detection and contains the version of its proof.
var proofMagic = []byte("HDMG\x01\x00\x00\x00")

const proofGreeting = 8 + auth.NonceSize // the first message of either side

// transport is memberlist's network. Memberlist itself reads up to 20 MiB from any client before it
// authenticates it; here a stream begins with a mutual proof of the secret, and a datagram that was
// not sealed under the job's key is dropped where it was read.
//
// The proof, of 40, 72 and 32 bytes:
//
//	listener  magic, nonce L
//	dialler   magic, nonce D, HMAC(key, "... dialler", L, D)
//	listener  HMAC(key, "... listener", L, D)
//
// What follows is memberlist's, which seals it, and is bounded: an attacker on the network path can
// inject into an authenticated stream, but at most that many bytes.
type transport struct {
	key     auth.Secret // of proofs
	aead    cipher.AEAD
	nodes   int
	limit   int64 // bytes that a stream may carry, each way
	network cluster.Network
	tcp     *auth.Listener
	udp     net.PacketConn
	packets chan *memberlist.Packet
	streams chan net.Conn
	over    context.Context // ends with Shutdown
	end     context.CancelFunc
	tasks   sync.WaitGroup
}

// listenTransport binds TCP and UDP of a host to a port, any port if it is 0.
func listenTransport(network cluster.Network, host string, port int, secret auth.Secret, job string,
	nodes int,
) (*transport, error) {
	tcp, err := network.Listen(net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	udp, err := network.ListenPacket(net.JoinHostPort(host, strconv.Itoa(portOf(tcp))))
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	if socket, ok := udp.(*net.UDPConn); ok {
		_ = socket.SetReadBuffer(datagramRoom) // the system may grant less
	}
	block, err := aes.NewCipher(secret.Derive(labelGossip, []byte(job)))
	if err != nil {
		panic(err) // keys are 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	t := &transport{
		key: secret.Derive(labelStream, []byte(job)), aead: aead, network: network,
		nodes: nodes, limit: streamFixed + streamPerNode*int64(nodes),
		tcp:     auth.Listen(tcp, session.PendingLimits(nodes, proofGreeting+auth.ProofSize)),
		udp:     udp,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
	}
	t.over, t.end = context.WithCancel(context.Background())
	t.tasks.Go(t.accept)
	t.tasks.Go(t.receive)
	return t, nil
}

// port returns the port that was bound.
func (t *transport) port() int { return portOf(t.tcp) }

func portOf(l net.Listener) int {
	_, port, _ := cluster.SplitAddress(l.Addr().String()) // a listener's address is valid
	return port
}

func (t *transport) accept() {
	for {
		c, err := t.tcp.Accept()
		if err == nil {
			t.tasks.Go(func() { t.admit(c.(*auth.Conn)) })
			continue
		}
		select { // e.g. out of file descriptors, which may be temporary
		case <-t.over.Done():
			return
		case <-time.After(retryPause):
		}
	}
}

// admit passes a stream to memberlist, after the dialler's proof.
func (t *transport) admit(c *auth.Conn) {
	stop := context.AfterFunc(t.over, func() { _ = c.Close() })
	defer stop()
	if err := t.challenge(c); err != nil {
		_ = c.Close()
		return
	}
	select {
	case t.streams <- &bounded{c.NetConn(), t.limit}:
	case <-t.over.Done():
		_ = c.Close()
	}
}

// challenge is the listener's side of the proof; admission limits its duration.
func (t *transport) challenge(c *auth.Conn) error {
	mine := auth.Nonce()
	if _, err := c.Write(append(proofMagic[:len(proofMagic):len(proofMagic)],
		mine...)); err != nil {
		return err
	}
	var words [proofGreeting + auth.ProofSize]byte
	if _, err := io.ReadFull(c, words[:]); err != nil {
		return err
	}
	theirs, err := nonceOf(words[:proofGreeting])
	if err != nil {
		return err
	}
	both := t.transcript(mine, theirs)
	if !both.Proves(labelDialler, words[proofGreeting:]) {
		return session.ErrSecret
	}
	if err := c.Admit(); err != nil { // before the dialler learns of it and sends more
		return err
	}
	if err := c.SetDeadline(time.Now().Add(proofTime)); err != nil { // memberlist sets its own
		return err
	}
	_, err = c.Write(both.Proof(labelListener))
	return err
}

// prove is the dialler's side of the proof.
func (t *transport) prove(c net.Conn) error {
	var words [proofGreeting]byte
	if _, err := io.ReadFull(c, words[:]); err != nil {
		return err
	}
	theirs, err := nonceOf(words[:])
	if err != nil {
		return err
	}
	mine := auth.Nonce()
	said, both := append(proofMagic[:len(proofMagic):len(proofMagic)], mine...),
		t.transcript(theirs, mine)
	if _, err := c.Write(append(said, both.Proof(labelDialler)...)); err != nil {
		return err
	}
	var answer [auth.ProofSize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	if !both.Proves(labelListener, answer[:]) {
		return session.ErrSecret
	}
	return nil
}

// transcript is what both ends of a stream have sent before their proofs.
func (t *transport) transcript(listener, dialler []byte) auth.Transcript {
	return auth.Transcript{Secret: t.key, Said: [][]byte{listener, dialler}}
}

// nonceOf returns the nonce of a greeting.
func nonceOf(greeting []byte) ([]byte, error) {
	if string(greeting[:len(proofMagic)]) != string(proofMagic) {
		return nil, session.ErrHandshake
	}
	return greeting[len(proofMagic):], nil
}

// receive passes on the datagrams that were sealed under the job's key. Others cost one attempt to
// open them and no allocation.
func (t *transport) receive() {
	var buffer, scratch [datagramLimit]byte
	for {
		n, from, err := t.udp.ReadFrom(buffer[:])
		if err != nil {
			select {
			case <-t.over.Done():
				return
			case <-time.After(retryPause):
			}
			continue
		}
		if !t.sealed(buffer[:n], scratch[:0]) {
			continue
		}
		p := &memberlist.Packet{
			Buf:       append([]byte(nil), buffer[:n]...),
			Timestamp: time.Now(),
			From:      from,
		}
		select {
		case t.packets <- p:
		case <-t.over.Done():
			return
		}
	}
}

// sealed reports whether memberlist can open a datagram: a byte 1, a nonce, and the output of
// AES-GCM. Memberlist opens it again, but allocates memory before it has checked whether it can.
func (t *transport) sealed(b, scratch []byte) bool {
	nonce := 1 + t.aead.NonceSize()
	if len(b) < nonce+t.aead.Overhead() || len(b) == datagramLimit || b[0] != 1 {
		return false
	}
	_, err := t.aead.Open(scratch, b[1:nonce], b[nonce:], nil)
	return err == nil
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	at, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, fmt.Errorf("address of failure detection: %w", err)
	}
	return at.Unmap().AsSlice(), port, nil
}

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, address string) (time.Time, error) {
	to, err := netip.ParseAddrPort(address) // memberlist passes the addresses that nodes advertise
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.udp.WriteTo(b, net.UDPAddrFromAddrPort(to))
	return time.Now(), err
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	deadline := time.Now().Add(timeout)
	within, cancel := context.WithDeadline(t.over, deadline)
	defer cancel()
	c, err := t.network.Dial(within, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(t.over, func() { _ = c.Close() })
	defer stop()
	if err = c.SetDeadline(deadline); err == nil {
		err = t.prove(c)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("failure detection at %s: %w", address, err)
	}
	return &bounded{c, t.limit}, nil
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown implements memberlist.Transport. It waits for the transport's goroutines.
func (t *transport) Shutdown() error {
	t.end()
	err := errors.Join(t.tcp.Close(), t.udp.Close())
	t.tasks.Wait()
	return err
}

// bounded is an authenticated stream of which at most left bytes are read.
type bounded struct {
	net.Conn
	left int64 // used by the reader only
}

var errStreamLimit = errors.New("a stream of failure detection carries more than all nodes' state")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errStreamLimit
	}
	n, err := b.Conn.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
