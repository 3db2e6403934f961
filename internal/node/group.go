package node

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Groups are the groups of jobs that are given the same prepared batches.
type Groups interface {
	// Enter enters a job into the group that its request names. It waits while a group of that name
	// ends.
	Enter(ctx context.Context, s request.Said) (Membership, error)
}

// Membership is a job's membership of a group.
type Membership interface {
	// Seed returns the group's seed, for a job without one; nil: another node decides it.
	Seed() *uint64
	// Agree settles with the other nodes of a job which group it is in on all of them. It is called
	// before Join if the job has several nodes. released is called when open is needed no more.
	Agree(ctx context.Context, team Team, open Opener, released func()) error
	// Epoch returns the epoch in which the job is to begin: that of the group when the job came, if
	// it is to join it there, else 0. It is the same on all nodes once Agree has returned.
	Epoch() int
	// Join makes a rank of the job a member, which leaves with its Close. The error is an Alone if
	// the rank is to prepare its batches itself.
	Join(ctx context.Context, r *Rank, open Opener) (job.Member, error)
	// Leave ends the membership. All members must have left.
	Leave()
}

// Team is what a group must know of a job on several nodes.
type Team struct {
	Nodes
	Seed uint64
	// Empties reports whether some rank would have an empty batch without drop_last, if the global
	// batch had this size.
	Empties func(globalBatch int) bool
}

// Nodes are the nodes of a job; see package coordinator.
type Nodes interface {
	Me() int
	Ranks() [][]int
	GatherInTime(ctx context.Context, what string, mine []byte) ([][]byte, error)
}

// Opener opens a job that prepares a group's batches, as one rank. listening, if not nil, is called
// with the address on which it listens for the other nodes.
type Opener func(ctx context.Context, m request.Open, listening func(net.Addr)) (*Rank, error)

// Alone is why a rank prepares its batches itself, although its group was not refused to it.
type Alone struct{ Reason error }

func (a Alone) Error() string { return a.Reason.Error() }

// settleGroup decides whether the job of a request is in the group that it names. If it cannot be,
// the request is refused if it has the name as an argument. Elsewhere the name is meant for all
// loaders of a script, and alone is why this one is opened for itself.
func (n *Node) settleGroup(o *opening) (alone, err error) {
	cfg := o.config
	if cfg.Share == "" {
		return nil, nil
	}
	why := unshareable(o)
	if n.options.Groups == nil {
		why = "this node has no groups"
	}
	if why == "" {
		return nil, nil
	}
	err = failure.Input("share = %q: %s", cfg.Share, why)
	if required(cfg) {
		return nil, err
	}
	cfg.Share = ""
	return err, nil
}

// producer returns what opens the jobs that prepare the batches of a request's group.
func (n *Node) producer(said *request.Order, view *source.View, progress request.Progress) Opener {
	return func(ctx context.Context, m request.Open, listening func(net.Addr)) (*Rank, error) {
		cfg, err := n.configure(&m, progress)
		if err != nil {
			return nil, err
		}
		cfg.Share = ""
		return n.open(ctx, opening{
			request: m, config: cfg, said: said, view: view, progress: progress, produces: true,
			listening: listening,
		})
	}
}

// agree settles with the other nodes which group the job is in.
func (e *entry) agree(ctx context.Context, said *request.Order, view *source.View) error {
	kept, err := view.Keep() // the group's job may be opened for longer than this process lives
	if err != nil {
		return err
	}
	stream := e.open.Order.Stream()
	return e.membership.Agree(ctx, Team{e.open.Coordinator, e.open.Job.Seed(), stream.Empties},
		e.node.producer(said, kept, func(request.Step) {}), func() { _ = kept.Close() })
}

// Opened returns the description of the job for its process.
func (r *Rank) Opened() job.Opened {
	o := r.Rank.Opened()
	if r.entry.membership != nil {
		o.Epoch = r.entry.membership.Epoch()
	}
	return o
}

// joinGroup makes the rank a member of the group of its job.
func (r *Rank) joinGroup(ctx context.Context, o *opening) (alone, err error) {
	kept, err := o.view.Keep()
	if err != nil {
		return nil, err
	}
	defer kept.Close()
	member, err := r.entry.membership.Join(ctx, r, r.entry.node.producer(o.said, kept, o.progress))
	switch {
	case err == nil:
		r.SetGroup(member)
	case errors.As(err, &Alone{}), errors.As(err, &job.Unshareable{}) && !required(o.config):
		return err, nil
	}
	return nil, err
}

// required reports whether a loader that cannot be in its group is refused.
func required(cfg *config.Config) bool { return cfg.Origins["share"].Source == "argument" }

// unshareable returns why a job's batches cannot be those of a group; "": they can.
func unshareable(o *opening) string {
	m, cfg := &o.request, o.config
	switch {
	case m.Spans() && cfg.Port != 0:
		return "port = " + strconv.Itoa(cfg.Port) + " sets the ports of this job, and the job that " +
			"prepares the group's batches on several nodes needs others: leave port out"
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
