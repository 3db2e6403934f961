// Package catalog opens datasets for the jobs of a node. Who opens one that is open already joins it: it has one index, and, while jobs read it, one
// cache with its storage classes. What a job wants of that cache is not its business.
//
// A Catalog is given the kinds of sources and storage classes that there are, and knows none by itself. All methods of Catalog and Dataset are safe
// for concurrent use.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Source is a source with the index of its samples.
type Source interface {
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
// give them.
type Kinds struct {
	Sources map[string]func(ctx context.Context, spec protocol.DatasetMessage, o SourceOptions) (Source, error)
	Classes map[string]func(c config.StorageClass, warn func(string)) (storageclass.Class, error)
}

// Catalog holds what the jobs of a node share.
type Catalog struct {
	kinds Kinds
	log   *slog.Logger

	mu       sync.Mutex                    // guards what follows
	datasets map[string]*entry             // by key
	classes  map[string]storageclass.Class // by kind and path

	stuck atomic.Bool // a read hangs: some storage class stays open for good
}

// New returns a catalog in which nothing is open.
func New(kinds Kinds, log *slog.Logger) *Catalog {
	return &Catalog{kinds: kinds, log: log, datasets: make(map[string]*entry), classes: make(map[string]storageclass.Class)}
}

// Close releases the storage classes. No dataset's cache may be in use. Where a read from the
// source hangs, they are left to the end of the process.
func (c *Catalog) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck.Load() {
		return nil
	}
	var errs []error
	for _, class := range c.classes {
		errs = append(errs, class.Close())
	}
	return errors.Join(errs...)
}

// entry is a dataset that is open, and its cache while jobs read it.
type entry struct {
	key    string
	log    *slog.Logger
	refs   int           // guarded by Catalog.mu
	ready  chan struct{} // closed when source or err is set
	source Source
	err    error

	cached    atomic.Bool // cache is there
	mu        sync.Mutex  // guards what follows
	cache     *prefetch.Cache
	madeBy    *config.Config // its
	cacheRefs int
	classes   []Class
	stuck     bool // a read hangs: its stores and source stay open for good
}

// key says which dataset it is: the same key, the same index.
func key(spec protocol.DatasetMessage, indexDir string) string {
	return fmt.Sprintf("%s\x00%s\x00%q\x00%s", spec.Kind, spec.Path, spec.Extensions, indexDir)
}

// Dataset is an open dataset. It stays as it is, whatever happens to its
// directory, until everyone who opened it has closed it.
type Dataset struct {
	catalog *Catalog
	entry   *entry
	once    sync.Once
}

// Open opens a dataset, or joins those who have it open.
func (c *Catalog) Open(ctx context.Context, spec protocol.DatasetMessage, cfg *config.Config, progress func(int64)) (*Dataset, error) {
	build, ok := c.kinds.Sources[spec.Kind]
	if !ok {
		return nil, unknown("dataset", spec.Kind, c.kinds.Sources)
	}
	k := key(spec, cfg.IndexDir)
	c.mu.Lock()
	e := c.datasets[k]
	mine := e == nil
	if mine {
		e = &entry{key: k, log: c.log.With("dataset", spec.Path), ready: make(chan struct{})}
		c.datasets[k] = e
	}
	e.refs++
	c.mu.Unlock()

	d := &Dataset{catalog: c, entry: e}
	if mine {
		e.source, e.err = build(ctx, spec, SourceOptions{Config: cfg, Progress: progress, Warn: func(text string) { e.log.Warn(text) }})
		if e.err != nil { // whoever comes now tries anew
			c.mu.Lock()
			delete(c.datasets, k)
			c.mu.Unlock()
		}
		close(e.ready)
	}
	select {
	case <-e.ready:
	case <-ctx.Done():
		d.Close()
		return nil, ctx.Err()
	}
	if e.err != nil {
		err := e.err
		d.Close()
		if !mine && errors.Is(err, context.Canceled) && ctx.Err() == nil {
			return c.Open(ctx, spec, cfg, progress) // whoever opened it went away
		}
		return nil, err
	}
	return d, nil
}

// Cached tells whether somebody uses a cache of the dataset, whatever index_dir he has.
func (c *Catalog) Cached(spec protocol.DatasetMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := key(spec, "")
	for k, e := range c.datasets {
		if strings.HasPrefix(k, prefix) && e.cached.Load() {
			return true
		}
	}
	return false
}

// Index returns the dataset's index.
func (d *Dataset) Index() *dataset.Index { return d.entry.source.Index() }

// Close lets the dataset go. Closing twice does nothing.
func (d *Dataset) Close() {
	d.once.Do(func() {
		c, e := d.catalog, d.entry
		c.mu.Lock()
		e.refs--
		last := e.refs == 0
		if last && c.datasets[e.key] == e {
			delete(c.datasets, e.key)
		}
		c.mu.Unlock()
		if !last || e.source == nil {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.stuck {
			if err := e.source.Close(); err != nil {
				e.log.Error("close dataset", "error", err)
			}
		}
	})
}

// class returns the storage class that the configuration describes.
func (c *Catalog) class(spec config.StorageClass) (storageclass.Class, error) {
	build, ok := c.kinds.Classes[spec.Kind]
	if !ok {
		return nil, unknown("storage class", spec.Kind, c.kinds.Classes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := spec.Kind + "\x00" + spec.Path
	if class := c.classes[key]; class != nil {
		return class, nil
	}
	class, err := build(spec, func(text string) { c.log.Warn(text, "class", spec.Kind) })
	if err != nil {
		return nil, err
	}
	c.classes[key] = class
	return class, nil
}

// unknown refuses a kind that there is not among those that there are.
func unknown[V any](what, kind string, kinds map[string]V) error {
	return &protocol.ErrorMessage{
		Kind:    protocol.KindConfig,
		Message: fmt.Sprintf("%s kind %q is not known; there are: %s", what, kind, strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")),
	}
}
