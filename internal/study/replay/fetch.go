package replay

import (
	"errors"
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// request describes on whose behalf a sample is fetched (cache.Request).
type request struct {
	peers  bool // other nodes may be asked
	urgent bool // something waits for it
	remote bool // another node does
	// cacheFirst is set if samples that a class or another node has are not read from the source.
	cacheFirst bool
	due        func() float64 // when it is needed, in seconds from now; nil: not soon
}

// needed returns how long it is until it is needed; 0: that is not known (cache.Request).
func (r *request) needed() time.Duration {
	if r.due == nil {
		return 0
	}
	return seconds(r.due())
}

// sample is a fetched sample.
type sample struct {
	tier string
	// failed is set if it was not fetched: this node is fetching it from another one itself, or does
	// not hold it and reads nothing for others.
	failed bool
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

// errLate is what a request that was given up counts as.
var errLate = errors.New("no answer in time")

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
	to := n.route(k, r, holds)
	if to.class {
		n.readClass(k, func(late bool) {
			if late {
				n.join(k, r, route{peer: to.peer, direct: true}, done)
				return
			}
			done(sample{tier: class.Name})
		})
		return
	}
	n.join(k, r, to, done)
}

// join brings a sample from another node or the source, or waits for the flight that does.
func (n *node) join(k int32, r request, to route, done func(sample)) {
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
	f := &flight{remote: to.peer, urgent: r.urgent || r.remote}
	n.flights[k] = f
	land := func(tier string) {
		delete(n.flights, k)
		n.keep(k)
		done(sample{tier: tier})
		for _, follower := range f.followers {
			follower(sample{tier: tier})
		}
	}
	if !f.remote {
		n.readSource(f, k, to.direct, land)
		return
	}
	n.askOwner(k, r, land, func(late bool) { n.readSource(f, k, to.direct || late, land) })
}

// route is how a sample is to be read (cache.route).
type route struct {
	class  bool // from its class
	peer   bool // from its owner, or, if class is set, from there if the class is late
	direct bool // a tier was chosen although one whose reads cost others less has the sample
}

// route chooses where a sample is read from that is not in memory (cache.route): its class if that
// holds it, its owner, or the source.
func (n *node) route(k int32, r request, holds bool) route {
	read := n.routing(k, r, holds)
	to := read.Route()
	if to.Chosen {
		n.routed += n.c.job.Sizes[k]
	}
	if to.Explores {
		n.explored += n.c.job.Sizes[k]
	}
	return route{class: to.Tier >= 0, peer: to.Asks, direct: to.Direct}
}

// routing returns what the way of a read depends on, as cache.Cache.routing does. A class is given
// memory for samples at once here, so that owners are asked also where they would not keep what
// they read.
func (n *node) routing(k int32, r request, holds bool) routing.Read {
	read := routing.Read{Remote: r.remote, CacheFirst: r.cacheFirst, Due: math.Inf(1)}
	var file *meter.Meter // of the class
	if holds {
		_, number, _ := n.class(k)
		if read.Silent = n.hung[number-1] > 0; !read.Silent {
			file = &n.files[number-1]
			read.Held = 1
		}
	}
	owner := n.owner(k)
	if r.remote || file == nil && owner == nil {
		return read
	}
	size, now := n.c.job.Sizes[k], n.c.events.time()
	read.Source = n.source.Tier(now, size)
	if r.peers && owner != nil && !owner.Open(now) {
		read.Asks = true
		read.Owner = owner.tier(now, size, read.Source.Arrival)
	}
	if file != nil {
		read.Classes[0] = file.Tier(now, size)
	}
	if r.due != nil {
		read.Due = r.due()
	}
	read.Explores = routing.MayExplore(size, n.explored, n.routed)
	return read
}

// owner returns what this node has seen of the other one that owns a sample; nil: none does.
func (n *node) owner(k int32) *peer {
	plan := n.c.job.Plan
	if !plan.Remote {
		return nil
	}
	if owner := plan.OwnerOf(int(k)); owner >= 0 && owner != n.number {
		return &n.peers[owner]
	}
	return nil
}

// tier is predict for a choice, if the source is predicted to take so many seconds (package
// breaker).
func (p *peer) tier(now time.Time, size int64, source float64) (t routing.Tier) {
	p.Consider()
	t.Arrival = p.predict(now, size)
	t.Stale = p.Stale(now, p.meter.Idle(now), t.Arrival, source)
	return t
}

// predict predicts how long a request would take that begins now, in seconds.
func (p *peer) predict(now time.Time, size int64) float64 {
	return p.meter.Answer(now, size, p.Waited())
}

// readClass reads a sample from the class that holds it, for as long as cache.classLimit allows:
// then the read is given up, done is called with late, and the class is not read until the read has
// ended by itself (store.Reader).
func (n *node) readClass(k int32, done func(late bool)) {
	c := n.c
	_, number, _ := n.class(k)
	j := number - 1
	begun := c.events.now
	givenUp := false
	predicted := n.files[j].Predict(c.job.Sizes[k])
	read := n.files[j].Begin(c.events.time(), int(c.job.Sizes[k]))
	end := n.classes[j].take(begun, n.mb(k))
	limit := n.classLimit(k, predicted).Seconds()
	if end-begun > limit {
		c.events.after(limit, func() {
			givenUp = true
			n.hung[j]++
			n.files[j].GiveUp(c.events.time(), read)
			done(true)
		})
	}
	c.events.at(end, func() {
		if givenUp {
			n.hung[j]--
			return
		}
		n.files[j].End(c.events.time(), read, nil)
		done(false)
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

// classLimit returns how long a read of a sample from a class may take that is predicted to take so
// many seconds, and which the source could deliver (cache.classLimit).
func (n *node) classLimit(k int32, predicted float64) time.Duration {
	return routing.ClassLimit(predicted, n.sourceTakes(k), seconds(n.c.job.Timeout))
}

// sourceTakes estimates how long it takes to read a sample from the source (cache.sourceTakes).
func (n *node) sourceTakes(k int32) time.Duration {
	return routing.SourceTakes(n.source.Arrival(n.c.events.time(), n.c.job.Sizes[k]))
}

// inquiry is a request to another node (breaker.Set.Fetch).
type inquiry struct {
	n            *node
	k            int32
	r            request
	to           *peer
	begun        time.Time
	asked        routing.Asked
	read, remote meter.Read
}

// ask begins a request to the node that owns a sample.
func (n *node) ask(k int32, r request) *inquiry {
	now, size := n.c.events.time(), n.c.job.Sizes[k]
	q := &inquiry{n: n, k: k, r: r, to: n.owner(k), begun: now}
	q.asked = q.to.Ask(now, r.needed(), q.to.predict(now, size), q.sourceTakes())
	q.read = q.to.meter.Begin(now, int(size))
	q.remote = n.remote.Begin(now, int(size))
	return q
}

// limit returns how long the request may take, by what is known now.
func (q *inquiry) limit() time.Duration {
	return q.asked.Limit(q.sourceTakes(), seconds(q.n.c.job.Timeout))
}

// sourceTakes estimates how long the source takes instead (cache.read).
func (q *inquiry) sourceTakes() time.Duration {
	if q.r.cacheFirst {
		return routing.MaxTimeout
	}
	return q.n.sourceTakes(q.k)
}

// answered ends the request with the sample, for which the node waited for its source for some
// time.
func (q *inquiry) answered(waited time.Duration) {
	now := q.n.c.events.time()
	q.read.Waited = waited
	q.remote.Waited = waited
	q.to.meter.End(now, q.read, nil)
	q.n.remote.End(now, q.remote, nil)
	q.to.Answered(now, q.asked, now.Sub(q.begun), waited)
}

// refused ends the request with the answer that the sample is being fetched from this node.
func (q *inquiry) refused() {
	now := q.n.c.events.time()
	q.to.meter.End(now, q.read, errElsewhere)
	q.n.remote.End(now, q.remote, errElsewhere)
	q.to.Failed(now, routing.Unserved)
}

// giveUp ends the request without an answer.
func (q *inquiry) giveUp() {
	now := q.n.c.events.time()
	q.to.meter.GiveUp(now, q.read)
	q.n.remote.End(now, q.remote, errLate)
	if _, silent := q.to.Silent(now, q.asked, q.sourceTakes()); silent {
		q.to.Failed(now, routing.Unavailable)
	}
}

// serve brings a sample for another node, once this one has begun: one that it has to read only
// where samples are read once for all nodes (coordinator.holder).
func (n *node) serve(k int32, done func(sample)) {
	n.c.events.at(n.spec.Start, func() {
		if n.in[k]&there == 0 && !n.c.job.Plan.ReadOnce {
			done(sample{failed: true})
			return
		}
		n.fetch(k, request{remote: true}, done)
	})
}

// waits has another worker work in the place of one that waits for another node until it calls back
// (cache.away).
func (n *node) waits(p *peer) (back func()) {
	if p.Relays() {
		return func() {}
	}
	n.away++
	n.dispatch()
	return func() { n.away-- }
}

// askOwner fetches a sample from the node that owns it, which reads it if it has to. If it cannot,
// or takes too long, otherwise is called.
func (n *node) askOwner(k int32, r request, done func(tier string), otherwise func(late bool)) {
	c, q := n.c, n.ask(k, r)
	owner := c.nodes[c.job.Plan.OwnerOf(int(k))]
	back, over := n.waits(q.to), false
	keeps := n.keeps(k)
	end := func() {
		over = true
		back()
	}
	var expire func(passed time.Duration) // as breaker.deadline
	expire = func(passed time.Duration) {
		if over {
			return
		}
		if limit := q.limit(); limit > passed {
			c.events.after((limit - passed).Seconds(), func() { expire(limit) })
			return
		}
		end()
		q.giveUp()
		otherwise(true)
	}
	expire(0)
	owner.serve(k, func(got sample) {
		if over {
			return
		}
		if got.failed {
			end()
			q.refused()
			otherwise(false)
			return
		}
		waited := time.Duration(0) // for the source
		if got.tier == sourceTier {
			waited = c.events.time().Sub(q.begun)
		}
		mb := n.mb(k) * c.job.Forms.SentSize(n.form(peerTier, keeps))
		sent := max(owner.sent.take(c.events.now, mb), n.got.take(c.events.now, mb))
		c.events.at(sent, func() {
			if over {
				return
			}
			end()
			q.answered(waited)
			done(peerTier)
		})
	})
}
