// Package share decides which members of a group of jobs are given which of the samples that are
// prepared once for all of them (CoorDL 4.3, coordinated prep). docs/SHARING.md has the
// reasons.
//
// It is a state machine without I/O, goroutines and clock: package engine/share/feed runs it, and
// passes it the time. Its methods are not safe for concurrent use. testdata/groups has transcripts
// of typical sequences.
//
// A position is a sample's offset in a rank's stream, counted over all epochs. The producer makes
// pieces, contiguous ranges of positions, in stream order. Members take ranges of any size, which
// may lie within a piece or span several. The pieces that are kept form the window:
//
//	pieces:   | 40..48 | 48..56 | 56..64 |
//	          ^        ^                 ^
//	          from  next of a member     head: where the producer goes on
//
// A member is in one of these states:
//
//	        Enter                     all have come, or the deadline
//	idle ------------> gathering --------------------------------> attached, private
//	     ------------> attached, private
//	attached --Check--> private      it held others up for too long
//	private  --Enter--> attached     its position is in the window again
//	any      --Exit---> idle
//
// INVARIANT: the window's pieces are contiguous, and end at head.
// INVARIANT: an attached member's next position is not before the window.
// INVARIANT: a piece is freed once, when it is in the window no more and no member holds it.
package share

import (
	"maps"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

// State is where a member's batches come from.
type State uint8

// The states of a member.
const (
	Idle      State = iota // it takes no batches
	Gathering              // it waits until the group starts
	Attached               // from the window
	Private                // it prepares them itself
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"idle", "gathering", "attached", "private"}[s]
}

// Options are the options of a Group.
type Options struct {
	// Members is how many members must have entered before the group starts, or Deadline after the
	// first has; at most 1: the group starts with the first. Join may raise it.
	Members  int
	Deadline time.Duration
	// Keep is how many pieces stay in the window after all attached members have taken them, so
	// that others may attach there.
	Keep int
	// Begin returns where the piece with a position begins.
	Begin func(at int64) int64
}

// Piece is a range of positions that the producer has made.
type Piece struct {
	ID       int   // no other piece has it
	From, To int64 // positions; To is not in the piece
}

type piece struct {
	Piece
	holds int // takes of it that were not released
}

type member struct {
	state   State
	next    int64       // the position of its next sample, if gathering or attached
	size    int64       // how many samples it takes next
	holds   map[int]int // by piece, takes of it that were not released
	blocked bool        // its process waits for a batch
	since   time.Time   // when it joined
	cost    time.Duration
	back    time.Time // when it may share again with others, after it was detached
}

// Group is a group of jobs, for one local rank.
type Group struct {
	o       Options
	members map[int]*member
	window  []piece
	held    map[int]piece // pieces that left the window, and that members hold
	head    int64
	last    int  // the ID of the last piece
	running bool // the producer makes pieces
	turns   int  // how often the producer was moved
	started bool
	came    int       // how many members had entered when the group started
	opened  time.Time // when the first member entered, if the group has not started
	heldUp  time.Time // up to when hold-ups are charged; zero: no member is held up
	freed   []int
}

// New returns a group without members.
func New(o Options) *Group {
	return &Group{o: o, members: make(map[int]*member), held: make(map[int]piece)}
}

// Join adds a member, which is idle, and has the group wait for at least so many members to enter
// before it starts.
func (g *Group) Join(id, members int, now time.Time) {
	g.o.Members = max(g.o.Members, members)
	g.members[id] = &member{holds: make(map[int]int), since: now}
}

// Leave removes a member, and releases what it holds.
func (g *Group) Leave(id int) {
	g.Exit(id)
	for p, n := range g.members[id].holds {
		g.release(p, n)
	}
	delete(g.members, id)
}

// State returns the state of a member.
func (g *Group) State(id int) State { return g.members[id].state }

// Next returns the position of an attached member's next sample.
func (g *Group) Next(id int) int64 { return g.members[id].next }

// Enter asks for batches from a position on, for a member that is idle or private. It returns the
// member's state: attached, private, or gathering, which Check ends.
func (g *Group) Enter(id int, at int64, now time.Time) State {
	m := g.members[id]
	m.next = at
	m.size = 1
	m.blocked = false
	switch {
	case !g.started:
		m.state = Gathering
		if g.opened.IsZero() {
			g.opened = now
		}
		g.gather(now)
	case g.Has(at):
		m.state = Attached
		if g.holdsFrom(m, at) || now.Before(m.back) {
			m.state = Private
		}
	case g.count(Attached) == 0:
		m.state = Attached
		g.move(g.o.Begin(at))
	default:
		m.state = Private
	}
	g.check()
	return m.state
}

