package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// batches returns how many batches of an epoch the report counts as yielded.
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

// TestAckOfAnEarlierGenerationDoesNotCount checks that batches yielded before a restart are not
// counted for the current generation.
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
		t.Errorf("%d batches of an earlier generation count", n)
	}
	x.send(ack(2, 0, 0, again.audit, again.slots...))
	if n := x.batches(0); n != 1 {
		t.Errorf("%d batches count, not 1", n)
	}
	x.close()
	r.end()
}

// TestWaitOfAnEarlierGenerationIsIgnored uses a policy that stages nothing ahead, so that only a
// WAIT of the current generation requests a batch.
func TestWaitOfAnEarlierGenerationIsIgnored(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) {
		m.Arguments = map[string]any{"memory": "0", "policy": "naive"}
	})
	x.send(iterate(2, 0, 0))
	x.send(wait(1))
	for range 20 { // time for a batch that must not come
		x.batches(0)
	}
	if len(x.held) > 0 {
		t.Error("got a batch that was not requested")
	}
	x.send(wait(2))
	if b := x.batch(); b.generation != 2 || b.step != 0 {
		t.Errorf("%+v", b)
	}
	x.close()
	r.end()
}

// TestErrorOfAStageNamesItsGeneration checks what a process needs to ignore errors of an earlier
// generation.
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
