package daemon

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/report"
)

// TestRankIsServedFromHelloToEnd runs a rank over a real socket and shared memory, and checks that
// the daemon exits after it.
func TestRankIsServedFromHelloToEnd(t *testing.T) {
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
	var rep struct {
		Samples int
		Epochs  []struct{ Batches int }
	}
	result, _ := x.call("report", "{}")
	if err := json.Unmarshal(result, &rep); err != nil || rep.Samples != 20 ||
		len(rep.Epochs) != 2 || rep.Epochs[1].Batches != 4 {
		t.Errorf("report %s, %v", result, err)
	}
	var all report.ClusterReport
	result, _ = x.call("report", `{"cluster": true}`)
	if err := json.Unmarshal(result, &all); err != nil || len(all.Nodes) != 1 ||
		all.Total.Batches != 8 || all.Nodes[0].Ranks[0].Batches != 8 || all.Steps != 4 {
		t.Errorf("report of the cluster %s, %v", result, err)
	}
	if result, failure := x.call("explain", `{"epoch": 1, "step": 3}`); failure != nil ||
		!strings.Contains(string(result), `"ids":[`) {
		t.Errorf("explain: %s, %v", result, failure)
	}
	// Once more from the middle, in a new generation; and after the epochs that were planned.
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

func TestCallsReturnResultsAndErrors(t *testing.T) {
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
			"samples", `{"kind": "fake", "path": "/data", "from": 3, "to": 30}`,
			protocol.KindConfig,
			"0 to 20",
		},
		{
			"samples", `{"kind": "fake", "path": "/long", "from": 0, "to": 10000}`,
			protocol.KindLimit,
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

// TestRejectedOpenLeavesNothingBehind opens an impossible job, and checks that the daemon is idle
// and exits after it.
func TestRejectedOpenLeavesNothingBehind(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.json(protocol.Open, openMessage(func(m *protocol.OpenMessage) {
		m.Stream.GlobalBatch, m.Stream.DropLast = 21, true
	}))
	if m := x.refused(); m.Kind != protocol.KindConfig ||
		!strings.Contains(m.Message, "more than the 20 of an epoch") {
		t.Errorf("%+v", m)
	}
	if why := r.d.whyBusy(nil); why != "" {
		t.Errorf("the daemon is busy with a job that was refused: %s", why)
	}
	x.close()
	r.end()
}

// TestJobsOfEndedProcessesAreNotRunning while they are closed.
func TestJobsOfEndedProcessesAreNotRunning(t *testing.T) {
	d := &Daemon{conns: map[*conn]struct{}{}, cfg: start(t).d.cfg}
	for _, c := range []struct {
		job, ended bool
		want       string
	}{
		{false, false, ""},
		{false, true, ""},
		{true, true, "their caches are still being closed"},
		{true, false, "jobs are running; end them first"},
		{true, true, "jobs are running; end them first"}, // that of the case before
	} {
		x := newConn(d, nil)
		x.holdsJob.Store(c.job)
		if c.ended {
			close(x.ended)
		}
		d.conns[x] = struct{}{}
		if why := d.whyBusy(nil); (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

func TestConnectionWithoutHelloTimesOut(t *testing.T) {
	r := start(t, func(d *Daemon) { d.helloTimeout = 50 * time.Millisecond })
	x := r.dial()
	if m := x.refused(); m.Kind != protocol.KindProtocol ||
		!strings.Contains(m.Message, "no HELLO within 50ms") {
		t.Errorf("%+v", m)
	}
	r.end()
}

// TestDaemonExitsAfterProcessesDisappear closes connections in the middle of a batch, of OPEN and
// of a frame.
func TestDaemonExitsAfterProcessesDisappear(t *testing.T) {
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

// TestProcessThatNeverReadsBlocksOnlyItself has a process request batches and never read: others
// are served, and the daemon can be stopped.
func TestProcessThatNeverReadsBlocksOnlyItself(t *testing.T) {
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