// Has reports whether the window has a position, or the producer's next piece will.
func (g *Group) Has(at int64) bool {
	if g.o.Begin(at) == g.head {
		return g.running
	}
	return len(g.window) > 0 && g.window[0].From <= at && at < g.head
}

// holdsFrom reports whether a member still holds pieces of the window from a position on, which it
// took in an earlier pass. It must not be given them again: its process may have written to them.
func (g *Group) holdsFrom(m *member, at int64) bool {
	return slices.ContainsFunc(g.window, func(p piece) bool { return p.To > at && m.holds[p.ID] > 0 })
}

// gather starts the group if all announced members have entered, or the deadline has passed.
// Members that are at the first position are attached; others, which resume elsewhere, are private.
func (g *Group) gather(now time.Time) {
	n := g.count(Gathering)
	if g.started || n == 0 || n < g.o.Members && now.Sub(g.opened) < g.o.Deadline {
		return
	}
	g.started, g.came = true, n
	first := int64(-1)
	for _, m := range g.members {
		if m.state == Gathering && (first < 0 || m.next < first) {
			first = m.next
		}
	}
	g.move(g.o.Begin(first))
	for _, m := range g.members {
		switch {
		case m.state != Gathering:
		case g.Has(m.next):
			m.state = Attached
		default:
			m.state = Private
		}
	}
}

// Started returns how many members had entered when the group started, and how many were to; 0 if
// it has not started.
func (g *Group) Started() (came, wanted int) { return g.came, g.o.Members }

// Exit makes a member idle: it takes no more batches. What it holds stays its own.
func (g *Group) Exit(id int) {
	g.members[id].state = Idle
	if !g.started && g.count(Gathering) == 0 {
		g.opened = time.Time{}
	}
	g.settle(g.o.Keep)
}

// settle frees what the window need not keep, and stops the producer if no member is attached.
func (g *Group) settle(keep int) {
	if g.count(Attached) == 0 {
		if g.running {
			g.turns++
		}
		g.running = false
		g.drop(len(g.window))
	}
	g.trim(keep)
	g.check()
}

// move has the producer go on at a position. The window must be empty, as it is without attached
// members.
func (g *Group) move(at int64) {
	g.head, g.running = at, true
	g.turns++
}

// Producer returns where the producer is to make pieces, and whether it is to make any. turn
// changes each time that the result changes other than by Made.
func (g *Group) Producer() (turn int, at int64, running bool) { return g.turns, g.head, g.running }

// Made adds the samples up to a position, which the producer has prepared, to the window, and
// returns them as a piece.
func (g *Group) Made(to int64) Piece {
	g.last++
	p := Piece{g.last, g.head, to}
	g.window = append(g.window, piece{Piece: p})
	g.head = to
	g.trim(g.o.Keep)
	g.check()
	return p
}

// Stopped records that the producer cannot go on after head: members may not attach there.
func (g *Group) Stopped() { g.running = false }

// Restart has a producer that was stopped go on at head, for the members that are attached.
func (g *Group) Restart() {
	g.running = true
	g.turns++
}

// Members returns the members in order.
func (g *Group) Members() []int { return slices.Sorted(maps.Keys(g.members)) }

// count returns the number of members in a state.
func (g *Group) count(s State) (n int) {
	for _, m := range g.members {
		if m.state == s {
			n++
		}
	}
	return n
}

// check panics if an invariant is violated.
func (g *Group) check() {
	if !invariants.Enabled {
		return
	}
	from := g.head
	if len(g.window) > 0 {
		from = g.window[0].From
	}
	for at, i := from, 0; i < len(g.window); i++ {
		p := g.window[i]
		invariants.Check(p.From == at && p.To > at, "share: the window is %v", g.window)
		at = p.To
		invariants.Check(i < len(g.window)-1 || at == g.head,
			"share: the window %v does not end at %d", g.window, g.head)
	}
	holds := make(map[int]int)
	for id, m := range g.members {
		invariants.Check(m.state != Attached || from <= m.next,
			"share: member %d is at %d, the window has %d to %d", id, m.next, from, g.head)
		for p, n := range m.holds {
			holds[p] += n
		}
	}
	for _, p := range slices.Concat(g.window, slices.Collect(maps.Values(g.held))) {
		invariants.Check(p.holds == holds[p.ID], "share: piece %d is held %d times, counted as %d",
			p.ID, holds[p.ID], p.holds)
	}
}
