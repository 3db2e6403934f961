package share

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs the transcripts in testdata/groups. Members are numbers, times are counted
// from the beginning of the transcript.
//
//	group members= deadline= keep= size=  makes the group; pieces have this size
//	at t=                           sets the time
//	join m= members=                a member comes, and waits for so many
//	leave m=  exit m=               it leaves, or ends its run
//	enter m= at=                    asks for batches from a position on
//	made n= size=                   the producer has made n pieces of size samples
//	take m= n= size= at=            takes n batches of size samples, and holds them
//	release m= piece=               releases a piece
//	block m=                        the member's process waits
//	check stuck patience=           charges hold-ups
//	stopped, restart                the producer ended; goes on
//
// After each command, the output has the window, what was freed, and the members.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/groups", func(t *testing.T, path string) {
		p := &player{now: time.Unix(0, 0)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			said := p.do(t, d)
			if p.g == nil {
				return said
			}
			return said + p.state()
		})
	})
}

type player struct {
	g   *Group
	now time.Time
}

func (p *player) do(t *testing.T, d *datadriven.TestData) (out string) {
	number := func(key string) int {
		if !d.HasArg(key) {
			return 0
		}
		var n int
		d.ScanArgs(t, key, &n)
		return n
	}
	m := number("m")
	n := number("n")
	size := number("size")
	switch d.Cmd {
	case "group":
		p.g = New(Options{
			Members: number("members"), Deadline: length(t, d, "deadline"), Keep: number("keep"),
			Begin: func(at int64) int64 {
				if size == 0 {
					return at
				}
				return at / int64(size) * int64(size)
			},
		})
	case "at":
		p.now = time.Unix(0, 0).Add(length(t, d, "t"))
	case "join":
		p.g.Join(m, number("members"), p.now)
	case "leave":
		p.g.Leave(m)
	case "exit":
		p.g.Exit(m)
	case "enter":
		return p.g.Enter(m, int64(number("at")), p.now).String() + "\n"
	case "made":
		for range n {
			_, at, _ := p.g.Producer()
			p.g.Made(at + int64(size))
		}
	case "take":
		for range n {
			from := p.g.Next(m)
			if d.HasArg("at") {
				from = int64(number("at"))
			}
			pieces, ok := p.g.Take(m, from, from+int64(size))
			if !ok {
				out += "not there\n"
				continue
			}
			out += fmt.Sprintf("%d to %d in", from, from+int64(size))
			for _, q := range pieces {
				out += fmt.Sprintf(" #%d", q.ID)
			}
			out += "\n"
		}
	case "release":
		if err := p.g.Release(m, number("piece")); err != nil {
			return err.Error() + "\n"
		}
	case "block":
		p.g.Block(m)
	case "check":
		if gone := p.g.Check(p.now, d.HasArg("stuck"), length(t, d, "patience")); gone != nil {
			return fmt.Sprintf("detached: %v\n", gone)
		}
	case "stopped":
		p.g.Stopped()
	case "restart":
		p.g.Restart()
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return out
}

// length returns an argument that is a duration; 0: it is not given.
func length(t *testing.T, d *datadriven.TestData, key string) (l time.Duration) {
	if !d.HasArg(key) {
		return 0
	}
	var text string
	d.ScanArgs(t, key, &text)
	l, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (p *player) state() string {
	var b strings.Builder
	turn, at, running := p.g.Producer()
	fmt.Fprintf(&b, "producer at %d, turn %d, running %v; window", at, turn, running)
	for _, q := range p.g.window {
		fmt.Fprintf(&b, " #%d:%d..%d", q.ID, q.From, q.To)
	}
	if len(p.g.held) > 0 {
		fmt.Fprintf(&b, "; held %v", slices.Sorted(maps.Keys(p.g.held)))
	}
	if freed := p.g.Freed(); freed != nil {
		fmt.Fprintf(&b, "; freed %v", freed)
	}
	b.WriteByte('\n')
	for _, id := range p.g.Members() {
		m := p.g.members[id]
		fmt.Fprintf(&b, "  %d %v", id, m.state)
		if m.state == Attached || m.state == Gathering {
			fmt.Fprintf(&b, " at %d", m.next)
		}
		if m.blocked {
			b.WriteString(" blocked")
		}
		if m.cost > 0 {
			fmt.Fprintf(&b, ", cost %v", m.cost)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestStreams plays random sequences of everything that can happen, and requires what members are
// promised: each gets its stream without a gap, a piece that it holds is not freed, each piece is
// freed once, and one that is stopped costs others a bounded time.
func TestStreams(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stream(t, rand.New(rand.NewPCG(seed, 17))) })
	}
}

// shadow is the test's own record of a member.
type shadow struct {
	next    int64 // of its stream
	size    int64 // of its batches
	holds   []int // pieces, in the order in which it took them
	old     int   // how many of these it took before it was idle or private last
	stopped bool  // it does nothing any more
}

func stream(t *testing.T, r *rand.Rand) {
	const (
		pieceSize = 8
		memory    = 6
		step      = 50 * time.Millisecond
	)
	limit := time.Second
	g := New(Options{
		Members: r.IntN(4), Deadline: 5 * time.Second, Keep: r.IntN(3),
		Begin: func(at int64) int64 { return at / pieceSize * pieceSize },
	})
	now := time.Unix(0, 0)
	all := map[int]*shadow{}
	used := map[int]bool{} // pieces that occupy memory
	wait := time.Duration(0)
	stopped := 0
	id := 0
	for range 2000 {
		now = now.Add(step)
		if len(all) < 5 && r.IntN(50) == 0 {
			g.Join(id, 0, now)
			all[id] = &shadow{next: int64(r.IntN(24)), size: int64(1 + r.IntN(20))}
			id++
		}
		waiting := false
		for _, m := range slices.Sorted(maps.Keys(all)) {
			s := all[m]
			if s.stopped {
				continue
			}
			switch g.State(m) {
			case Idle:
				s.old = len(s.holds)
				g.Enter(m, s.next, now)
			case Private:
				s.old = len(s.holds)
				s.next += s.size
				g.Enter(m, s.next, now)
			case Attached:
				if r.IntN(100) == 0 {
					s.next += int64(r.IntN(12)) // as at the end of an epoch with drop_last
				}
				from := s.next
				pieces, ok := g.Take(m, from, from+s.size)
				if !ok {
					g.Block(m)
					waiting = true
					break
				}
				at := from
				for _, p := range pieces {
					if p.From > at || !used[p.ID] {
						t.Fatalf("%d to %d lies in %v", from, from+s.size, pieces)
					}
					if slices.Contains(s.holds[:s.old], p.ID) {
						t.Fatalf("member %d is given piece %d again, which it holds", m, p.ID)
					}
					at = p.To
				}
				for _, p := range pieces {
					s.holds = append(s.holds, p.ID)
				}
				if at < from+s.size {
					t.Fatalf("%d to %d lies in %v", from, from+s.size, pieces)
				}
				s.next += s.size
			}
			for len(s.holds) > r.IntN(3) {
				if err := g.Release(m, s.holds[0]); err != nil {
					t.Fatal(err)
				}
				s.holds, s.old = s.holds[1:], max(s.old-1, 0)
			}
			switch r.IntN(400) {
			case 0:
				g.Exit(m)
				s.next = max(0, s.next-int64(r.IntN(16)))
			case 1:
				g.Leave(m)
				delete(all, m)
			case 2:
				s.stopped = true
				stopped++
			}
		}
		g.Check(now, len(used) >= memory, limit)
		// If none is behind, what the members keep fills the memory, and a piece gets more of it.
		_, at, running := g.Producer()
		_, behind := g.Waiting()
		switch {
		case running && (len(used) < memory || !behind):
			used[g.Made(at+pieceSize).ID] = true
		case running && waiting:
			wait += step
		}
		for _, p := range g.Freed() {
			if !used[p] {
				t.Fatalf("piece %d is freed twice", p)
			}
			delete(used, p)
		}
		for m, s := range all {
			for _, p := range s.holds {
				if !used[p] {
					t.Fatalf("member %d holds piece %d, which is freed", m, p)
				}
			}
		}
	}
	for m := range all {
		g.Leave(m)
	}
	for _, p := range g.Freed() {
		delete(used, p)
	}
	for p := range used {
		t.Errorf("piece %d was not freed", p)
	}
	// Each member that ever came may have cost the others their patience once, and a hundredth of
	// the time; at most 5 are there at a time.
	most := time.Duration(id)*(limit+2*step) + now.Sub(time.Unix(0, 0))*5/100
	if wait > most {
		t.Errorf("members waited %v for %d of %d that were stopped", wait, stopped, id)
	}
}
