package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Class is a storage class, with its store for a dataset.
type Class struct {
	Name     string // memory, file, file-2, ...
	Path     string // its directory; "": it is in memory
	Store    store.Store
	Capacity int64 // capacity in bytes
	Threads  int   // p_j: how many samples are written to it at the same time
	crowded  bool  // its store holds more than it was opened for
	// KeepsAll is set if the class keeps everything that is read, besides what plans assign to it,
	// so that a later run starts warm even if memory held everything.
	KeepsAll bool
}

// Join describes a job that joins the cache of a dataset.
type Join struct {
	// Config is what the cache is made by if there is none.
	Config *config.Config
	// MostFiles is how many files may be open for reading at the same time.
	MostFiles int
	// Nodes is how many nodes the job has, which all read from the source.
	Nodes int
	// Slow is called for a directory of the job that has not answered for 2 seconds, and Waits if
	// another job has been opening or closing its caches of the dataset for so long; nil: nothing is.
	Slow  func(dir string)
	Waits func()
	// FormRoom is how many bytes a class of memory may take at most, whatever its capacity, if the
	// job makes other forms of samples; 0: it makes none, and the class takes what samples as read
	// need. Processors are how many there are for making them.
	FormRoom   int64
	Processors int
	// Suits reports whether a cache will do that was made by another configuration (AwaitEnd); nil:
	// any does.
	Suits func(madeBy *config.Config) bool
	// Stays reports whether the job is not about to end: none of its processes is leaving it. nil:
	// it is not until LeaveCache. It must be safe for concurrent use.
	Stays func() bool
}

// JoinCache returns the dataset's cache, and makes it if there is none. madeBy is the configuration
// that it was made by. What belongs to one job, its plan and its other nodes, is in its Use of the
// cache, so jobs may come and go in any order. Each has a Dataset of its own, and must call
// LeaveCache.
//
// What hangs ends with an error when start_timeout has passed, or ctx is done.
func (d *Dataset) JoinCache(ctx context.Context, j Join) (joined *cache.Cache,
	madeBy *config.Config, err error,
) {
	e, cfg := d.entry, j.Config
	done, err := e.take(ctx, j)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	if e.cached.Load() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.users[d] = j.Stays
		if !cfg.TrustsVersion() {
			e.cache.Distrust()
		}
		return e.cache, e.madeBy, nil
	}
	classes, err := d.openStores(ctx, &j)
	if err != nil {
		return nil, nil, err
	}
	known := d.startingNode(cfg, j.Nodes)
	o := cache.Options{
		Index:    d.Index(),
		Source:   e.source,
		Threads:  threads(cfg.SourceThreads, mean(d.Index()), j.MostFiles),
		Timeout:  cfg.SourceTimeout,
		Responds: e.responds(classes),

		TrustVersion: cfg.TrustsVersion(),
		Foreign: func() {
			e.log.Warn("copies in the cache were made of a dataset at another path, of the same " +
				"version, whose files are other ones: they are dropped, and read again; with " +
				"cache_trust = \"version\" they would be used, if the datasets are known to be equal")
		},
	}
	// Also without forms, as the stores may hold some that an earlier job has left.
	made := newConverter(d.Index())
	o.Converter, o.Converts = made, j.Processors/convertShare
	o.Known, o.Written = tiersOf(&known)
	for _, c := range classes {
		o.Crowded = o.Crowded || c.crowded
		o.Classes = append(o.Classes,
			cache.Class{
				Name: c.Name, Store: c.Store, KeepAll: c.KeepsAll,
				Threads: c.Threads,
			})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cache, e.converter = cache.New(o), made
	e.madeBy = cfg
	e.classes = classes
	e.known = known
	e.cached.Store(true)
	e.users[d], e.over = j.Stays, make(chan struct{})
	return e.cache, e.madeBy, nil
}

const (
	// firstThreads is how many samples are read at the same time until it is known what is best.
	firstThreads = 16
	mostThreads  = 512
	// readMemory limits the memory of samples that are being read, in bytes.
	readMemory = 64 << 20
)

// threads returns how many samples are read at the same time, as configured; 0: tuned. mean is the
// mean size of a sample.
func threads(configured int, mean int64, mostFiles int) cache.Threads {
	if configured > 0 {
		return cache.Threads{Start: configured}
	}
	most := int(min(max(readMemory/max(mean, 1), firstThreads), mostThreads))
	most = max(min(most, mostFiles), 1)
	return cache.Threads{Start: min(firstThreads, most), Most: most}
}

// mean returns the mean size of a dataset's samples in bytes.
func mean(index *source.Index) int64 { return index.Bytes() / int64(max(index.Len(), 1)) }

// Cached reports whether the dataset has a cache.
func (d *Dataset) Cached() bool { return d.entry.cached.Load() }

