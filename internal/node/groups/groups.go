// Package groups keeps the groups of a node's jobs that are given the same prepared batches, by
// name: jobs enter them, are compared with the first member, and leave. docs/SHARING.md has the
// reasons.
//
// A group has one feed (package engine/share/feed) for each local rank, whose producer is a rank of
// a job that no process opened, with the request of the first member. It ends with the last member.
//
// The producers of a group over several nodes are one job over these nodes, which the nodes of each
// member agree on when it opens (membership.Agree). A node then opens it for all of its ranks at
// once.
package groups

import (
	"context"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/engine/share/feed"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// keep is how many batches stay in the window after all members have taken them, so that a member
// that begins a little later can join.
const keep = 2

// Groups are the groups of a node. Its methods are safe for concurrent use.
type Groups struct {
	log *slog.Logger

	mu  sync.Mutex // guards the following, and fields marked so
	all map[string]*group
	// over has the ID of the last group over several nodes that has ended, by name.
	over map[string]string
}

// New returns a node's groups. There are none yet.
func New(log *slog.Logger) *Groups {
	return &Groups{log: log, all: make(map[string]*group), over: make(map[string]string)}
}

// group is a group from when the first job enters until the last one has left.
type group struct {
	name  string
	first request.Said
	seed  uint64
	team  *team // nil: the group is on one node
	log   *slog.Logger

	jobs  int              // guarded by Groups.mu; 0: the group is ending
	feeds map[int]*feeding // by rank; guarded by Groups.mu
	ended chan struct{}    // closed when it has ended
}

// feeding is a group's feed for a local rank. It is opened by the first member that needs it, and
// closed with the group.
type feeding struct {
	turn chan struct{} // holds a token unless it is being opened
	// The following are set with turn.
	feed     atomic.Pointer[feed.Feed] // nil: it is not open
	producer *node.Rank
}

// Enter implements node.Groups.
func (g *Groups) Enter(ctx context.Context, s request.Said) (node.Membership, error) {
	p := &membership{groups: g, name: s.Open.Group(s.Config), said: s}
	if err := g.lock(ctx, p.name); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	spans, one := s.Open.Spans(), g.all[p.name]
	follows := spans && s.Open.Cluster.Node > 0 // node 0 decides (Agree)
	switch {
	case follows:
		return p, nil
	case one == nil:
		seed := node.DrawSeed()
		if given := s.Open.Stream.Seed; given != nil {
			seed = *given
		}
		one = g.found(p.name, s, seed)
		if spans {
			one.team = newTeam(hex.EncodeToString(drawn(idBytes)), nil, s.Open.Stream)
		}
	default:
		if err := request.SameGroup(p.name, one.first, s, one.seed); err != nil {
			if spans { // the other nodes get the error: they wait for this one
				p.refused = err
				return p, nil
			}
			return nil, err
		}
	}
	one.jobs++
	p.group = one
	if p.joins() && !spans {
		p.epoch = one.epoch()
	}
	return p, nil
}

// lock locks mu once no group of a name is ending.
func (g *Groups) lock(ctx context.Context, name string) error {
	for {
		g.mu.Lock()
		one := g.all[name]
		if one == nil || one.jobs > 0 {
			return nil
		}
		g.mu.Unlock()
		select {
		case <-one.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// found makes a group the one of its name, without jobs. g.mu must be held.
func (g *Groups) found(name string, s request.Said, seed uint64) *group {
	m := *s.Open
	m.Stream.List = nil // it belongs to the caller
	one := &group{
		name: name,
		first: request.Said{
			Open: &m, Config: s.Config, Order: s.Order.Brief(), Root: s.Root,
		},
		seed: seed, feeds: make(map[int]*feeding), ended: make(chan struct{}),
		log: g.log.With("group", name),
	}
	g.all[name] = one
	return one
}

// forget makes room for another group of the name.
func (g *Groups) forget(one *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[one.name] == one {
		delete(g.all, one.name)
	}
	if one.team != nil {
		g.over[one.name] = one.team.id
	}
}

// leave ends the membership of a job. The last one ends the group.
func (g *Groups) leave(one *group) {
	g.mu.Lock()
	one.jobs--
	last := one.jobs == 0
	g.mu.Unlock()
	if !last {
		return
	}
	if one.team != nil {
		one.team.close(one.feeds)
	}
	for _, f := range one.feeds {
		if open := f.feed.Load(); open != nil {
			open.Close() // and its producer
		}
	}
	g.forget(one)
	close(one.ended)
}

// epoch returns the epoch of the member that is furthest, of all ranks of this node. Groups.mu must
// be held.
func (one *group) epoch() (epoch int) {
	for _, f := range one.feeds {
		if open := f.feed.Load(); open != nil {
			epoch = max(epoch, open.Epoch())
		}
	}
	return epoch
}

// feeding returns a group's feed for a rank, which may not be open.
func (g *Groups) feeding(one *group, rank int) *feeding {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := one.feeds[rank]
	if f == nil {
		f = &feeding{turn: make(chan struct{}, 1)}
		f.turn <- struct{}{}
		one.feeds[rank] = f
	}
	return f
}
