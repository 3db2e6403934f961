package cache

import (
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
)

// route is how a sample is to be read.
type route struct {
	tier Tier // the chosen one
	// peer is set if another node is to be asked: it was chosen, or it is asked if the chosen class
	// turns out not to have the sample.
	peer bool
	// direct is set if the source was chosen although a class or another node has the sample.
	direct bool
}

// know sets what is known of the tiers and of writes to them, by name, before they are measured;
// the rest is guessed.
func (c *Cache) know(tiers, written map[string]model.Known) {
	c.meters[Source].Know(model.KnownOr(tiers, "source", model.GuessedSource))
	c.meters[Peer].Know(model.GuessedPeer)
	for j := range c.classes {
		cl, guess := &c.classes[j], model.GuessedMemory
		if cl.writer != nil {
			guess = model.GuessedClass
			cl.writer.Know(model.KnownOr(written, cl.Name, guess))
		}
		c.meters[FirstClass+Tier(j)].Know(model.KnownOr(tiers, cl.Name, guess))
	}
}

// Meters returns what measures reads from tiers, and writes to the classes, by name; memory is
// written by reads.
func (c *Cache) Meters() (read, written map[string]*meter.Meter) {
	read, written = map[string]*meter.Meter{}, map[string]*meter.Meter{}
	for tier := range c.meters {
		read[c.TierName(Tier(tier))] = &c.meters[tier]
	}
	for _, cl := range c.classes {
		if cl.writer != nil {
			written[cl.Name] = cl.writer.Meter()
		}
	}
	return read, written
}

// most is the largest number of tiers that a sample is chosen from: the fastest classes, another
// node and the source.
const most = 8

// crowded is how many times the delay of a read to others counts while all processors are busy.
// Threads wait for these, so that requests to other nodes seem late, and more so the fuller the
// source is: each read of it that another node would have spared has all wait longer.
const crowded = 3

// route chooses the tier from which a sample is read that is not in shared memory: a class that
// holds it, the node that owns it, or the source (model.Choose).
//
// A read for another node is not a choice of this node, which owns the sample: its own copy is
// taken, and the source if it has none. The node that asks has made the choice, by what requests to
// this node take.
func (c *Cache) route(r *Request, id int) route {
	size := c.index.Size(id)
	var tiers [most]Tier
	n, silent := 0, false // silent: a class that does not respond has the sample
	for j := range c.classes {
		cl := &c.classes[j]
		switch {
		case cl.inPlace != nil || n == most-2 || !cl.Store.Has(id):
		case !cl.reader.Responds():
			silent = true
		default:
			tiers[n] = FirstClass + Tier(j)
			n++
		}
	}
	if n == 0 && r.Peers == nil {
		return route{tier: Source, direct: silent}
	}
	now := time.Now()
	source, arrival, peer := c.meters[Source].Arrival(now, size), 0.0, false
	if r.Peers != nil {
		arrival, peer = r.Peers.Arrival(id, size, source)
		// An owner that would have to read it is not asked if it would not keep it (keeps).
		if peer = peer && !(r.Due != nil && c.passing() && r.Peers.Relays(id)); peer {
			tiers[n] = Peer
			n++
		}
	}
	if n == 0 || r.remote {
		if n > 0 && tiers[0] >= FirstClass {
			return route{tier: tiers[0]}
		}
		return route{tier: Source, direct: silent}
	}
	tiers[n] = Source
	n++
	var candidates [most]model.Candidate
	busy := c.Busy()
	for i, tier := range tiers[:n] {
		candidates[i].Shared = r.Peers != nil && tier < FirstClass
		if candidates[i].Arrival = arrival; tier != Peer {
			candidates[i].Arrival = c.meters[tier].Arrival(now, size)
		}
		candidates[i].Rate, candidates[i].Contended = c.meters[tier].Sustained(), busy
	}
	if r.Peers != nil {
		// All nodes are alike: each has as many reads in progress there.
		candidates[n-1].Charge = c.meters[Source].Delay(size) * float64(r.Peers.Nodes())
		if busy {
			candidates[n-1].Charge *= crowded
		}
	}
	due := math.Inf(1)
	if r.Due != nil {
		due = r.Due(now)
	}
	at := model.Choose(due, candidates[:n])
	at = c.explore(now, size, at, tiers[:n], candidates[:n])
	c.exploring.Count(size)
	return route{tier: tiers[at], peer: peer && tiers[at] != Source, direct: tiers[at] == Source}
}

// explore returns the tier to read from instead of the chosen one: sometimes one whose estimate is
// old, or from another job.
func (c *Cache) explore(now time.Time, size int64, chosen int, tiers []Tier,
	candidates []model.Candidate,
) int {
	for i, tier := range tiers {
		if i == chosen || tier == Peer || // other nodes' estimates are kept current by Peers
			!c.meters[tier].Explore(now, candidates[i].Arrival) {
			continue
		}
		if tier == Source && !c.exploring.Spend(size) {
			continue
		}
		return i
	}
	return chosen
}

// calm is how long another node may take for a sample while all processors are busy. Nodes have
// theirs to wait for, and the source would have as well: with what is enough for a node that hangs
// (package breaker), up to 4 % of the samples were read a second time. A source that gives several
// times as much is not spared at such a price: a link of 12 MB/s had all ranks wait for up to a
// second for samples that it takes 0.1 ms to read.
const calm = time.Second

// bears returns how long another node may take for a sample at least, however fast the source is.
func (c *Cache) bears() time.Duration {
	peer, source := c.meters[Peer].Sustained(), c.meters[Source].Sustained()
	if c.Busy() && !model.Dwarfs(source, peer) {
		return calm
	}
	return 0
}
