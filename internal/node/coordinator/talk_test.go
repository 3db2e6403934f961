package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

// TestLostNodeIsAssumedToHaveReadAnEpoch checks that a node that is gone is assumed to have begun
// where the others did, and to have kept what a whole epoch needs.
func TestLostNodeIsAssumedToHaveReadAnEpoch(t *testing.T) {
	c := formed(t, 3)
	c[2].Close()
	for _, node := range c[:2] {
		testkit.Until(t, "node 2 is known to be gone", func() bool { return !node.Alive(2) })
	}
	mine, theirs := plan.BootstrapWindow{Epoch: 2, Step: 1, Steps: 3},
		plan.BootstrapWindow{Epoch: 1, Step: 2, Steps: 1}
	told := make(chan []plan.BootstrapWindow)
	go func() {
		windows, err := c[1].BootstrapWindows(t.Context(), theirs, 4)
		if err != nil {
			t.Error(err)
		}
		told <- windows
	}()
	windows, err := c[0].BootstrapWindows(t.Context(), mine, 4)
	want := []plan.BootstrapWindow{mine, theirs, {Epoch: 2, Step: 1, Steps: 4}}
	if others := <-told; err != nil || !slices.Equal(windows, want) || !slices.Equal(others, want) {
		t.Errorf("node 0 got %+v, node 1 %+v, want %+v; %v", windows, others, want, err)
	}
}

// TestInvalidReportsCountAsNoAnswer checks that a node that sends an invalid report, or none,
// counts as not responding.
func TestInvalidReportsCountAsNoAnswer(t *testing.T) {
	c := formed(t, 2)
	now := time.Now()
	if r := c[0].part(1, []byte(`{"batches": "many"}`), now); r.Responding || r.Age >= 0 ||
		!strings.Contains(r.Why, "invalid report") {
		t.Errorf("%+v", r)
	}
	if r := c[0].part(1, nil, now); r.Responding || r.Age >= 0 ||
		r.Why != "timed out after 2s" {
		t.Errorf("%+v", r)
	}
	if got := c[1].answer(t.Context(), "something else"); got != nil {
		t.Errorf("an answer to an unknown question: %s", got)
	}
	if got := c[1].answer(t.Context(), askReport); got != nil {
		t.Errorf("an answer for a job that could not be opened: %s", got)
	}
}

// TestAnswerListsRanksWithMissingParts checks that a node asked about the next turn returns those
// of its ranks that have not supplied their parts, and otherwise, or while its job is not open,
// nothing.
func TestAnswerListsRanksWithMissingParts(t *testing.T) {
	l := newLocal()
	l.turn, l.missed = 3, []int{2}
	c := newCoordinator(Options{Local: l})
	for turn, want := range map[string]string{"3": "[2]", "4": "null", "x": ""} {
		if got := c.answer(t.Context(), askMissing+" "+turn); string(got) != want {
			t.Errorf("turn %s: %s, want %s", turn, got, want)
		}
	}
	l.failed = true
	if got := c.answer(t.Context(), askMissing+" 3"); got != nil {
		t.Errorf("a job that could not be opened: %s", got)
	}
	l.failed, l.ready = false, make(chan struct{})
	if got := c.answer(t.Context(), askMissing+" 3"); got != nil {
		t.Errorf("a job that is not open: %s", got)
	}
}

// TestInvalidStopsAreIgnored checks that an invalid list of stops is not taken in.
func TestInvalidStopsAreIgnored(t *testing.T) {
	for list, heard := range map[string]bool{
		`[{"rank": 3, "node": 1, "round": 0, "at": 0, "error": {"kind": "sample"}}]`: true,
		`{"rank": 3}`: false,
		`[{"rank": 2, "node": 1}, {"rank": 4, "node": 1}]`: false,
		`[{"rank": 3, "node": 2}]`:                         false,
	} {
		told := 0
		c := newCoordinator(Options{
			WorldSize: 4, Nodes: 2, Log: slog.New(slog.DiscardHandler),
			Stops: lockstep.New(0, "a", func(error) { told++ }),
		})
		if took := c.hear([]byte(tellStopped + " " + list)); took != heard || (told > 0) != heard {
			t.Errorf("%s: taken in: %v, and %d stops are known", list, took, told)
		}
	}
}

func parts(ranks ...int) (out []audit.Part) {
	for _, r := range ranks {
		out = append(out, audit.Part{Rank: r, Finished: true})
	}
	return out
}

