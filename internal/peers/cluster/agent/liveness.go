package agent

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/gossip"
)

const (
	rejoinPause = 5 * time.Second
	unheardTime = 10 * time.Second // after which a node that gossip has not seen is gone
)

func (a *Agent) sane(m *pb.Member) bool {
	_, _, err := cluster.SplitAddress(m.GetGossip())
	return int(m.GetNode()) < a.o.Nodes && err == nil
}

// learn stores a member as node 0 reports it; mu is held.
func (a *Agent) learn(m *pb.Member) {
	n := int(m.GetNode())
	old := a.nodes[n]
	now := &node{
		Member: cluster.Member{
			Node:     n,
			Exchange: m.GetExchange(),
			Ranks:    toInts(m.GetRanks()),
			Payload:  m.GetPayload(),
		},
		instance: m.GetInstance(), gossip: m.GetGossip(), down: m.GetDown(), since: time.Now(),
	}
	if n == a.o.Node {
		now.down = false
	}
	a.nodes[n] = now
	if old == nil || n == a.o.Node {
		return
	}
	same := old.instance == now.instance
	if same {
		now.unheard = old.unheard && now.down
		now.since = old.since
		now.seen = old.seen
	}
	if !old.down && (now.down || !same) {
		a.events.Put(event{n, false})
	}
	if !now.down && (old.down || !same) {
		a.events.Put(event{n, true})
	}
}

// mark notes that an instance is gone, or back. It reports whether that is news; mu is held.
func (a *Agent) mark(n int, instance string, down bool) bool {
	m := a.nodes[n]
	if m == nil || m.instance != instance || m.down == down || n == a.o.Node {
		return false
	}
	m.down = down
	a.o.Log.Info("a node was lost or came back", "node", n, "alive", !down)
	a.events.Put(event{n, !down})
	return true
}

// heard handles gossip's news of a node; memberlist calls it under its lock.
func (a *Agent) heard(n int, instance string, alive bool) {
	a.mu.Lock()
	m := a.nodes[n]
	news := false
	if m != nil && m.instance == instance {
		m.seen = true
		if !alive || m.unheard {
			m.unheard = !alive
			news = a.mark(n, instance, !alive)
		}
	}
	a.mu.Unlock()
	if news {
		a.report(n, instance, alive)
	}
}

// report has node 0, if this is it, notify all nodes that a node is gone, or back.
func (a *Agent) report(n int, instance string, alive bool) {
	switch {
	case a.hub == nil:
	case alive:
		a.hub.Up(n, instance)
	default:
		a.hub.Down(n, instance)
	}
}

// check finds out whether a node whose stream has ended is gone, which it is if its port refuses
// connections. A port that accepts connections, or does not answer, proves nothing; such a node is
// left to memberlist.
func (a *Agent) check(n int, instance, gossip string) {
	a.task(func() {
		for _, pause := range []time.Duration{
			0, 100 * time.Millisecond, 400 * time.Millisecond,
			1500 * time.Millisecond,
		} {
			select {
			case <-a.done:
				return
			case <-time.After(pause):
			}
			ctx, cancel := context.WithTimeout(a.life, checkTime)
			c, err := a.o.Network.Dial(ctx, gossip)
			cancel()
			if err == nil {
				_ = c.Close()
				continue
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				continue
			}
			if a.hub != nil {
				a.hub.Down(n, instance) // notifies this node as well
				return
			}
			a.mu.Lock()
			a.mark(n, instance, true)
			a.mu.Unlock()
			return
		}
	})
}

// rejoinLost periodically looks for nodes that gossip has lost: memberlist forgets nodes that were
// silent for long, so after a link was cut neither side would find the other again.
func (a *Agent) rejoinLost() {
	for i := 0; ; i++ {
		select {
		case <-a.done:
			return
		case <-time.After(rejoinPause):
		}
		unseen, lost := a.lostNodes(time.Now())
		if len(unseen) > 0 {
			_ = a.gossip.Join(unseen[i%len(unseen)]) // fails if the node is indeed gone
		}
		if n, looks := looksFor(a.o.Nodes, a.o.Node, len(lost), i); looks {
			_ = a.gossip.Join(lost[n])
		}
	}
}

// seekers is how many nodes look for a lost one at a time.
const seekers = 8

// looksFor returns which of so many lost nodes a node looks for in a round. Both send each other
// their state of all nodes, which gossip then spreads to the others, which have lost the same. So
// where many nodes look for few, they take turns.
func looksFor(nodes, node, lost, round int) (n int, looks bool) {
	if lost == 0 {
		return 0, false
	}
	every := max(1, nodes/(seekers*lost))
	turn := round + node
	return turn / every % lost, turn%every == 0
}

// lostNodes compares the members with the nodes that gossip has, and returns the addresses of
// those that gossip should look for: those that it has never seen, and those that it has lost.
// Gossip does not watch a node that it has never seen: if a link is cut before two nodes have seen
// each other, gossip never reports them as dead, so lostNodes does after unheardTime.
func (a *Agent) lostNodes(now time.Time) (unseen, lost []string) {
	a.mu.Lock()
	formed := a.hasFormed
	a.mu.Unlock()
	if !formed {
		return nil, nil
	}
	knows := a.gossip.Known()
	var unheard []*node
	a.mu.Lock()
	for _, n := range a.nodes {
		if n.Node == a.o.Node || knows[gossip.Name(n.Node, n.instance)] {
			continue
		}
		if !n.down && now.Sub(n.since) > unheardTime {
			n.unheard = true
			a.mark(n.Node, n.instance, true)
			unheard = append(unheard, n)
		}
		switch {
		case n.down && !n.unheard: // it is known to have ended
		case n.seen:
			lost = append(lost, n.gossip)
		default:
			unseen = append(unseen, n.gossip)
		}
	}
	a.mu.Unlock()
	for _, n := range unheard {
		a.report(n.Node, n.instance, false)
	}
	slices.Sort(unseen)
	slices.Sort(lost)
	return unseen, lost
}
