package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Rank is a rank of a job that is open on this node. Close leaves the job, which ends with its last
// rank.
type Rank struct {
	*job.Rank
	entry  *entry
	forget func() // removes its process's view of the dataset; may be nil
	leave  sync.Once
	once   sync.Once
}

// Leave announces that Close will follow: the rank needs no more, though what was begun for it has
// not ended. A job that needs another cache of the dataset then waits for this one's end. A rank
// that is nil has nothing to leave.
func (r *Rank) Leave() {
	if r != nil {
		r.leave.Do(r.entry.leave)
	}
}

// Close leaves the job. Run must have returned.
func (r *Rank) Close() {
	r.once.Do(func() {
		r.Leave()
		r.Rank.Close()
		if r.forget != nil {
			r.forget()
		}
		if r.entry.turns != nil {
			r.entry.turns.Leave(r.Number())
		}
		r.entry.release(1)
	})
}

// Open creates the job of the request, or joins it, as one rank. The rank's Close leaves it; the
// job ends with its last rank. view is the dataset as the rank's process sees it; nil: as this
// process does. It belongs to the caller, and its Renew must work until the Rank is closed.
func (n *Node) Open(ctx context.Context, m request.Open, view *source.View,
	progress request.Progress,
) (*Rank, error) {
	o, err := n.read(m, view, progress)
	if err != nil {
		return nil, err
	}
	alone, err := n.settleGroup(&o)
	if err != nil {
		return nil, err
	}
	r, err := n.open(ctx, o)
	if err != nil {
		return nil, err
	}
	if r.entry.membership != nil {
		if alone, err = r.joinGroup(ctx, &o); err != nil {
			r.Close()
			return nil, err
		}
	}
	if alone != nil {
		r.entry.open.Job.Warn(alone.Error() + "; the loader prepares its batches itself")
	}
	return r, nil
}

// opening is a request to open a job, and what was made of it.
type opening struct {
	request  request.Open
	config   *config.Config
	said     *request.Order
	view     *source.View
	progress request.Progress
	produces bool // the job prepares the batches of a group
	// listening, if not nil, is called with the address on which node 0 listens.
	listening func(net.Addr)
}

// read resolves a request's configuration, and reads its order.
func (n *Node) read(m request.Open, view *source.View, progress request.Progress) (
	o opening, err error,
) {
	if err := m.Check(); err != nil {
		return o, err
	}
	cfg, err := n.configure(&m, progress)
	if err != nil {
		return o, err
	}
	if m.Leave {
		cfg.OnError = string(stage.Leave)
	}
	if m.Manifest != nil {
		m.Dataset.Manifest, err = request.ReadManifest(m.Manifest, n.options.Budget.Check)
		if err != nil {
			return o, err
		}
	}
	said, err := request.ReadOrder(&m, n.options.Budget.Check)
	return opening{request: m, config: cfg, said: said, view: view, progress: progress}, err
}

// configure resolves a request's configuration.
func (n *Node) configure(m *request.Open, progress request.Progress) (*config.Config, error) {
	slow := func(dir string) { progress(request.CacheWaits(dir)) }
	cfg, err := n.resolve(m.Settings, n.options.Machine, slow)
	if err == nil || !n.has(m) {
		return cfg, err
	}
	// The defaults do not fit because of what this job, or another one on the dataset, has already
	// taken: resolve without limits of the machine, since the rank shares that.
	cfg, err = n.resolve(m.Settings, config.Machine{}, slow)
	if err == nil && !n.has(m) {
		return n.configure(m, progress) // it has just ended
	}
	return cfg, err
}

// open creates or joins a job, whether or not it is in a group.
func (n *Node) open(ctx context.Context, o opening) (*Rank, error) {
	m := o.request
	cfg := o.config
	said := o.said
	view := o.view
	e, made, err := n.enter(o)
	if err != nil {
		return nil, err
	}
	if made {
		if e.err = e.assemble(ctx, &o); e.err != nil {
			if ctx.Err() != nil {
				e.err = ctx.Err()
			}
			e.forget() // so that a rank that comes now tries again
		}
		close(e.ready)
	}
	select {
	case <-e.ready:
	case <-ctx.Done():
		e.quit(m.Rank)
		return nil, ctx.Err()
	}
	if !made && errors.Is(e.err, context.Canceled) && ctx.Err() == nil {
		e.release(0)
		// The rank that made it went away, and with it what the configuration was resolved beside.
		if o.config, err = n.configure(&m, o.progress); err != nil {
			return nil, err
		}
		o.config.Share = cfg.Share // as it was settled
		return n.open(ctx, o)
	}
	r, err := e.join(ctx, &m, cfg, said, view, made)
	if err != nil {
		e.quit(m.Rank)
		return nil, err
	}
	e.opened(m.Rank)
	return r, nil
}

