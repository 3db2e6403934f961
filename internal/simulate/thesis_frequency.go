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
// list's last file. A second pass, at the node's first request, goes on where the first one
// ended, and so may put a file into the gap of an earlier class.
func (r *thesisRun) fillClasses(i int, order []int32) {
	last := len(order) - 1
	next := 0
	loaders := make([]*thesisLoader, len(r.env.Classes))
	for j := 1; j < len(r.env.Classes); j++ {
		l := r.loader(i, j, 0)
		for ; next < last && l.fits(order[next]); next++ {
			l.load(order[next], false)
		}
		loaders[j] = l
	}
	for j := 1; j < len(r.env.Classes); j++ {
		l := loaders[j]
		for ; next < last && l.fits(order[next]); next++ {
			k := order[next]
			s := r.job.Sizes[k]
			begin, _ := l.take(s, r.fetchSource(s, len(r.nodes)))
			r.nodes[i].gaps = append(r.nodes[i].gaps, thesisGap{file: k, class: int32(j), free: begin})
		}
	}
}

// fillGaps is that second pass, at a time.
func (r *thesisRun) fillGaps(i int, time float64) {
	n := &r.nodes[i]
	for _, gap := range n.gaps {
		begin := max(gap.free, time)
		s := r.job.Sizes[gap.file]
		end := begin + (r.fetchSource(s, len(r.nodes)) + s/r.writeRate)
		for x, c := range r.copies.of(gap.file) {
			if int(c.node) == i && c.class == gap.class {
				r.copies.of(gap.file)[x].avail = end
			}
		}
		r.logFill(i, begin)
		n.held = append(n.held, thesisHeld{file: gap.file, class: gap.class, source: true, start: begin, avail: end})
	}
	n.gaps = nil
}
