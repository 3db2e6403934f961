package replay

import (
	"errors"
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
)

// request says on whose behalf a sample is fetched (cache.Request).
type request struct {
	peers  bool           // other nodes may be asked
	urgent bool           // something waits for it
	remote bool           // another node does
	due    func() float64 // when it is needed, in seconds from now; nil: not soon
}

// needed returns in how many seconds it is needed; 0: that is not known (cache.Request).
func (r *request) needed() float64 {
	if r.due == nil {
		return 0
	}
	return r.due()
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
	class bool // from its class
	peer  bool // from its owner, or, if class is set, from there if the class is late
	// direct is set if a cache has it or is to have it, and the source was chosen.
	direct bool
}

// route chooses where a sample is read from that is not in memory (cache.route): its class if that
// holds it, its owner, or the source.
func (n *node) route(k int32, r request, holds bool) route {
	size, now := n.c.job.Sizes[k], n.c.events.time()
	var candidates [3]model.Candidate
	count, silent := 0, false
	if holds {
		switch _, number, _ := n.class(k); {
		case n.hung[number-1] > 0:
			silent = true
		case r.remote:
			return route{class: true}
		default:
			candidates[0].Arrival = n.files[number-1].Arrival(now, size)
			candidates[0].Rate = n.files[number-1].Sustained()
			count++
		}
	}
	inClass := count > 0
	plan, source, peer := n.c.job.Plan, n.source.Arrival(now, size), false
	if owner := plan.OwnerOf(int(k)); r.peers && plan.Remote && owner >= 0 && owner != n.number {
		arrival := n.peers[owner].arrival(now, size, source)
		candidates[count] = model.Candidate{
			Arrival: arrival, Shared: true, Rate: n.remote.Sustained(),
		}
		count, peer = count+1, true
	}
	if count == 0 {
		return route{direct: silent}
	}
	c := &candidates[count]
	c.Arrival, c.Rate = source, n.source.Sustained()
	if len(n.peers) > 1 {
		c.Charge, c.Shared = n.source.Delay(size)*float64(len(n.peers)), true
	}
	due := math.Inf(1)
	if r.due != nil {
		due = r.due()
	}
	at := n.explore(k, model.Choose(due, candidates[:count+1]), candidates[:count+1], peer)
	n.routed += n.mb(k)
	return route{class: inClass && at == 0, peer: peer && at < count, direct: at == count}
}

// exploredShare is the share of all MB that may be read from the source to explore it.
const exploredShare = 1.0 / 1000

// explore returns the candidate to read from instead of the chosen one: sometimes the class or the
// source, which is the last one, if its estimate is old or from another job (cache.explore).
func (n *node) explore(k int32, chosen int, candidates []model.Candidate, peer bool) int {
	now := n.c.events.time()
	for i, c := range candidates {
		isPeer, m := peer && i == len(candidates)-2, &n.source
		if i < len(candidates)-1 && !isPeer {
			_, number, _ := n.class(k)
			m = &n.files[number-1]
		}
		if i == chosen || isPeer || !m.Explore(now, c.Arrival) {
			continue
		}
		if m == &n.source {
			if n.explored+n.mb(k) > exploredShare*n.routed {
				continue
			}
			n.explored += n.mb(k)
		}
		return i
	}
	return chosen
}

// arrival predicts how long a request would take that begins now, in seconds, if a read from the
// source takes that long. A node that was not asked for some time attracts a request (package
// breaker).
func (p *peer) arrival(now time.Time, size int64, source float64) float64 {
	seconds := p.predict(now, size, source)
	least := meter.Rest(seconds)
	at := now.Sub(time.Unix(0, 0)).Seconds()
	if p.meter.Idle(now) < least || at-p.explored < least.Seconds() {
		return seconds
	}
	p.explored = at
	return 0
}

// predict is arrival without attracting a request.
func (p *peer) predict(now time.Time, size int64, source float64) float64 {
	return p.meter.Answer(now, size, p.waited) + p.cold*source
}

