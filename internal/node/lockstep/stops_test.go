package lockstep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/hdmlp/hdmlp/internal/node/failure"
)

// TestTranscripts runs the transcripts in testdata/stops. Ranks 0 and 1 are on node 0, ranks 2 and
// 3 on node 1.
//
//	begin rank= at=         the rank begins a run at this batch; if its process has taken all
//	                        batches of the run before, the error of that run was raised
//	begin rank= at= broke   the same, but its loop has broken off before the error
//	deliver rank= batches=  delivers this many batches
//	fail rank=              the next batch cannot be delivered
//	end rank=               ends the run, and prints the error for its process
//	end rank= taken=        the same, but the process has only taken the batches up to this one
//	raise rank=             the error is raised in the loop of the process
//	through rank=           ends the run after the last batch of its epoch
//	again rank= at=         the process asks for another run, which begins at this batch
//	leave rank=             the process is gone
//	where rank=             prints the state of the run
//	tell from=              sends the node's own stops to the other node
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/stops", func(t *testing.T, path string) {
		p := newPlayer()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			said := p.do(t, d)
			out := strings.TrimSpace(p.log.String() + said)
			p.log.Reset()
			return out
		})
	})
}

// player runs the ranks of a transcript.
type player struct {
	nodes    [2]*Stops
	log      strings.Builder
	noted    [4]int // by rank, the batch before which its process sees its stream end
	runs     map[int]*Run
	canceled map[int]bool
	ends     map[int]error // by rank, the error with which its run ends by itself
}

func newPlayer() *player {
	p := &player{runs: map[int]*Run{}, canceled: map[int]bool{}, ends: map[int]error{}}
	for n, host := range []string{"a", "b"} {
		p.nodes[n] = New(n, host, func(told error) {
			fmt.Fprintf(&p.log, "the log of node %d: %v\n", n, told)
		})
	}
	return p
}

