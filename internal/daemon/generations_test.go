package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/protocol"
)

// batches is how many batches the report counts as yielded in an epoch.
func (x *client) batches(epoch int) int {
	x.t.Helper()
	var report struct {
		Epochs []struct{ Epoch, Batches int }
	}
	result, failure := x.call("report", "{}")
	if err := json.Unmarshal(result, &report); err != nil || failure != nil {
		x.t.Fatalf("report %s, %v, %v", result, err, failure)
	}
	for _, e := range report.Epochs {
		if e.Epoch == epoch {
			return e.Batches
		}
	}
	return 0
}

// TestAckOfAnEarlierGenerationDoesNotCount: what a process yielded before it began anew is not noted as yielded of what it is given now.
func TestAckOfAnEarlierGenerationDoesNotCount(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open()
	x.send(iterate(1, 0, 0))
	first := x.batch()
	x.send(iterate(2, 0, 0))
	again := first
	for again.generation != 2 {
		again = x.batch()
	}
	x.send(ack(1, 0, 0, first.audit, first.slots...))
	if n := x.batches(0); n != 0 {
		t.Errorf("%d batches count, of a generation that is over", n)
	}
	x.send(ack(2, 0, 0, again.audit, again.slots...))
	if n := x.batches(0); n != 1 {
		t.Errorf("%d batches count, not 1", n)
	}
	x.close()
	r.end()
}

// TestWaitOfAnEarlierGenerationAsksForNothing: under a policy that stages nothing ahead, only a WAIT of the generation brings a batch.
func TestWaitOfAnEarlierGenerationAsksForNothing(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) { m.Arguments = map[string]any{"memory": "0", "policy": "naive"} })
	x.send(iterate(2, 0, 0))
	x.send(wait(1))
	for range 20 { // time for a batch that should not come
		x.batches(0)
	}
	if len(x.held) > 0 {
		t.Error("a batch was brought that was not asked for")
	}
	x.send(wait(2))
	if b := x.batch(); b.generation != 2 || b.step != 0 {
		t.Errorf("%+v", b)
	}
	x.close()
	r.end()
}

// TestErrorOfAStageNamesItsGeneration: a process that has begun anew meanwhile can tell that the error is not about what it asks for now.
func TestErrorOfAStageNamesItsGeneration(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) { m.Dataset.Path = "/broken" })
	x.send(iterate(7, 0, 0))
	if m := x.refused(); m.Generation != 7 || !strings.Contains(m.Message, "the disk is on fire") {
		t.Errorf("%+v", m)
	}
	x.close()
	r.end()
}

// TestRefusedCallsGiveTheirPlaceBack: a connection may have some calls under way, and any number one after the other, refused or not.
func TestRefusedCallsGiveTheirPlaceBack(t *testing.T) {
	r := start(t)
	x := r.hello()
	for range 2 * maxCalls {
		if _, failure := x.call("dance", "{}"); failure == nil {
			t.Error("it dances")
		}
		if _, failure := x.call("stats", "{}"); failure != nil {
			t.Error(failure)
		}
	}
	x.close()
	r.end()
}

// crowded is a listener of one connection, for which there is no descriptor at first.
type crowded struct {
	conn    *net.UnixConn
	accepts int
}

func (c *crowded) Close() error { return nil }

func (c *crowded) AcceptUnix() (*net.UnixConn, error) {
	switch c.accepts++; c.accepts {
	case 1:
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", unix.EMFILE)}
	case 2:
		return c.conn, nil
	}
	return nil, net.ErrClosed
}

// TestWithoutDescriptorsAProcessIsTold: a daemon that can open no more files says so to who comes, and goes on.
func TestWithoutDescriptorsAProcessIsTold(t *testing.T) {
	r := start(t)
	near, far := pair(t)
	l := &crowded{conn: near}
	if err := r.d.accept(t.Context(), l, func(*net.UnixConn) { t.Error("it was served") }); err != nil || l.accepts != 3 {
		t.Errorf("after %d connections: %v", l.accepts, err)
	}
	x := &client{t: t, c: far, maps: map[uint32][]byte{}}
	if m := x.refused(); m.Kind != protocol.KindLimit {
		t.Errorf("%+v", m)
	}
	x.close()
	r.stop()
	r.end()
}

// TestClientTakesNoFrameBeyondTheLimit: what says that more follows than a frame may have is no daemon.
func TestClientTakesNoFrameBeyondTheLimit(t *testing.T) {
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "liar"), Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), address, "test")
		if err == nil {
			c.Close()
		}
		ended <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := protocol.ReadFrame(conn, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{1, 0, 0, 1, byte(protocol.Welcome), 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	conn.(*net.UnixConn).CloseWrite()
	if err := <-ended; !errors.Is(err, protocol.ErrProtocol) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
