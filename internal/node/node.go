// Package node is a machine, or a part of one, that has jobs: it knows them by name, lets ranks
// open and join them, and has the catalog of the datasets that they share.
//
// All methods of Node and Rank are safe for concurrent use.
package node

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/hdmlp/hdmlp/internal/assembly"
	"github.com/hdmlp/hdmlp/internal/catalog"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/request"
)

// Options are what a node is given.
type Options struct {
	assembly.Node
	Kinds catalog.Kinds // of datasets and storage classes
	// Machine measures what defaults are derived from.
	Machine config.Machine
}

// Node is a machine, or a part of one, that has jobs.
type Node struct {
	options Options
	log     *slog.Logger
	catalog *catalog.Catalog

	mu     sync.Mutex        // guards what follows
	jobs   map[string]*entry // by name
	closed bool
}

// New returns a node without jobs. The budget is told what it has to know of the machine.
func New(o Options, log *slog.Logger) *Node {
	n := &Node{
		options: o,
		log:     log,
		catalog: catalog.New(o.Kinds, log),
		jobs:    make(map[string]*entry),
	}
	n.options.Processors = o.Machine.Processors
	o.Budget.Available, o.Budget.Bound, o.Budget.Promised = o.Machine.AvailableMemory,
		o.Machine.MemoryBound, n.catalog.Promised
	return n
}

// Close releases the storage classes. No job may be open, and none is opened any more. Where a read
// from the source hangs, they are left to the end of the process.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	return n.catalog.Close()
}

// OpenDataset opens a dataset for a process that has no job, or joins those that have it open.
func (n *Node) OpenDataset(ctx context.Context, spec dataset.Spec, view *dataset.View,
	cfg *config.Config, progress catalog.Progress,
) (*catalog.Dataset, error) {
	return n.catalog.Open(ctx, spec, view, cfg, progress)
}

// Resolve makes a configuration of what a process sent.
func (n *Node) Resolve(s request.Settings) (*config.Config, error) {
	return n.resolve(s, n.options.Machine)
}

func (n *Node) resolve(s request.Settings, machine config.Machine) (*config.Config, error) {
	return config.Resolve(config.Input{
		Arguments:   s.Arguments,
		Environment: s.Environment,
		File:        cmp.Or(s.ConfigFile, config.DefaultFile(s.Environment)),
		Machine:     machine,
		Classes:     n.options.Kinds.Classes,
	})
}

// has reports whether the job is there already, or a cache of its dataset.
func (n *Node) has(m *request.Open) bool {
	n.mu.Lock()
	there := n.jobs[m.Job] != nil
	n.mu.Unlock()
	return there || n.catalog.Cached(m.Dataset)
}
