package placement

import (
	"math"
	"slices"
)

// Cooperative minimises the fetch times of all nodes together, where thesis equation 3.13 has
// each node minimise its own. The first copy of a sample, on whichever node, saves
// every later read by anyone a read from the source, and that node's own reads the network as
// well; a further copy saves only its own node's reads the network. So first copies come
// first, by benefit per byte, each on the node that reads the sample most often and
// has room; then nodes fill what is left with what they themselves read most. No sample
// is cached twice while another that would fit is cached nowhere, whatever the model's numbers: the source
// is what all nodes share, and its load is what does not scale.
//
// On one node, and on any number whose classes hold the dataset, a run of the plan reads from the source
// what Bound says, up to the bytes left over at the end of each class, which are fewer than
// the smallest sample that is not cached.
type Cooperative struct{}

// Name is "cooperative".
func (Cooperative) Name() string { return "cooperative" }

// Plan computes the plan in a few passes over the reads.
func (c Cooperative) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	alone := len(in.Nodes) == 1
	if alone && !isGiven(in.Stream) { // it reads every sample in every epoch: one epoch says as much as all
		b.to = in.From + 1
	}
	r := newReads(b)
	b.firstCopies(r)
	if !alone && b.local < b.peer { // otherwise a second copy saves nothing
		b.fillOwn(r, 1)
		if b.networkIsSlow() {
			own, err := newBuilder(&in)
			if err != nil {
				return nil, err
			}
			own.fillOwn(r, 1)
			own.firstCopies(r)
			if own.fetchTime(r) < b.fetchTime(r) {
				b = own
			}
		}
	}
	b.tidy()
	b.sortClasses(r)
	r.table = nil
	b.tidy()
	p := b.finish(c.Name(), true, true)
	p.ReadOnce = b.peer < b.source // otherwise nobody asks an owner for what it has not got
	return p, in.ended()
}

// candidates is how many nodes a sample may choose from before it takes any that has room.
const candidates = 4

// firstCopies places one copy of every sample that fits, greedily by benefit per byte. A sample whose best node has no
// room any more comes again later, with the benefit that it has on the next best.
//
// Beside the table of reads this takes 32 bytes per sample, of which 4 are gone when the copies are placed.
func (b *builder) firstCopies(r *reads) {
	order, delivered := b.firstNeeded()
	r.load(0) // before there is more
	choice := make([]wanted, len(b.head))
	rank := b.rank(r, order, choice)
	b.tidy()
	b.expect(len(rank) + len(rank)/32) // a few more will fit into gaps

	var again keyHeap
	for next := 0; next < len(rank) || len(again) > 0; {
		var key uint64
		if len(again) == 0 || next < len(rank) && rank[next] < again[0] {
			key = rank[next]
			next++
		} else {
			key = again.pop()
		}
		turn := uint32(key)
		k := order[turn]
		size := b.in.Size(int(k))
		n, at := b.choose(size, &choice[k])
		if n < 0 {
			continue
		}
		if had, has := choice[k][0].count, choice[k].at(at); has < had {
			benefit := descending(^uint32(key>>32)) - float32(float64(had-has)*max(0, b.peer-b.local))
			choice[k].drop(at)
			again.push(uint64(^ascending(benefit))<<32 | uint64(turn))
			continue
		}
		first := int32(0)
		if int(turn) >= delivered {
			first = unknown
		}
		b.put(n, 0, k, size, first)
		b.owner[k] = int32(n)
	}
	b.ownKept()
}

// rank returns a key for every sample that nobody holds, in the order in which first copies are placed: benefit, largest
// first, above the sample's place in order. It also says where each sample would rather lie, and makes
// the best of those that hold a sample its owner.
func (b *builder) rank(r *reads, order []int32, choice []wanted) []uint64 {
	turn := make([]int32, len(b.head))
	for i, k := range order {
		turn[k] = int32(i)
	}
	rank := make([]uint64, len(order))
	r.eachAtOnce(func(k int32, row *row) {
		needed := b.in.Stream.Has(int(k)) // else it is not in order
		if b.head[k] >= 0 {
			b.owner[k] = b.bestHolder(k, row)
			for c := b.head[k]; c >= 0; c = b.copies[c].next {
				if c := &b.copies[c]; int32(c.node) == b.owner[k] && c.first != held {
					c.first = unknown // others need it as well
				}
			}
			if needed {
				rank[turn[k]] = math.MaxUint64
			}
			return
		}
		switch {
		case !needed:
			return
		case b.keeper != nil && b.keeper[k] >= 0: // anybody else would have to be given it
			keeper := b.keeper[k]
			choice[k] = wanted{{uint16(keeper), uint16(min(max(row.count[keeper], 1), math.MaxUint16))}}
		case !r.whole: // otherwise every node is as good as any
			choice[k] = mostReads(row)
		}
		benefit := b.benefitPerByte(b.in.Size(int(k)), row.total, int(choice[k][0].count))
		rank[turn[k]] = uint64(^ascending(benefit))<<32 | uint64(turn[k])
	})
	sortKeys(rank)
	placed, _ := slices.BinarySearch(rank, math.MaxUint64)
	return rank[:placed]
}

// ascending maps a float to bits that sort as it does; descending is its inverse.
func ascending(f float32) uint32 {
	if bits := math.Float32bits(f); f < 0 {
		return ^bits
	} else {
		return bits | 1<<31
	}
}

