package admission

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// from is a listener whose connections have given remote addresses.
type from chan net.Conn

type placed struct {
	net.Conn
	at string
}

func (p placed) RemoteAddr() net.Addr { return place(p.at) }

type place string

func (place) Network() string  { return "tcp" }
func (p place) String() string { return string(p) }

func (f from) Accept() (net.Conn, error) { return <-f, nil }
func (f from) Close() error              { return nil }
func (f from) Addr() net.Addr            { return place("here") }

// connect dials from an address, and returns both ends of the connection.
func connect(t *testing.T, l *Listener, at string) (near net.Conn, c *Conn) {
	t.Helper()
	near, far := net.Pipe()
	go func() { l.Listener.(from) <- placed{far, at} }()
	got, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); got.Close() })
	return near, got.(*Conn)
}

// ended returns why a connection was closed, nil if it was not.
func ended(c *Conn) error {
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return c.because(err)
	}
	_, err := c.Read(make([]byte, 1))
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		return nil
	}
	return err
}

// TestFloodReplacesItsOwnConnections: an address that floods the listener does not keep others out.
func TestFloodReplacesItsOwnConnections(t *testing.T) {
	l := Listen(make(from), Limits{Total: 6, PerAddress: 4})
	_, friend := connect(t, l, "10.0.0.2:1")
	var flood []*Conn
	for i := range 10 {
		_, c := connect(t, l, fmt.Sprintf("10.0.0.1:%d", i))
		flood = append(flood, c)
	}
	for i, c := range flood {
		if err := ended(c); (i < 6) != errors.Is(err, ErrCrowded) {
			t.Errorf("connection %d of 10, of an address with a limit of 4: %v", i, err)
		}
	}
	if l.Pending() != 5 {
		t.Errorf("%d are pending, not 5", l.Pending())
	}
	// In total: the oldest connection of the address with the most is replaced.
	_, second := connect(t, l, "10.0.0.3:1")
	_, third := connect(t, l, "10.0.0.4:1")
	if err := ended(flood[6]); !errors.Is(err, ErrCrowded) {
		t.Errorf("the flood's oldest connection was not replaced: %v", err)
	}
	for _, c := range []*Conn{friend, second, third, flood[7]} {
		if err := ended(c); err != nil {
			t.Error(err)
		}
	}
	// An admitted connection no longer counts, and cannot be replaced.
	if err := friend.Admit(); err != nil {
		t.Error(err)
	}
	if l.Pending() != 5 {
		t.Errorf("%d are pending, not 5", l.Pending())
	}
	if err := flood[0].Admit(); err == nil {
		t.Error("a closed connection was admitted")
	}
	second.Close()
	second.Close()
	if l.Pending() != 4 || len(l.mu.of) != 2 {
		t.Errorf("%d are pending, of %v", l.Pending(), l.mu.of)
	}
}

func TestPendingTimeIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen(make(from), Limits{Time: 5 * time.Second})
		near, slow := connect(t, l, "10.0.0.1:1")
		_, proved := connect(t, l, "10.0.0.1:2")
		if err := proved.Admit(); err != nil {
			t.Fatal(err)
		}
		go near.Write([]byte("x")) // input does not extend the time
		if _, err := slow.Read(make([]byte, 9)); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if _, err := slow.Read(make([]byte, 9)); !errors.Is(err, ErrTime) {
			t.Error(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it was ended after %v", took)
		}
		if err := ended(proved); err != nil {
			t.Error(err)
		}
	})
}

func TestPendingBytesAreLimited(t *testing.T) {
	l := Listen(make(from), Limits{Bytes: 100})
	near, c := connect(t, l, "10.0.0.1:1")
	go near.Write(make([]byte, 200))
	if n, err := io.Copy(io.Discard, c); n != 100 || !errors.Is(err, ErrBytes) {
		t.Errorf("%d bytes were read, then %v", n, err)
	}
	near, c = connect(t, l, "10.0.0.1:2")
	go near.Write(make([]byte, 1000))
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
		t.Error(err)
	}
	if err := c.Admit(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 900)); err != nil {
		t.Error(err)
	}
}

func TestIPv6NetworkCountsAsOneAddress(t *testing.T) {
	for _, pair := range [][2]string{
		{"10.0.0.1:1", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:1", "10.0.0.1"},
		{"[2001:db8::1]:1", "2001:db8::/64"},
		{"[2001:db8::2]:1", "2001:db8::/64"},
		{"[fe80::1%eth0]:1", "fe80::/64"},
		{"[::1]:1", "::1"},
		{"pipe", "pipe"},
	} {
		if got := addressOf(place(pair[0])); got != pair[1] {
			t.Errorf("%s counts as %s, not %s", pair[0], got, pair[1])
		}
	}
}
