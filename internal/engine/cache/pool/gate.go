package pool

import (
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/model/tune"
)

// Gate admits a limited number of reads at a time, and finds the number that gives the highest
// throughput. Reads that something waits for are admitted before others, each in order of arrival.
// Its methods are safe for concurrent use.
type Gate struct {
	changed func(limit int)
	order   sync.Mutex // of calls of changed: the last one has the last limit; before mu

	mu           sync.Mutex // guards the following
	tuner        *tune.Tuner
	inside, lent int
	changes      tune.History
	urgent, rest []chan struct{} // waiting reads, oldest first; closed when they are admitted
	// A window is a time in which a read was always waiting: only then the limit limits the
	// throughput.
	since time.Time     // beginning of the window; zero: none
	done  int           // reads since then
	more  int64         // samples that these brought besides
	takes time.Duration // a read in the last window, on average; 0: none has ended
	// until when the limit is another gate's, and when this gate's own one was news last.
	until, told time.Time
	version     int           // of the limit that this gate has found
	news        chan struct{} // closed when there is a later one
}

const (
	windowTime  = 250 * time.Millisecond
	windowReads = 4 // per stream
	// A limit that this gate has found is news again after so long, though it has not changed.
	again = 4 * time.Second
	// How long a gate follows another one after news of it, and if there has been none yet.
	followed, expected = 16 * time.Second, 3 * time.Second
	// alike is by what factor reads of gates to the same source may differ in how long they take.
	alike = 2
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
		g.open(time.Now())
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

// open begins a window. g.mu must be held.
func (g *Gate) open(now time.Time) {
	g.since, g.done = now, 0
	g.more = 0
}

// Grow records that a read that was admitted brings other samples as well. There may be no gate.
func (g *Gate) Grow(others int64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.more += others
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
			g.takes = took * time.Duration(was) / time.Duration(g.done)
			if now.After(g.until) {
				g.tuner.Next(float64(int64(g.done)+g.more) / took.Seconds())
				g.changes.Add(now, g.tuner.Value())
				g.found(now, g.tuner.Value() != was)
			}
			g.open(now)
		}
	}
	g.admit()
	limit := g.tuner.Value()
	g.mu.Unlock()
	if limit != was {
		g.tell()
	}
}

// tell calls changed with the limit.
func (g *Gate) tell() {
	g.order.Lock()
	defer g.order.Unlock()
	g.changed(g.Limit())
}

// found makes the limit news after a window, if it has changed, or from time to time. g.mu must be
// held.
func (g *Gate) found(now time.Time, changed bool) {
	if changed || now.Sub(g.told) >= again {
		g.told = now
		g.version++
		close(g.news)
		g.news = make(chan struct{})
	}
}

// Found returns the limit that this gate has found, how long a read took in the last window, on
// average, the version of these, and a channel that is closed when there are later ones. The
// version is 0 until there are any.
func (g *Gate) Found() (limit int, takes time.Duration, version int, news <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tuner.Value(), g.takes, g.version, g.news
}

// Expect makes this gate wait for a limit of another one (Follow), for some time.
func (g *Gate) Expect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = time.Now().Add(expected)
}

// Follow makes another gate's limit this one's, as far as it can, which finds none itself for some
// time. takes is how long a read takes there: if that is much longer, or shorter, than here, the
// gates do not share what limits them, as one of them reads from a page cache or from another disk,
// and each finds its own limit.
//
// Gates to one source must not look for their limits alone. Each would find that more reads of its
// own are more of the source's throughput, which they take from those of the others: of four nodes
// behind a source of 200 MB/s, each had up to 512 reads in progress, for a second each, where one
// is enough. If all change their limits together, a gate's throughput reflects the source's.
func (g *Gate) Follow(limit int, takes time.Duration) {
	g.mu.Lock()
	if g.takes > 0 && (g.takes > alike*takes || takes > alike*g.takes) {
		g.until = time.Time{}
		g.mu.Unlock()
		return
	}
	now, was := time.Now(), g.tuner.Value()
	g.until = now.Add(followed)
	if g.tuner.Adopt(limit); g.tuner.Value() == was {
		g.mu.Unlock()
		return
	}
	if !g.since.IsZero() {
		g.open(now)
	}
	g.changes.Add(now, g.tuner.Value())
	g.admit()
	g.mu.Unlock()
	g.tell()
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
		g.since = time.Time{}
		g.urgent = nil
		g.rest = nil
	}
}
