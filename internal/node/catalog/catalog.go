// Package catalog opens datasets for the jobs of a node. Every Open scans the dataset again. If it
// finds one that is already open, the same version in the same directory, it joins that: a dataset
// has one index, and, while jobs read it, one cache with its storage classes. What a job needs from
// the cache is not the catalog's concern.
//
// A Catalog is given the available kinds of sources and storage classes, and has none of its own.
// All methods of Catalog and Dataset are safe for concurrent use.
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
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Progress is how the opening of a dataset proceeds: how many files have been found or, if it is
// not empty, a text.
type Progress struct {
	Files   int64
	Text    string
	Warning bool // the text is one
}

// OpenOptions are the options of Open.
type OpenOptions struct {
	Config *config.Config
	// Exchange passes indexes between nodes; nil: the node is alone.
	Exchange source.Exchange
	// Progress may be called often, and from any goroutine; nil: nothing is reported.
	Progress func(Progress)
}

// Kinds are the available kinds of sources and storage classes.
type Kinds struct {
	Sources []source.Kind
	Classes []store.Kind
}

// Catalog holds what the jobs of a node share.
type Catalog struct {
	kinds Kinds
	log   *slog.Logger

	mu invariants.Mutex[Catalog] // guards the following
	// opening has, by key, a channel that holds a token unless such a dataset is being opened.
	opening  map[string]chan struct{}
	datasets map[identity]*entry // the open ones
	classes  map[string]*slot    // by kind and path
	closed   bool
	// changed is closed, and replaced, when stores were closed.
	changed chan struct{}

	stuck atomic.Int32 // storage classes with which something hangs, so that they stay open
}

// slot has a storage class once it is open.
type slot struct {
	turn  chan struct{} // holds a token while the class is being opened
	class store.Class   // set by who has the token, and with Catalog.mu
}

// New returns a catalog in which nothing is open.
func New(kinds Kinds, log *slog.Logger) *Catalog {
	return &Catalog{
		kinds:    kinds,
		log:      log,
		opening:  make(map[string]chan struct{}),
		datasets: make(map[identity]*entry),
		classes:  make(map[string]*slot),
		changed:  make(chan struct{}),
	}
}

// Close releases the storage classes. No dataset's cache may be in use. If a read from the source,
// or a class's directory, hangs, they remain open until that has ended, or the process exits: it
// takes closeTimeout at most.
func (c *Catalog) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.closeClasses()
}

// closeClasses closes the storage classes, unless something hangs. c.mu must be held.
func (c *Catalog) closeClasses() error {
	if c.stuck.Load() > 0 {
		return nil
	}
	errs, begun := make(chan error, len(c.classes)), 0
	for _, s := range c.classes {
		if s.class != nil { // one that is being opened is closed by who opens it
			begun++
			go func() { errs <- s.class.Close() }()
		}
	}
	clear(c.classes)
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	var all error
	for range begun {
		select {
		case err := <-errs:
			all = errors.Join(all, err)
		case <-timeout.C:
			c.log.Error("a cache directory does not respond: the daemon ends without closing it")
			return all
		}
	}
	return all
}

// goesOn records that what hung has ended.
func (c *Catalog) goesOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck.Add(-1); !c.closed {
		return
	}
	if err := c.closeClasses(); err != nil {
		c.log.Error("close storage classes", "error", err)
	}
}

// identity identifies a dataset: how it was asked for, its version, and the directory in which it
// was found.
type identity struct {
	key           string
	fingerprint   [16]byte
	device, inode uint64
}

// entry is an open dataset, with its cache while jobs read it.
type entry struct {
	identity identity
	spec     source.Spec // how it was first asked for
	log      *slog.Logger
	source   source.Indexed
	views    *views
	refs     int // guarded by Catalog.mu
	// apart: its stores are not those of the version, which a dataset in another directory has open
	// (standsApart).
	apart bool

	cached atomic.Bool // whether cache is set
	// turn has a token while a cache is made or left, which may wait for reads and directories that
	// hang: nothing that holds mu does.
	turn   chan struct{}
	mu     invariants.Mutex[entry] // guards the following
	cache  *cache.Cache
	madeBy *config.Config // what cache was made by
	// converter makes forms of samples for cache; nil: there is no cache.
	converter *converter
	users     map[*Dataset]func() bool // what has joined cache, and whether it stays (Join.Stays)
	over      chan struct{}            // closed when the last one has left cache
	classes   []Class
	known     model.Node // what was known of the node when cache was made
	// How many closed caches a read hangs in, which uses their stores and the source.
	hung int
	left bool // all have closed the dataset
}

// key returns the key of datasets that are asked for in the same way. configured are the options
// that the jobs' configurations give.
func key(spec source.Spec, configured option.Values) string {
	return fmt.Sprintf("%s%#v", prefix(spec), configured)
}

