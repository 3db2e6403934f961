package simulate

// thesisCopy is a copy of a file in a storage class of a node, available from avail on.
type thesisCopy struct {
	avail float64
	node  int32
	class int32
}

// thesisCopies holds the copies of every file by ascending node, at most one per node. Its size is
// proportional to the number of copies, not to nodes times files.
type thesisCopies struct {
	first []int // per file, where its copies begin; one more at the end
	list  []thesisCopy
}

// of returns the copies of file k.
func (c *thesisCopies) of(k int32) []thesisCopy { return c.list[c.first[k]:c.first[k+1]] }

// ownCopy returns node i's copy among those of a file, or nil.
func ownCopy(copies []thesisCopy, i int) *thesisCopy {
	lo, hi := 0, len(copies)
	for lo < hi {
		if mid := (lo + hi) / 2; int(copies[mid].node) < i {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(copies) && int(copies[lo].node) == i {
		return &copies[lo]
	}
	return nil
}

// thesisHeld is a file that a node reads into a class, beginning at start.
type thesisHeld struct {
	file, class int32
	source      bool // read from the source
	start       float64
	avail       float64
}

// thesisGap is a file that fills a gap in a loader's class in a later pass over the classes: at the
// node's request of that number, counted from 1.
type thesisGap struct {
	pass   int32
	file   int32
	loader *thesisLoader
}

// index builds r.copies from the files that the nodes hold and those that will fill their gaps.
func (r *thesisRun) index() {
	c := thesisCopies{first: make([]int, len(r.job.Sizes)+1)}
	total := 0
	for i := range r.nodes {
		for _, h := range r.nodes[i].held {
			c.first[h.file+1]++
		}
		for _, h := range r.nodes[i].gaps {
			c.first[h.file+1]++
		}
		total += len(r.nodes[i].held) + len(r.nodes[i].gaps)
	}
	for k := range r.job.Sizes {
		c.first[k+1] += c.first[k]
	}
	c.list = make([]thesisCopy, total)
	next := append([]int(nil), c.first...)
	for i := range r.nodes {
		for _, h := range r.nodes[i].held {
			c.list[next[h.file]] = thesisCopy{h.avail, int32(i), h.class}
			next[h.file]++
		}
		for _, h := range r.nodes[i].gaps {
			c.list[next[h.file]] = thesisCopy{inf, int32(i), int32(h.loader.class)}
			next[h.file]++
		}
	}
	r.copies = c
}

// thesisLoader fills class j of a node with p_j threads that take the files in turn (section 1,
// preload).
type thesisLoader struct {
	r     *thesisRun
	node  *thesisNode
	class int
	clock []float64
	turn  int
}

// loader returns a loader whose threads all begin at the given time.
func (r *thesisRun) loader(i, class int, begin float64) *thesisLoader {
	l := &thesisLoader{
		r:     r,
		node:  &r.nodes[i],
		class: class,
		clock: make([]float64, r.env.Classes[class].Threads),
	}
	for x := range l.clock {
		l.clock[x] = begin
	}
	return l
}

// load reads file k from the source, as one of N clients, and returns when the read begins and
// ends. The copy is available from the end of the read, or from time 0 if atOnce.
func (l *thesisLoader) load(k int32, atOnce bool) (begin, end float64) {
	s := l.r.job.Sizes[k]
	begin, end = l.take(s, l.r.fetchSource(s, len(l.r.nodes)))
	h := thesisHeld{file: k, class: int32(l.class), source: true, start: begin, avail: end}
	if atOnce {
		h.avail = 0
	}
	l.node.held = append(l.node.held, h)
	return begin, end
}

// loadRemote is like load, from a class of another node that is filled before training.
func (l *thesisLoader) loadRemote(k int32) {
	s := l.r.job.Sizes[k]
	l.take(s, s/l.r.remoteRate[l.class])
	l.node.held = append(l.node.held, thesisHeld{file: k, class: int32(l.class)})
}

// take charges the next thread with a read of s MB, which takes fetch seconds, and the write.
func (l *thesisLoader) take(s, fetch float64) (begin, end float64) {
	begin = l.clock[l.turn]
	end = begin + (fetch + s/l.r.writeRate)
	l.clock[l.turn] = end
	if l.turn++; l.turn == len(l.clock) {
		l.turn = 0
	}
	return begin, end
}

// end returns when the last thread finishes.
func (l *thesisLoader) end() float64 {
	t := 0.0
	for _, c := range l.clock {
		t = max(t, c)
	}
	return t
}

// filledBefore returns the MB that filling the caches has read from the source before time t. A
// read counts once it has begun.
func (r *thesisRun) filledBefore(t float64) float64 {
	mb := 0.0
	for i := range r.nodes {
		for _, h := range r.nodes[i].held {
			if h.source && (h.start < t || h.avail == 0) {
				mb += r.job.Sizes[h.file]
			}
		}
	}
	return mb
}
