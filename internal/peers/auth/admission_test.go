package auth

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
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
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// TestConnectionsThatWereEndedAreClosedFirst: what serves connections that were replaced closes
// them some time later; until then, not many more are accepted.
func TestConnectionsThatWereEndedAreClosedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen(make(from), Limits{Total: 8})
		var all []*Conn
		took := func() time.Duration {
			begun := time.Now()
			_, c := connect(t, l, fmt.Sprintf("10.0.0.%d:1", len(all)))
			all = append(all, c)
			return time.Since(begun)
		}
		for range 10 { // two are replaced
			if waited := took(); waited != 0 {
				t.Fatalf("connection %d was accepted after %v", len(all), waited)
			}
		}
		later := func(what func()) { time.AfterFunc(300*time.Millisecond, what) }
		later(func() { all[0].Close(); all[0].Close() })
		if waited := took(); waited != 300*time.Millisecond {
			t.Errorf("accepted after %v, not when one was closed", waited)
		}
		later(func() {
			if err := all[len(all)-1].Admit(); err != nil {
				t.Error(err)
			}
		})
		if waited := took(); waited != 300*time.Millisecond {
			t.Errorf("accepted after %v, not when one was admitted", waited)
		}
		if waited := took(); waited != closeTimeout {
			t.Errorf("accepted after %v, as none was closed, not %v", waited, closeTimeout)
		}
		all[10].Close() // which was admitted, and does not count
		if waited := took(); waited != closeTimeout {
			t.Errorf("accepted after %v, as an admitted one was closed, not %v", waited, closeTimeout)
		}
	})
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

// TestAdmittedReadsAreWhole: what counted against the limit before does not shorten them.
func TestAdmittedReadsAreWhole(t *testing.T) {
	l := Listen(make(from), Limits{Bytes: 100})
	near, c := connect(t, l, "10.0.0.1:1")
	if err := c.Admit(); err != nil {
		t.Fatal(err)
	}
	go near.Write(make([]byte, 200))
	if n, err := c.Read(make([]byte, 200)); n != 200 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestEveryMethodSaysWhyItFailed: because the listener closed the connection, or the cause itself.
func TestEveryMethodSaysWhyItFailed(t *testing.T) {
	for _, crowded := range []bool{true, false} {
		l := Listen(make(from), Limits{Total: 1})
		_, c := connect(t, l, "10.0.0.1:1")
		want := io.ErrClosedPipe
		if crowded {
			connect(t, l, "10.0.0.2:1")
			want = ErrCrowded
		} else {
			c.Close()
		}
		later := time.Now().Add(time.Hour)
		_, reads := c.Read(make([]byte, 1))
		_, writes := c.Write(make([]byte, 1))
		for method, err := range map[string]error{
			"Read": reads, "Write": writes, "SetDeadline": c.SetDeadline(later),
			"SetReadDeadline":  c.SetReadDeadline(later),
			"SetWriteDeadline": c.SetWriteDeadline(later),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", method, err, want)
			}
		}
	}
}

// broken is a listener and a connection that fail, except for reads.
type broken struct {
	net.Listener
	net.Conn
}

var errBroken = errors.New("broken")

func (broken) Accept() (net.Conn, error) { return nil, errBroken }
func (broken) Read([]byte) (int, error)  { return 1, nil }
func (broken) Close() error              { return errBroken }

func TestErrorsOfTheNetworkAreReturned(t *testing.T) {
	if c, err := Listen(broken{}, Limits{}).Accept(); err != errBroken {
		t.Errorf("%v, %v", c, err)
	}
	l := Listen(make(from), Limits{Total: 1})
	c := &Conn{Conn: broken{}, listener: l}
	if err := c.Close(); err != errBroken {
		t.Errorf("Close: %v", err)
	}
	c.end(ErrTime)
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("a read that succeeded nevertheless: %d, %v", n, err)
	}
}

// TestConcurrentConnections has the race detector check that the list of them is guarded.
func TestConcurrentConnections(t *testing.T) {
	l := Listen(make(from), Limits{Total: 3, Time: time.Hour})
	admit := func() {
		_, far := net.Pipe()
		c := &Conn{Conn: placed{far, "10.0.0.1:1"}, listener: l}
		if victim := l.enter(c); victim != nil {
			victim.end(ErrCrowded)
		}
		if c.Admit() == nil {
			c.Close()
		}
	}
	for range 20 {
		var all sync.WaitGroup // nothing else orders them
		all.Go(func() { l.Pending() })
		all.Go(admit)
		all.Go(admit)
		all.Wait()
	}
	if n := l.Pending(); n != 0 {
		t.Errorf("%d are pending", n)
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
	if got := addressOf(nil); got != "" {
		t.Errorf("a connection without an address counts as %s", got)
	}
}
