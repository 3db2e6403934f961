package groups

import (
	"context"
	"encoding/hex"
	"sync"

	"github.com/hdmlp/hdmlp/internal/engine/share"
	"github.com/hdmlp/hdmlp/internal/engine/share/feed"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// membership is a job's membership of a group.
type membership struct {
	groups  *Groups
	name    string
	said    request.Said
	group   *group // nil: in none yet
	refused error  // why the job cannot be in the group, for all of its nodes
	epoch   int    // in which it begins
	once    sync.Once
}

// Seed implements node.Membership.
func (p *membership) Seed() *uint64 {
	if p.group == nil {
		return nil
	}
	seed := p.group.seed
	return &seed
}

// Epoch implements node.Membership.
func (p *membership) Epoch() int { return p.epoch }

// joins reports whether the job is to begin in the group's epoch. One that was open before goes on
// where it was.
func (p *membership) joins() bool { return p.said.Config.ShareJoin && !p.said.Open.Share.Again }

// Leave implements node.Membership.
func (p *membership) Leave() {
	p.once.Do(func() {
		if p.group != nil {
			p.groups.leave(p.group)
		}
	})
}

// Join implements node.Membership.
func (p *membership) Join(ctx context.Context, r *node.Rank, open node.Opener) (job.Member, error) {
	f := p.groups.feeding(p.group, r.Number())
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
	if f.feed.Load() == nil {
		if err := p.open(ctx, f, r, open); err != nil {
			return nil, err
		}
	}
	if mine, theirs := r.Fingerprint(), f.producer.Fingerprint(); mine != theirs {
		return nil, failure.Differs("dataset", hex.EncodeToString(mine[:]),
			hex.EncodeToString(theirs[:]), nil, "share = %q: this job sees another version of %s "+
				"than the group: %x, and %x in the group; open the same dataset, or give this job "+
				"another group", p.name, p.said.Open.Dataset.Path, mine[:8], theirs[:8])
	}
	wanted := p.said.Config.ShareMembers
	if p.said.Open.Share.Again {
		wanted = 0 // the others may have ended
	}
	return f.feed.Load().Join(p.said.Open.Job, shape, wanted, p.said.Open.Share.Ahead), nil
}

// shapeOf returns the shape of a rank's epochs.
func shapeOf(r *node.Rank) (s feed.Shape, err error) {
	s.Steps, s.Samples, s.Batch, err = r.Shape()
	return s, err
}

// open opens the feed for a rank, and its producer. f.turn must be held.
func (p *membership) open(ctx context.Context, f *feeding, r *node.Rank, open node.Opener) error {
	producer, err := p.producer(ctx, r, open)
	if err != nil {
		return err
	}
	shape, err := shapeOf(producer)
	if err == nil {
		var made *feed.Feed
		made, err = feed.New(feed.Options{
			Options: share.Options{Deadline: p.said.Config.StartTimeout, Keep: keep},
			Name:    p.name, Producer: producer, Shape: shape, Log: p.group.log,
		})
		if err == nil {
			f.producer = producer
			f.feed.Store(made)
			return nil
		}
	}
	if p.group.team == nil {
		producer.Close()
	}
	return err
}

// producer returns the producer for a rank, which it opens unless the group has several nodes.
func (p *membership) producer(ctx context.Context, r *node.Rank,
	open node.Opener,
) (*node.Rank, error) {
	if t := p.group.team; t != nil {
		return t.rank(ctx, p.name, r.Number())
	}
	m := p.request(p.group.first.Open.Stream, r.Empties)
	m.Job, m.Rank = "share "+p.name, r.Number()
	m.Settings = p.group.first.Open.Settings
	return open(ctx, m, nil)
}

// request returns the request for the group's producer, as the job's is, but with the batches and
// epochs of the group's first member.
func (p *membership) request(first request.Stream,
	empties func(globalBatch int) bool,
) request.Open {
	m, seed := *p.said.Open, p.group.seed
	m.Stream.GlobalBatch, m.Stream.Epochs = first.GlobalBatch, first.Epochs
	// A member with smaller batches than the first one's needs samples of the last batch, which the
	// first one drops. If the batch is empty on some rank, no batch has more samples than are left.
	m.Stream.DropLast = m.Stream.DropLast && empties(first.GlobalBatch)
	m.Stream.Seed = &seed
	m.Stream.List = nil
	return m
}
