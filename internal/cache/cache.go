package prefetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/stats"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Place is where a sample was read from: the source, a peer, or a storage class.
type Place int

// Places of the design; storage class j (from 1) is FirstClass+j-1.
const (
	Source Place = iota
	Peer
	FirstClass
)

// Class is a storage class of the node with the dataset's store in it.
type Class struct {
	Name  string
	Store storageclass.Store
	// KeepAll: the class has room for the whole dataset and survives restarts, so
	// it keeps a copy of everything that is read, whatever the plan gives it.
	KeepAll bool
}

// Cache is what a node holds of one dataset, and the only way to its samples: it
// finds a sample in the fastest storage class that has it, else reads it from the
// source, once however many ask at the same time, and keeps it where the plan
// wants it. All ranks and jobs that read the dataset share one Cache; what belongs to a job, its plan and the
// nodes that it asks, is in the job's Use of it.
//
// Its methods are safe for concurrent use.
type Cache struct {
	index     *dataset.Index
	source    dataset.Source
	classes   []class
	planned   atomic.Pointer[[]uint8] // class (from 1) that is to hold the sample, 0 for none; nil: nobody wants any kept
	uses      uses
	guests    chan struct{}  // a place for each read for other nodes
	guest     sync.Pool      // of *worker, for these
	placed    dataset.Placed // nil: the source lies in no directory
	digests   digests
	confirmed bitset // samples whose copies in the classes count (identity.go)
	demoted   bitset // samples whose class turned out to have no room for them

	pool    *pool
	flight  [64]flights
	timeout time.Duration // of one read from the source; 0: none
	watcher watcher
	path    func(id int) string

	sourceBytes   atomic.Int64
	sourceSamples atomic.Int64
	speed         []meter // by Place
}

type class struct {
	Class
	inPlace storageclass.InPlace // nil where samples can not be handed over where they lie
}

// flights are the reads under way, so that nobody starts a second one.
type flights struct {
	mu   sync.Mutex
	byID map[int32]*flight
}

type flight struct {
	done   chan struct{}
	since  time.Time
	remote bool // the leader asks another node
	leader *worker
	batch  *batch // that the leader works for; nil: it fills a class
	place  Place  // place and err are valid once done is closed
	err    error

	// followers wait for a copy of what the leader reads into its own buffer.
	// Guarded by flights.mu; the leader takes the list when it lands.
	copies    bool
	followers [][]byte
}

// CacheOptions say how a Cache is made.
type CacheOptions struct {
	Index   *dataset.Index
	Source  dataset.Source
	Classes []Class // fastest first
	Threads int     // reads under way at the same time, at the most
	// Timeout is how long the source may take for one read, its own retries
	// included, before the read is given up although it can not be
	// interrupted; 0: for ever.
	Timeout time.Duration
}

// NewCache returns a cache that keeps nothing yet (Use), and starts its Threads workers, and with a Timeout its
// watchdog; Close ends them.
func NewCache(o CacheOptions) *Cache {
	c := &Cache{
		index:     o.Index,
		source:    o.Source,
		digests:   make(digests, o.Index.Len()),
		confirmed: newBitset(o.Index.Len()),
		demoted:   newBitset(o.Index.Len()),
		pool:      newPool(o.Threads),
		speed:     make([]meter, int(FirstClass)+len(o.Classes)),
		timeout:   o.Timeout,
		path:      o.Index.Name,
		guests:    make(chan struct{}, o.Threads),
		guest:     sync.Pool{New: func() any { return &worker{guest: true} }},
	}
	if locator, ok := dataset.As[dataset.Locator](o.Source); ok {
		c.path = locator.Path
	}
	c.placed, _ = dataset.As[dataset.Placed](o.Source)
	for i := range c.flight {
		c.flight[i].byID = make(map[int32]*flight)
	}
	for _, cl := range o.Classes {
		inPlace, _ := cl.Store.(storageclass.InPlace)
		c.classes = append(c.classes, class{cl, inPlace})
	}
	c.watcher.start(c)
	return c
}

// Close ends the workers. It tells whether all have ended: where it does not, a
// read hangs in the kernel, and the stores and the source, which belong to the
// caller, must stay as they are for the rest of the process's life.
func (c *Cache) Close() bool {
	c.watcher.end()
	return c.pool.close(time.Second)
}

