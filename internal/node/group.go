package node

import (
	"context"
	"errors"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/job"
	"github.com/hdmlp/hdmlp/internal/request"
)

// Groups are the groups of jobs that are given the same prepared batches.
type Groups interface {
	// Enter reserves a place in the group that a request names.
	Enter(s request.Said) (Place, error)
}

// Place is a rank's place in a group.
type Place interface {
	// Seed returns the group's seed, for a request without one.
	Seed() uint64
	// Join makes a rank a member. open opens a job that prepares the group's batches, as one rank.
	// The member's Close gives up the place.
	Join(ctx context.Context, r *Rank, open func(context.Context, request.Open) (*Rank, error)) (
		job.Member, error)
	// Leave gives up a place without a member.
	Leave()
}

// openMember opens the job of a request that names a group. If that cannot be its group, the
// request is refused if it has the name as an argument. Elsewhere the name is meant for all loaders
// of a script, and one that cannot be in a group is opened for itself, with a warning.
func (n *Node) openMember(ctx context.Context, o opening) (*Rank, error) {
	m, cfg := &o.request, o.config
	why := unshareable(o)
	if n.options.Groups == nil {
		why = "this node has no groups"
	}
	if why != "" {
		err := failure.Input("share = %q: %s", cfg.Share, why)
		if required(cfg) {
			return nil, err
		}
		r, failed := n.open(ctx, o)
		if failed == nil {
			r.goesAlone(err)
		}
		return r, failed
	}
	said := request.Said{Open: m, Config: cfg, Order: o.said, Root: o.view.Place()}
	place, err := n.options.Groups.Enter(said)
	if err != nil {
		return nil, err
	}
	if m.Stream.Seed == nil {
		seed := place.Seed()
		m.Stream.Seed = &seed
	}
	r, err := n.open(ctx, o)
	if err != nil {
		place.Leave()
		return nil, err
	}
	member, err := place.Join(ctx, r,
		func(ctx context.Context, m request.Open) (*Rank, error) {
			p, err := n.read(m, o.view.WithoutRenew(), o.progress)
			if err != nil {
				return nil, err
			}
			p.produces = true
			return n.open(ctx, p)
		})
	if err != nil {
		place.Leave()
		if errors.As(err, &job.Unshareable{}) && !required(cfg) {
			r.goesAlone(err)
			return r, nil
		}
		r.Close()
		return nil, err
	}
	r.SetGroup(member)
	return r, nil
}

// required reports whether a loader that cannot be in its group is refused.
func required(cfg *config.Config) bool { return cfg.Origins["share"].Source == "argument" }

// goesAlone warns of why the rank is in no group.
func (r *Rank) goesAlone(why error) {
	r.entry.open.Job.Warn(why.Error() + "; the loader prepares its batches itself")
}

// unshareable returns why a job's batches cannot be those of a group; "": they can.
func unshareable(o opening) string {
	m, cfg := &o.request, o.config
	// First: it is also why a process runs the rest of them in workers.
	if program, err := request.Compile(m.Transforms); err == nil && program.Ragged() {
		return "the transforms that the daemon applies give images of different sizes, which cannot " +
			"be shared yet: add one that gives all the same size, such as RandomResizedCrop"
	}
	switch {
	case m.Share.Unable != "":
		return m.Share.Unable
	case m.Spans():
		return "jobs on several nodes cannot share prepared batches yet; leave share out, or use " +
			"one node"
	case m.Stream.Given != nil:
		return "the process draws the order itself, so that it is not known whether other jobs " +
			"have the same; give seed= with shuffle=True, or a DistributedSampler"
	case !m.Transformed():
		return "there are no transforms that the daemon applies, and so nothing to share: samples " +
			"as they are read are shared by all jobs of a node; leave share out"
	case cfg.OnError != "raise":
		return "on_error = " + cfg.OnError + " is not possible in a group yet: use on_error = raise"
	case !cfg.Prefetches():
		return "policy = " + cfg.Policy + " prepares no batch before it is asked for; use another " +
			"policy"
	}
	return ""
}

// Fingerprint returns the version of the dataset that the rank's job reads.
func (r *Rank) Fingerprint() [16]byte { return r.entry.dataset.Index().Fingerprint() }
