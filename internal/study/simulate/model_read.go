package simulate

import "github.com/hdmlp/hdmlp/internal/model/routing"

// read begins to read the sample at a position: from a class of the node, a class of another node,
// or the source, whichever routing.Choose takes. Arrivals include what is queued there, the
// node's own `queued` MB that wait for a stream to the source among it. Training needs the sample
// when it has computed what precedes it (thesis equation 3.2).
//
// Most reads need no choice: the sample has no copies, or the node's own copy is in time.
func (m *simulation) read(i int, n *rank, at int, queued float64) {
	p := n.pos(at)
	if p.from == p.to {
		m.request(i, n, at, -1, false)
		return
	}
	own := int32(-1)
	for c := p.from; c < p.to; c++ {
		if int(m.copies.list[c].node) == n.on {
			own = int32(c)
		}
	}
	due := max(n.busy-m.now, 0) + (p.before-n.done)*m.perMB - p.size*m.write
	ends := inf // of the read from the node's own copy
	if own >= 0 && m.copies.list[own].state == there {
		cp := &m.copies.list[own]
		ends = m.reading[n.on*m.classes+int(cp.class)].end(m.now, p.size, &m.rates[cp.class])
		if ends-m.now <= due && !m.plan.CacheFirst { // Choose takes it, whatever else there is
			m.readCopy(i, n, at, own, own, ends)
			return
		}
	}
	m.choose(i, n, at, own, ends, due, queued)
}

// choose is read for a sample that has copies. A read of `own`, the node's own, would end at time
// ends, after the sample is due; inf if it is not there.
func (m *simulation) choose(i int, n *rank, at int, own int32, ends, due, queued float64) {
	p := n.pos(at)
	keeps := own >= 0 && m.copies.list[own].state != there
	peerEnds, peer := m.nearest(n, p, keeps)
	if arrival := peerEnds - m.now; arrival <= due && !m.plan.CacheFirst {
		m.readCopy(i, n, at, peer, own, arrival+m.now) // as Choose would, whatever the source does
		return
	}
	var arrivals [3]float64
	var from [3]int32 // copies
	count := 0
	if ends < inf {
		arrivals[0], from[0] = ends-m.now, own
		count = 1
	}
	if peer >= 0 {
		arrivals[count], from[count] = peerEnds-m.now, peer
		count++
	}
	if count > 0 {
		chosen := 0
		if !m.plan.CacheFirst {
			arrivals[count] = m.source.takes(n.on, m.now, p.size, queued) + m.latency
			from[count] = -1
			chosen = routing.Choose(due, arrivals[:count+1])
		} else if count > 1 && arrivals[1] < arrivals[0] {
			chosen = 1
		}
		if c := from[chosen]; c >= 0 {
			m.readCopy(i, n, at, c, own, arrivals[chosen]+m.now)
			return
		}
	}
	m.request(i, n, at, own, count > 0)
}

// nearest returns the other nodes' copy of the sample whose read would end first, and when that
// is; -1 if they have none. keeps reports whether this node is to keep the sample.
func (m *simulation) nearest(n *rank, p *position, keeps bool) (ends float64, peer int32) {
	ends, peer = inf, -1
	for c := p.from; c < p.to && m.plan.Remote; c++ {
		if cp := &m.copies.list[c]; int(cp.node) != n.on && cp.state == there {
			if end := m.peerEnd(n, cp, p.size, keeps); end < ends {
				ends, peer = end, int32(c)
			}
		}
	}
	return ends, peer
}

// request begins to read the sample at a position from the source, or waits for another's read of
// it, once a stream is free. chosen reports whether a copy is there, and the source was chosen
// nevertheless.
func (m *simulation) request(i int, n *rank, at int, own int32, chosen bool) {
	p := n.pos(at)
	size := p.size
	if n.streams >= m.streams && at != n.head {
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
		if reader != n.on {
			next := m.waiter(waiter{at, int32(i), stageRead, -1})
			m.fromSource(reader, size, brings, waiter{0, int32(reader), ownerRead, next})
			return
		}
	case own >= 0 && m.copies.list[own].state == coming:
		m.wait(m.source.wanted(n.on, m.now, own), waiter{at, int32(i), stageRead, -1})
		return
	case own >= 0 && m.copies.list[own].state == planned:
		m.copies.list[own].state = coming
		brings = own
	}
	m.result.Reads.Source.Samples++
	m.result.Reads.Source.MB += size
	m.fromSource(n.on, size, brings, waiter{at, int32(i), stageRead, -1})
}

// peerEnd returns when a read of another node's copy would end (thesis equation 3.6).
func (m *simulation) peerEnd(n *rank, cp *sampleCopy, size float64, keeps bool) float64 {
	slot := int(cp.node)*m.classes + int(cp.class)
	sent := size * m.job.Forms.SentSize(m.formOf(cp, n.on, keeps))
	return max(m.reading[slot].end(m.now, size, &m.rates[cp.class]),
		m.links[n.on].transfer(&m.links[cp.node], m.now, sent*m.peer))
}

// readCopy reads copy c, which takes until time end (thesis equations 3.6, 3.7).
func (m *simulation) readCopy(i int, n *rank, at int, c, own int32, end float64) {
	p := n.pos(at)
	cp, size := m.copies.list[c], p.size
	slot, rates := int(cp.node)*m.classes+int(cp.class), &m.rates[cp.class]
	form := m.formOf(&cp, n.on, own >= 0 && m.copies.list[own].state != there)
	if c == own {
		m.reading[slot].read(end, rates)
	} else {
		m.reading[slot].read(m.reading[slot].end(m.now, size, rates), rates)
		m.links[n.on].begin(&m.links[cp.node], m.now, size*m.job.Forms.SentSize(form)*m.peer)
	}
	m.count(cp, c == own, own, size)
	m.stage(n, p, end, size, -size*m.saved*form)
	*n.slot() = p.at
	n.copied++
}

// count counts a read of a copy. If the sample comes from another node and is planned on this one
// as well, it is kept and counts as present from now on.
func (m *simulation) count(cp sampleCopy, local bool, own int32, size float64) {
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