// readClass reads a sample from the class that holds it, for as long as cache.classLimit allows:
// then the read is given up, done is called with late, and the class is not read until the read has
// ended by itself (store.Reader).
func (n *node) readClass(k int32, done func(late bool)) {
	c := n.c
	_, number, _ := n.class(k)
	j, begun, givenUp := number-1, c.events.now, false
	read := n.files[j].Begin(c.events.time(), int(c.job.Sizes[k]))
	end, limit := n.classes[j].take(begun, n.mb(k)), n.giveUp(k)
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

const (
	// A request or a read of a class is given up after patience times what the source is expected to
	// take, but after hedge at the soonest; a request after longest at the latest (package breaker);
	// and the source may take unsure as long as that is guessed (cache.Cache).
	patience = 8
	hedge    = 0.1
	longest  = 10
	unsure   = 0.06
	// If that is less than calm, a request may take until the sample is needed, and exceed times as
	// long as was predicted, up to calm; and calm while the node has to read samples from the source.
	exceed    = 4
	calm      = 1
	leastCold = 1.0 / 32
)

// giveUp returns after how many seconds a read of a sample from a class is given up, which the
// source could deliver.
func (n *node) giveUp(k int32) float64 {
	return max(patience*n.sourceTakes(k), hedge)
}

// sourceTakes estimates how long it takes to read a sample from the source.
func (n *node) sourceTakes(k int32) float64 {
	takes := n.source.Arrival(n.c.events.time(), n.c.job.Sizes[k])
	if n.source.Known().Origin == model.Guessed {
		takes = max(takes, unsure)
	}
	return takes
}

// patience returns how many seconds a request to another node may take, however fast the source is
// (breaker.circuit).
func (n *node) patience(k int32, r request, p *peer) float64 {
	least := max(r.needed(), exceed*p.predict(n.c.events.time(), n.c.job.Sizes[k], n.sourceTakes(k)))
	if p.cold > leastCold || !p.answered {
		least = calm
	}
	return min(least, calm)
}

// serve brings a sample for another node, once this one has begun.
func (n *node) serve(k int32, done func(sample)) {
	n.c.events.at(n.spec.Start, func() { n.fetch(k, request{remote: true}, done) })
}

// waits has another worker work in the place of one that waits for another node until it calls back
// (cache.away).
func (n *node) waits(p *peer) (back func()) {
	if !p.answered || p.cold > 0.5 {
		return func() {}
	}
	n.away++
	n.dispatch()
	return func() { n.away-- }
}

// askOwner fetches a sample from the node that owns it, which reads it if it has to. If it cannot,
// or takes too long, otherwise is called.
func (n *node) askOwner(k int32, r request, done func(tier string), otherwise func(late bool)) {
	c := n.c
	number := c.job.Plan.OwnerOf(int(k))
	owner, p := c.nodes[number], &n.peers[number]
	least, back := n.patience(k, r, p), n.waits(p)
	limit := func(passed float64) float64 {
		may := least
		due := r.needed()
		if passed > 0 && c.events.now-p.last < calm && due >= hedge { // breaker.circuit.goesOn
			may = max(may, passed+min(due, calm))
		}
		return min(max(n.giveUp(k), may), longest)
	}
	read := p.meter.Begin(c.events.time(), int(c.job.Sizes[k]))
	remote := n.remote.Begin(c.events.time(), int(c.job.Sizes[k]))
	begun, over := c.events.now, false
	var expire func(passed float64) // as breaker.deadline
	expire = func(passed float64) {
		if over {
			return
		}
		if now := limit(passed); now > passed {
			c.events.after(now-passed, func() { expire(now) })
			return
		}
		over = true
		back()
		p.meter.GiveUp(c.events.time(), read)
		n.remote.End(c.events.time(), remote, errLate)
		otherwise(true)
	}
	expire(0)
	owner.serve(k, func(got sample) {
		if over {
			return
		}
		if got.failed {
			over = true
			back()
			p.meter.End(c.events.time(), read, errElsewhere)
			n.remote.End(c.events.time(), remote, errElsewhere)
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
			over, p.answered, p.last = true, true, c.events.now
			back()
			read.Waited = time.Duration(waited * float64(time.Second))
			remote.Waited = read.Waited
			p.meter.End(c.events.time(), read, nil)
			n.remote.End(c.events.time(), remote, nil)
			p.waited += (waited - p.waited) / 16
			if p.cold -= p.cold / 16; waited > 0 {
				p.cold += 1.0 / 16
			}
			done(peerTier)
		})
	})
}
