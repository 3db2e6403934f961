package share

import (
	"fmt"
	"slices"
)

// Take gives the samples from a position until before another to an attached member, and returns
// the pieces in which they lie. Those between its last samples and the first of these are left out.
// The member holds each piece until it is released as often as it was taken. ok is false if not all
// of the samples are made.
func (g *Group) Take(id int, from, to int64) (pieces []Piece, ok bool) {
	m := g.members[id]
	if m.state != Attached {
		return nil, false
	}
	m.next, m.size = from, to-from
	if !g.could(m) {
		g.trim(g.o.Keep)
		return nil, false
	}
	for i := range g.window {
		p := &g.window[i]
		if p.To <= from || p.From >= to {
			continue
		}
		p.holds++
		m.holds[p.ID]++
		pieces = append(pieces, p.Piece)
	}
	m.next, m.blocked = to, false
	g.trim(g.o.Keep)
	g.check()
	return pieces, true
}

// could reports whether the samples that a member takes next are made.
func (g *Group) could(m *member) bool { return m.next+m.size <= g.head }

// Release returns a take of a piece. A piece that the member does not hold is an error.
func (g *Group) Release(id, piece int) error {
	m := g.members[id]
	if m.holds[piece] == 0 {
		return fmt.Errorf("the member does not hold piece %d of the window", piece)
	}
	if m.holds[piece]--; m.holds[piece] == 0 {
		delete(m.holds, piece)
	}
	g.release(piece, 1)
	g.check()
	return nil
}

func (g *Group) release(id, n int) {
	for i := range g.window {
		if g.window[i].ID == id {
			g.window[i].holds -= n
			return
		}
	}
	p := g.held[id]
	if p.holds -= n; p.holds > 0 {
		g.held[id] = p
		return
	}
	delete(g.held, id)
	g.freed = append(g.freed, id)
}

// trim frees the pieces that all attached members have taken, except the last keep of them.
func (g *Group) trim(keep int) {
	least := g.head
	for _, m := range g.members {
		if m.state == Attached {
			least = min(least, m.next)
		}
	}
	taken := 0
	for taken < len(g.window) && g.window[taken].To <= least {
		taken++
	}
	g.drop(max(taken-keep, 0))
}

// drop removes the first n pieces from the window.
func (g *Group) drop(n int) {
	for _, p := range g.window[:n] {
		if p.holds > 0 {
			g.held[p.ID] = p
		} else {
			g.freed = append(g.freed, p.ID)
		}
	}
	g.window = g.window[n:]
}

// Freed returns the pieces that were freed since it was called last, in order.
func (g *Group) Freed() (ids []int) {
	ids, g.freed = g.freed, nil
	slices.Sort(ids)
	return ids
}