func descending(bits uint32) float32 {
	if bits&(1<<31) != 0 {
		return math.Float32frombits(bits &^ (1 << 31))
	}
	return math.Float32frombits(^bits)
}

// keyHeap is a binary heap of keys, the smallest first.
type keyHeap []uint64

func (h *keyHeap) push(key uint64) {
	*h = append(*h, key)
	s := *h
	for i := len(s) - 1; i > 0 && s[i] < s[(i-1)/2]; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *keyHeap) pop() uint64 {
	s := *h
	key := s[0]
	s[0] = s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2; c++ {
			if c < len(s) && s[c] < s[least] {
				least = c
			}
		}
		if least == i {
			return key
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

// nodeReads is how often a node reads a sample.
type nodeReads struct{ node, count uint16 }

// wanted are the nodes that a sample would rather lie on, most reads first; a count of 0 ends them.
type wanted [candidates]nodeReads

// at returns how often candidate i reads the sample, 0 beyond the last.
func (w *wanted) at(i int) uint16 {
	if i >= len(w) {
		return 0
	}
	return w[i].count
}

// drop forgets the first i candidates.
func (w *wanted) drop(i int) {
	var rest wanted
	copy(rest[:], w[min(i, len(w)):])
	*w = rest
}

// mostReads returns the nodes that read a sample most often, most first. Nodes that
// tie stand in the order in which they first read it: at random, so that none is favoured.
func mostReads(row *row) (top wanted) {
	for _, n := range row.by {
		c := nodeReads{uint16(n.node), uint16(min(row.count[n.node], math.MaxUint16))}
		if c.count <= top[candidates-1].count {
			continue
		}
		for i := range top {
			if c.count > top[i].count {
				c, top[i] = top[i], c
			}
		}
	}
	return top
}

// choose returns the node that gets the first copy of a sample, and which candidate's count it has: the one that reads k
// most often among those with room, the roomiest where they tie; any other node, and a number beyond the candidates, if none
// of them has room; -1 if it fits nowhere.
func (b *builder) choose(size int64, choice *wanted) (node, candidate int) {
	if b.open.most() < size {
		return -1, 0
	}
	best, at, room, count := -1, candidates, int64(0), uint16(0)
	for i, c := range choice {
		if c.count == 0 || best >= 0 && c.count < count {
			break
		}
		if has := b.open.room(int(c.node)); has >= size && has > room {
			best, room, count = int(c.node), has, c.count
			at = min(at, i)
		}
	}
	if best < 0 {
		return b.open.node(), candidates
	}
	return best, at
}

// bestHolder returns the node, of those that hold k, that reads it most often.
func (b *builder) bestHolder(k int32, row *row) int32 {
	best, most := int32(-1), uint32(0)
	for c := b.head[k]; c >= 0; c = b.copies[c].next {
		node := int32(b.copies[c].node)
		if count := row.count[node]; best < 0 || count > most || count == most && node < best {
			best, most = node, count
		}
	}
	return best
}

// firstNeeded returns every sample that the stream may read, in the order in which the nodes together first need it; those
// that the first epoch does not deliver come last. The first so many are those that it does.
func (b *builder) firstNeeded() (order []int32, delivered int) {
	order = make([]int32, 0, len(b.head))
	seen := make([]bool, len(b.head))
	for ids := range b.steps(b.in.Stream.Epoch(b.in.From)) {
		for _, k := range ids {
			if !seen[k] {
				seen[k] = true
				order = append(order, k)
			}
		}
	}
	delivered = len(order)
	for k := range seen {
		if !seen[k] && b.in.Stream.Has(k) {
			order = append(order, int32(k))
		}
	}
	return order, delivered
}

// benefitPerByte returns the seconds that the first copy of a sample saves per MB (thesis equation 3.13): all
// nodes read it total times, the node that gets the copy own times of these.
func (b *builder) benefitPerByte(size int64, total, own int) float32 {
	source := b.source
	if b.latency > 0 {
		source += b.latency / (float64(size) / 1e6)
	}
	return float32(float64(total)*max(0, source-b.peer) + float64(own)*max(0, b.peer-b.local))
}

// networkIsSlow tells whether reading from a peer instead of the source saves less than reading from the
// node's own class instead of a peer's: then copies for the node itself may be worth more than first copies for others.
func (b *builder) networkIsSlow() bool { return b.source-b.peer < b.peer-b.local }

// fetchTime returns the sum of thesis equation 3.13 over all nodes, seconds.
func (b *builder) fetchTime(r *reads) float64 {
	e := b.in.Env
	source := 1 / e.SourceRate(len(b.in.Nodes))
	local := make([]float64, len(e.Classes))
	for j := 1; j < len(local); j++ {
		local[j] = e.FetchLocal(1, j)
	}
	own := make([]float64, len(b.in.Nodes)) // of the sample, where the node holds it; else 0
	sum := 0.0
	r.each(nil, func(k int32, row *row) {
		anybody := source
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			j := int(b.copies[c].class) + 1
			own[b.copies[c].node] = local[j]
			anybody = min(anybody, e.FetchPeer(1, j))
		}
		for _, n := range row.by {
			at := anybody
			if t := own[n.node]; t > 0 {
				at = min(at, t)
			}
			sum += float64(row.count[n.node]) * at * float64(b.in.Size(int(k))) / 1e6
		}
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			own[b.copies[c].node] = 0
		}
	})
	return sum
}
