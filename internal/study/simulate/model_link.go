package simulate

// link is a node's connection to the others. b_c is what it sends and what it receives, of all
// transfers together.
type link struct {
	sent, received float64 // when all transfers so far have ended
}

// transfer returns when a transfer from another node would end that began at time now and takes the
// links this long.
func (l *link) transfer(from *link, now, seconds float64) float64 {
	return max(l.received, from.sent, now) + seconds
}

// begin adds the transfer.
func (l *link) begin(from *link, now, seconds float64) {
	l.received = max(l.received, now) + seconds
	from.sent = max(from.sent, now) + seconds
}

// processor is the p_0 threads of a node that preprocess samples and write them to the staging
// buffer. A sample occupies one of them from when it is fetched; one that is still being fetched
// occupies none.
//
// Samples come in the order in which their reads begin, which need not be the order in which these
// end. Threads therefore work in the gaps that a sample which is fetched later has left. Only some
// gaps are kept, so that the time is that of a possible schedule, though not always of the best.
type processor struct {
	done float64   // when the threads have finished all that they were given
	idle [gaps]gap // in the order of time
	n    int
}

// gap is a time before processor.done in which all threads are idle.
type gap struct{ from, to float64 }

const gaps = 4

// run gives the threads a sample that is fetched at time at, and returns when it is finished. It
// takes one thread `alone` seconds, and all of them together `shared` seconds. No sample that comes
// later is fetched before time now.
func (p *processor) run(now, at, alone, shared float64) float64 {
	if at >= p.done {
		if at > now {
			p.keep(now, gap{max(p.done, now), at})
		}
		p.done = at + shared
		return at + alone
	}
	if p.n == 0 || at >= p.idle[p.n-1].to {
		p.done += shared
		return max(at+alone, p.done)
	}
	work := shared
	for i := 0; i < p.n; i++ {
		g := p.idle[i]
		from := max(g.from, at)
		if from >= g.to {
			continue
		}
		to := min(from+work, g.to)
		work -= to - from
		if from-g.from > g.to-to { // of what is left of the gap, the longer part is kept
			p.idle[i].to = from
		} else {
			p.idle[i].from = to
		}
		if work <= 0 {
			return max(at+alone, to)
		}
	}
	p.done += work
	return max(at+alone, p.done)
}

// keep adds the last gap. If there are too many, it forgets those that are over, or else the first.
func (p *processor) keep(now float64, last gap) {
	if p.n == gaps {
		n := 0
		for _, g := range p.idle {
			if g.from < g.to && now < g.to {
				p.idle[n] = g
				n++
			}
		}
		if n == gaps {
			n--
			for i := range n {
				p.idle[i] = p.idle[i+1]
			}
		}
		p.n = n
	}
	p.idle[p.n] = last
	p.n++
}
