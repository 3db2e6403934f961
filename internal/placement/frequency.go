package placement

// Frequency is HDMLP as the thesis has it (3.2.2): each node caches the samples that it reads
// most often itself, fastest class first, each class filled in the order of first access.
// Samples that a node reads equally often go by the epoch in which it first does (by ID, all
// nodes would choose the same ones, and more of the dataset would be cached nowhere), then by ID.
type Frequency struct{}

// Name is "frequency".
func (Frequency) Name() string { return "frequency" }

// Plan fills every node for itself.
func (f Frequency) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	b.fillOwn(newReads(b), 1)
	// "until no more samples are left or no more space is left": the never read ones come last.
	for n := range in.Nodes {
		for k := 0; k < len(b.head) && !b.full(n); k++ {
			if !b.has(n, int32(k)) {
				b.put(n, 0, int32(k))
			}
		}
	}
	// Whoever has a sample in its fastest class answers for it; several take turns over the samples.
	for k := range b.owner {
		best, ties := uint8(maxClasses), 0
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			switch class := b.copies[c].class; {
			case class < best:
				best, ties = class, 1
			case class == best:
				ties++
			}
		}
		if ties == 0 {
			continue
		}
		turn := k % ties
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			if b.copies[c].class == best {
				if turn == 0 {
					b.owner[k] = int32(b.copies[c].node)
				}
				turn--
			}
		}
	}
	return b.finish(f.Name(), true, false), nil
}

// fillOwn fills the room that nodes have left with the samples that they read most often
// themselves, at least `least` times, and have not got. No node's samples are ever sorted:
// a first pass adds up, per node, frequency and first epoch, the bytes that are read so; from
// these it follows in the second at which byte of the node's sorted list a sample
// lies, and so in which class. The third fills the gaps that remain.
func (b *builder) fillOwn(r *reads, least uint32) {
	if b.allFull() {
		return
	}
	offset := make([][]int64, len(b.in.Nodes)) // per node and level
	wanted := func(n nodeReads, k int32) bool {
		return n.count >= least && !b.full(int(n.node)) && !b.has(int(n.node), k)
	}
	level := func(n nodeReads) int { // higher is wanted more
		return int(n.count)*r.epochs + r.epochs - 1 - int(n.first)
	}
	r.each(func(k int32, by []nodeReads, _ int) {
		for _, n := range by {
			if !wanted(n, k) {
				continue
			}
			if grow := level(n) + 1 - len(offset[n.node]); grow > 0 {
				offset[n.node] = append(offset[n.node], make([]int64, grow)...)
			}
			offset[n.node][level(n)] += b.in.Size(int(k))
		}
	})
	ends := make([][]int64, len(b.in.Nodes)) // where each class of a node ends in its sorted list
	for n, bytes := range offset {
		var sum int64
		for c := len(bytes) - 1; c >= 0; c-- {
			bytes[c], sum = sum, sum+bytes[c]
		}
		var end int64
		for _, room := range b.room[n] {
			end += room
			ends[n] = append(ends[n], end)
		}
	}
	r.each(func(k int32, by []nodeReads, _ int) {
		for _, n := range by {
			if n.count < least || level(n) >= len(offset[n.node]) || b.has(int(n.node), k) {
				continue
			}
			at := &offset[n.node][level(n)]
			*at += b.in.Size(int(k))
			for j, end := range ends[n.node] {
				if *at <= end {
					b.put(int(n.node), j, k)
					break
				}
			}
		}
	})
	if b.allFull() {
		return
	}
	// What lay across the end of a class or of the node, and smaller samples in the gaps.
	r.each(func(k int32, by []nodeReads, _ int) {
		for _, n := range by {
			if wanted(n, k) {
				b.put(int(n.node), 0, k)
			}
		}
	})
}
