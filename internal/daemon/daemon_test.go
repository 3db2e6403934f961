package daemon

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// TestLife: a rank from HELLO to END, over a real socket and shared memory, and the
// end of the daemon after it.
func TestLife(t *testing.T) {
	r := start(t)
	x := r.hello()
	opened := x.open()
	if opened.Samples != 20 || opened.Steps != 4 || opened.RankSamples != 20 || opened.Seed != 7 ||
		opened.Bytes != 2000 || len(opened.Classes) != 1 || opened.Warnings == nil {
		t.Errorf("opened %+v", opened)
	}
	x.send(iterate(1, 0, 0))
	for epoch := range uint32(2) {
		var sum uint64
		seen := map[uint32]bool{}
		for step := range uint32(4) {
			x.send(wait(1))
			b := x.batch()
			if b.generation != 1 || b.epoch != epoch || b.step != step || len(b.ids) != 5 {
				t.Fatalf("batch %+v, want epoch %d, step %d", b, epoch, step)
			}
			for _, id := range b.ids {
				seen[id] = true
			}
			sum += b.audit
			x.send(ack(1, epoch, step, sum, b.slots...))
		}
		if len(seen) != 20 {
			t.Errorf("epoch %d: %d samples, want 20", epoch, len(seen))
		}
		result, failure := x.call("audit", `{"epoch": `+string('0'+rune(epoch))+`}`)
		if failure != nil || !strings.Contains(string(result), `"complete":true`) {
			t.Errorf("audit of epoch %d: %s, %v", epoch, result, failure)
		}
	}
	if g := binary.LittleEndian.Uint64(x.expect(protocol.End).payload); g != 1 {
		t.Errorf("END of generation %d", g)
	}
	var report struct {
		Samples int
		Epochs  []struct{ Batches int }
	}
	result, _ := x.call("report", "{}")
	if err := json.Unmarshal(result, &report); err != nil || report.Samples != 20 ||
		len(report.Epochs) != 2 || report.Epochs[1].Batches != 4 {
		t.Errorf("report %s, %v", result, err)
	}
	var all stats.ClusterReport
	result, _ = x.call("report", `{"cluster": true}`)
	if err := json.Unmarshal(result, &all); err != nil || len(all.Nodes) != 1 ||
		all.Total.Batches != 8 || all.Nodes[0].Ranks[0].Batches != 8 || all.Steps != 4 {
		t.Errorf("report of the cluster %s, %v", result, err)
	}
	if result, failure := x.call("explain", `{"epoch": 1, "step": 3}`); failure != nil ||
		!strings.Contains(string(result), `"ids":[`) {
		t.Errorf("explain: %s, %v", result, failure)
	}
	// Once more from the middle, in a new generation; and behind the epochs that were planned.
	x.send(iterate(2, 1, 2))
	if b := x.batch(); b.generation != 2 || b.epoch != 1 || b.step != 2 {
		t.Errorf("batch %+v of the second generation", b)
	}
	x.send(iterate(3, 2, 0))
	for b := x.batch(); b.generation != 3 || b.epoch != 2 || b.step != 0; b = x.batch() {
		if b.generation != 2 {
			t.Fatalf("batch %+v, want epoch 2", b)
		}
	}
	x.send(iterate(4, 0, 9))
	if m := x.refused(); m.Generation != 4 || m.Kind != protocol.KindConfig ||
		!strings.Contains(m.Message, "4 steps") {
		t.Errorf("step 9 of 4: %+v", m)
	}
	if _, failure := x.call("stats", "{}"); failure != nil {
		t.Errorf("the connection did not survive: %v", failure)
	}
	x.close()
	r.end()
}

