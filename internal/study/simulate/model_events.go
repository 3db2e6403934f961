package simulate

import (
	"context"
	"errors"
	"slices"
)

// errStuck reports a bug in the simulator: no event is left, and training has not ended.
var errStuck = errors.New(
	"simulate: no event is left before the end of training (a bug in the simulator)")

// looks is the number of events between two checks whether ctx is done.
const looks = 1 << 16

// loop processes events until *until is true: by time, ends of source reads before others, then by
// node.
func (m *simulation) loop(ctx context.Context, until *bool) error {
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
			switch n := &m.ranks[i]; {
			case n.start <= m.now:
				m.take(i, n)
			case m.dropAt(i) <= m.now:
				m.drop(i, n)
			default:
				m.ring(i, n)
			}
		default:
			return errStuck
		}
		m.release()
	}
	return nil
}

// ring processes the node's earliest alarm.
func (m *simulation) ring(i int, n *rank) {
	first := 0
	for a := range n.soon {
		if n.soon[a].time < n.soon[first].time {
			first = a
		}
	}
	what, c := n.soon[first].what, n.soon[first].copy
	n.soon = append(n.soon[:first], n.soon[first+1:]...)
	if what == demandRead {
		m.read(i, n, n.head, 0)
		m.consume(i, n)
		m.schedule(i, n)
		return
	}
	m.active--
	if c >= 0 && m.copies.list[c].state == planned {
		m.copies.list[c].state = there
	}
	m.fillNext(i, n, what)
	m.setClock(i, n)
	m.preloaded()
}

