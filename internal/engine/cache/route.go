package cache

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// route is how a sample is to be read.
type route struct {
	tier Tier // the chosen one
	// peer is set if another node is to be asked: it was chosen, or it is asked if the chosen class
	// turns out not to have the sample.
	peer bool
	// direct is set if the source was chosen although a class or another node has the sample, or
	// another node although a class has it: the classes are not read.
	direct bool
	// keep is the class of memory into which the sample is put when another node has sent it into a
	// buffer; nil: none.
	keep *class
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

// route chooses the tier from which a sample is read that is not in shared memory: a class that
// holds it, the node that owns it, or the source (routing.Read.Route).
func (c *Cache) route(r *Request, id int) route {
	var read routing.Read
	classes := c.routing(r, id, &read)
	to := read.Route()
	if to.Chosen {
		c.explored.all.Add(c.index.Size(id))
	}
	if to.Explores {
		c.explored.source.Add(c.index.Size(id))
	}
	way := route{tier: Source, peer: to.Asks, direct: to.Direct}
	switch {
	case to.Tier == routing.Owner:
		way.tier = Peer
	case to.Tier != routing.Source:
		way.tier = classes[to.Tier]
	}
	return way
}

// routing sets what the way of a read depends on, and returns the tiers of the classes that have
// the sample. What the meters have seen is left out where it does not matter.
func (c *Cache) routing(r *Request, id int, read *routing.Read) (
	classes [routing.MostClasses]Tier,
) {
	read.Remote, read.CacheFirst = r.remote, r.CacheFirst
	read.Due = math.Inf(1)
	for j := range c.classes {
		cl := &c.classes[j]
		switch {
		case cl.inPlace != nil || read.Held == len(classes) || !cl.Store.Has(id):
		case !cl.reader.Responds():
			read.Silent = true
		default:
			classes[read.Held] = FirstClass + Tier(j)
			read.Held++
		}
	}
	if r.remote || read.Held == 0 && r.Peers == nil {
		return classes
	}
	now, size := time.Now(), c.index.Size(id)
	read.Source = c.meters[Source].Tier(now, size)
	if r.Peers != nil {
		read.Owner, read.Asks = r.Peers.Owner(id, size, read.Source.Arrival)
	}
	if read.Held == 0 && !read.Asks {
		return classes
	}
	for i, tier := range classes[:read.Held] {
		read.Classes[i] = c.meters[tier].Tier(now, c.heldSize(tier, id, size))
	}
	if r.Due != nil {
		read.Due = r.Due(now)
	}
	read.Explores = routing.MayExplore(size, c.explored.source.Load(), c.explored.all.Load())
	return classes
}

// explored are the bytes of reads for which a tier was chosen, and those of them that were read
// from the source only to renew its estimates.
type explored struct{ all, source atomic.Int64 }
