package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// # Directories that hang
//
// A storage class whose directory is on a disk that hangs must not hold up what does not need it.
// While a cache is in use, its reads are given up (store.Reader), and no batch waits for its
// writes (package writeback). Here are the ends: opening a store takes at most start_timeout,
// and closing one at most closeTimeout. What hangs then is left to end by itself. A store that is
// opened after all is closed again, and so are those that a read used which hung when the last job
// left. One that cannot be closed stays open until its directory responds, or the daemon exits.

const (
	// slowAfter is for how long a directory may not answer until that is reported.
	slowAfter = 2 * time.Second
	// closeTimeout is for how long the closing of a store, which writes to its directory, is waited
	// for.
	closeTimeout = 5 * time.Second
	// endTimeout is for how long a store without room waits for those of other datasets: a job that
	// has just ended is still being taken apart, and started again with other files it needs its
	// room.
	endTimeout = 2 * time.Second
)

// LeaveCache leaves the dataset's cache. The last call closes it.
func (d *Dataset) LeaveCache() {
	e := d.entry
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.mu.Lock()
	delete(e.users, d)
	last := len(e.users) == 0
	joined := e.cache
	made := e.converter
	classes := e.classes
	if last {
		e.cache = nil
		e.converter = nil
		e.madeBy = nil
		e.classes = nil
		e.cached.Store(false)
		close(e.over)
	}
	e.mu.Unlock()
	if !last {
		return
	}
	hung := joined.Close()
	made.close()
	if hung.Source { // the memory that a hung read may write to must remain
		d.settle(joined, hung, classes)
		return
	}
	for _, j := range hung.Classes {
		late := classes[j]
		classes[j].Store = nil
		d.stays(&late, func() {
			joined.Settle(cache.Hung{Classes: []int{j}})
			d.closed(&late, late.Store.Close())
		})
	}
	d.closeStores(classes)
}

// settle closes the stores of a cache in which a read from the source hangs when that has ended.
func (d *Dataset) settle(joined *cache.Cache, hung cache.Hung, classes []Class) {
	e := d.entry
	e.mu.Lock()
	e.hung++
	e.mu.Unlock()
	d.catalog.stuck.Add(1)
	e.log.Error("a read from the source hangs: the dataset's caches stay in memory until it ends, " +
		"or the daemon exits")
	go func() { // which the daemon does not wait for when it exits
		defer d.catalog.goesOn()
		joined.Settle(hung)
		d.closeStores(classes)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.hung--
		e.closeSource()
		e.log.Info("what hung has ended: the dataset's caches are closed")
	}()
}

// closeSource closes the source when nothing uses it any more. e.mu must be held.
func (e *entry) closeSource() {
	if !e.left || e.hung > 0 {
		return
	}
	if err := e.source.Close(); err != nil {
		e.log.Error("close dataset", "error", err)
	}
}

// stays records that a class's store cannot be closed yet, and calls end, which may wait for that,
// on a goroutine that the daemon does not wait for when it exits.
func (d *Dataset) stays(c *Class, end func()) {
	d.catalog.stuck.Add(1)
	d.entry.log.Error("the cache directory hangs, or is too slow: it stays open until it responds, "+
		"or the daemon exits, and samples that were not written to it yet are lost", "class", c.Name,
		"path", c.Path)
	go func() {
		defer d.catalog.goesOn()
		end()
	}()
}

// closed records that a class's store was closed.
func (d *Dataset) closed(c *Class, err error) {
	if err != nil {
		d.entry.log.Error("close storage class", "class", c.Name, "error", err)
	}
}

// responds returns what is called when a class stops, or begins, to respond to reads.
func (e *entry) responds(classes []Class) func(class int, responds bool) {
	return func(class int, responds bool) {
		log := e.log.With("class", classes[class].Name, "path", classes[class].Path)
		if responds {
			log.Info("the cache directory responds again")
			return
		}
		log.Warn("the cache directory does not respond; samples are read from the source")
	}
}

// openStores opens the storage classes' stores for the dataset, each with as much of its capacity
// as the dataset needs.
func (d *Dataset) openStores(ctx context.Context, j *Join) (out []Class, err error) {
	cfg := j.Config
	names := classNames(cfg.StorageClasses)
	within, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for i, c := range cfg.StorageClasses {
		var opened Class
		for again := true; again; {
			changed := d.catalog.changes()
			opened, err = d.openInTime(ctx, c, j)
			again = d.waitsForRoom(within, err, changed)
		}
		if err != nil {
			d.closeStores(out)
			return nil, err
		}
		opened.Name = names[i]
		out = append(out, opened)
	}
	return out, nil
}

