// Package cache implements a node's cache of a dataset, and is the only way to its samples. It
// finds a sample in the fastest tier that has it (thesis 3.2.2, 4.3.8), reads it from the source at
// most once however many requests there are at the same time, and keeps it where the plans of the
// jobs want it.
//
//   - Cache belongs to one dataset, and is shared by all jobs and ranks that read it.
//   - Use belongs to one job: its plan, what is filled ahead of time, and the nodes that it asks.
//   - Request and Consumer say on whose behalf a sample is fetched: for a batch, ahead of time, or
//     for another node.
//
// Each file uses only those before it: tier (which class holds a sample, and which is to), identity
// (which copies are valid), request (on whose behalf), pool (the workers), watch (hung reads),
// route (which tier a sample is read from), run (samples that are read together), convert, remake,
// settle and forms (copies that are decoded faster), files (those on a disk), fetch (how it is
// brought), use and serve. The cache's contents affect only time, never what is delivered.
//
// # Goroutines
//
// A Cache owns its workers (pool), which do every read that may block, writers for each class that
// is not in memory, and a watchdog, which gives up hung reads (watch.go); with a Converter also
// what converts copies (settle.go). Reads for other nodes run on the goroutine that calls Serve.
//
// # Locks
//
// A sample in memory takes no lock of this package except the pool's, to get the task. A sample
// that is read takes: the pool's; its flight's shard, to join, to read the source and to land; its
// tier's meter
// twice, to measure how long the tier was busy; and those of the store that keeps it. No lock is
// held during a read, nor while another of them is taken.
//
// digests.go has what is known of the bytes of a dataset's samples, and the errors if bytes that
// arrive differ from that.
package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/flights"
	"github.com/hdmlp/hdmlp/internal/engine/cache/pool"
	"github.com/hdmlp/hdmlp/internal/engine/cache/writeback"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Cache is a node's cache of one dataset. It finds a sample in the fastest storage class that has
// it, or else reads it from another node or the source, once for all requests at the same time, and
// keeps it in the class that the plan assigns it to. What belongs to a job, its plan and the nodes
// that it asks, is in the job's Use.
//
// Its methods are safe for concurrent use.
type Cache struct {
	index   *source.Index
	source  source.Source
	classes []class
	// planned is, by sample, the class (from 1) that is to hold it, 0 for none; nil: no job has a
	// plan.
	planned    atomic.Pointer[[]uint8]
	uses       uses
	directory  source.InDirectory // of the source; nil: it is not in a directory
	adjoins    source.Adjoining   // the source; nil: each read brings one sample
	trusts     atomic.Bool        // Options.TrustVersion, until Distrust
	foreign    func()
	sayForeign sync.Once
	digests    Table
	confirmed  bitset         // samples whose copies in the classes are valid (identity.go)
	demoted    bitset         // samples for which their class turned out to have no capacity
	watchers   store.Watchers // notified of segments that are given back (release.go)
	path       func(id int) string

	pool    *pool.Pool
	gate    *pool.Gate // to the source; nil: as many reads as there are workers
	flights *flights.Table[*Request, found]
	timeout time.Duration // for one read from the source; 0: none
	dog     *flights.Watchdog

	// requests is set if the source reads by requests, which are cancelled when they are given up:
	// then cancels has how, by *flight.
	requests bool
	cancels  sync.Map // of context.CancelFunc

	remoteRequest Request       // shared by all reads for other nodes
	remoteReads   chan struct{} // holds a token for each read for another node in progress
	remoteWorkers sync.Pool     // of *Worker, for reads for other nodes

	unformed   bitset      // samples of which a form did not suffice (AsRead)
	fileForms  bool        // a class that is not in memory can hold forms
	converter  Converter   // nil: there are no forms
	conversion *conversion // nil: all samples are kept as read
	formCounts formCounts

	between       atomic.Int64 // bytes between samples that were read together (spend)
	sourceBytes   atomic.Int64
	sourceSamples atomic.Int64
	meters        []meter.Meter // by Tier; Peer's counts, and each node's is its Peers'
	explored      explored
}

