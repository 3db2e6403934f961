package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/protocol"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

// TestStops plays the transcripts in testdata/stops. Ranks 0 and 1 are on node 0, ranks 2 and 3 on node 1. Each line is something that happens;
// what comes of it follows, indented.
//
//	begin RANK BATCH   the rank begins a run at this batch
//	hand RANK N        N batches come, one after the other
//	fail RANK          the next one can not be delivered
//	ends RANK          what the rank is told at the end of its run
//	again RANK BATCH   its process asks for another run, which begins at this batch
//	leave RANK         its process is gone
//	where RANK         where it is
//	tell NODE          what the node has to say reaches the other one
//
// Blank lines and what follows a # mean nothing.
func TestStops(t *testing.T) {
	files, err := filepath.Glob("testdata/stops/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("transcripts: %v, %v", files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *rewrite {
				err = os.WriteFile(path, got, 0o644)
			}
			if err != nil || !*rewrite && !bytes.Equal(got, want) {
				t.Errorf("%v; got:\n%s", err, got)
			}
		})
	}
}

// player has the ranks of a transcript.
type player struct {
	nodes    [2]*stops
	noted    [4]int // where the ranks' processes see that their streams end
	runs     map[int]*run
	canceled map[int]bool
	ends     map[int]error // with which the runs end, if they do by themselves
}

func play(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	p := &player{runs: map[int]*run{}, canceled: map[int]bool{}, ends: map[int]error{}}
	for n, host := range []string{"a", "b"} {
		p.nodes[n] = newStops(n, host, func(told error) { fmt.Fprintf(&out, "    the log of node %d: %v\n", n, told) })
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		out.WriteString(line)
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var n, m int
		if _, err := fmt.Sscan(strings.Join(words[1:], " ")+" 0", &n, &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if said := p.do(words[0], n, m); said != "" {
			fmt.Fprintf(&out, "    %s\n", said)
		}
	}
	return out.Bytes()
}

func (p *player) do(what string, n, m int) string {
	switch what {
	case "begin":
		p.canceled[n], p.ends[n] = false, nil
		p.runs[n] = p.nodes[n/2].begin(n, m, func() { p.canceled[n] = true }, func(at int) { p.noted[n] = at })
		return p.state(n)
	case "hand":
		for range m {
			switch {
			case p.ends[n] != nil:
				return "it has ended before"
			case p.canceled[n]:
				p.ends[n] = context.Canceled
				return p.state(n)
			}
			if p.ends[n] = p.runs[n].hand(func() error { return nil }); p.ends[n] != nil {
				break
			}
		}
		return p.state(n)
	case "fail":
		p.ends[n] = &protocol.ErrorMessage{Kind: protocol.KindSample, Message: fmt.Sprintf("sample %d", 100+n)}
		return ""
	case "where":
		return p.state(n)
	case "ends":
		if p.ends[n] == nil && p.canceled[n] {
			p.ends[n] = context.Canceled
		}
		if p.ends[n] == nil {
			return "it goes on"
		}
		told := p.runs[n].end(p.ends[n], false)
		return fmt.Sprintf("before batch %d: %v", p.runs[n].next, told)
	case "leave":
		p.nodes[n/2].leave(n)
		return ""
	case "again":
		_ = p.runs[n].end(context.Canceled, true)
		return p.do("begin", n, m)
	case "tell":
		list, _, _ := p.nodes[n].own()
		var told []stop
		if err := json.Unmarshal(marshal(list), &told); err != nil {
			return err.Error()
		}
		p.nodes[1-n].hear(told)
		return ""
	}
	return "there is no such command"
}

// state says where a run is.
func (p *player) state(n int) string {
	r := p.runs[n]
	s := fmt.Sprintf("round %d, batch %d is next", r.round, r.next)
	if at := p.noted[n]; at >= 0 {
		s += fmt.Sprintf(", ends before %d", at)
	}
	if p.canceled[n] || errors.Is(p.ends[n], errStopped) {
		s += ", and so now"
	}
	return s
}

// TestNodesSpeakForTheirOwnRanks: a stop that is told of another node's rank is not taken.
func TestNodesSpeakForTheirOwnRanks(t *testing.T) {
	var said []string
	s := newStops(0, "a", func(told error) { said = append(said, told.Error()) })
	ended := false
	r := s.begin(0, 0, func() { ended = true }, func(int) {})
	known := stop{Rank: 2, Node: 1, Host: "b", At: 9, Error: protocol.ErrorMessage{Message: "true"}}
	s.hear([]stop{known})
	said = nil
	for _, lie := range []stop{{Rank: 2, Node: 2, Round: 5}, {Rank: 2, Node: 2, Over: true}, {Rank: 0, Node: 0}, {Rank: 1, Node: 0, Round: 3}} {
		s.hear([]stop{lie})
		if len(said) > 0 || len(s.last) != 1 || s.last[2].Node != 1 || s.last[2].Over || s.last[2].Round != 0 || ended || r.stop.At != 9 {
			t.Errorf("%+v is taken: %q, %+v", lie, said, s.last)
		}
	}
}

// TestLostProcess: where a batch can not be handed on, nobody else has to stop.
func TestLostProcess(t *testing.T) {
	s := newStops(0, "", func(error) {})
	gone := errors.New("broken pipe")
	first := s.begin(0, 0, func() { t.Error("the rank whose process is gone is told something") }, func(int) {})
	s.begin(1, 0, func() { t.Error("another rank is told that a process is gone") }, func(int) {})
	if err := first.hand(func() error { return gone }); !errors.Is(err, gone) {
		t.Errorf("handed: %v", err)
	}
	if err := first.end(gone, false); !errors.Is(err, gone) {
		t.Errorf("ended: %v", err)
	}
	if list, version, _ := s.own(); len(list) != 0 || version != 0 {
		t.Errorf("told is %v", list)
	}
}

// TestTold: the other ranks' error is of the same kind, with the same details, and names where it happened.
func TestTold(t *testing.T) {
	details := map[string]any{"sample": 17, "path": "x/17.jpg"}
	p := stop{Rank: 3, Node: 1, Host: "b", Error: protocol.ErrorMessage{Kind: protocol.KindSample, Message: "sample 17 (x/17.jpg): gone", Details: details}}
	told := Message(p.told())
	if told.Kind != protocol.KindSample || told.Message != "rank 3 on node 1 (b) stopped: sample 17 (x/17.jpg): gone" {
		t.Errorf("told as %s: %s", told.Kind, told.Message)
	}
	if fmt.Sprint(told.Details) != "map[host:b node:1 path:x/17.jpg rank:3 sample:17]" || len(details) != 2 {
		t.Errorf("details %v; the rank's own became %v", told.Details, details)
	}
	p.Host, p.Error.Details = "", nil
	if told := Message(p.told()); told.Message != "rank 3 stopped: sample 17 (x/17.jpg): gone" || fmt.Sprint(told.Details) != "map[rank:3]" {
		t.Errorf("on one node: %s, %v", told.Message, told.Details)
	}
}