// prefix returns what the keys of a dataset have in common whatever is configured.
func prefix(spec source.Spec) string {
	return fmt.Sprintf("%s\x00%s\x00%#v\x00%s\x00", spec.Kind, spec.Path, spec.Options,
		spec.Manifest.Sum())
}

// configured returns the options of a kind that a job's configuration gives.
func configured(k source.Kind, cfg *config.Config) option.Values {
	values := option.Values{}
	for _, o := range k.Options {
		if o.Job != "" {
			values[o.Key] = cfg.Value(o.Job)
		}
	}
	return values
}

// Dataset is an open dataset. It does not change, whatever happens to its directory, until it is
// closed by all that opened it.
type Dataset struct {
	catalog *Catalog
	entry   *entry
	view    *source.View
	once    sync.Once
}

// Open opens a dataset as the view shows it (nil: as this process sees it), or joins the one that
// is already open. The view belongs to the caller.
func (c *Catalog) Open(ctx context.Context, spec source.Spec, view *source.View, o OpenOptions,
) (*Dataset, error) {
	cfg, progress := o.Config, o.Progress
	if progress == nil {
		progress = func(Progress) {}
	}
	at := slices.IndexFunc(c.kinds.Sources, func(k source.Kind) bool {
		return k.Name == spec.Kind
	})
	if at < 0 {
		return nil, unknown("dataset", spec.Kind, c.kinds.Sources, func(k source.Kind) string {
			return k.Name
		})
	}
	if err := check(c.kinds.Sources[at], spec); err != nil {
		return nil, err
	}
	values := configured(c.kinds.Sources[at], cfg)
	k := key(spec, values)
	// One at a time, so that the next one finds the index that the first has written.
	done, err := c.turn(ctx, k)
	if err != nil {
		return nil, err
	}
	defer done()
	log := c.log.With("dataset", spec.Path)
	e := &entry{
		spec: spec, log: log, views: newViews(), turn: make(chan struct{}, 1),
		users: make(map[*Dataset]func() bool),
	}
	warn := func(text string) { log.Warn(text) }
	maps.Copy(values, spec.Options)
	options := source.OpenOptions{
		Values: values, Manifest: spec.Manifest, Timeout: cfg.SourceTimeout,
		Progress: func(files int64) { progress(Progress{Files: files}) },
		Warn:     warn,
		Await:    func(text string) { progress(Progress{Text: text}) },
		Tell:     func(text string) { warn(text); progress(Progress{Text: text, Warning: true}) },
	}
	if c.kinds.Sources[at].Exchanged {
		options.Exchange = o.Exchange
	}
	if view != nil {
		options.View = &source.View{
			Root: view.Root, Slash: view.Slash, Access: view.Access, Renew: e.views.renew,
		}
	}
	defer c.holdFills(k)()
	if e.source, err = c.kinds.Sources[at].Open(ctx, spec.Path, options); err != nil {
		return nil, err
	}
	return &Dataset{catalog: c, entry: c.enter(k, e, view), view: view}, nil
}

// check returns an error for options that the kind does not have.
func check(k source.Kind, spec source.Spec) error {
	for key, value := range spec.Options {
		o, ok := option.Find(k.Options, key)
		if !ok {
			return failure.Input("a dataset of the kind %s has no option %q", k.Name, key)
		}
		if !o.Holds(value) {
			return failure.Input("the option %s of a dataset of the kind %s: %v; allowed: %s", key,
				k.Name, value, o.Allowed())
		}
	}
	if k.Manifest != (spec.Manifest != nil) {
		return failure.Input("a dataset of the kind %s: a manifest is given: %t, and should be: %t",
			k.Name, spec.Manifest != nil, k.Manifest)
	}
	return nil
}

