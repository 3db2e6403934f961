package simulate

import (
	"context"
	"errors"
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
		n.asks = true
		m.schedule(i, n)
		return
	}
	m.active--
	m.fillNext(i, n, what)
	m.setClock(i, n)
	m.preloaded()
}

// take lets the first free thread take the sample that training asks for, or else the node's next
// position.
func (m *model) take(i int, n *node) {
	if n.asks {
		n.asks = false
		m.read(i, n, waiter{n.head, int32(i), int32(n.first), -1})
		m.consume(i, n)
		m.schedule(i, n)
		return
	}
	at := n.next
	n.next++
	p := n.pos(at)
	n.used += p.size
	if m.how.Demand && p.from == p.to {
		p.at = -1
	} else {
		m.read(i, n, waiter{at, int32(i), int32(n.first), -1})
	}
	if n.head == at { // training waits only for this sample
		m.consume(i, n)
	}
	m.schedule(i, n)
}

// read begins to read the sample at position w.at for a thread, from the fastest tier that has it
// now: a class of the node, a class of another node, or the source (thesis 3.2.2).
func (m *model) read(i int, n *node, w waiter) {
	p := n.pos(w.at)
	size := p.size
	own, from := int32(-1), int32(-1)
	rate := 0.0
	for c := p.from; c < p.to; c++ {
		cp := &m.copies.list[c]
		if int(cp.node) == i {
			own = int32(c)
			if cp.state == there {
				slot := i*m.classes + int(cp.class)
				if r := m.rates[cp.class].at(m.reading[slot].threads(m.now)); r >= rate {
					rate, from = r, own
				}
			}
		} else if cp.state == there && m.plan.Remote {
			slot := int(cp.node)*m.classes + int(cp.class)
			r := min(m.link(i), m.rates[cp.class].at(m.reading[slot].threads(m.now)))
			if r > rate {
				rate, from = r, int32(c)
			}
		}
	}
	if from >= 0 && (rate >= m.fastestSource || m.how.CacheFirst || m.plan.ReadOnce ||
		size <= rate*(m.latency+size/m.source.share(i))) {
		m.readCopy(n, w, from, own, m.now+size/rate, size)
		return
	}

	brings := int32(-1) // the copy that the read makes
	switch {
	case from >= 0: // the source is faster than all copies
	case m.plan.ReadOnce && p.from < p.to:
		c := p.from
		owner := &m.copies.list[c]
		reader := int(owner.node)
		brings = int32(c)
		if owner.state == coming {
			m.wait(m.source.wanted(reader, m.now, brings), w)
			m.hold(n, w)
			return
		}
		owner.state = coming
		if reader != i {
			m.hold(n, w)
			m.fromSource(reader, size, brings, waiter{0, int32(reader), ownerThread, m.waiter(w)})
			return
		}
	case own >= 0 && m.copies.list[own].state == coming:
		m.wait(m.source.wanted(i, m.now, own), w)
		m.hold(n, w)
		return
	case own >= 0:
		m.copies.list[own].state = coming
		brings = own
	}
	m.result.Reads.Source.Samples++
	m.result.Reads.Source.MB += size
	m.hold(n, w)
	m.fromSource(i, size, brings, w)
}

// fromSource begins a read from the source.
func (m *model) fromSource(i int, size float64, brings int32, who waiter) {
	m.result.SourceTotal += size
	m.source.begin(i, m.now, size, brings, who)
}

// hold marks the thread as busy with a read whose end is unknown.
func (m *model) hold(n *node, w waiter) {
	if w.thread >= 0 {
		n.threads[w.thread] = inf
	}
}

