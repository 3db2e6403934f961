package node

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Options are the options of a Node.
type Options struct {
	Shared
	Kinds  catalog.Kinds // kinds of datasets and storage classes
	Groups Groups        // nil: jobs cannot be in groups
	// Machine determines the defaults.
	Machine config.Machine
	// Watch, if not nil, starts to watch the machine's memory. The node stops it when it is closed.
	Watch func() (stop func())
}

// Node holds the jobs of a machine, or of a part of one.
type Node struct {
	options Options
	log     *slog.Logger
	catalog *catalog.Catalog
	stop    func() // ends Watch

	launches launches

	mu     sync.Mutex        // guards the following
	jobs   map[string]*entry // by name
	closed bool
}

// New returns a node without jobs, which must be closed if it has a Watch. It sets the fields of
// the budget that describe the machine.
func New(o Options, log *slog.Logger) *Node {
	n := &Node{
		options: o,
		log:     log,
		catalog: catalog.New(o.Kinds, log),
		jobs:    make(map[string]*entry),
	}
	n.options.Processors = o.Machine.Processors
	o.Budget.Available = o.Machine.AvailableMemory
	o.Budget.Bound = o.Machine.MemoryBound
	o.Budget.Promised = n.catalog.Promised
	n.stop = func() {}
	if o.Watch != nil {
		n.stop = o.Watch()
	}
	return n
}

// Close releases the storage classes. No job may be open, and none can be opened any more. If a
// read from the source hangs, they remain open until the process exits.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.stop()
	n.launches.close()
	return n.catalog.Close()
}

// OpenOptions are the options of OpenDataset.
type OpenOptions struct {
	Config   *config.Config
	Launch   *request.Launch  // the process's; nil: it is on no other nodes
	Progress request.Progress // nil: it is not reported
}

// OpenDataset opens a dataset for a process without a job, or joins the one that is already open.
func (n *Node) OpenDataset(ctx context.Context, spec source.Spec, view *source.View,
	o OpenOptions,
) (*catalog.Dataset, error) {
	x, err := n.newExchange(o.Launch, o.Config)
	if err != nil {
		n.log.Warn("this node passes no indexes to the other nodes of the job, and receives none",
			"error", err)
	}
	return n.catalog.Open(ctx, spec, view, catalog.OpenOptions{
		Config: o.Config, Exchange: x,
		Progress: func(p catalog.Progress) {
			if o.Progress != nil {
				o.Progress(step(spec.Path, p))
			}
		},
	})
}

// step returns what is reported of the opening of a dataset.
func step(path string, p catalog.Progress) request.Step {
	if p.Text != "" {
		return request.Step{What: p.Text, Warning: p.Warning}
	}
	return request.Scanning(path, p.Files)
}

// Resolve returns the configuration from what a process sent.
func (n *Node) Resolve(s request.Settings) (*config.Config, error) {
	return n.resolve(s, n.options.Machine, nil)
}

// resolve is Resolve on a machine. slow is called for a directory that does not answer.
func (n *Node) resolve(s request.Settings, machine config.Machine,
	slow func(dir string),
) (*config.Config, error) {
	return config.Resolve(config.Input{
		Arguments:   s.Arguments,
		Scope:       config.Job,
		Environment: s.Environment,
		File:        cmp.Or(s.ConfigFile, config.DefaultFile(s.Environment)),
		Machine:     machine,
		Classes:     n.options.Kinds.Classes,
		Slow:        slow,
	})
}

// has reports whether the job is already listed, or its dataset cached.
func (n *Node) has(m *request.Open) bool {
	n.mu.Lock()
	there := n.jobs[m.Job] != nil
	n.mu.Unlock()
	return there || n.catalog.Cached(m.Dataset)
}