// TestInvalidAuditPartsAreIgnored checks that parts are taken in only if they are valid, of all
// ranks of one node, and not of this node.
func TestInvalidAuditPartsAreIgnored(t *testing.T) {
	c := formed(t, 2)[0]
	hear := func(epoch int, told map[int][]audit.Part) {
		if !c.hear(append([]byte(tellAudit+" "), marshal(auditNews{epoch, told})...)) {
			t.Errorf("news of epoch %d is refused", epoch)
		}
	}
	for _, told := range []map[int][]audit.Part{
		{0: parts(0, 1)},
		{1: parts(2)},
		{1: parts(2, 2)},
		{1: parts(2, 3, 4)},
		{7: parts(2, 3), -1: parts()},
		{1: {{Rank: 2, From: -1}, {Rank: 3}}},
		{1: {{Rank: 2}, {Rank: 3, From: 99}}},
		nil,
	} {
		if hear(5, told); len(c.told[5]) > 0 {
			t.Errorf("%v was stored: %v", told, c.told)
		}
	}
	oldest := marshal(auditNews{math.MinInt, map[int][]audit.Part{1: parts(3, 2)}})
	if c.hear(append([]byte(tellAudit+" "), oldest...)) {
		t.Error("news of the smallest epoch there is are taken in")
	}
	hear(5, map[int][]audit.Part{1: parts(3, 2)})
	if len(c.told[5][1]) != 2 {
		t.Errorf("stored %v", c.told)
	}
	hear(6, map[int][]audit.Part{1: {{Rank: 2, From: 4}, {Rank: 3}}})
	if len(c.told[6][1]) != 2 { // it began after the last step
		t.Errorf("stored %v", c.told)
	}
	hear(6+audit.Kept, nil)
	if len(c.told[5])+len(c.told[6]) > 0 {
		t.Errorf("still stored %v", c.told)
	}
	for _, text := range []string{"audit {", "audit", "something else"} {
		if c.hear([]byte(text)) {
			t.Errorf("%q is taken in", text)
		}
	}
	if answer := c.answer(t.Context(), askAudit+" {"); answer != nil {
		t.Errorf("an invalid question is answered: %s", answer)
	}
}

// TestInvalidAuditAnswerNamesTheNode checks that an invalid answer ends the audit with an error
// that names the node.
func TestInvalidAuditAnswerNamesTheNode(t *testing.T) {
	c := formed(t, 2, func(o *Options) {
		o.Local.(*local).parts = func(context.Context, int) ([]audit.Part, error) {
			return []audit.Part{{Rank: 2, From: 99}, {Rank: 3}}, nil
		}
	})
	if got, _, err := c[0].Audit(t.Context(), 0, parts(0, 1)); err == nil ||
		!strings.Contains(err.Error(), "node 1 sent an invalid answer to the audit") {
		t.Errorf("told %+v, %v", got, err)
	}
}

// TestCancelledAuditHasToldTheOtherNodes checks that an audit ends when it is cancelled while it
// waits for another node, and that the other node has received this node's parts.
func TestCancelledAuditHasToldTheOtherNodes(t *testing.T) {
	c := formed(t, 2, func(o *Options) {
		o.Local.(*local).parts = func(ctx context.Context, _ int) ([]audit.Part, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := c[0].Audit(ctx, 0, parts(0, 1))
		gone <- err
	}()
	testkit.Until(t, "node 0 has told node 1", func() bool {
		c[1].mu.Lock()
		defer c[1].mu.Unlock()
		return c[1].told[0][0] != nil
	})
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestAuditIsOfThePassOfItsOwnRanks checks that a node whose ranks went back and finished an epoch
// again does not take what it received of another node's first pass for its second.
func TestAuditIsOfThePassOfItsOwnRanks(t *testing.T) {
	pass := func(from int, ranks ...int) []audit.Part {
		out := parts(ranks...)
		for i := range out {
			out[i].From, out[i].Finished = from, true
		}
		return out
	}
	c := formed(t, 2, func(o *Options) {
		o.Local.(*local).parts = func(context.Context, int) ([]audit.Part, error) {
			return pass(1, 2, 3), nil
		}
	})
	first := auditNews{0, map[int][]audit.Part{1: pass(0, 2, 3)}}
	if !c[0].hear(append([]byte(tellAudit+" "), marshal(first)...)) {
		t.Fatal("news is refused")
	}
	got, why, err := c[0].Audit(t.Context(), 0, pass(1, 0, 1))
	if want := pass(1, 2, 3); err != nil || why != "" || !slices.Equal(got, want) {
		t.Errorf("got %+v, %q, %v, want %+v", got, why, err, want)
	}
}
