// Package job puts a training job together: its access stream, its plan, the
// cache of its dataset, and one staging buffer per rank. It holds the job's state
// and answers what its ranks ask: what it waited for, whether every sample was
// delivered exactly once, which samples a step had.
//
// A Node owns the jobs of a machine, and the catalog of what they share. All methods of Node, Job and Rank are safe
// for concurrent use.
package job

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/hdmlp/hdmlp/internal/catalog"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/planner"
	"github.com/hdmlp/hdmlp/internal/request"
)

// Options are what a node is given.
type Options struct {
	Kinds catalog.Kinds // of datasets and storage classes
	// Machine measures what defaults are derived from.
	Machine config.Machine
	// Samples, if not nil, stands between this node's samples and the other nodes: what they connect to is what it makes of
	// the listener. For tests, of nodes that lie.
	Samples func(net.Listener) net.Listener
	// Claims, if not nil, is where the node notes what its jobs may still take, for a storage class that is to leave that alone.
	Claims *Claims
	// Version is the software's, the same on all nodes of a job.
	Version string
	// Protocol is the version of the protocol that processes speak with it, which nodes compare as well.
	Protocol int
}

// Node is a machine, or a part of one, that has jobs.
type Node struct {
	options Options
	log     *slog.Logger
	catalog *catalog.Catalog
	claims  *Claims

	strategy planner.Strategy // tests have others

	mu     sync.Mutex      // guards what follows
	jobs   map[string]*Job // by name
	closed bool
}

// NewNode returns a node without jobs.
func NewNode(o Options, log *slog.Logger) *Node {
	return &Node{
		options: o, log: log, claims: cmp.Or(o.Claims, NewClaims()), catalog: catalog.New(o.Kinds, log), jobs: make(map[string]*Job),
	}
}

// Close releases the storage classes. No job may be open, and none is opened any more. Where a read from the
// source hangs, they are left to the end of the process.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	return n.catalog.Close()
}

// OpenDataset opens a dataset for somebody who has no job, or joins those who have it open.
func (n *Node) OpenDataset(ctx context.Context, spec dataset.Spec, view *dataset.View, cfg *config.Config, progress catalog.Progress) (*catalog.Dataset, error) {
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

// has tells whether the job is there already, or a cache of its dataset.
func (n *Node) has(m *request.Open) bool {
	n.mu.Lock()
	there := n.jobs[m.Job] != nil
	n.mu.Unlock()
	return there || n.catalog.Cached(m.Dataset)
}