// TestCalls: what needs no job, and what does.
func TestCalls(t *testing.T) {
	r := start(t)
	x := r.hello()
	for _, method := range []string{"explain", "report", "audit"} {
		if _, failure := x.call(method, "{}"); failure == nil ||
			failure.Kind != protocol.KindProtocol ||
			!strings.Contains(failure.Message, method+" before a job is open") {
			t.Errorf("%s before OPEN: %v", method, failure)
		}
	}
	for _, c := range []struct{ method, params, kind, words string }{
		{"dance", "{}", protocol.KindProtocol, `"dance"`},
		{"dataset", `{"knd": 1}`, protocol.KindProtocol, "knd"},
		{"cluster", `{"job": "train"}`, protocol.KindConfig, "no jobs are running"},
		{"cluster", `{"jobs": 1}`, protocol.KindProtocol, "jobs"},
		{"dataset", `{"kind": "tape", "path": "/data"}`, protocol.KindConfig, "tape"},
		{
			"samples", `{"kind": "fake", "path": "/data", "from": 3, "to": 30}`, protocol.KindConfig,
			"0 to 20",
		},
		{
			"samples", `{"kind": "fake", "path": "/long", "from": 0, "to": 10000}`, protocol.KindLimit,
			"too long",
		},
		{
			"samples", `{"kind": "fake", "path": "/wide", "from": 0, "to": 10001}`,
			protocol.KindConfig, "at most 10000",
		},
		{
			"dataset", `{"kind": "fake", "path": "/data", "arguments": {"memry": 1}}`,
			protocol.KindConfig, "memry",
		},
	} {
		if _, failure := x.call(c.method, c.params); failure == nil || failure.Kind != c.kind ||
			!strings.Contains(failure.Message, c.words) {
			t.Errorf("%s %s: %+v, want %s with %q", c.method, c.params, failure, c.kind, c.words)
		}
	}
	if result, failure := x.call("dataset", `{"kind": "fake", "path": "/data"}`); failure != nil ||
		!strings.Contains(string(result), `"class_sizes":[20]`) {
		t.Errorf("dataset: %s, %v", result, failure)
	}
	if result, failure := x.call("samples",
		`{"kind": "fake", "path": "/data", "from": 3, "to": 5}`); failure != nil ||
		string(result) != `[["a/0003.x",0],["a/0004.x",0]]` {
		t.Errorf("samples: %s, %v", result, failure)
	}
	x.close()
	r.end()
}

// greetedAs greets as a process of that version, and goes on.
func greetedAs(version string, hello func(func(*protocol.HelloMessage)) func(*client),
	then func(*client),
) func(*client) {
	return func(x *client) {
		hello(func(m *protocol.HelloMessage) { m.Version = version })(x)
		unix.Close(x.expect(protocol.Welcome).fd)
		then(x)
	}
}

// TestRules: who does not keep to the protocol is told, and cut off; the daemon
// serves the others.
func TestRules(t *testing.T) {
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
		}), protocol.KindProtocol, "WAIT of 1 bytes"},
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
				t.Errorf("told %+v, want %s with %q", m, c.kind, c.words)
			}
			var err error
			for err == nil { // answers to calls that were under way may still come
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

// TestSlotsInTheMaking: slots that were not described yet can not be returned,
// though their numbers can be guessed: a read may be writing to them.
func TestSlotsInTheMaking(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) {
		m.Arguments = map[string]any{"memory": "0", "policy": "naive"}
	})
	x.send(iterate(1, 0, 0))
	x.send(wait(1))
	b := x.batch()
	x.send(wait(1)) // the next one is staged, maybe sent
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

// TestOpenRefused: a job that can not be is refused, and the daemon ends as if
// nothing had been.
func TestOpenRefused(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.json(protocol.Open, openMessage(func(m *protocol.OpenMessage) {
		m.Stream.GlobalBatch, m.Stream.DropLast = 21, true
	}))
	if m := x.refused(); m.Kind != protocol.KindConfig ||
		!strings.Contains(m.Message, "more than the 20 positions") {
		t.Errorf("%+v", m)
	}
	if r.d.busy(nil) {
		t.Error("the daemon is busy with a job that was refused")
	}
	x.close()
	r.end()
}

// TestNoHello: a connection that says nothing is ended.
func TestNoHello(t *testing.T) {
	r := start(t, func(d *Daemon) { d.patience = 50 * time.Millisecond })
	x := r.dial()
	if m := x.refused(); m.Kind != protocol.KindProtocol ||
		!strings.Contains(m.Message, "no HELLO within 50ms") {
		t.Errorf("%+v", m)
	}
	r.end()
}

