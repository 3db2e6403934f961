package job

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/stats"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// usedClass is a storage class with the store that a dataset's cache uses of it.
type usedClass struct {
	name     string // memory, file, file-2, ...
	store    storageclass.Store
	room     int64
	keepsAll bool // what is read, beside what plans give it: a later run then starts warm although memory held it all
}

// joinCache joins the dataset's cache, or makes it by the configuration. What belongs to a job alone, its plan and its other nodes, is in its
// Use of the cache: so jobs may come and go in any order. Each leaves it with leaveCache.
func (d *Dataset) joinCache(cfg *config.Config) (cache *prefetch.Cache, made bool, err error) {
	s := d.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if made = s.cache == nil; made {
		if s.classes, err = d.openStores(cfg.StorageClasses); err != nil {
			return nil, false, err
		}
		o := prefetch.CacheOptions{Index: d.Index(), Source: s.source, Threads: cfg.SourceThreads, Timeout: cfg.SourceTimeout}
		for _, c := range s.classes {
			o.Classes = append(o.Classes, prefetch.Class{Name: c.name, Store: c.store, KeepAll: c.keepsAll})
		}
		s.cache = prefetch.NewCache(o)
		s.cached.Store(true)
	}
	s.cacheRefs++
	return s.cache, made, nil
}

// leaveCache lets the dataset's cache go; the last one closes it.
func (d *Dataset) leaveCache() {
	s := d.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cacheRefs--; s.cacheRefs > 0 {
		return
	}
	if s.cache.Close() {
		d.closeStores(s.classes)
	} else { // where the read still writes to must stay as it is
		s.stuck = true
		d.node.stuck.Store(true)
		s.log.Error("a read from the source hangs: the dataset's caches stay in memory until the daemon ends")
	}
	s.cache, s.classes = nil, nil
	s.cached.Store(false)
}

// openStores opens the storage classes' stores for the dataset, each
// with as much room as it may have and the dataset needs.
func (d *Dataset) openStores(classes []config.StorageClass) (out []usedClass, err error) {
	same := map[string]int{}
	for _, c := range classes {
		opened, err := d.openStore(c)
		if err != nil {
			d.closeStores(out)
			return nil, err
		}
		if same[c.Kind]++; same[c.Kind] > 1 {
			opened.name = fmt.Sprintf("%s-%d", c.Kind, same[c.Kind])
		}
		out = append(out, opened)
	}
	return out, nil
}

func (d *Dataset) openStore(c config.StorageClass) (usedClass, error) {
	class, err := d.node.class(c)
	if err != nil {
		return usedClass{}, err
	}
	index := d.Index()
	ds := storageclass.Dataset{Fingerprint: index.Fingerprint(), Samples: index.Len(), Size: index.Size}
	room := c.Capacity
	if room == 0 { // what there is
		if room, err = class.Available(ds); err != nil {
			return usedClass{}, err
		}
	}
	room = min(room, index.Bytes())
	store, err := class.Open(ds, room)
	if err != nil {
		return usedClass{}, err
	}
	_, inPlace := store.(storageclass.InPlace)
	return usedClass{name: c.Kind, store: store, room: room, keepsAll: !inPlace && room >= index.Bytes()}, nil
}

func (d *Dataset) closeStores(classes []usedClass) {
	for _, c := range classes {
		if err := c.store.Close(); err != nil {
			d.shared.log.Error("close storage class", "class", c.name, "error", err)
		}
	}
}

// classes are the storage classes of the dataset's cache, which the caller has joined.
func (d *Dataset) classes() []usedClass {
	s := d.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.classes)
}

// classReports tell how full the storage classes are; there are none once the cache is closed.
func (d *Dataset) classReports() (out []stats.Class) {
	s := d.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.classes {
		room, used := c.store.Room()
		out = append(out, stats.Class{Name: c.name, Room: room, Used: used})
	}
	return out
}
