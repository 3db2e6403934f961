// Package cache is what a node holds of a dataset, and the only way to its samples. It finds a
// sample in the fastest place that has it (thesis 3.2.2, 4.3.8), reads it from the source at most
// once however many ask for it at the same time, and keeps it where the plans of the jobs want it.
//
//   - Cache is one dataset's, shared by all jobs and ranks that read it.
//   - Use is what one job wants of it: its plan, what is filled ahead of time, the nodes that it asks.
//   - Request and Consumer say on whose behalf a sample is fetched: for a batch, ahead of time, or for another node.
//   - Faults remembers the samples that a job cannot read.
//
// The files, each of which uses those before it only: meter, place (which class holds a sample, and
// which is to), identity (which copies count), flight (one read per sample), pool (the workers),
// watch (reads that hang), fetch (the way of a sample), use and serve. What is delivered never
// depends on what the cache holds: only time does.
//
// # Who runs where
//
// A Cache owns its workers (pool), which do every read that may block, and a watchdog, which gives
// up reads that hang (watch.go). Reads for other nodes run on the goroutine that calls Serve.
//
// # Locks
//
// A sample that lies in memory costs none here but the pool's, to get the task. One that is read
// takes: the pool's; its flight's shard twice, to join and to land; the meter's of its place twice,
// to know how long a place was busy; and those of the store that keeps it. None is held while
// anything is read, nor while another of them is taken.
package cache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/stats"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Cache is what a node holds of one dataset: it finds a sample in the fastest storage class that
// has it, else reads it from another node or the source, once however many ask at the same time,
// and keeps it where the plan wants it. What belongs to a job, its plan and the nodes that it asks,
// is in the job's Use of it.
//
// Its methods are safe for concurrent use.
type Cache struct {
	index   *dataset.Index
	source  dataset.Source
	classes []class
	// class (from 1) that is to hold the sample, 0 for none; nil: no job wants any kept
	planned   atomic.Pointer[[]uint8]
	uses      uses
	directory dataset.Placed // of the source; nil: it lies in none
	digests   digests
	confirmed bitset // samples whose copies in the classes count (identity.go)
	demoted   bitset // samples whose class turned out to have no room for them
	path      func(id int) string

	pool    *pool
	flights *flights
	timeout time.Duration // of one read from the source; 0: none
	watcher watcher

	remoteRequest Request       // of every read for another node
	remoteReads   chan struct{} // a token for each of these
	remoteWorkers sync.Pool     // of *Worker, for these

	sourceBytes   atomic.Int64
	sourceSamples atomic.Int64
	speed         []meter // by Place
}

// Options say how a Cache is made.
type Options struct {
	Index   *dataset.Index
	Source  dataset.Source
	Classes []Class // fastest first
	Threads int     // reads under way at the same time, at most
	// Timeout is how long the source may take for one read, its own retries included, before the
	// read is given up although it cannot be interrupted; 0: for ever.
	Timeout time.Duration
}

// New returns a cache that keeps nothing yet (Use), and starts its Threads workers, and with a
// Timeout its watchdog; Close ends them.
func New(o Options) *Cache {
	c := &Cache{
		index:         o.Index,
		source:        o.Source,
		digests:       make(digests, o.Index.Len()),
		confirmed:     newBitset(o.Index.Len()),
		demoted:       newBitset(o.Index.Len()),
		path:          o.Index.Name,
		pool:          newPool(o.Threads),
		flights:       newFlights(),
		timeout:       o.Timeout,
		remoteRequest: Request{remote: true},
		remoteReads:   make(chan struct{}, o.Threads),
		remoteWorkers: sync.Pool{New: func() any { return &Worker{} }},
		speed:         make([]meter, int(FirstClass)+len(o.Classes)),
	}
	if locator, ok := dataset.As[dataset.Locator](o.Source); ok {
		c.path = locator.Path
	}
	c.directory, _ = dataset.As[dataset.Placed](o.Source)
	for _, cl := range o.Classes {
		inPlace, _ := cl.Store.(storageclass.InPlace)
		c.classes = append(c.classes, class{cl, inPlace})
	}
	c.watcher.start(c.timeout, c.giveUp)
	return c
}

// Close ends the workers. It reports whether all have ended: if not, a read hangs in the kernel,
// and the stores and the source, which belong to the caller, must stay as they are for the rest of
// the process's life.
func (c *Cache) Close() bool {
	c.watcher.end()
	return c.pool.close(time.Second)
}

// Index is the dataset's index.
func (c *Cache) Index() *dataset.Index { return c.index }

// Path is where the source has a sample, or its name.
func (c *Cache) Path(id int) string { return c.path(id) }

// SourceReads counts what was read from the source since the cache was made.
func (c *Cache) SourceReads() (samples, bytes int64) {
	return c.sourceSamples.Load(), c.sourceBytes.Load()
}

// SourceLatency is how long a read from the source takes at the moment, on average; 0: there was
// none yet.
func (c *Cache) SourceLatency() time.Duration { return c.speed[Source].latency() }

// Speeds returns the reads of every place, copies out of classes included.
func (c *Cache) Speeds() []stats.Speed {
	out := make([]stats.Speed, len(c.speed))
	for p := range c.speed {
		out[p] = c.speed[p].speed()
		out[p].Place = c.PlaceName(Place(p))
	}
	return out
}
