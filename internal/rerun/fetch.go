package rerun

import (
	"errors"
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/meter"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// request says on whose behalf a sample is fetched (cache.Request).
type request struct {
	peers  bool           // other nodes may be asked
	urgent bool           // something waits for it
	remote bool           // another node does
	due    func() float64 // when it is needed, in seconds from now; nil: not soon
}

// sample is a fetched sample.
type sample struct {
	tier   string
	failed bool // it was not fetched: this node is fetching it from another one itself
}

// flight is one read of a sample, which others that need the sample wait for.
type flight struct {
	remote    bool   // of another node
	urgent    bool   // something waits for it
	admitted  func() // called when the gate admits it
	followers []func(sample)
}

// errElsewhere is what a node answers that asks another one for the sample itself.
var errElsewhere = errors.New("the sample is being fetched from another node")

const (
	sourceTier    = "source"
	peerTier      = "peer"
	writebackTier = "writeback"
)

// fetch brings a sample as cache.Cache.Fetch does, and calls done with where it came from.
func (n *node) fetch(k int32, r request, done func(sample)) {
	class, _, holds := n.class(k)
	if holds && class.Memory {
		done(sample{tier: class.Name})
		return
	}
	if n.in[k]&copied != 0 {
		done(sample{tier: writebackTier})
		return
	}
	tier, direct := n.route(k, r, holds)
	if tier != sourceTier && tier != peerTier {
		n.readClass(k, func() { done(sample{tier: tier}) })
		return
	}
	if f := n.flights[k]; f != nil {
		if r.remote && f.remote {
			done(sample{failed: true})
			return
		}
		if !f.urgent && (r.urgent || r.remote) {
			n.gate.hasten(f)
		}
		f.followers = append(f.followers, done)
		return
	}
	f := &flight{remote: tier == peerTier, urgent: r.urgent || r.remote}
	n.flights[k] = f
	land := func(tier string) {
		delete(n.flights, k)
		n.keep(k, r.due == nil && !r.remote)
		done(sample{tier: tier})
		for _, follower := range f.followers {
			follower(sample{tier: tier})
		}
	}
	if !f.remote {
		n.readSource(f, k, direct, land)
		return
	}
	n.askOwner(k, land, func(late bool) { n.readSource(f, k, late, land) })
}

// route chooses where a sample is read from that is not in memory (cache.route): its class if that
// holds it, its owner, or the source. direct is set if a cache has it or is to have it, and the
// source was chosen.
func (n *node) route(k int32, r request, holds bool) (tier string, direct bool) {
	size, now := n.c.job.Sizes[k], n.c.events.time()
	var candidates [3]perfmodel.Candidate
	var tiers [3]string
	count := 0
	if holds {
		class, _, _ := n.class(k)
		if r.remote {
			return class.Name, false
		}
		tiers[0], candidates[0].Arrival = class.Name, n.file.Arrival(now, size, 0)
		count++
	}
	if r.remote {
		return sourceTier, false
	}
	plan, source := n.c.job.Plan, n.source.Arrival(now, size, 0)
	if owner := plan.OwnerOf(int(k)); r.peers && plan.Remote && owner >= 0 && owner != n.number {
		tiers[count], candidates[count].Arrival = peerTier, n.peers[owner].arrival(now, size, source)
		count++
	}
	if count == 0 {
		return sourceTier, false
	}
	tiers[count] = sourceTier
	c := &candidates[count]
	c.Arrival = source
	if len(n.peers) > 1 {
		c.Charge = n.source.Delay(size) * float64(len(n.peers))
	}
	due := math.Inf(1)
	if r.due != nil {
		due = r.due()
	}
	at := perfmodel.Choose(due, candidates[:count+1])
	return tiers[at], at == count
}

// arrival predicts how long a request would take that begins now, in seconds, if a read from the
// source takes that long. A node that was not asked for some time attracts a request (package
// breaker).
func (p *peer) arrival(now time.Time, size int64, source float64) float64 {
	seconds := p.meter.Arrival(now, size, p.waited) + p.cold*source
	least := meter.Rest(seconds)
	at := now.Sub(time.Unix(0, 0)).Seconds()
	if p.meter.Idle(now) < least || at-p.explored < least.Seconds() {
		return seconds
	}
	p.explored = at
	return 0
}

// readClass reads a sample from the class that holds it.
func (n *node) readClass(k int32, done func()) {
	_, number, _ := n.class(k)
	read := n.file.Begin(n.c.events.time(), int(n.c.job.Sizes[k]))
	n.c.events.at(n.classes[number-1].take(n.c.events.now, n.mb(k)), func() {
		n.file.End(n.c.events.time(), read, nil)
		done()
	})
}

// readSource reads a sample from the source, once the gate admits it. What a read that something
// waits for has to wait there counts as a part of it.
func (n *node) readSource(f *flight, k int32, direct bool, done func(tier string)) {
	c := n.c
	size := int(c.job.Sizes[k])
	var read meter.Read
	begun := f.urgent
	if begun {
		read = n.source.Begin(c.events.time(), size)
	}
	f.admitted = func() {
		if !begun {
			read = n.source.Begin(c.events.time(), size)
		}
		c.events.at(c.source.take(c.events.now, n.mb(k)), func() {
			n.source.End(c.events.time(), read, nil)
			c.sourceMB += n.mb(k)
			if direct {
				c.directMB += n.mb(k)
			}
			done(sourceTier)
			n.gate.leave()
		})
	}
	n.gate.enter(f)
}

const (
	// A request is given up after patience times what the source is expected to take, but after
	// hedge at the soonest, and after longest at the latest (package breaker); and the source may
	// take unsure as long as that is guessed (cache.Cache).
	patience = 8
	hedge    = 0.1
	longest  = 10
	unsure   = 0.06
)

// giveUp returns after how many seconds a request for a sample is given up.
func (n *node) giveUp(k int32) float64 {
	takes := n.source.Arrival(n.c.events.time(), n.c.job.Sizes[k], 0)
	if n.source.Known().Origin == perfmodel.Guessed {
		takes = max(takes, unsure)
	}
	return min(max(patience*takes, hedge), longest)
}

// askOwner fetches a sample from the node that owns it, which reads it if it has to. If it cannot,
// or takes too long, otherwise is called.
func (n *node) askOwner(k int32, done func(tier string), otherwise func(late bool)) {
	c := n.c
	number := c.job.Plan.OwnerOf(int(k))
	owner, p := c.nodes[number], &n.peers[number]
	read := p.meter.Begin(c.events.time(), int(c.job.Sizes[k]))
	begun, over := c.events.now, false
	c.events.after(n.giveUp(k), func() {
		if over {
			return
		}
		over = true
		p.meter.GiveUp(c.events.time(), read)
		otherwise(true)
	})
	owner.fetch(k, request{remote: true}, func(got sample) {
		if over {
			return
		}
		if got.failed {
			over = true
			p.meter.End(c.events.time(), read, errElsewhere)
			otherwise(false)
			return
		}
		waited := 0.0 // for the source
		if got.tier == sourceTier {
			waited = c.events.now - begun
		}
		end := max(owner.sent.take(c.events.now, n.mb(k)), n.got.take(c.events.now, n.mb(k)))
		c.events.at(end, func() {
			if over {
				return
			}
			over = true
			read.Waited = time.Duration(waited * float64(time.Second))
			p.meter.End(c.events.time(), read, nil)
			p.waited += (waited - p.waited) / 16
			if p.cold -= p.cold / 16; waited > 0 {
				p.cold += 1.0 / 16
			}
			done(peerTier)
		})
	})
}