// turn waits until no other dataset of this key is being opened.
func (c *Catalog) turn(ctx context.Context, key string) (done func(), err error) {
	c.mu.Lock()
	token := c.opening[key]
	if token == nil {
		token = make(chan struct{}, 1)
		token <- struct{}{}
		c.opening[key] = token
	}
	c.mu.Unlock()
	select {
	case <-token:
		return func() { token <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// enter returns the open entry for the dataset that was found, or makes found that entry.
func (c *Catalog) enter(key string, found *entry, view *source.View) *entry {
	found.identity = identity{key: key, fingerprint: found.source.Index().Fingerprint()}
	if directory, ok := source.As[source.InDirectory](found.source); ok {
		found.identity.device, found.identity.inode = directory.DirectoryID()
	}
	c.mu.Lock()
	e := c.datasets[found.identity]
	if e == nil {
		e = found
		e.apart = c.standsApart(e.identity)
		c.datasets[e.identity] = e
	}
	e.refs++
	c.mu.Unlock()
	e.views.add(view)
	if e == found {
		return e
	}
	if err := found.source.Close(); err != nil {
		e.log.Error("close dataset", "error", err)
	}
	// Files may have been rewritten since the dataset was last opened, unless their versions, which
	// the fingerprint covers, show that they were not.
	if v, ok := source.As[source.Versioner](found.source); ok && v.Versioned() {
		return e
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cache != nil {
		e.cache.Doubt()
	}
	return e
}

// standsApart reports whether a dataset needs stores of its own, because one of the same version in
// another directory is open: their files may differ beyond the excerpts that the version covers,
// and what a cache has confirmed it takes for valid, whatever another one puts in its place. c.mu
// must be held.
func (c *Catalog) standsApart(of identity) (apart bool) {
	for id, e := range c.datasets {
		switch {
		case id.fingerprint != of.fingerprint:
		case id.device == of.device && id.inode == of.inode:
			return e.apart
		case !e.apart:
			apart = true
		}
	}
	return apart
}

// See adds another view through which the dataset may be opened again; forget removes it.
func (d *Dataset) See(view *source.View) (forget func()) {
	d.entry.views.add(view)
	return func() { d.entry.views.remove(view) }
}

// DirectoryID identifies the directory that the dataset is currently in; zero if its source has
// none.
func (d *Dataset) DirectoryID() (device, inode uint64) {
	if directory, ok := source.As[source.InDirectory](d.entry.source); ok {
		return directory.DirectoryID()
	}
	return 0, 0
}

// Cached reports whether a cache of the dataset is in use, with any index_dir.
func (c *Catalog) Cached(spec source.Spec) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := prefix(spec)
	for id, e := range c.datasets {
		if strings.HasPrefix(id.key, prefix) && e.cached.Load() {
			return true
		}
	}
	return false
}

// Index returns the dataset's index.
func (d *Dataset) Index() *source.Index { return d.entry.source.Index() }

// Read returns the bytes of a sample, read from the source.
func (d *Dataset) Read(ctx context.Context, id int) ([]byte, error) {
	data := make([]byte, d.Index().Size(id))
	_, err := d.entry.source.Read(ctx, id, data)
	return data, err
}

// Requests returns what the dataset's place was asked for since it was opened, by all jobs; nil: it
// is in files.
func (d *Dataset) Requests() *report.Requests {
	s, ok := source.As[source.Requesting](d.entry.source)
	if !ok || s.Requests() == nil {
		return nil
	}
	r := &report.Requests{RequestCounts: report.RequestCounts(*s.Requests())}
	if x, ok := source.As[source.Indexer](d.entry.source); ok && x.Indexing() != nil {
		took := x.Indexing()
		r.Indexing = &report.Indexing{
			From: took.From, Objects: took.Objects, Resumed: took.Resumed, Seconds: took.Seconds,
			Requests: report.RequestCounts(took.Requests),
		}
	}
	return r
}

// Close closes the dataset. It is idempotent.
func (d *Dataset) Close() {
	d.once.Do(func() {
		c, e := d.catalog, d.entry
		e.views.remove(d.view)
		c.mu.Lock()
		e.refs--
		last := e.refs == 0
		if last {
			delete(c.datasets, e.identity)
		}
		c.mu.Unlock()
		if !last {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.left = true
		e.closeSource()
	})
}

// class returns the storage class that the configuration describes.
func (c *Catalog) class(spec config.StorageClass) (store.Class, error) {
	at := slices.IndexFunc(c.kinds.Classes, func(k store.Kind) bool {
		return k.Name == spec.Kind
	})
	if at < 0 {
		return nil,
			unknown("storage class", spec.Kind, c.kinds.Classes, func(k store.Kind) string {
				return k.Name
			})
	}
	c.mu.Lock()
	key := spec.Kind + "\x00" + spec.Path()
	s := c.classes[key]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		c.classes[key] = s
	}
	c.mu.Unlock()
	s.turn <- struct{}{} // not c.mu: the class's directory may hang
	defer func() { <-s.turn }()
	if s.class != nil {
		return s.class, nil
	}
	class, err := c.kinds.Classes[at].New(store.Options{
		Values: spec.Options,
		Warn:   func(text string) { c.log.Warn(text, "class", spec.Kind) },
	})
	if err != nil {
		return nil, unusable(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // the job that opened it has left before that ended
		return nil, errors.Join(errClosed, class.Close())
	}
	s.class = class
	return class, nil
}

// errClosed reports that the catalog was closed while a storage class was opened.
var errClosed = errors.New("the daemon is ending")

// unusable returns the error for a storage class that cannot be used as configured.
func unusable(err error) error {
	var limit *store.LimitError
	if errors.As(err, &limit) {
		return err
	}
	return failure.Input("%v", err)
}

// unknown returns an error for an unknown kind that lists the available ones.
func unknown[K any](what, kind string, kinds []K, name func(K) string) error {
	var names []string
	for _, k := range kinds {
		names = append(names, name(k))
	}
	slices.Sort(names)
	return &failure.Error{
		Kind: failure.Config,
		Message: fmt.Sprintf("unknown %s kind %q; available: %s", what, kind,
			strings.Join(names, ", ")),
	}
}
