package pool

import (
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/tune"
)

// Gate admits a limited number of reads at a time, and finds the number that gives the highest
// throughput. Reads that something waits for are admitted before others, each in order of arrival.
// Its methods are safe for concurrent use.
type Gate struct {
	changed func(limit int)

	mu           sync.Mutex // guards the following
	tuner        *tune.Tuner
	inside, lent int
	changes      tune.History
	urgent, rest []chan struct{} // waiting reads, oldest first; closed when they are admitted
	// A window is a time in which a read was always waiting: only then the limit limits the
	// throughput.
	since time.Time // beginning of the window; zero: none
	done  int       // reads since then
	// Windows for which the limit is another gate's, and since this gate's own one was news.
	follows, same int
	version       int           // of the limit that this gate has found
	news          chan struct{} // closed when there is a later one
}

const (
	windowTime  = 250 * time.Millisecond
	windowReads = 4 // per stream
	// A limit that this gate has found is news every so many windows, though it has not changed, and
	// another gate's holds for so many, unless there is news of it.
	again, followed = 16, 64
)

// Limits are the first number of reads that a Gate admits at a time, and the limits of later ones.
type Limits struct{ Start, Least, Most int }

// growth is the factor between a number of reads and the next one that is tried.
const growth = 1.5

// NewGate returns a gate. changed is called with each new limit, without a lock held.
func NewGate(l Limits, changed func(limit int)) *Gate {
	o := tune.Options{Start: l.Start, Least: l.Least, Most: l.Most, Growth: growth}
	g := &Gate{tuner: tune.New(o), changed: changed, news: make(chan struct{})}
	g.changes.Add(time.Now(), g.tuner.Value())
	return g
}

// Limit returns how many reads are admitted at a time now.
func (g *Gate) Limit() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tuner.Value()
}

// Changes returns the first limit and its changes, oldest first, with their times; none if there is
// no gate.
func (g *Gate) Changes() iter.Seq2[time.Time, int] {
	if g == nil {
		return (&tune.History{}).All()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changes.All()
}

// CheckRest checks, in builds with invariants, that no read is inside.
func (g *Gate) CheckRest() {
	if g == nil || !invariants.Enabled {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	invariants.Check(g.inside == 0 && g.lent == 0, "%d reads are left inside, and %d are lent",
		g.inside, g.lent)
}

// Enter waits until the read is admitted. Leave must follow. wanted, if not nil, is closed when
// something begins to wait for a read that is not urgent: it is urgent from then on.
func (g *Gate) Enter(urgent bool, wanted <-chan struct{}) {
	g.mu.Lock()
	if g.inside < g.tuner.Value()+g.lent {
		g.inside++
		g.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	if urgent {
		g.urgent = append(g.urgent, turn)
	} else {
		g.rest = append(g.rest, turn)
	}
	if g.since.IsZero() {
		g.since, g.done = time.Now(), 0
	}
	g.mu.Unlock()
	if !urgent {
		select {
		case <-turn:
			return
		case <-wanted:
			g.hasten(turn)
		}
	}
	<-turn
}

// hasten makes a read urgent that waits.
func (g *Gate) hasten(turn chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.rest, turn); i >= 0 { // else it has just been admitted
		g.rest = slices.Delete(g.rest, i, i+1)
		g.urgent = append(g.urgent, turn)
	}
}

// Leave records the end of a read, and whether it succeeded.
func (g *Gate) Leave(ok bool) {
	g.mu.Lock()
	g.inside--
	was := g.tuner.Value()
	if ok && !g.since.IsZero() {
		g.done++
		now := time.Now()
		if took := now.Sub(g.since); g.done >= windowReads*was && took >= windowTime {
			g.tuner.Next(float64(g.done) / took.Seconds())
			g.since, g.done = now, 0
			g.changes.Add(now, g.tuner.Value())
			g.found(g.tuner.Value() != was)
		}
	}
	g.admit()
	limit := g.tuner.Value()
	g.mu.Unlock()
	if limit != was {
		g.changed(limit)
	}
}

// found makes the limit after a window news, if it is this gate's. g.mu must be held.
func (g *Gate) found(changed bool) {
	if g.follows > 0 {
		g.follows--
		return
	}
	if g.same++; changed || g.same == again {
		g.same = 0
		g.version++
		close(g.news)
		g.news = make(chan struct{})
	}
}

// Found returns the limit that this gate has found, its version, and a channel that is closed when
// there is a later one. The version is 0 until there is one.
func (g *Gate) Found() (limit, version int, news <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tuner.Value(), g.version, g.news
}

// Follow makes another gate's limit this one's, which finds none itself for some time; 0: the
// present one.
//
// Gates to one source must not look for their limits alone. Each would find that more reads of its
// own are more of the source's throughput, which they take from those of the others: of four nodes
// behind a source of 200 MB/s, each had up to 512 reads in progress, for a second each, where 16
// are enough. If all change their limits together, a gate's throughput tells of the source's.
func (g *Gate) Follow(limit int) {
	g.mu.Lock()
	was := g.tuner.Value()
	if limit == 0 {
		limit = was
	}
	g.tuner.Adopt(limit, followed)
	g.follows = followed
	now := time.Now()
	if !g.since.IsZero() {
		g.since, g.done = now, 0
	}
	limit = g.tuner.Value()
	g.changes.Add(now, limit)
	g.admit()
	g.mu.Unlock()
	if limit != was {
		g.changed(limit)
	}
}

// Lend admits n more reads at a time than the limit, in the place of reads that hang; a negative
// number takes that back.
func (g *Gate) Lend(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lent += n
	g.admit()
}

// admit admits as many waiting reads as there may be. g.mu must be held.
func (g *Gate) admit() {
	for g.inside < g.tuner.Value()+g.lent && len(g.urgent)+len(g.rest) > 0 {
		list := &g.urgent
		if len(*list) == 0 {
			list = &g.rest
		}
		close((*list)[0])
		(*list)[0] = nil
		*list = (*list)[1:]
		g.inside++
	}
	if len(g.urgent)+len(g.rest) == 0 {
		g.since, g.urgent, g.rest = time.Time{}, nil, nil
	}
}
