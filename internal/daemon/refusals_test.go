package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// greetedAs sends HELLO as a process of that version, and then calls then.
func greetedAs(version string, hello func(func(*protocol.HelloMessage)) func(*client),
	then func(*client),
) func(*client) {
	return func(x *client) {
		hello(func(m *protocol.HelloMessage) { m.Version = version })(x)
		unix.Close(x.expect(protocol.Welcome).fd)
		then(x)
	}
}

// TestProtocolErrorEndsOnlyThatConnection breaks each rule of the protocol: the process gets an
// error and is disconnected, and the daemon continues to serve another.
func TestProtocolErrorEndsOnlyThatConnection(t *testing.T) {
	r := start(t)
	other := r.hello()
	other.open(func(m *protocol.OpenMessage) { m.Job = "other"; m.Stream.Epochs = 0 })
	hello := func(change func(*protocol.HelloMessage)) func(*client) {
		return func(x *client) {
			m := protocol.HelloMessage{Protocol: protocol.Version, Version: "test", PID: 1}
			change(&m)
			x.json(protocol.Hello, m)
		}
	}
	bytes := func(b string) func(*client) { return func(x *client) { x.send([]byte(b)) } }
	greeted := func(then func(x *client)) func(*client) {
		return func(x *client) {
			hello(func(*protocol.HelloMessage) {})(x)
			unix.Close(x.expect(protocol.Welcome).fd)
			then(x)
		}
	}
	opened := func(then func(x *client)) func(*client) {
		return greeted(func(x *client) {
			x.open(func(m *protocol.OpenMessage) { m.Job = x.t.Name() })
			then(x)
		})
	}
	for name, c := range map[string]struct {
		do    func(*client)
		kind  string
		words string
	}{
		"http":  {bytes("GET / HTTP/1.1\r\n\r\n"), protocol.KindProtocol, "header"},
		"zeros": {bytes(strings.Repeat("\x00", 64)), protocol.KindProtocol, "header"},
		"too long": {
			bytes("\xff\xff\xff\x7f\x01\x00\x00\x00"), protocol.KindProtocol,
			"limit",
		},
		"no HELLO": {
			bytes("\x02\x00\x00\x00\x02\x00\x00\x00{}"), protocol.KindProtocol,
			"not HELLO",
		},
		"HELLO not JSON": {
			bytes("\x02\x00\x00\x00\x01\x00\x00\x00[["), protocol.KindProtocol,
			"EOF",
		},
		"version": {hello(func(m *protocol.HelloMessage) {
			m.Protocol = 99
		}), protocol.KindVersion, "protocol 99"},
		"other version": {greetedAs("0.0.7", hello, func(x *client) {
			x.json(protocol.Open, openMessage())
		}), protocol.KindVersion, "(pid 1) is hdmlp 0.0.7"},
		"HELLO twice": {
			greeted(hello(func(*protocol.HelloMessage) {})),
			protocol.KindProtocol, "type 1",
		},
		"ITERATE too soon": {greeted(func(x *client) {
			x.send(iterate(1, 0, 0))
		}), protocol.KindProtocol, "before a job"},
		"ACK too soon": {greeted(func(x *client) {
			x.send(ack(1, 0, 0, 0))
		}), protocol.KindProtocol, "before a job"},
		"OPEN with a typo": {greeted(func(x *client) {
			x.send(protocol.AppendFrame(nil, protocol.Open, []byte(`{"jub": 1}`)))
		}), protocol.KindProtocol, "jub"},
		"second OPEN": {opened(func(x *client) {
			x.json(protocol.Open, openMessage())
		}), protocol.KindProtocol, "second OPEN"},
		"unknown slot": {opened(func(x *client) {
			x.send(ack(1, protocol.NoBatch, 0, 0, 77))
		}), protocol.KindProtocol, "slot 77"},
		"ITERATE cut short": {opened(func(x *client) {
			x.send(protocol.AppendFrame(nil, protocol.Iterate, []byte{1}))
		}), protocol.KindProtocol, "ITERATE of 1 bytes"},
		"WAIT cut short": {opened(func(x *client) {
			x.send(protocol.AppendFrame(nil, protocol.Wait, []byte{1}))
		}), protocol.KindProtocol, "a generation of 1 bytes"},
		"RAISED cut short": {opened(func(x *client) {
			x.send(protocol.AppendFrame(nil, protocol.Raised, []byte{1}))
		}), protocol.KindProtocol, "a generation of 1 bytes"},
		"many calls": {opened(func(x *client) {
			for range maxCalls + 1 {
				x.json(protocol.Call, protocol.CallMessage{
					ID:     1,
					Method: "audit",
					Params: json.RawMessage(`{"epoch": 1}`),
				})
			}
		}), protocol.KindProtocol, "16 calls"},
	} {
		t.Run(name, func(t *testing.T) {
			x := r.dial()
			x.t = t
			c.do(x)
			if m := x.refused(); m.Kind != c.kind || !strings.Contains(m.Message, c.words) {
				t.Errorf("got %+v, want %s with %q", m, c.kind, c.words)
			}
			var err error
			for err == nil { // answers to pending calls may still arrive
				_, err = x.receive()
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection was not ended")
			}
			x.close()
		})
	}
	other.send(iterate(1, 5, 0))
	if b := other.batch(); b.epoch != 5 {
		t.Errorf("the other process got %+v", b)
	}
	other.close()
	r.end()
}

// TestSlotsOfUnsentBatchesCannotBeReturned checks this although their numbers can be guessed: a
// read may be writing to them.
func TestSlotsOfUnsentBatchesCannotBeReturned(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) {
		m.Arguments = map[string]any{"memory": "0", "policy": "naive"}
	})
	x.send(iterate(1, 0, 0))
	x.send(wait(1))
	b := x.batch()
	x.send(wait(1)) // the next batch is staged, and perhaps sent
	if len(b.slots) != 1 {
		t.Fatalf("slots %v", b.slots)
	}
	x.send(ack(1, 0, 0, 0, b.slots[0], b.slots[0]+50))
	if m := x.refused(); m.Kind != protocol.KindProtocol {
		t.Errorf("%+v", m)
	}
	x.close()
	r.end()
}