// enter returns the entry of the job, with a reference that the caller must release. made reports
// whether it is new: then the caller must assemble it.
func (n *Node) enter(o opening) (e *entry, made bool, err error) {
	m := o.request
	cfg := o.config
	said := o.said
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, false,
			&failure.Error{
				Kind:    failure.Busy,
				Message: "the daemon is shutting down; restart this process",
			}
	}
	e = n.jobs[m.Job]
	if made = e == nil; made {
		e = newEntry(n, m, cfg)
		e.produces = o.produces
		if said.Part != nil {
			e.turns = order.NewTurns(e.life, cfg.StartTimeout, e.log)
		}
		n.jobs[m.Job] = e
	} else if err := m.Alongside(&e.request); err != nil {
		return nil, false, err
	}
	if e.turns != nil && said.Part != nil {
		e.turns.Came(said.Part)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refs++
	e.left = 0
	e.opening[m.Rank]++
	if !slices.Contains(e.came, m.Rank) {
		e.came = append(e.came, m.Rank)
		close(e.changed)
		e.changed = make(chan struct{})
	}
	return e, made, nil
}

// assemble opens the dataset, and assembles the job.
func (e *entry) assemble(ctx context.Context, o *opening) error {
	m := &e.request
	said := o.said
	view := o.view
	progress := o.progress
	spec := Spec{
		Request: m, Config: e.config, Said: said, Turns: e.turns, Life: e.life, End: e.end,
		Produces: e.produces, Listening: o.listening,
		Local: e, Ranks: e.localRanks, Stays: e.stays, Progress: progress, Log: e.log,
	}
	if e.config.Share != "" {
		s := request.Said{Open: m, Config: e.config, Order: said, Root: view.DirectoryID()}
		membership, err := e.node.options.Groups.Enter(ctx, s)
		if err != nil {
			return err
		}
		e.membership, spec.Drawn = membership, membership.Seed()
	}
	d, err := e.node.catalog.Open(ctx, m.Dataset, view, catalog.OpenOptions{
		Config: e.config,
		Progress: func(p catalog.Progress) {
			if p.Text == "" {
				e.scanned.Store(p.Files)
			}
			progress(step(m.Dataset.Path, p))
		},
	})
	if err != nil {
		return err
	}
	if view != nil {
		if e.vantage, err = source.VantageOf(view.Slash); err != nil {
			d.Close()
			return err
		}
		e.access = view.Access
	}
	e.dataset, spec.Dataset = d, d
	if e.open, err = Assemble(ctx, &e.node.options.Shared, spec); err != nil {
		return err
	}
	if e.membership != nil && m.Spans() {
		return e.agree(ctx, said, view)
	}
	return nil
}

// join adds the rank to the job, if the job could be opened and the rank's parameters agree with
// those of the rank that made it.
func (e *entry) join(ctx context.Context, m *request.Open, cfg *config.Config, said *request.Order,
	view *source.View, made bool,
) (*Rank, error) {
	if e.err != nil {
		return nil, e.err
	}
	if !made {
		first := request.Said{Open: &e.request, Config: e.open.Config, Order: e.open.Order.Said()}
		if err := request.Compare(first, request.Said{Open: m, Config: cfg, Order: said},
			e.open.Job.Seed()); err != nil {
			return nil, e.open.Job.Disagree(m.Rank, err)
		}
		if err := e.sees(ctx, m, view); err != nil {
			return nil, e.open.Job.Disagree(m.Rank, err)
		}
	}
	joined, err := e.open.Job.Join(m.Rank, m.Verify)
	if err != nil {
		return nil, err
	}
	// Not before: the part of a process whose rank is in use by another one is not the rank's.
	if !made && e.turns != nil {
		if err := e.turns.Rejoin(said.Part); err != nil {
			joined.Close()
			return nil, err
		}
	}
	r := &Rank{Rank: joined, entry: e}
	if view != nil {
		r.forget = e.dataset.See(view)
	}
	return r, nil
}

// sees returns an error if the rank's process, which may run in another container, sees another
// dataset at the path than the process that made the job. If both see the same directory from the
// same place, the dataset need not be opened to know.
func (e *entry) sees(ctx context.Context, m *request.Open, view *source.View) error {
	if view == nil {
		return nil
	}
	vantage, err := source.VantageOf(view.Slash)
	if err != nil {
		return err
	}
	if view.Access != nil {
		// Other keys prove themselves by opening the dataset.
		if view.Access.Same(e.access) {
			return nil
		}
	} else {
		var root unix.Stat_t
		if err := unix.Fstat(int(view.Root.Fd()), &root); err != nil {
			return fmt.Errorf("look at the root of %s: %w", request.Name(m.Dataset.Path), err)
		}
		if device, inode := e.dataset.DirectoryID(); vantage.Same(e.vantage) && root.Dev == device &&
			root.Ino == inode {
			return nil
		}
	}
	d, err := e.node.catalog.Open(ctx, m.Dataset, view, catalog.OpenOptions{Config: e.open.Config})
	if err != nil {
		return err
	}
	defer d.Close()
	mine, theirs := d.Index().Fingerprint(), e.dataset.Index().Fingerprint()
	if mine == theirs {
		return nil
	}
	return failure.Differs("dataset", hex.EncodeToString(mine[:]), hex.EncodeToString(theirs[:]),
		nil,
		"rank %d sees another dataset at %s than rank %d of job %s: version %x on rank %[1]d and "+
			"%[6]x on rank %[3]d; mount the same dataset for all ranks",
		m.Rank, m.Dataset.Path, e.request.Rank, request.Name(m.Job), mine[:8], theirs[:8])
}
