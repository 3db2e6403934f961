// Package groups keeps the groups of a node's jobs that are given the same prepared batches, by
// name: jobs enter them, are compared with the first member, and leave. ARCHITECTURE.md, "Jobs that
// share what they prepare", has the reasons.
//
// A group has one feed (package share/feed) for each local rank, whose producer is a job that no
// process opened, with the request of the first member. It ends with the last member.
package groups

import (
	"context"
	"encoding/hex"
	"log/slog"
	"sync"

	"github.com/hdmlp/hdmlp/internal/assembly"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/job"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/share"
	"github.com/hdmlp/hdmlp/internal/share/feed"
)

// keep is how many batches stay in the window after all members have taken them, so that a member
// that begins a little later can join.
const keep = 2

// Groups are the groups of a node. Its methods are safe for concurrent use.
type Groups struct {
	log *slog.Logger

	mu  sync.Mutex // guards the following, and places of groups
	all map[string]*group
}

// New returns a node's groups. There are none yet.
func New(log *slog.Logger) *Groups {
	return &Groups{log: log, all: make(map[string]*group)}
}

// group is a group from when the first member enters until the last one leaves.
type group struct {
	name   string
	first  request.Said
	seed   uint64
	places int // guarded by Groups.mu
	feeds  map[int]*feeding
	log    *slog.Logger
}

// feeding is a group's feed for a local rank. It is opened by the first member that needs it.
type feeding struct {
	turn    chan struct{} // holds a token unless it is being opened or closed
	members int           // guarded by turn, as the following
	feed    *feed.Feed    // nil: it is not open
	rank    *node.Rank    // the producer
}

// name returns the name of a request's group. A name that was given as an argument is meant for
// that loader; elsewhere it is meant for all loaders of a script, whose groups are distinct.
func name(s request.Said) string {
	if s.Config.Origins["share"].Source == "argument" {
		return s.Config.Share
	}
	return s.Config.Share + "/" + s.Open.Share.Loader
}

// Enter implements node.Groups.
func (g *Groups) Enter(s request.Said) (node.Place, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := name(s)
	one := g.all[id]
	if one == nil {
		m := *s.Open
		m.Stream.List = nil // it belongs to the caller
		one = &group{
			name: id,
			first: request.Said{
				Open: &m, Config: s.Config, Order: s.Order.Brief(), Root: s.Root,
			},
			seed: assembly.DrawSeed(), feeds: make(map[int]*feeding), log: g.log.With("group", id),
		}
		if given := s.Open.Stream.Seed; given != nil {
			one.seed = *given
		}
		g.all[id] = one
	} else if err := request.SameGroup(id, one.first, s, one.seed); err != nil {
		return nil, err
	}
	f := one.feeds[s.Open.Rank]
	if f == nil {
		f = &feeding{turn: make(chan struct{}, 1)}
		f.turn <- struct{}{}
		one.feeds[s.Open.Rank] = f
	}
	one.places++
	return &place{groups: g, group: one, said: s, feeding: f}, nil
}

// place is a rank's place in a group.
type place struct {
	groups  *Groups
	group   *group
	said    request.Said
	feeding *feeding
	once    sync.Once
}

// Seed implements node.Place.
func (p *place) Seed() uint64 { return p.group.seed }

// Leave implements node.Place.
func (p *place) Leave() {
	p.once.Do(func() {
		p.groups.mu.Lock()
		defer p.groups.mu.Unlock()
		p.group.places--
		if p.group.places == 0 && p.groups.all[p.group.name] == p.group {
			delete(p.groups.all, p.group.name)
		}
	})
}

// Join implements node.Place.
func (p *place) Join(ctx context.Context, r *node.Rank,
	open func(context.Context, request.Open) (*node.Rank, error),
) (job.Member, error) {
	f := p.feeding
	select {
	case <-f.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { f.turn <- struct{}{} }()
	shape, err := shapeOf(r)
	if err != nil {
		return nil, err
	}
	if f.feed == nil {
		if err := p.open(ctx, r, open); err != nil {
			return nil, err
		}
	}
	if mine, theirs := r.Fingerprint(), f.rank.Fingerprint(); mine != theirs {
		p.closeUnused()
		return nil, failure.Differs("dataset", hex.EncodeToString(mine[:]),
			hex.EncodeToString(theirs[:]), nil, "share = %q: this job sees another version of %s "+
				"than the group: %x, and %x in the group; open the same dataset, or give this job "+
				"another group", p.group.name, p.said.Open.Dataset.Path, mine[:8], theirs[:8])
	}
	f.members++
	wanted := p.said.Config.ShareMembers
	if p.said.Open.Share.Again {
		wanted = 0 // the others may have ended
	}
	return &member{f.feed.Join(p.said.Open.Job, shape, wanted), p}, nil
}

// shapeOf returns the shape of a rank's epochs.
func shapeOf(r *node.Rank) (s feed.Shape, err error) {
	s.Steps, s.Samples, s.Batch, err = r.Shape()
	return s, err
}

// open opens the feed and its producer, for a rank. p.feeding.turn must be held.
func (p *place) open(ctx context.Context, r *node.Rank,
	open func(context.Context, request.Open) (*node.Rank, error),
) error {
	first := p.group.first.Open
	m := *p.said.Open
	m.Job = producerName(p.group.name)
	m.Settings = first.Settings
	m.Stream.GlobalBatch, m.Stream.Epochs = first.Stream.GlobalBatch, first.Stream.Epochs
	// A member with smaller batches than the first one's needs samples of the last batch, which the
	// first one drops. If the batch is empty on some rank, no batch has more samples than are left.
	m.Stream.DropLast = first.Stream.DropLast && r.Empties(first.Stream.GlobalBatch)
	seed := p.group.seed
	m.Stream.Seed = &seed
	rank, err := open(ctx, m)
	if err != nil {
		return err
	}
	shape, err := shapeOf(rank)
	if err == nil {
		cfg := p.said.Config
		p.feeding.feed, err = feed.New(feed.Options{
			Options: share.Options{Deadline: cfg.StartTimeout, Keep: keep},
			Name:    p.group.name, Producer: rank, Shape: shape, Log: p.group.log,
		})
	}
	if err != nil {
		rank.Close()
		return err
	}
	p.feeding.rank = rank
	return nil
}

// producerName returns the name of the job that prepares a group's batches.
func producerName(group string) string { return "share " + group }

// closeUnused closes the feed if it has no members. p.feeding.turn must be held.
func (p *place) closeUnused() {
	f := p.feeding
	if f.members == 0 && f.feed != nil {
		f.feed.Close() // and its producer
		f.feed, f.rank = nil, nil
	}
}

// member is a feed's member that gives up its place when it leaves.
type member struct {
	*feed.Member
	place *place
}

// Close leaves the group.
func (m *member) Close() {
	m.Member.Close()
	f := m.place.feeding
	<-f.turn
	f.members--
	m.place.closeUnused()
	f.turn <- struct{}{}
	m.place.Leave()
}