// changes returns what is closed when stores were closed from now on.
func (c *Catalog) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// waitsForRoom reports whether a store could not be opened for lack of room, and stores were closed
// since. For that it waits until ctx ends, while other datasets are open.
func (d *Dataset) waitsForRoom(ctx context.Context, err error, changed <-chan struct{}) bool {
	var limit *store.LimitError
	if !errors.As(err, &limit) {
		return false
	}
	if d.others() {
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	select { // stores are closed before their dataset is
	case <-changed:
		return true
	default:
		return false
	}
}

// others reports whether other datasets are open, or still being closed, whose stores may take the
// room.
func (d *Dataset) others() bool {
	if d.catalog.stuck.Load() > 0 {
		return true
	}
	d.catalog.mu.Lock()
	defer d.catalog.mu.Unlock()
	for _, e := range d.catalog.datasets {
		if e != d.entry {
			return true
		}
	}
	return false
}

// openInTime opens a store within the configuration's StartTimeout; 0: there is no limit.
func (d *Dataset) openInTime(ctx context.Context, c config.StorageClass, j *Join) (Class, error) {
	limit, slow := j.Config.StartTimeout, j.Slow
	if c.Path() == "" {
		return d.openStore(c, j.FormRoom)
	}
	type result struct {
		Class
		err error
	}
	done := make(chan result, 1)
	go func() {
		class, err := d.openStore(c, 0)
		done <- result{class, err}
	}()
	if slow != nil {
		timer := time.AfterFunc(slowAfter, func() { slow(c.Path()) })
		defer timer.Stop()
	}
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	var late error
	select {
	case r := <-done:
		return r.Class, r.err
	case <-ctx.Done():
		late = ctx.Err()
	case <-timeout:
		late = failure.Input("the cache directory %s has not responded for %v (start_timeout): "+
			"check its file system, or start the job without it", human.Name(c.Path()), limit)
	}
	d.catalog.stuck.Add(1)
	go func() {
		defer d.catalog.goesOn()
		if r := <-done; r.err == nil {
			d.closeStores([]Class{r.Class})
		}
	}()
	return Class{}, late
}

// Stored returns a dataset as storage classes know it, and how many bytes its samples take there at
// most.
func Stored(spec *source.Spec, src source.Indexed) (ds store.Dataset, most int64) {
	index := src.Index()
	ds = store.Dataset{
		Fingerprint: index.Fingerprint(), Samples: index.Len(), Size: index.Size,
		About: about(spec, index),
	}
	if directory, ok := source.As[source.InDirectory](src); ok {
		ds.Directory[0], ds.Directory[1] = directory.DirectoryID()
	}
	most = index.Bytes()
	if index.Fields() != nil {
		ds.Align = source.Align
		most += (source.Align - 1) * int64(index.Len())
	}
	return ds, most
}

// Apart returns the name of the stores of a dataset that was opened while one of the same version
// was open in another directory.
func Apart(ds store.Dataset) (name [16]byte) {
	b := slices.Clone(ds.Fingerprint[:])
	for _, n := range ds.Directory {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	sum := xxh3.Hash128(b)
	return sum.Bytes()
}

// about describes a dataset.
func about(spec *source.Spec, index *source.Index) store.About {
	a := store.About{
		Kind: spec.Kind, Path: spec.Path, Bytes: index.Bytes(),
		Extensions: index.Extensions(), Manifest: spec.Manifest.Sum(),
	}
	if spec.Manifest != nil {
		a.List = spec.Manifest.Data
	}
	if index.Fields() != nil {
		a.Extensions = nil // which are what the index was made of
		a.Options = maps.Clone(spec.Options)
		delete(a.Options, source.IndexDirKey)
		delete(a.Options, source.RescanKey)
		delete(a.Options, source.IndexKey)
	}
	return a
}

// openStore opens a class's store. formRoom as in Join.
func (d *Dataset) openStore(c config.StorageClass, formRoom int64) (Class, error) {
	class, err := d.catalog.class(c)
	if err != nil {
		return Class{}, err
	}
	index := d.Index()
	ds, most := Stored(&d.entry.spec, d.entry.source)
	if d.entry.apart {
		ds.Fingerprint = Apart(ds)
	}
	capacity := c.Capacity()
	if capacity == 0 { // all that is available
		if capacity, err = class.Available(ds); err != nil {
			return Class{}, unusable(err)
		}
	}
	limit := capacity
	capacity = min(capacity, most)
	room := capacity
	if formRoom > 0 && c.Memory {
		room = min(limit, formRoom)
	} else {
		limit = room
	}
	opened, err := class.Open(ds, room)
	if err != nil {
		return Class{}, unusable(err)
	}
	_, inPlace := opened.(store.InPlace)
	_, used := opened.Capacity()
	return Class{
		Name:     c.Kind,
		Path:     c.Path(),
		Store:    opened,
		Capacity: capacity,
		Threads:  c.Threads,
		crowded:  used > limit, // formRoom may be less than it was for an earlier job
		KeepsAll: !inPlace && capacity >= index.Bytes(),
	}, nil
}

// closeStores closes the stores of classes that have one, at the same time.
func (d *Dataset) closeStores(classes []Class) {
	var all sync.WaitGroup
	for i := range classes {
		c := &classes[i]
		if c.Store == nil {
			continue
		}
		all.Go(func() {
			done := make(chan error, 1)
			go func() { done <- c.Store.Close() }()
			timeout := time.NewTimer(closeTimeout)
			defer timeout.Stop()
			select {
			case err := <-done:
				d.closed(c, err)
			case <-timeout.C:
				d.stays(c, func() { d.closed(c, <-done) })
			}
		})
	}
	all.Wait()
	c := d.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}