// Options are the options of a Cache.
type Options struct {
	Index   *source.Index
	Source  source.Source
	Classes []Class // fastest first
	Threads Threads
	// Timeout is how long the source may take for one read, including its own retries, before the
	// read is given up even though it cannot be interrupted; 0: no limit.
	Timeout time.Duration
	// Known is what is known of the tiers before reads have measured them, by their names, and
	// Written of writes to classes.
	Known, Written map[string]model.Known
	// Responds is called when a class (from 0) has not responded to reads for 2 seconds, and when
	// it responds again; nil: not called.
	Responds func(class int, responds bool)
	// TrustVersion accepts copies of files in other directories, of datasets of the same version,
	// although their files are others.
	TrustVersion bool
	// Converter makes other forms of samples, for classes that implement store.Forms, or
	// store.FormReader and KeepAll, on so many goroutines, at least 1; nil: all samples are kept as
	// read.
	Converter Converter
	Converts  int
	// Crowded is set if what the classes hold takes more than they may: forms become samples again.
	Crowded bool
	// Foreign, if not nil, is called once, when a copy is dropped that TrustVersion would accept.
	Foreign func()
}

// New returns a cache that keeps nothing yet (see Use), and starts its workers and, if there is a
// Timeout, its watchdog. Close ends them.
func New(o Options) *Cache {
	c := &Cache{
		index:         o.Index,
		source:        o.Source,
		digests:       make(Table, o.Index.Len()),
		confirmed:     newBitset(o.Index.Len()),
		demoted:       newBitset(o.Index.Len()),
		unformed:      newBitset(o.Index.Len()),
		path:          o.Index.Name,
		flights:       flights.New[*Request, found](),
		timeout:       o.Timeout,
		remoteRequest: Request{remote: true},
		remoteReads:   make(chan struct{}, max(o.Threads.Most, o.Threads.Start)),
		remoteWorkers: sync.Pool{New: func() any { return &Worker{} }},
		meters:        make([]meter.Meter, int(FirstClass)+len(o.Classes)),
		foreign:       o.Foreign,
		converter:     o.Converter,
	}
	c.trusts.Store(o.TrustVersion)
	if locator, ok := source.As[source.Locator](o.Source); ok {
		c.path = locator.Path
	}
	c.directory, _ = source.As[source.InDirectory](o.Source)
	c.adjoins, _ = source.As[source.Adjoining](o.Source)
	if r, ok := source.As[source.Requesting](o.Source); ok {
		c.requests = r.Requests() != nil
	}
	for _, cl := range o.Classes {
		inPlace, _ := cl.Store.(store.InPlace)
		shrinker, _ := cl.Store.(store.Shrinker)
		forms, _ := cl.Store.(store.Forms)
		c.classes = append(c.classes,
			class{Class: cl, inPlace: inPlace, shrinker: shrinker, forms: forms})
	}
	for j := range c.classes {
		if cl := &c.classes[j]; cl.inPlace == nil {
			cl.reader = store.NewReader(cl.Store, func(responds bool) {
				if o.Responds != nil {
					o.Responds(j, responds)
				}
			})
			if f, ok := cl.Store.(store.FormReader); ok && o.Converter != nil {
				cl.files = &fileForms{store: f, asRead: newBitset(o.Index.Len())}
				c.fileForms = true
			}
			cl.writer = writeback.New(cl.Store, cl.Threads, &c.meters[int(FirstClass)+j],
				func(id int, o store.Origin) { c.confirmKept(cl, id, o) },
				func() { c.pool.Continue() })
		}
	}
	c.start(o.Threads)
	c.know(o.Known, o.Written)
	for j := range c.classes {
		if p := c.classes[j].shrinker; p != nil {
			c.watchers.Join(c, j, p)
		}
	}
	c.dog = flights.Watch(c.timeout, c.giveUp)
	c.startConversion(o.Converter, o.Converts, o.Crowded)
	return c
}