// Promised returns how many bytes the open stores in memory may still take, over all datasets. It
// is nothing while memory is short: they grow again only into memory that nothing else takes.
func (c *Catalog) Promised() (sum int64) {
	c.mu.Lock()
	entries := slices.Collect(maps.Values(c.datasets))
	c.mu.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		for _, class := range e.classes {
			if shrinker, ok := class.Store.(store.Shrinker); ok && shrinker.Growing() {
				capacity, used := class.Store.Capacity()
				sum += max(capacity-used, 0)
			}
		}
		e.mu.Unlock()
	}
	return sum
}

// classNames returns the names of configured storage classes: memory, file, file-2, ...
func classNames(classes []config.StorageClass) []string {
	names, same := make([]string, len(classes)), map[string]int{}
	for i, c := range classes {
		names[i] = c.Kind
		if same[c.Kind]++; same[c.Kind] > 1 {
			names[i] = fmt.Sprintf("%s-%d", c.Kind, same[c.Kind])
		}
	}
	return names
}

// Classes returns the storage classes of the dataset's cache, which the caller must have joined.
func (d *Dataset) Classes() []Class {
	e := d.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.classes)
}

// Reports returns how full the storage classes are, and what they gave back; none once the cache is
// closed.
func (d *Dataset) Reports() (out []report.Class) {
	e := d.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	for j, c := range e.classes {
		capacity, used := c.Store.Capacity()
		report := report.Class{Name: c.Name, Path: c.Path, Capacity: capacity, Used: used}
		if e.cache != nil {
			did := e.cache.Reader(j).Hangs(time.Now())
			report.Silent, report.Hangs = did.Silent.Seconds(), hangs(did)
			present, ever := e.cache.LongestWrite(j, time.Now())
			report.Writing, report.LongestWrite = ifLong(present), ifLong(ever)
			if _, writes := e.cache.Meters(); writes[c.Name] != nil {
				report.Written = written(writes[c.Name].Speed(time.Now()))
			}
		}
		report.Returned = returned(c.Store, c.Capacity)
		if e.cache != nil {
			report.Forms = formsOf(e.cache, j)
		}
		if refuser, ok := c.Store.(store.Refuser); ok {
			report.Stopped = refuser.Refuses()
		}
		out = append(out, report)
	}
	return out
}

// formsOf describes what a cache's class holds in other forms; nil: nothing, and nothing was.
func formsOf(c *cache.Cache, j int) *report.Forms {
	f, ok := c.Forms(j)
	if !ok || f.Samples == 0 && f.Converted+f.Restored+f.Reread+f.Damaged+f.Received == 0 {
		return nil
	}
	return &report.Forms{
		Amount: report.Amount{Samples: f.Samples, Bytes: f.Bytes}, AsRead: f.AsRead,
		Converted: f.Converted, Restored: f.Restored, Seconds: f.Took.Seconds(),
		Reread: f.Reread, Damaged: f.Damaged, Paused: !f.Wanted,
		Sent: f.Sent, Received: f.Received, Unpacked: f.Unpacked,
	}
}

// longWrite is how long a write takes at least that is reported. Disks that are busy with other
// things, and large samples, take seconds.
const longWrite = 5 * time.Second

// ifLong returns the seconds of a write that took long; 0: it did not.
func ifLong(took time.Duration) float64 {
	if took < longWrite {
		return 0
	}
	return took.Seconds()
}

// written describes what was written to a class; nil: nothing was.
func written(s model.Speed) *report.Written {
	if s.Samples == 0 {
		return nil
	}
	return &report.Written{
		Amount: report.Amount{Samples: s.Samples, Bytes: s.Bytes}, Busy: s.Busy,
	}
}

// hangs describes how often a class has not responded; nil: it always has.
func hangs(h store.Hangs) *report.Hangs {
	if h.Reads == 0 {
		return nil
	}
	out := &report.Hangs{Reads: h.Reads, Times: h.Times, Seconds: h.Took.Seconds()}
	if h.Times > 0 {
		out.Age = time.Since(h.Last).Seconds()
	}
	return out
}

// nearlyFull is of how much of a class's capacity a part may be free because no sample fits there.
const nearlyFull = 100

// returned describes what a store gave back; nil: nothing, and it may grow, or has as many bytes as
// the plan has of it.
func returned(s store.Store, planned int64) *report.Returned {
	shrinker, ok := s.(store.Shrinker)
	if !ok {
		return nil
	}
	r := shrinker.Returned()
	capacity, used := s.Capacity()
	capacity = min(capacity, planned)
	paused := used < capacity-capacity/nearlyFull && !shrinker.Growing()
	if r.Segments == 0 && !paused {
		return nil
	}
	out := &report.Returned{
		Bytes: r.Bytes, Now: r.Now, Segments: r.Segments, Viewed: r.Used, Why: r.Why,
		Paused: paused,
	}
	if r.Segments > 0 {
		out.Age = time.Since(r.Last).Seconds()
	}
	return out
}

// BookMemory estimates how many bytes the sample tables of a dataset's cache take, for these
// numbers of samples and storage classes.
func BookMemory(samples, classes int) int64 {
	return int64(samples) * int64(cache.BytesPerSample+store.BytesPerSample*classes)
}