// PlaceName names a place as reports do.
func (c *Cache) PlaceName(p Place) string {
	switch {
	case p == Source:
		return "source"
	case p == Peer:
		return "peer"
	case int(p-FirstClass) < len(c.classes):
		return c.classes[p-FirstClass].Name
	}
	return fmt.Sprintf("place %d", p)
}

// Places is how many places there are: Place is in [0, Places).
func (c *Cache) Places() int { return int(FirstClass) + len(c.classes) }

// SourceReads counts what was read from the source since the cache was made.
func (c *Cache) SourceReads() (samples, bytes int64) {
	return c.sourceSamples.Load(), c.sourceBytes.Load()
}

// located is a sample that lies in a storage class where the process can read it.
type located struct {
	class  int // from 0
	offset int64
}

// locate finds a sample that can be handed over where it lies.
func (c *Cache) locate(id int) (located, bool) {
	if !c.confirmed.has(id) {
		return located{}, false
	}
	for j := range c.classes {
		if p := c.classes[j].inPlace; p != nil {
			if off, ok := p.Locate(id); ok {
				return located{j, off}, true
			}
		}
	}
	return located{}, false
}

// destination is the class where the sample is to lie and can be handed over; nil: there is none. It may be
// another one the next time, when the plan has changed.
func (c *Cache) destination(id int) *class {
	if j := c.class(id); j != 0 && c.classes[j-1].inPlace != nil && !c.demoted.has(id) {
		return &c.classes[j-1]
	}
	return nil
}

// destined tells that a sample is to lie in a class where it can be handed over.
func (c *Cache) destined(id int) bool { return c.destination(id) != nil }

// errGivenUp: a flight failed for its leader's reasons alone.
var errGivenUp = errors.New("whoever began to read the sample gave it up")

// errNoRoom: the class that the plan gave the sample has no room for it.
var errNoRoom = errors.New("no room in the planned storage class")

// outcome says how a fetch went.
type outcome struct {
	place  Place
	source bool // this very call read the sample from the source
}

// fetchInto brings a sample into dst.
func (c *Cache) fetchInto(ctx context.Context, w *worker, id int, dst []byte) (outcome, error) {
	for {
		if place, ok := c.readHeld(id, dst); ok {
			return outcome{place: place}, nil
		}
		fl, leader, copied := c.join(w, id, dst)
		if !leader {
			if w.guest && fl.remote {
				return outcome{}, errElsewhere
			}
			if err := waitFor(ctx, fl); err != nil {
				return outcome{}, err
			}
			if retry(fl.err) || (fl.err == nil && !copied) {
				continue // its leader was cancelled; or it landed in a class
			}
			return outcome{place: fl.place}, fl.err
		}
		// Whoever led a flight until just now may have put the sample in a class.
		c.confirm(ctx, id)
		if place, ok := c.readHeld(id, dst); ok {
			c.land(id, fl, dst, place, nil)
			return outcome{place: place}, nil
		}
		place, origin, err := c.read(ctx, w, fl, id, dst)
		if err == nil {
			c.keep(id, dst, origin)
		} else if ctx.Err() != nil {
			err = ctx.Err()
		}
		c.land(id, fl, dst, place, err)
		return outcome{place: place, source: err == nil && place == Source}, err
	}
}

