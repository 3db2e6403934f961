package simulate

import "context"

// fillFrequency is HDMLP: every node fills its storage classes with the files that it reads most often, each class
// by threads of its own from time 0 on, while it trains (simulator-semantics section 1, HDMLP). The
// starts of the reads are logged in P_i before the node's first staging fill.
func (r *thesisRun) fillFrequency(ctx context.Context) {
	for i := range r.nodes {
		r.fillClasses(i, r.frequencyOrder(i))
		if ctx.Err() != nil {
			return
		}
	}
}

// frequencyOrder returns all files in the order in which node i caches them: by descending frequency, then by number;
// and then, in blocks of the size of each class, the staging buffer's first (3.6), by first access,
// with what the node never reads last. What is behind the blocks stays in the order of frequency.
func (r *thesisRun) frequencyOrder(i int) []int32 {
	files := len(r.job.Sizes)
	reads := r.nodes[i].reads
	often := make([]int32, files)
	most := int32(0)
	for _, k := range reads {
		often[k]++
		most = max(most, often[k])
	}

	// A counting sort by frequency.
	begin := make([]int, most+2)
	for _, n := range often {
		begin[most-n+1]++
	}
	never := files - begin[most+1] // where those of frequency 0 begin
	for n := range most + 1 {
		begin[n+1] += begin[n]
	}
	order := make([]int32, files)
	for k, n := range often {
		order[begin[most-n]] = int32(k)
		begin[most-n]++
	}

	// block b is the shortest run whose size exceeds d_b; one that no run exceeds takes what there is.
	blockOf := make([]int8, files)
	ends := make([]int, 0, len(r.env.Classes))
	next := 0
	for b := range r.env.Classes {
		for size := 0.0; next < files && size <= r.env.Classes[b].Capacity; next++ {
			size += r.job.Sizes[order[next]]
			blockOf[order[next]] = int8(b)
		}
		ends = append(ends, next)
	}
	for _, k := range order[next:] {
		blockOf[k] = -1
	}

	// In the order of first access, every file goes to the next place of its block; the walk marks what it has met by a
	// frequency of 0, so that those never read are what is left, in their order.
	sorted := make([]int32, next)
	place := make([]int, len(ends))
	copy(place[1:], ends)
	put := func(k int32) {
		if b := blockOf[k]; b >= 0 {
			sorted[place[b]] = k
			place[b]++
		}
	}
	for _, k := range reads {
		if often[k] > 0 {
			often[k] = 0
			put(k)
		}
	}
	for _, k := range order[min(never, next):next] {
		put(k)
	}
	copy(order, sorted)
	return order
}

// fillClasses fills the classes from one list, each until the next file does not fit, and never with the
// list's last file. One more pass over the classes follows at every later request, for as long as it finds room: it
// goes on in the list where the one before ended, and so may put a file into the gap of an earlier class.
func (r *thesisRun) fillClasses(i int, order []int32) {
	last := len(order) - 1
	next := 0
	loaders := make([]*thesisLoader, len(r.env.Classes)-1)
	for j := range loaders {
		l := r.loader(i, j+1, 0)
		for ; next < last && l.fits(order[next]); next++ {
			l.load(order[next], false)
		}
		loaders[j] = l
	}
	n := &r.nodes[i]
	for pass, before := int32(1), -1; len(n.gaps) > before; pass++ {
		before = len(n.gaps)
		for _, l := range loaders {
			for ; next < last && l.fits(order[next]); next++ {
				l.used += r.job.Sizes[order[next]]
				n.gaps = append(n.gaps, thesisGap{pass, order[next], l})
			}
		}
	}
}

// fillGaps makes the next of these passes, at a time.
func (r *thesisRun) fillGaps(i int, time float64) {
	n := &r.nodes[i]
	pass := n.gaps[0].pass
	for len(n.gaps) > 0 && n.gaps[0].pass == pass {
		k, l := n.gaps[0].file, n.gaps[0].loader
		n.gaps = n.gaps[1:]
		l.clock[l.turn] = max(l.clock[l.turn], time)
		begin, end := l.take(r.job.Sizes[k], r.fetchSource(r.job.Sizes[k], len(r.nodes)))
		r.logFill(i, begin)
		ownCopy(r.copies.of(k), i).avail = end
		n.held = append(n.held, thesisHeld{file: k, class: int32(l.class), source: true, start: begin, avail: end})
	}
}
