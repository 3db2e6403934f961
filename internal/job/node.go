// Package job puts a training job together: its access stream, its plan, the
// cache of its dataset, and one staging buffer per rank. It holds the job's state
// and answers what its ranks ask: what it waited for, whether every sample was
// delivered exactly once, which samples a step had.
//
// A Node owns what the jobs of a machine share: datasets, storage classes, and
// for each dataset one cache. It is given the kinds of sources and classes that
// there are, and knows none by itself. All methods of Node, Job and Rank are safe
// for concurrent use.
package job

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// OpenedSource is a source with the index of its samples.
type OpenedSource interface {
	dataset.Source
	Index() *dataset.Index
}

// SourceOptions are what a job's configuration says about its source.
type SourceOptions struct {
	Config   *config.Config
	Progress func(files int64) // how far a scan has come; may be called often
	Warn     func(text string)
}

// Kinds are the kinds of sources and storage classes, by the names that users
// give them. cmd/hdmlp fills them in.
type Kinds struct {
	Sources map[string]func(ctx context.Context, spec protocol.DatasetMessage, o SourceOptions) (OpenedSource, error)
	Classes map[string]func(c config.StorageClass, warn func(string)) (storageclass.Class, error)
	// Machine measures what defaults are derived from.
	Machine config.Machine
	// Samples, if not nil, stands between this node's samples and the other nodes: what they connect to is what it makes of
	// the listener. For tests, of nodes that lie.
	Samples func(net.Listener) net.Listener
	// Version is the software's, the same on all nodes of a job.
	Version string
}

// Node holds what the jobs of a machine share.
type Node struct {
	kinds Kinds
	log   *slog.Logger

	mu       sync.Mutex
	datasets map[string]*sharedDataset     // by datasetKey
	classes  map[string]storageclass.Class // by kind and path
	jobs     map[string]*Job               // by name
	closed   bool

	// These two but for tests: planAtOnce, and placement.ByName.
	planAtOnce time.Duration
	policy     func(name string) (placement.Policy, error)

	stuck atomic.Bool // a read hangs: some storage class stays open for good
}

// NewNode returns a node without jobs.
func NewNode(kinds Kinds, log *slog.Logger) *Node {
	return &Node{
		kinds:    kinds,
		log:      log,
		datasets: make(map[string]*sharedDataset),
		classes:  make(map[string]storageclass.Class),
		jobs:     make(map[string]*Job),

		planAtOnce: planAtOnce, policy: placement.ByName,
	}
}

// Close releases the storage classes. No job may be open. Where a read from the
// source hangs, they are left to the end of the process.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.stuck.Load() {
		return nil
	}
	var errs []error
	for _, c := range n.classes {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Resolve makes a configuration of what a process sent.
func (n *Node) Resolve(s protocol.Settings) (*config.Config, error) {
	return n.resolve(s, n.kinds.Machine)
}

func (n *Node) resolve(s protocol.Settings, machine config.Machine) (*config.Config, error) {
	return config.Resolve(config.Input{
		Arguments:   s.Arguments,
		Environment: s.Environment,
		File:        cmp.Or(s.ConfigFile, config.DefaultFile(s.Environment)),
		Machine:     machine,
	})
}

// has tells whether the job is there already, or a cache of its dataset.
func (n *Node) has(m *protocol.OpenMessage) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.jobs[m.Job] != nil {
		return true
	}
	key := datasetKey(m.Dataset, "")
	for k, s := range n.datasets {
		if strings.HasPrefix(k, key) && s.cached.Load() {
			return true
		}
	}
	return false
}

// class returns the storage class that the configuration describes.
func (n *Node) class(c config.StorageClass) (storageclass.Class, error) {
	build, ok := n.kinds.Classes[c.Kind]
	if !ok {
		return nil, badInput("storage class kind %q is not known; there are: %s", c.Kind, names(n.kinds.Classes))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := c.Kind + "\x00" + c.Path
	if class := n.classes[key]; class != nil {
		return class, nil
	}
	class, err := build(c, func(text string) { n.log.Warn(text, "class", c.Kind) })
	if err != nil {
		return nil, err
	}
	n.classes[key] = class
	return class, nil
}

// names lists the keys of a map for people.
func names[V any](of map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(of)), ", ") }