// fetchInPlace brings a sample into the class where it can be handed over.
// errNoRoom: it must be fetched into a buffer instead.
func (c *Cache) fetchInPlace(ctx context.Context, w *worker, id int) (located, outcome, error) {
	waited, from := false, Source
	for {
		if at, ok := c.locate(id); ok {
			if !waited {
				from = FirstClass + Place(at.class)
			}
			return at, outcome{place: from}, nil
		}
		cl := c.destination(id)
		if cl == nil {
			return located{}, outcome{}, errNoRoom
		}
		fl, leader, _ := c.join(w, id, nil)
		if !leader {
			if w.guest && fl.remote {
				return located{}, outcome{}, errElsewhere
			}
			if err := waitFor(ctx, fl); err != nil {
				return located{}, outcome{}, err
			}
			if fl.err != nil && !retry(fl.err) {
				return located{}, outcome{}, fl.err
			}
			waited, from = true, fl.place
			continue
		}
		c.confirm(ctx, id)
		if at, ok := c.locate(id); ok {
			place := FirstClass + Place(at.class)
			c.land(id, fl, nil, place, nil)
			return at, outcome{place: place}, nil
		}
		place, fromSource, filled := Source, false, false
		var origin storageclass.Origin
		err := cl.inPlace.Fill(id, func(dst []byte) (_ storageclass.Origin, err error) {
			filled = true
			if p, ok := c.readHeld(id, dst); ok {
				place = p
				origin, _ = c.classes[p-FirstClass].Store.Origin(id)
				return origin, nil
			}
			if place, origin, err = c.read(ctx, w, fl, id, dst); err == nil {
				fromSource = place == Source
				c.keep(id, dst, origin)
			}
			return origin, err
		})
		switch {
		case err == nil:
			c.kept(cl, id, origin)
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, storageclass.ErrFull):
			c.demoted.set(id)
			err = errNoRoom
		case !filled:
			// Somebody else is filling it: a read that was given up and hangs, or
			// another cache over the same store.
			err = errNoRoom
		}
		c.land(id, fl, nil, place, err)
		if err != nil {
			return located{}, outcome{}, err
		}
		at, ok := c.locate(id)
		if !ok {
			return located{}, outcome{}, errNoRoom // its copies are in doubt again
		}
		return at, outcome{place, fromSource}, nil
	}
}

// fetchView brings a sample, and returns its bytes where they lie: in a class that hands over in place, or in the worker's
// scratch. They must not be changed, and are valid until the worker's next fetch.
func (c *Cache) fetchView(ctx context.Context, w *worker, id int) ([]byte, outcome, error) {
	if at, ok := c.locate(id); ok {
		if data, ok := c.classes[at.class].inPlace.View(id); ok {
			return data, outcome{place: FirstClass + Place(at.class)}, nil
		}
	}
	if c.destined(id) {
		at, out, err := c.fetchInPlace(ctx, w, id)
		if err == nil {
			if data, ok := c.classes[at.class].inPlace.View(id); ok { // it was not dropped meanwhile
				return data, out, nil
			}
		} else if !errors.Is(err, errNoRoom) {
			return nil, outcome{}, err
		}
	}
	size := int(c.index.Size(id))
	w.scratch = slices.Grow(w.scratch[:0], size)[:size]
	out, err := c.fetchInto(ctx, w, id, w.scratch)
	return w.scratch, out, err
}

// keep puts what was read into the class that a plan wants it
// in, and into those that keep everything, if a plan wants anything kept. What a class refuses costs a read
// later, not this sample.
func (c *Cache) keep(id int, data []byte, origin storageclass.Origin) {
	if c.planned.Load() == nil {
		return
	}
	for j := range c.classes {
		cl := &c.classes[j]
		if cl.inPlace == nil && (cl.KeepAll || c.class(id) == j+1) {
			_ = cl.Store.Put(id, data, origin)
			c.kept(cl, id, origin)
		}
	}
}

// retry tells that a flight failed for its leader's reasons alone.
func retry(err error) bool {
	return errors.Is(err, errGivenUp) || errors.Is(err, errNoRoom)
}

// readHeld copies the sample from the fastest class that holds it, if its copies count. A corrupt
// copy has been dropped by its store: the next place is asked.
func (c *Cache) readHeld(id int, dst []byte) (Place, bool) {
	if !c.confirmed.has(id) {
		return 0, false
	}
	for j := range c.classes {
		if !c.classes[j].Store.Has(id) {
			continue
		}
		place := FirstClass + Place(j)
		start := c.speed[place].begin()
		err := c.classes[j].Store.Read(id, dst)
		c.speed[place].end(start, len(dst), err)
		if err == nil {
			return place, true
		}
	}
	return 0, false
}

