package share

import "time"

const (
	// freeShare is the part of a member's time in the group for which it may hold up others without
	// being detached.
	freeShare = 0.01
	// maxCharge is the most that is charged at a time: if more has passed since the last Check, which
	// come far sooner, this process was stopped, as by SIGSTOP or a control group's freezer.
	maxCharge = time.Second
)

// Block records that a member's process waits for its next batch, all before which were delivered.
func (g *Group) Block(id int) {
	if m := g.members[id]; m.state == Attached {
		m.blocked = true
	}
}

// Waiting reports whether a member waits for samples that are not made yet. behind is set if
// another has not taken what is made: then it may be what the producer waits for.
func (g *Group) Waiting() (waiting, behind bool) {
	for _, m := range g.members {
		if m.state == Attached {
			waiting = waiting || m.blocked && !g.could(m)
			behind = behind || g.could(m)
		}
	}
	return waiting, behind
}

// Blocked reports whether the processes of all attached members wait, so that none of them frees
// what it holds of the window.
func (g *Group) Blocked() bool {
	for _, m := range g.members {
		if m.state == Attached && !m.blocked {
			return false
		}
	}
	return true
}

// Cost returns for how long others waited for a member.
func (g *Group) Cost(id int) time.Duration { return g.members[id].cost }

// Gathers reports whether members wait for others to come.
func (g *Group) Gathers() bool { return g.count(Gathering) > 0 }

// Check starts the group if it is due, and charges the time since the last call to the members that
// are furthest behind of those that could take what is made, if the producer has no memory for more
// pieces (stuck), and if others wait for these. It detaches the members that have cost more than
// limit and freeShare of their time, until that is so no more, and returns them.
func (g *Group) Check(now time.Time, stuck bool, limit time.Duration) (detached []int) {
	g.gather(now)
	waiting, behind := g.Waiting()
	if !stuck || !waiting || !behind {
		g.heldUp = time.Time{}
		return nil
	}
	cost := min(now.Sub(g.heldUp), maxCharge)
	if g.heldUp.IsZero() {
		cost = 0
	}
	g.heldUp = now
	least := g.head
	for _, m := range g.members {
		if m.state == Attached && g.could(m) {
			least = min(least, m.next)
		}
	}
	for _, id := range g.Members() {
		m := g.members[id]
		if m.state != Attached || m.next != least || !g.could(m) {
			continue
		}
		m.cost += cost
		if cost > 0 && m.cost > limit+time.Duration(freeShare*float64(now.Sub(m.since))) {
			m.state = Private
			m.back = m.since.Add(time.Duration(float64(m.cost-limit) / freeShare))
			detached = append(detached, id)
		}
	}
	if detached != nil {
		g.heldUp = time.Time{}
		g.settle(0) // it must not attach again where it is
	}
	return detached
}
