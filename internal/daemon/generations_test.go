package daemon

import (
	"encoding/json"
	"strings"
	"testing"

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

// TestAckOfAnEarlierGenerationDoesNotCount: what a process yielded before it began anew is not
// noted as yielded of what it is given now.
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

// TestWaitOfAnEarlierGenerationAsksForNothing: under a policy that stages nothing ahead, only a
// WAIT of the generation brings a batch.
func TestWaitOfAnEarlierGenerationAsksForNothing(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) {
		m.Arguments = map[string]any{"memory": "0", "policy": "naive"}
	})
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

// TestErrorOfAStageNamesItsGeneration: a process that has begun anew meanwhile can tell that the
// error is not about what it asks for now.
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