// Threads is how many samples are read at the same time.
type Threads struct {
	Start int // at the beginning, from the source
	// Most is the largest number that may be found to be best for the source while the cache is in
	// use; 0: Start is the number of reads from all tiers, and does not change.
	Most int
}

// start starts the workers.
func (c *Cache) start(threads Threads) {
	if threads.Most == 0 {
		c.pool = pool.New(threads.Start, threads.Start, c.idleBuffer())
		return
	}
	const extra = routing.ExtraWorkers
	c.pool = pool.New(threads.Start+extra, threads.Most+extra, c.idleBuffer())
	limits := pool.Limits{Start: threads.Start, Least: 1, Most: threads.Most}
	c.gate = pool.NewGate(limits, func(streams int) { c.pool.Resize(streams + extra) })
}

// idleBuffer returns how many bytes of a buffer a worker keeps for its next sample.
func (c *Cache) idleBuffer() int {
	return routing.Buffer(c.index.Bytes(), c.index.Len())
}

// What the workers do is described in package pool.
type (
	Task     = pool.Task
	Consumer = pool.Consumer
	Worker   = pool.Worker
)

// Close ends the workers, once what was read is also written to the classes, or after about half a
// minute, whatever the classes do. What it returns still hangs in the kernel: it belongs to the
// caller, and must remain open until Settle has returned.
func (c *Cache) Close() Hung {
	c.watchers.Leave()
	c.conversion.close()
	c.dog.End()
	hung := Hung{Source: !c.pool.Close(time.Second)}
	hangs := make([]bool, len(c.classes))
	var all sync.WaitGroup
	for j, cl := range c.classes {
		if cl.writer == nil {
			continue
		}
		all.Go(func() {
			patience, ended := writing, cl.reader.Close(time.Second)
			if !ended {
				patience = time.Second
			}
			hangs[j] = !cl.writer.Close(patience) || !ended
		})
	}
	all.Wait()
	for j, hangs := range hangs {
		if hangs {
			hung.Classes = append(hung.Classes, j)
		}
	}
	if hung.None() {
		c.gate.CheckRest()
		invariants.Check(len(c.remoteReads) == 0, "reads for other nodes have not ended")
	}
	return hung
}

// Settle waits until what hung when the cache was closed has ended: forever, if it never does. Then
// nothing uses the stores any more.
func (c *Cache) Settle(hung Hung) {
	if hung.Source {
		c.pool.Wait()
	}
	for _, j := range hung.Classes {
		c.classes[j].reader.Wait()
		c.classes[j].writer.Wait()
	}
}

// Hung records which operations hang.
type Hung struct {
	Source  bool  // reads from the source, into classes or memory of the caller's
	Classes []int // reads from, or writes to, these classes (from 0)
}

// None reports whether nothing hangs.
func (h Hung) None() bool { return !h.Source && len(h.Classes) == 0 }

// Flush waits until what was read so far is also written to the classes that keep it.
func (c *Cache) Flush() {
	for _, cl := range c.classes {
		if cl.writer != nil {
			cl.writer.Flush(context.Background())
		}
	}
}

// writing is how long Close waits for classes to be written.
const writing = 30 * time.Second

// Index returns the dataset's index.
func (c *Cache) Index() *source.Index { return c.index }

// Path returns where the source has a sample, or its name.
func (c *Cache) Path(id int) string { return c.path(id) }

// Unused reports whether more samples could be read at the same time than there are tasks for.
func (c *Cache) Unused() bool { return c.pool.Unused() }

// SourceReads returns how much was read from the source since the cache was made.
func (c *Cache) SourceReads() (samples, bytes int64) {
	return c.sourceSamples.Load(), c.sourceBytes.Load()
}

// Speeds returns the read statistics of every tier, including copies out of classes.
func (c *Cache) Speeds() []model.Speed {
	out, now := make([]model.Speed, len(c.meters)), time.Now()
	for p := range c.meters {
		out[p] = c.meters[p].Speed(now)
		out[p].Tier, out[p].Known = c.TierName(Tier(p)), c.meters[p].Known()
	}
	return out
}