func (c *Cache) readSource(ctx context.Context, id int, dst []byte) (storageclass.Origin, error) {
	if err := ctx.Err(); err != nil {
		return storageclass.Origin{}, err
	}
	if err := c.watcher.refuse(c, id); err != nil {
		return storageclass.Origin{}, err
	}
	start := c.speed[Source].begin()
	stamp, err := c.source.Read(ctx, id, dst)
	c.speed[Source].end(start, len(dst), err)
	if err != nil {
		return storageclass.Origin{}, err
	}
	c.sourceSamples.Add(1)
	c.sourceBytes.Add(int64(len(dst)))
	return c.wasRead(id, dst, stamp)
}

// join makes the caller the leader of the sample's flight, or a follower of the
// one under way. A follower with a buffer gets a copy if the leader reads into
// a buffer too; copied tells so. Who reads for another node must not wait for a flight that asks another node: two nodes that
// disagree for a moment about who answers for a sample would wait for each other. So a guest is no follower of such
// a flight, and gets no copy.
func (c *Cache) join(w *worker, id int, dst []byte) (fl *flight, leader, copied bool) {
	s := &c.flight[id%len(c.flight)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if fl, ok := s.byID[int32(id)]; ok {
		if fl.copies && dst != nil && (!w.guest || !fl.remote) {
			fl.followers = append(fl.followers, dst)
			return fl, false, true
		}
		return fl, false, false
	}
	fl = &flight{done: make(chan struct{}), since: time.Now(), leader: w, batch: w.batch, copies: dst != nil}
	fl.remote = w.peers != nil && w.peers.Answers(id)
	s.byID[int32(id)] = fl
	return fl, true, false
}

// land ends a flight: nobody can join any more, followers get their copies. If
// the watchdog has ended it before, the leader is lost.
func (c *Cache) land(id int, fl *flight, data []byte, place Place, err error) {
	s := &c.flight[id%len(c.flight)]
	s.mu.Lock()
	if s.byID[int32(id)] != fl {
		s.mu.Unlock()
		fl.leader.lost = true
		c.watcher.returned(fl)
		return
	}
	delete(s.byID, int32(id))
	followers := fl.followers
	s.mu.Unlock()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = errGivenUp
	}
	if err == nil {
		for _, dst := range followers {
			copy(dst, data)
		}
	}
	fl.place, fl.err = place, err
	close(fl.done)
}

// waitFor waits for a flight. It does not look at ctx while the flight may
// still write into the follower's buffer.
func waitFor(ctx context.Context, fl *flight) error {
	<-fl.done
	return ctx.Err()
}

// Speeds returns the reads of every place, copies out of classes included.
func (c *Cache) Speeds() []stats.Speed {
	out := make([]stats.Speed, len(c.speed))
	for p := range c.speed {
		out[p] = c.speed[p].speed()
		out[p].Place = c.PlaceName(Place(p))
	}
	return out
}

// meter measures the reads from one place.
type meter struct {
	mu       sync.Mutex
	total    stats.Speed
	recent   time.Duration // moving average of what a read takes
	underWay int
	since    time.Time // when underWay left 0
}

// begin notes the begin of a read, and returns when it was.
func (m *meter) begin() time.Time {
	now := time.Now()
	m.mu.Lock()
	if m.underWay++; m.underWay == 1 {
		m.since = now
	}
	m.mu.Unlock()
	return now
}

// end notes the end of a read that began at start; one that failed brought nothing.
func (m *meter) end(start time.Time, bytes int, err error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.underWay--; m.underWay == 0 {
		m.total.Busy += now.Sub(m.since).Seconds()
	}
	took := now.Sub(start)
	m.total.Seconds += took.Seconds()
	if err == nil {
		if m.recent += (took - m.recent) / 16; m.total.Samples == 0 {
			m.recent = took
		}
		m.total.Samples++
		m.total.Bytes += int64(bytes)
	}
}

func (m *meter) speed() stats.Speed {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.total
	if m.underWay > 0 {
		s.Busy += time.Since(m.since).Seconds()
	}
	return s
}

// bitset is a set of samples that many goroutines may add to.
type bitset []atomic.Uint32

func newBitset(n int) bitset     { return make(bitset, (n+31)/32) }
func (b bitset) has(id int) bool { return b[id/32].Load()&(1<<(id%32)) != 0 }
func (b bitset) set(id int)      { b[id/32].Or(1 << (id % 32)) }

func (b bitset) clear() {
	for i := range b {
		b[i].Store(0)
	}
}
