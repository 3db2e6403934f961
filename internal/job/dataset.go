package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// sharedDataset is a dataset that is open, and its cache while jobs read it.
type sharedDataset struct {
	key    string
	log    *slog.Logger
	refs   int           // guarded by Node.mu
	ready  chan struct{} // closed when source or err is set
	source OpenedSource
	err    error

	cached    atomic.Bool // cache is there
	mu        sync.Mutex  // guards what follows
	cache     *prefetch.Cache
	cacheRefs int
	classes   []usedClass
	stuck     bool // a read hangs: its stores and source stay open for good
}

// datasetKey says which dataset it is: the same key, the same index.
func datasetKey(spec protocol.DatasetMessage, indexDir string) string {
	return fmt.Sprintf("%s\x00%s\x00%q\x00%s", spec.Kind, spec.Path, spec.Extensions, indexDir)
}

// Dataset is an open dataset. It stays as it is, whatever happens to its
// directory, until everyone who opened it has closed it.
type Dataset struct {
	node   *Node
	shared *sharedDataset
	once   sync.Once
}

// OpenDataset opens a dataset, or joins those who have it open.
func (n *Node) OpenDataset(ctx context.Context, spec protocol.DatasetMessage, cfg *config.Config, progress func(int64)) (*Dataset, error) {
	open, ok := n.kinds.Sources[spec.Kind]
	if !ok {
		return nil, badInput("dataset kind %q is not known; there are: %s", spec.Kind, names(n.kinds.Sources))
	}
	key := datasetKey(spec, cfg.IndexDir)
	n.mu.Lock()
	s := n.datasets[key]
	mine := s == nil
	if mine {
		s = &sharedDataset{key: key, log: n.log.With("dataset", spec.Path), ready: make(chan struct{})}
		n.datasets[key] = s
	}
	s.refs++
	n.mu.Unlock()

	d := &Dataset{node: n, shared: s}
	if mine {
		s.source, s.err = open(ctx, spec, SourceOptions{Config: cfg, Progress: progress, Warn: func(text string) { s.log.Warn(text) }})
		if s.err != nil { // whoever comes now tries anew
			n.mu.Lock()
			delete(n.datasets, key)
			n.mu.Unlock()
		}
		close(s.ready)
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		d.Close()
		return nil, ctx.Err()
	}
	if s.err != nil {
		err := s.err
		d.Close()
		if !mine && errors.Is(err, context.Canceled) && ctx.Err() == nil {
			return n.OpenDataset(ctx, spec, cfg, progress) // whoever opened it went away
		}
		return nil, err
	}
	return d, nil
}

// Index returns the dataset's index.
func (d *Dataset) Index() *dataset.Index { return d.shared.source.Index() }

// Close lets the dataset go. Closing twice does nothing.
func (d *Dataset) Close() {
	d.once.Do(func() {
		n, s := d.node, d.shared
		n.mu.Lock()
		s.refs--
		last := s.refs == 0
		if last && n.datasets[s.key] == s {
			delete(n.datasets, s.key)
		}
		n.mu.Unlock()
		if last && s.source != nil && !s.stuck {
			if err := s.source.Close(); err != nil {
				s.log.Error("close dataset", "error", err)
			}
		}
	})
}
