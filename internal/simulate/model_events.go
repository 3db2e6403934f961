package simulate

import (
	"context"
	"errors"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// errStuck reports a bug in the simulator: no event is left, and training has not ended.
var errStuck = errors.New(
	"simulate: no event is left before the end of training (a bug in the simulator)")

// looks is the number of events between two checks whether ctx is done.
const looks = 1 << 16

// loop processes events until *until is true: by time, ends of source reads before others, then by
// node.
func (m *model) loop(ctx context.Context, until *bool) error {
	for events := 1; !*until; events++ {
		if events%looks == 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		read := m.source.next()
		i, other := m.clock.first()
		switch {
		case read <= other && read < inf:
			m.now = read
			m.sourceEnd()
		case other < inf:
			m.now = max(m.now, other)
			n := &m.nodes[i]
			if n.start <= m.now {
				m.take(i, n)
			} else {
				m.ring(i, n)
			}
		default:
			return errStuck
		}
		for m.arrived == len(m.nodes) && !m.over && m.training {
			m.release()
		}
	}
	return nil
}

// ring processes the node's earliest alarm.
func (m *model) ring(i int, n *node) {
	first := 0
	for a := range n.soon {
		if n.soon[a].time < n.soon[first].time {
			first = a
		}
	}
	what := n.soon[first].what
	n.soon = append(n.soon[:first], n.soon[first+1:]...)
	if what == demandRead {
		m.read(i, n, n.head, 0)
		m.consume(i, n)
		m.schedule(i, n)
		return
	}
	m.active--
	m.fillNext(i, n, what)
	m.setClock(i, n)
	m.preloaded()
}

// take begins to read the node's next positions, as many as there is capacity for now.
func (m *model) take(i int, n *node) {
	for n.start <= m.now {
		at := n.next
		if n.streams < streams && !n.waits.empty() {
			at = *n.waits.pop()
			n.waits.mb -= n.pos(at).size
			m.read(i, n, at, 0)
		} else {
			n.next++
			p := n.pos(at)
			p.before = n.taken
			n.taken += p.size
			n.used += p.size
			switch none := p.from == p.to; {
			case none && m.how.Demand:
				p.at = -1
			case none:
				m.request(i, n, at, -1, false)
			default:
				m.read(i, n, at, n.waits.mb)
			}
		}
		if n.head == at && n.pos(at).at < inf { // training waits for this sample only
			m.consume(i, n)
		}
		m.admit(i, n)
	}
	m.setClock(i, n)
}

// read begins to read the sample at a position: from a class of the node, a class of another node,
// or the source, whichever perfmodel.Choose takes. Arrivals include what is queued there, the
// node's own `queued` MB that wait for a stream to the source among it. Training needs the sample
// when it has computed what precedes it (thesis equation 3.2).
//
// Most reads need no choice: the sample has no copies, or the node's own copy is in time.
func (m *model) read(i int, n *node, at int, queued float64) {
	p := n.pos(at)
	if p.from == p.to {
		m.request(i, n, at, -1, false)
		return
	}
	own := int32(-1)
	for c := p.from; c < p.to; c++ {
		if int(m.copies.list[c].node) == i {
			own = int32(c)
		}
	}
	due := max(n.busy-m.now, 0) + (p.before-n.done)*m.pace - p.size*m.write
	ends := inf // of the read from the node's own copy
	if own >= 0 && m.copies.list[own].state == there {
		cp := &m.copies.list[own]
		ends = m.reading[i*m.classes+int(cp.class)].end(m.now, p.size, &m.rates[cp.class])
		if ends-m.now <= due && !m.how.CacheFirst { // Choose takes it, whatever else there is
			m.readCopy(i, n, at, own, own, ends)
			return
		}
	}
	m.choose(i, n, at, own, ends, due, queued)
}

// choose is read for a sample that has copies. A read of `own`, the node's own, would end at time
// ends, after the sample is due; inf if it is not there.
func (m *model) choose(i int, n *node, at int, own int32, ends, due, queued float64) {
	p := n.pos(at)
	peerEnds, peer := m.nearest(i, n, p)
	if arrival := peerEnds - m.now; arrival <= due && !m.how.CacheFirst {
		m.readCopy(i, n, at, peer, own, arrival+m.now) // as Choose would, whatever the source does
		return
	}
	var candidates [3]perfmodel.Candidate
	var from [3]int32 // copies
	count := 0
	if ends < inf {
		candidates[0].Arrival, from[0] = ends-m.now, own
		count = 1
	}
	if peer >= 0 {
		candidates[count].Arrival, from[count] = peerEnds-m.now, peer
		count++
	}
	if count > 0 {
		chosen := 0
		if !m.how.CacheFirst {
			c := &candidates[count]
			c.Arrival, c.Charge = m.source.takes(i, m.now, p.size, queued)
			c.Arrival += m.latency
			from[count] = -1
			chosen = perfmodel.Choose(due, candidates[:count+1])
		} else if count > 1 && candidates[1].Arrival < candidates[0].Arrival {
			chosen = 1
		}
		if c := from[chosen]; c >= 0 {
			m.readCopy(i, n, at, c, own, candidates[chosen].Arrival+m.now)
			return
		}
	}
	m.request(i, n, at, own, count > 0)
}

// nearest returns the other nodes' copy of the sample whose read would end first, and when that
// is; -1 if they have none.
func (m *model) nearest(i int, n *node, p *position) (ends float64, peer int32) {
	ends, peer = inf, -1
	for c := p.from; c < p.to && m.plan.Remote; c++ {
		if cp := &m.copies.list[c]; int(cp.node) != i && cp.state == there {
			if end := m.peerEnd(n, cp, p.size); end < ends {
				ends, peer = end, int32(c)
			}
		}
	}
	return ends, peer
}

// request begins to read the sample at a position from the source, or waits for another's read of
// it, once a stream is free. chosen reports whether a copy is there, and the source was chosen
// nevertheless.
func (m *model) request(i int, n *node, at int, own int32, chosen bool) {
	p := n.pos(at)
	size := p.size
	if n.streams >= streams && at != n.head {
		*n.waits.add() = at
		n.waits.mb += size
		return
	}
	n.streams++
	brings := int32(-1) // the copy that the read makes
	switch {
	case chosen:
	case m.plan.ReadOnce && p.from < p.to:
		c := p.from
		owner := &m.copies.list[c]
		reader := int(owner.node)
		brings = int32(c)
		if owner.state == coming {
			m.wait(m.source.wanted(reader, m.now, brings), waiter{at, int32(i), stageRead, -1})
			return
		}
		owner.state = coming
		if reader != i {
			next := m.waiter(waiter{at, int32(i), stageRead, -1})
			m.fromSource(reader, size, brings, waiter{0, int32(reader), ownerRead, next})
			return
		}
	case own >= 0 && m.copies.list[own].state == coming:
		m.wait(m.source.wanted(i, m.now, own), waiter{at, int32(i), stageRead, -1})
		return
	case own >= 0:
		m.copies.list[own].state = coming
		brings = own
	}
	m.result.Reads.Source.Samples++
	m.result.Reads.Source.MB += size
	m.fromSource(i, size, brings, waiter{at, int32(i), stageRead, -1})
}

// peerEnd returns when a read of another node's copy would end (thesis equation 3.6).
func (m *model) peerEnd(n *node, cp *sampleCopy, size float64) float64 {
	slot := int(cp.node)*m.classes + int(cp.class)
	return max(m.reading[slot].end(m.now, size, &m.rates[cp.class]),
		n.link.transfer(&m.nodes[cp.node].link, m.now, size*m.peer))
}

// fromSource begins a read from the source.
func (m *model) fromSource(i int, size float64, brings int32, who waiter) {
	m.result.SourceTotal += size
	m.source.begin(i, m.now, size, brings, who)
}

// wait adds w to those that wait for the read, after the others.
func (m *model) wait(f *flight, w waiter) {
	last := &f.who.next
	next := m.waiter(w)
	for *last >= 0 {
		last = &m.waiters[*last].next
	}
	*last = next
}

// waiter stores w and returns its index in m.waiters.
func (m *model) waiter(w waiter) int32 {
	if spare := len(m.spare); spare > 0 {
		at := m.spare[spare-1]
		m.spare = m.spare[:spare-1]
		m.waiters[at] = w
		return at
	}
	m.waiters = append(m.waiters, w)
	return int32(len(m.waiters) - 1)
}

// readCopy reads copy c, which takes until time end (thesis equations 3.6, 3.7).
func (m *model) readCopy(i int, n *node, at int, c, own int32, end float64) {
	cp, size := m.copies.list[c], n.pos(at).size
	slot, rates := int(cp.node)*m.classes+int(cp.class), &m.rates[cp.class]
	if c == own {
		m.reading[slot].read(end, rates)
	} else {
		m.reading[slot].read(m.reading[slot].end(m.now, size, rates), rates)
		n.link.begin(&m.nodes[cp.node].link, m.now, size*m.peer)
	}
	m.count(cp, c == own, own, size)
	m.stage(n, at, end, size)
	*n.slot() = n.pos(at).at
	n.copied++
}

// count counts a read of a copy. If the sample comes from another node and is planned on this one
// as well, it is kept and counts as present from now on.
func (m *model) count(cp sampleCopy, local bool, own int32, size float64) {
	if local {
		a := &m.local[cp.class]
		a.Samples++
		a.MB += size
		return
	}
	m.result.Reads.Remote.Samples++
	m.result.Reads.Remote.MB += size
	if own >= 0 && m.copies.list[own].state == planned {
		m.copies.list[own].state = there
	}
}

// stage preprocesses a sample that is fetched at time t and writes it to the staging buffer (thesis
// equations 3.3 and 3.4).
func (m *model) stage(n *node, at int, t, size float64) {
	alone := size * m.write
	n.pos(at).at = n.cpu.run(m.now, t, alone, alone*m.perThread)
}

// sourceEnd finishes the source read that ends now.
func (m *model) sourceEnd() {
	i, f := m.source.end(m.now)
	n := &m.nodes[i]
	if f.copy >= 0 {
		m.copies.list[f.copy].state = there
	}
	switch { // f stays valid, because nothing here begins a read
	case f.who.what <= fillRead:
		class := fillRead - f.who.what
		n.soon = append(n.soon, alarm{m.now + m.latency + f.size/n.fill[class].rate, f.who.what})
		m.setClock(i, n)
	case f.who.what == stageRead:
		m.stage(n, f.who.at, m.now+m.latency, f.size)
		m.staged(i, n, f.who.at)
	}
	for at := f.who.next; at >= 0; {
		w := m.waiters[at]
		m.spare = append(m.spare, at)
		at = w.next
		m.answer(w, f.copy, f.size)
	}
}

// answer gives the sample to a reader that waited for the read of it, from memory.
func (m *model) answer(w waiter, c int32, size float64) {
	i := int(w.node)
	n, cp := &m.nodes[i], m.copies.list[c]
	end := m.now + m.latency
	switch {
	case int(cp.node) == i && m.ran.Stream != nil: // the engine counts it as read from the source
		m.result.Reads.Source.Samples++
		m.result.Reads.Source.MB += size
	case int(cp.node) == i:
		m.count(cp, true, c, size)
	default:
		p := n.pos(w.at)
		own := int32(-1)
		for o := p.from; o < p.to; o++ {
			if int(m.copies.list[o].node) == i {
				own = int32(o)
			}
		}
		from := &m.nodes[cp.node].link
		t := n.link.transfer(from, end, size*m.peer)
		n.link.begin(from, end, size*m.peer)
		end = t
		m.count(cp, false, own, size)
	}
	m.stage(n, w.at, end, size)
	m.staged(i, n, w.at)
}

// staged continues after the end of a read that held a stream: with those that wait for one, and
// with training, if it waits for the position, which is in the staging buffer at a time that is
// known now.
func (m *model) staged(i int, n *node, at int) {
	n.streams--
	if n.head == at {
		m.consume(i, n)
	}
	if n.start == inf || !n.waits.empty() {
		m.schedule(i, n)
	} else if len(n.soon) > 0 {
		m.setClock(i, n)
	}
}

// fillNext lets a thread of a class read the next sample that has not been read and is not being
// read (thesis 3.2.2: in the order of the plan).
func (m *model) fillNext(i int, n *node, what int32) {
	fl := &n.fill[fillRead-what]
	for len(fl.ids) > 0 {
		k := fl.ids[0]
		fl.ids = fl.ids[1:]
		c := m.copies.on(i, k)
		if m.copies.list[c].state != planned || m.plan.ReadOnce && uint32(c) != m.copies.first[k] {
			continue // copies besides the owner's are kept when the node reads them from the owner
		}
		m.copies.list[c].state = coming
		m.active++
		m.fromSource(i, m.sizes[k], c, waiter{0, int32(i), what, -1})
		return
	}
}

// startFilling starts the fill threads of all classes.
func (m *model) startFilling() {
	if m.plan.OnRead {
		return
	}
	for i := range m.nodes {
		n := &m.nodes[i]
		for j, ids := range m.plan.Nodes[i].Classes {
			n.fill = append(n.fill, filler{ids: ids, rate: m.job.Env.WriteRate(j + 1)})
		}
		for j := range n.fill {
			for range m.job.Env.Classes[j+1].Threads {
				m.fillNext(i, n, fillRead-int32(j))
			}
		}
	}
}

// preloaded starts training if it was waiting for classes to be filled and all are.
func (m *model) preloaded() {
	if !m.training && m.active == 0 {
		m.begin()
	}
}

// begin starts training now.
func (m *model) begin() {
	m.training = true
	m.result.BeforeTraining = m.now
	m.released, m.epochStart = m.now, m.now
	m.startBatch(m.now)
}