// TestDisappears: processes that close in the middle of a batch, of OPEN, of a
// frame; the daemon ends after the last.
func TestDisappears(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) { m.Stream.Epochs = 0 })
	x.send(iterate(1, 0, 0))
	x.batch()
	y := r.hello()
	y.json(protocol.Open,
		openMessage(func(m *protocol.OpenMessage) { m.Job, m.Dataset.Path = "slow", "/slow" }))
	z := r.hello()
	z.send([]byte{200, 0, 0, 0, 4, 0, 0, 0, 1})
	for _, c := range []*client{x, y, z} {
		c.close()
	}
	r.end()
}

// TestNeverReads: a process that asks and never reads holds up itself alone, and
// can neither keep the daemon from ending.
func TestNeverReads(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) { m.Stream.Epochs = 0; m.Arguments["memory"] = "2000B" })
	x.send(iterate(1, 0, 0))
	y := r.hello()
	y.open(func(m *protocol.OpenMessage) { m.Job = "k" })
	y.send(iterate(1, 0, 0))
	for range 8 {
		b := y.batch()
		y.send(ack(1, b.epoch, b.step, 0, b.slots...))
	}
	y.expect(protocol.End)
	for range 300 { // more than fits: the daemon must go on reading
		x.send(wait(1))
	}
	if _, failure := y.call("shutdown", `{"force": true}`); failure != nil {
		t.Errorf("shutdown: %v", failure)
	}
	r.end()
}

// TestClient: what commands ask.
func TestClient(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open()
	slow := r.hello()
	slow.json(protocol.Open,
		openMessage(func(m *protocol.OpenMessage) { m.Job, m.Dataset.Path = "slow", "/slow" }))
	c, err := Dial(t.Context(), r.address, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var stats Stats
	for len(stats.Jobs) < 2 { // until the second OPEN has arrived
		if err := c.Call("stats", nil, &stats); err != nil {
			t.Fatal(err)
		}
	}
	if stats.Connections != 3 || stats.PID != os.Getpid() || stats.Version != "test" {
		t.Errorf("stats %+v", stats)
	}
	if a, b := stats.Jobs[0], stats.Jobs[1]; a.Job != "j" || a.Assembling || b.Job != "slow" ||
		!b.Assembling || b.Dataset != "/slow" {
		t.Errorf("jobs %+v, %+v", a, b)
	}
	var over ClusterStats
	if err := c.Call("cluster", map[string]any{"job": "j"}, &over); err != nil ||
		len(over.Jobs) != 1 || over.Jobs[0].Job != "j" || len(over.Jobs[0].Nodes) != 1 {
		t.Errorf("job j over all nodes: %+v, %v", over, err)
	}
	over = ClusterStats{}
	if err := c.Call("cluster", nil, &over); err != nil || len(over.Jobs) != 2 ||
		!over.Jobs[1].Nodes[0].Assembling {
		t.Errorf("all jobs over all nodes: %+v, %v", over, err)
	}
	x.close()
	for len(stats.Jobs) > 1 {
		stats = Stats{}
		if err := c.Call("stats", nil, &stats); err != nil {
			t.Fatal(err)
		}
	}
	// The job that is being opened keeps the daemon busy as well.
	var busy *protocol.ErrorMessage
	if err := c.Call("shutdown", map[string]any{}, &struct{}{}); !errors.As(err, &busy) ||
		busy.Kind != protocol.KindBusy {
		t.Errorf("shutdown while a job is opened: %v", err)
	}
	if err := c.Call("shutdown", map[string]any{"force": true}, &struct{}{}); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	for {
		if _, err := slow.receive(); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the other process got %v", err)
			}
			break
		}
	}
	r.end()
	if _, err := Dial(t.Context(), r.address, "test"); err == nil ||
		!strings.Contains(err.Error(), "no daemon is running") {
		t.Errorf("dial after the end: %v", err)
	}
}