// take begins to read the node's next positions, as many as there is capacity for now.
func (m *simulation) take(i int, n *rank) {
	for n.start <= m.now {
		at := n.next
		if n.streams < m.streams && !n.waits.empty() {
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
			case none && m.plan.Demand:
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

// fromSource begins a read of a node from the source.
func (m *simulation) fromSource(i int, size float64, brings int32, who waiter) {
	m.result.SourceTotal += size
	m.source.begin(i, m.now, size, brings, who)
}

// wait adds w to those that wait for the read, after the others.
func (m *simulation) wait(f *flight, w waiter) {
	last := &f.who.next
	next := m.waiter(w)
	for *last >= 0 {
		last = &m.waiters[*last].next
	}
	*last = next
}

// waiter stores w and returns its index in m.waiters.
func (m *simulation) waiter(w waiter) int32 {
	if spare := len(m.spare); spare > 0 {
		at := m.spare[spare-1]
		m.spare = m.spare[:spare-1]
		m.waiters[at] = w
		return at
	}
	m.waiters = append(m.waiters, w)
	return int32(len(m.waiters) - 1)
}

// stage preprocesses a sample that is fetched at time t and writes it to the staging buffer (thesis
// equations 3.3 and 3.4). Its read has taken `work` seconds of a thread's processor; negative: what
// its form saves.
func (m *simulation) stage(n *rank, p *position, t, size, work float64) {
	alone := size*m.write + work
	p.at = n.cpu.run(m.now, t, alone*m.slowdown, alone*m.perThread)
	m.result.Transformed.Samples++
	m.result.Transformed.MB += size
}

// sourceEnd finishes the source read that ends now.
func (m *simulation) sourceEnd() {
	f := m.source.end(m.now)
	i := int(f.who.rank)
	n := &m.ranks[i]
	if f.copy >= 0 {
		m.copies.list[f.copy].state = there
		if m.drops != nil {
			m.arrives(f.copy, f.size)
		}
	}
	switch { // f stays valid, because nothing here begins a read
	case f.who.what <= fillRead:
		class := fillRead - f.who.what
		n.soon = append(n.soon, alarm{m.now + m.latency + f.size/n.fill[class].rate, f.who.what, -1})
		m.setClock(i, n)
	case f.who.what == stageRead:
		m.stage(n, n.pos(f.who.at), m.now+m.latency, f.size, m.work)
		m.staged(i, n, f.who.at)
	}
	delivers := f.who.what != stageRead
	for at := f.who.next; at >= 0; {
		w := m.waiters[at]
		m.spare = append(m.spare, at)
		at = w.next
		m.answer(w, f.copy, f.size, delivers)
		delivers = delivers && m.ranks[w.rank].on != i
	}
}

// answer gives the sample to a reader that waited for the read of it from the source. delivers
// reports whether that read has delivered to no rank of its own node yet.
func (m *simulation) answer(w waiter, c int32, size float64, delivers bool) {
	i := int(w.rank)
	n, cp := &m.ranks[i], m.copies.list[c]
	end := m.now + m.latency
	if w.what <= fillRead {
		m.fillFrom(i, n, w.what, int32(w.at), int(cp.node), size, end)
		return
	}
	switch {
	case int(cp.node) == n.on && delivers: // from the read that it waits for, as in the engine
		m.result.Reads.Source.Samples++
		m.result.Reads.Source.MB += size
	case int(cp.node) == n.on:
		m.count(cp, true, c, size)
	default:
		p := n.pos(w.at)
		own := int32(-1)
		for o := p.from; o < p.to; o++ {
			if int(m.copies.list[o].node) == n.on {
				own = int32(o)
			}
		}
		link, from := &m.links[n.on], &m.links[cp.node]
		t := link.transfer(from, end, size*m.peer)
		link.begin(from, end, size*m.peer)
		end = t
		m.count(cp, false, own, size)
	}
	m.stage(n, n.pos(w.at), end, size, 0)
	m.staged(i, n, w.at)
}

// staged continues after the end of a read that held a stream: with those that wait for one, and
// with training, if it waits for the position, which is in the staging buffer at a time that is
// known now.
func (m *simulation) staged(i int, n *rank, at int) {
	n.streams--
	if n.head == at {
		m.consume(i, n)
	}
	if n.start == inf || !n.waits.empty() {
		m.schedule(i, n)
	} else if len(n.soon) > 0 || m.drops != nil {
		m.setClock(i, n)
	}
}

// fillNext lets a thread of a class read the next sample that has not been read and is not being
// read (thesis 3.2.2: in the order of the plan).
func (m *simulation) fillNext(i int, n *rank, what int32) {
	fl := &n.fill[fillRead-what]
	for len(fl.ids) > 0 {
		k := fl.ids[0]
		fl.ids = fl.ids[1:]
		c := m.copies.on(i, k)
		if m.copies.list[c].state != planned {
			continue
		}
		m.active++
		if first := int32(m.copies.first[k]); c == first || !m.askOwner(i, n, what, c, first, k) {
			m.copies.list[c].state = coming
			m.fromSource(i, m.sizes[k], c, waiter{0, int32(i), what, -1})
		}
		return
	}
	fl.idle++
}

// askOwner has a thread of a class ask the owner for a sample, as the engine does: for one that the
// owner has, or that it is to read for all nodes. It reports whether that is so.
func (m *simulation) askOwner(i int, n *rank, what, c, first, k int32) bool {
	owner := &m.copies.list[first]
	switch reader := int(owner.node); {
	case !m.plan.Remote:
		return false
	case owner.state == there:
		m.fillFrom(i, n, what, c, reader, m.sizes[k], m.now)
	case !m.plan.ReadOnce:
		return false
	case owner.state == coming:
		m.wait(m.source.wanted(reader, m.now, first), waiter{int(c), int32(i), what, -1})
	default:
		owner.state = coming
		next := m.waiter(waiter{int(c), int32(i), what, -1})
		m.fromSource(reader, m.sizes[k], first, waiter{0, int32(reader), ownerRead, next})
	}
	return true
}

// fillFrom has a thread of a class take copy c from another node, from time at on.
func (m *simulation) fillFrom(i int, n *rank, what, c int32, from int, size, at float64) {
	end := m.links[i].transfer(&m.links[from], at, size*m.peer)
	m.links[i].begin(&m.links[from], at, size*m.peer)
	n.soon = append(n.soon, alarm{end + size/n.fill[fillRead-what].rate, what, c})
	m.setClock(i, n)
}

// startFilling starts the fill threads of all classes. A node's are the first job's ranks'.
func (m *simulation) startFilling() {
	if m.plan.OnRead {
		return
	}
	for i := range m.plan.Nodes {
		n := &m.ranks[i]
		for j, ids := range m.plan.Nodes[i].Classes {
			n.fill = append(n.fill, filler{ids: slices.Clip(ids), rate: m.job.Env.WriteRate(j + 1)})
		}
		for j := range n.fill {
			for range m.job.Env.Classes[j+1].Threads {
				m.fillNext(i, n, fillRead-int32(j))
			}
		}
	}
}

// preloaded starts training if it was waiting for classes to be filled and all are.
func (m *simulation) preloaded() {
	if !m.training && m.active == 0 {
		m.begin()
	}
}

// begin starts training now.
func (m *simulation) begin() {
	m.training = true
	m.result.BeforeTraining = m.now
	for j := range m.jobs {
		t := &m.jobs[j]
		t.released, t.epochStart = m.now, m.now
		m.startBatch(t, m.now)
	}
	m.release()
}