// wait adds w to those that wait for the read.
func (m *model) wait(f *flight, w waiter) {
	w.next = f.who.next
	f.who.next = m.waiter(w)
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

// link returns the rate at which a read of the node from another one would proceed now.
func (m *model) link(i int) float64 {
	if m.incoming == nil {
		return m.peer
	}
	return m.peer / float64(m.incoming[i].threads(m.now))
}

// readCopy reads copy c until time end (thesis equations 3.6, 3.7). If the sample comes from
// another node and is planned on this one as well, it is kept and counts as present from now on.
func (m *model) readCopy(n *node, w waiter, c, own int32, end, size float64) {
	cp := m.copies.list[c]
	slot := int(cp.node)*m.classes + int(cp.class)
	end = m.reading[slot].read(m.now, end, size, m.rates[cp.class].best)
	if c == own {
		a := &m.local[cp.class]
		a.Samples++
		a.MB += size
	} else {
		if m.incoming != nil {
			end = m.incoming[w.node].read(m.now, end, size, m.peer)
		}
		m.result.Reads.Remote.Samples++
		m.result.Reads.Remote.MB += size
		if own >= 0 && m.copies.list[own].state == planned {
			m.copies.list[own].state = there
		}
	}
	m.stage(n, w, end, size)
}

// stage writes a sample that is fetched at time t to the staging buffer (thesis equation 3.4).
func (m *model) stage(n *node, w waiter, t, size float64) {
	if len(n.transforms) > 0 {
		first := soonest(n.transforms)
		t = max(t, n.transforms[first]) + size/m.job.Env.Preprocess
		n.transforms[first] = t
	} else {
		t += size * m.write
	}
	n.pos(w.at).at = t
	if w.thread >= 0 {
		n.threads[w.thread] = t
	}
}

// sourceEnd finishes the source read that ends now.
func (m *model) sourceEnd() {
	i, f := m.source.end(m.now)
	n := &m.nodes[i]
	if f.copy >= 0 {
		m.copies.list[f.copy].state = there
	}
	for at := f.who.next; at >= 0; {
		w := m.waiters[at]
		m.spare = append(m.spare, at)
		at = w.next
		m.answer(w, f)
	}
	switch {
	case f.who.thread <= fillThread:
		class := fillThread - f.who.thread
		n.soon = append(n.soon, alarm{m.now + m.latency + f.size/n.fill[class].rate, f.who.thread})
		m.setClock(i, n)
	case f.who.thread != ownerThread:
		m.stage(n, f.who, m.now+m.latency, f.size)
		if n.head == f.who.at {
			m.consume(i, n)
		}
		m.schedule(i, n)
	}
}

// answer serves a thread that waited for the read.
func (m *model) answer(w waiter, f *flight) {
	i := int(w.node)
	n, cp := &m.nodes[i], m.copies.list[f.copy]
	reads := &m.reading[int(cp.node)*m.classes+int(cp.class)]
	rate, own := m.rates[cp.class].at(reads.threads(m.now)), int32(-1)
	switch {
	case int(cp.node) != i:
		rate = min(rate, m.link(i))
		m.readCopy(n, w, f.copy, own, m.now+m.latency+f.size/rate, f.size)
	case m.ran.Stream != nil: // the engine counts it as read from the source
		m.result.Reads.Source.Samples++
		m.result.Reads.Source.MB += f.size
		m.stage(n, w, m.now+m.latency, f.size)
	default:
		own = f.copy
		m.readCopy(n, w, f.copy, own, m.now+m.latency+f.size/rate, f.size)
	}
	if n.head == w.at {
		m.consume(i, n)
	}
	m.schedule(i, n)
}

// fillNext lets a thread of a class read the next sample that has not been read and is not being
// read (thesis 3.2.2: in the order of the plan).
func (m *model) fillNext(i int, n *node, thread int32) {
	fl := &n.fill[fillThread-thread]
	for len(fl.ids) > 0 {
		k := fl.ids[0]
		fl.ids = fl.ids[1:]
		c := m.copies.on(i, k)
		if m.copies.list[c].state != planned || m.plan.ReadOnce && uint32(c) != m.copies.first[k] {
			continue // copies besides the owner's are kept when the node reads them from the owner
		}
		m.copies.list[c].state = coming
		m.active++
		m.fromSource(i, m.sizes[k], c, waiter{0, int32(i), thread, -1})
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
				m.fillNext(i, n, fillThread-int32(j))
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
	for i := range m.nodes {
		n := &m.nodes[i]
		for x := range n.threads {
			n.threads[x] = m.now
		}
	}
	m.startBatch(m.now)
}