func (p *player) do(t *testing.T, d *datadriven.TestData) string {
	var rank, at, batches int
	if d.HasArg("rank") {
		d.ScanArgs(t, "rank", &rank)
	}
	switch d.Cmd {
	case "begin":
		d.ScanArgs(t, "at", &at)
		if r := p.runs[rank]; r != nil && !d.HasArg("broke") && r.taken >= r.end() {
			p.nodes[rank/2].Raised(rank)
		}
		return p.begin(rank, at)
	case "deliver":
		d.ScanArgs(t, "batches", &batches)
		return p.deliver(rank, batches)
	case "fail":
		p.ends[rank] = &failure.Error{
			Kind:    failure.Sample,
			Message: fmt.Sprintf("sample %d", 100+rank),
		}
		return ""
	case "where":
		return p.state(rank)
	case "end":
		if p.ends[rank] == nil && p.canceled[rank] {
			p.ends[rank] = context.Canceled
		}
		if p.ends[rank] == nil {
			return "the run goes on"
		}
		told := p.runs[rank].End(p.ends[rank], false)
		taken := p.runs[rank].end() - 1
		if d.HasArg("taken") {
			d.ScanArgs(t, "taken", &taken)
		}
		p.nodes[rank/2].Took(rank, taken)
		return fmt.Sprintf("before batch %d: %v", p.runs[rank].next, told)
	case "through":
		if err := p.runs[rank].End(nil, false); err != nil {
			return fmt.Sprintf("before batch %d: %v", p.runs[rank].next, err)
		}
		return "came to its end"
	case "raise":
		p.nodes[rank/2].Raised(rank)
		return ""
	case "leave":
		p.nodes[rank/2].Leave(rank)
		return ""
	case "again":
		d.ScanArgs(t, "at", &at)
		_ = p.runs[rank].End(context.Canceled, true)
		return p.begin(rank, at)
	case "tell":
		var from int
		d.ScanArgs(t, "from", &from)
		list, _, _ := p.nodes[from].Own()
		text, err := json.Marshal(list)
		if err == nil {
			list, err = Decode(text, 4, 2)
		}
		if err != nil {
			return err.Error()
		}
		p.nodes[1-from].Hear(list)
		return ""
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return ""
}

func (p *player) begin(rank, at int) string {
	p.canceled[rank], p.ends[rank] = false, nil
	p.runs[rank] = p.nodes[rank/2].Begin(rank, at, func() {
		p.canceled[rank] = true
	}, func(at int) { p.noted[rank] = at })
	return p.state(rank)
}

func (p *player) deliver(rank, batches int) string {
	for range batches {
		switch {
		case p.ends[rank] != nil:
			return "the run has already ended"
		case p.canceled[rank]:
			p.ends[rank] = context.Canceled
			return p.state(rank)
		}
		if p.ends[rank] = p.runs[rank].Deliver(func() error { return nil }); p.ends[rank] != nil {
			break
		}
	}
	return p.state(rank)
}

// state describes a run.
func (p *player) state(rank int) string {
	r := p.runs[rank]
	s := fmt.Sprintf("round %d, batch %d is next", r.round, r.next)
	if at := p.noted[rank]; at >= 0 {
		s += fmt.Sprintf(", ends before %d", at)
	}
	if p.canceled[rank] || errors.Is(p.ends[rank], errStopped) {
		s += ", stopped"
	}
	return s
}

// TestNodesReportOnlyTheirOwnRanks checks that a node ignores stops of ranks that do not belong to
// the node that reports them.
func TestNodesReportOnlyTheirOwnRanks(t *testing.T) {
	var said []string
	s := New(0, "a", func(told error) { said = append(said, told.Error()) })
	ended := false
	r := s.Begin(0, 0, func() { ended = true }, func(int) {})
	known := Stop{Rank: 2, Node: 1, Host: "b", At: 9, Error: failure.Error{Message: "true"}}
	s.Hear([]Stop{known})
	said = nil
	for _, forged := range []Stop{
		{Rank: 2, Node: 2, Round: 5},
		{Rank: 2, Node: 2, Over: true},
		{Rank: 0, Node: 0},
		{Rank: 1, Node: 0, Round: 3},
	} {
		s.Hear([]Stop{forged})
		if len(said) > 0 || len(s.known) != 1 || !reflect.DeepEqual(s.known[2], []Stop{known}) ||
			ended || r.stop.At != 9 {
			t.Errorf("%+v is taken: %q, %+v", forged, said, s.known)
		}
	}
}

// TestLostProcessStopsNoOtherRank checks that no other rank stops when a batch cannot be sent to a
// process.
func TestLostProcessStopsNoOtherRank(t *testing.T) {
	s := New(0, "", func(error) {})
	gone := errors.New("broken pipe")
	first := s.Begin(0, 0, func() {
		t.Error("the rank whose process is gone was cancelled")
	}, func(int) {})
	s.Begin(1, 0, func() {
		t.Error("another rank was cancelled because a process is gone")
	}, func(int) {})
	if err := first.Deliver(func() error { return gone }); !errors.Is(err, gone) {
		t.Errorf("Deliver: %v", err)
	}
	if err := first.End(gone, false); !errors.Is(err, gone) {
		t.Errorf("End: %v", err)
	}
	if list, version, _ := s.Own(); len(list) != 0 || version != 0 {
		t.Errorf("the node reports stops: %v", list)
	}
}

// TestErrorForOtherRanksSaysWhereItHappened checks that the error for other ranks has the same kind
// and details, and where it happened.
func TestErrorForOtherRanksSaysWhereItHappened(t *testing.T) {
	details := map[string]any{"sample": 17, "path": "x/17.jpg"}
	p := Stop{
		Rank: 3,
		Node: 1,
		Host: "b",
		Error: failure.Error{
			Kind:    failure.Sample,
			Message: "sample 17 (x/17.jpg): gone",
			Details: details,
		},
	}
	told := failure.Of(p.told())
	if told.Kind != failure.Sample ||
		told.Message != "rank 3 on node 1 (b) stopped: sample 17 (x/17.jpg): gone" {
		t.Errorf("told as %s: %s", told.Kind, told.Message)
	}
	if fmt.Sprint(told.Details) != "map[host:b node:1 path:x/17.jpg rank:3 sample:17]" ||
		len(details) != 2 {
		t.Errorf("details %v; the rank's own became %v", told.Details, details)
	}
	p.Host, p.Error.Details = "", nil
	if told := failure.Of(p.told()); told.Message != "rank 3 stopped: sample 17 (x/17.jpg): gone" ||
		fmt.Sprint(told.Details) != "map[rank:3]" {
		t.Errorf("with one node: %s, %v", told.Message, told.Details)
	}
}

// TestDecodeRefusesImpossibleStops checks that a list of stops with any impossible entry is refused
// as a whole.
func TestDecodeRefusesImpossibleStops(t *testing.T) {
	for name, c := range map[string]struct {
		list  string
		heard bool
	}{
		"none": {`[]`, true},
		"one": {
			`[{"rank": 3, "node": 1, "round": 0, "at": 0, "error": {"kind": "sample"}}]`, true,
		},
		"no list":            {`{"rank": 3}`, false},
		"a rank too many":    {`[{"rank": 2, "node": 1}, {"rank": 4, "node": 1}]`, false},
		"a negative rank":    {`[{"rank": -1, "node": 1}]`, false},
		"a node too many":    {`[{"rank": 3, "node": 2}]`, false},
		"a negative node":    {`[{"rank": 3, "node": -1}]`, false},
		"a round before all": {`[{"rank": 3, "node": 1, "round": -1}]`, false},
		"a batch before all": {`[{"rank": 3, "node": 1, "at": -1}]`, false},
	} {
		if list, err := Decode([]byte(c.list), 4, 2); (err == nil) != c.heard ||
			!c.heard && len(list) > 0 {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
}

// TestOwnStopsAreAnnounced checks that what waits for changes of a node's own stops is woken: when
// a rank stops, when its error is raised, and when it begins again.
func TestOwnStopsAreAnnounced(t *testing.T) {
	s := New(0, "", func(error) {})
	begin := func() *Run { return s.Begin(0, 0, func() {}, func(int) {}) }
	woken := func(after string, do func()) {
		t.Helper()
		_, before, changed := s.Own()
		do()
		_, version, _ := s.Own()
		select {
		case <-changed:
		default:
			t.Errorf("%s: nothing is woken", after)
		}
		if version == before {
			t.Errorf("%s: the list still has version %d", after, version)
		}
	}
	r := begin()
	woken("after a stop", func() { _ = r.End(errors.New("why"), false) })
	woken("after its error was raised", func() { s.Raised(0) })
	woken("after it began again", func() { begin() })
}
