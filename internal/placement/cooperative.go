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
	if alone { // it reads every sample in every epoch: one epoch says as much as all
		b.to = in.From + 1
	}
	r := newReads(b)
	b.firstCopies(r)
	if !alone && b.copiesPay() {
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
	b.sortClasses(r)
	p := b.finish(c.Name(), true, true)
	source, peer, _ := b.perMB(0)
	p.ReadOnce = peer < source // otherwise nobody asks an owner for what it has not got
	return p, nil
}

// candidates is how many nodes a sample may choose from before it takes any that has room.
const candidates = 4

// firstCopies places one copy of every sample that fits, greedily by benefit per byte. A sample whose best node has no
// room any more comes again later, with the benefit that it has on the next best.
func (b *builder) firstCopies(r *reads) {
	f := len(b.head)
	order := b.firstNeeded()
	turn := make([]int32, f)
	for i, k := range order {
		turn[k] = int32(i)
	}
	choice := make([]wanted, f)
	rank := make([]uint64, 0, f) // benefit, largest first, above first need: sorting it gives the order
	r.each(func(k int32, by []nodeReads, total int) {
		if b.head[k] >= 0 {
			b.owner[k] = b.bestHolder(k, by)
			return
		}
		if !r.whole { // otherwise every node is as good as any
			choice[k] = mostReads(by)
		}
		benefit := b.benefitPerByte(b.in.Size(int(k)), total, int(choice[k][0].count))
		rank = append(rank, uint64(^ascending(benefit))<<32|uint64(turn[k]))
	})
	slices.Sort(rank)

	open := newRoomiest(b)
	var again keyHeap
	_, peer, local := b.perMB(0)
	for next := 0; next < len(rank) || len(again) > 0; {
		var key uint64
		if len(again) == 0 || next < len(rank) && rank[next] < again[0] {
			key = rank[next]
			next++
		} else {
			key = again.pop()
		}
		k := order[uint32(key)]
		n, at := b.choose(k, &choice[k], open)
		if n < 0 {
			continue
		}
		if had, has := choice[k][0].count, choice[k].at(at); has < had {
			benefit := descending(^uint32(key>>32)) - float32(float64(had-has)*max(0, peer-local))
			choice[k].drop(at)
			again.push(uint64(^ascending(benefit))<<32 | key&math.MaxUint32)
			continue
		}
		b.put(n, 0, k)
		b.owner[k] = int32(n)
		open.update(n)
	}
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

// nodeReads16 is nodeReads in four bytes.
type nodeReads16 struct{ node, count uint16 }

// wanted are the nodes that a sample would rather lie on, most reads first; a count of 0 ends them.
type wanted [candidates]nodeReads16

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
func mostReads(by []nodeReads) (top wanted) {
	for _, n := range by {
		c := nodeReads16{uint16(n.node), uint16(min(n.count, math.MaxUint16))}
		for i := range top {
			if c.count > top[i].count {
				c, top[i] = top[i], c
			}
		}
	}
	return top
}

// choose returns the node that gets the first copy of k, and which candidate's count it has: the one that reads k
// most often among those with room, the roomiest where they tie; any other node, and a number beyond the candidates, if none
// of them has room; -1 if k fits nowhere.
func (b *builder) choose(k int32, choice *wanted, open *roomiest) (node, candidate int) {
	size := b.in.Size(int(k))
	if open.most() < size {
		return -1, 0
	}
	best, at, room, count := -1, candidates, int64(0), uint16(0)
	for i, c := range choice {
		if c.count == 0 || best >= 0 && c.count < count {
			break
		}
		if has := open.room(int(c.node)); has >= size && has > room {
			best, room, count = int(c.node), has, c.count
			at = min(at, i)
		}
	}
	if best < 0 {
		return open.node(), candidates
	}
	return best, at
}

// bestHolder returns the node, of those that hold k, that reads it most often.
func (b *builder) bestHolder(k int32, by []nodeReads) int32 {
	best, most := int32(-1), uint32(0)
	for c := b.head[k]; c >= 0; c = b.copies[c].next {
		var count uint32
		for _, n := range by {
			if n.node == int32(b.copies[c].node) {
				count = n.count
			}
		}
		if best < 0 || count > most || count == most && int32(b.copies[c].node) < best {
			best, most = int32(b.copies[c].node), count
		}
	}
	return best
}

// firstNeeded returns every sample, in the order in which the nodes together first need it; those
// that the first epoch drops come last.
func (b *builder) firstNeeded() []int32 {
	order := make([]int32, 0, len(b.head))
	seen := make([]bool, len(b.head))
	for _, k := range b.in.Stream.Epoch(b.in.From).Reads() {
		if !seen[k] {
			seen[k] = true
			order = append(order, k)
		}
	}
	for k := range seen {
		if !seen[k] {
			order = append(order, int32(k))
		}
	}
	return order
}

// perMB returns the seconds that reading a sample of mb MB takes per MB: from the source while all nodes
// read from it, from another node's class 1, from the node's own. Without an environment, reading from the source costs twice
// what the network costs. A sample of 0 MB has no latency.
func (b *builder) perMB(mb float64) (source, peer, local float64) {
	e := b.in.Env
	if e == nil || len(e.Classes) < 2 {
		return 2, 1, 0
	}
	if b.times == [3]float64{} {
		b.times = [3]float64{1 / e.SourceRate(len(b.in.Nodes)), e.FetchPeer(1, 1), e.FetchLocal(1, 1)}
	}
	source = b.times[0]
	if mb > 0 {
		source += e.SourceLatency / mb
	}
	return source, b.times[1], b.times[2]
}

// benefitPerByte returns the seconds that the first copy of a sample saves per MB (thesis equation 3.13): all
// nodes read it total times, the node that gets the copy own times of these.
func (b *builder) benefitPerByte(size int64, total, own int) float32 {
	source, peer, local := b.perMB(float64(size) / 1e6)
	return float32(float64(total)*max(0, source-peer) + float64(own)*max(0, peer-local))
}

// copiesPay tells whether a node's own fastest class beats a peer's.
func (b *builder) copiesPay() bool {
	e := b.in.Env
	return e == nil || len(e.Classes) < 2 || e.FetchLocal(1, 1) < e.FetchPeer(1, 1)
}

// networkIsSlow tells whether reading from a peer instead of the source saves less than reading from the
// node's own class instead of a peer's: then copies for the node itself may be worth more than first copies for others.
func (b *builder) networkIsSlow() bool {
	source, peer, local := b.perMB(0)
	return source-peer < peer-local
}

// fetchTime returns the sum of thesis equation 3.13 over all nodes, seconds.
func (b *builder) fetchTime(r *reads) float64 {
	e := b.in.Env
	source := 1 / e.SourceRate(len(b.in.Nodes))
	local := make([]float64, len(e.Classes))
	for j := 1; j < len(local); j++ {
		local[j] = e.FetchLocal(1, j)
	}
	own := make(map[int32]float64)
	sum := 0.0
	r.each(func(k int32, by []nodeReads, _ int) {
		clear(own)
		anybody := source
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			j := int(b.copies[c].class) + 1
			own[int32(b.copies[c].node)] = local[j]
			anybody = min(anybody, e.FetchPeer(1, j))
		}
		for _, n := range by {
			at := anybody
			if t, ok := own[n.node]; ok {
				at = min(at, t)
			}
			sum += float64(n.count) * at * float64(b.in.Size(int(k))) / 1e6
		}
	})
	return sum
}

// roomiest finds the node whose largest class has most room: a tree of maxima over the nodes.
type roomiest struct {
	b    *builder
	tree []int32 // tree[1] is the root; tree[leaves+n] is node n, -1 beyond the last
	rest []int64 // per node, what largest says
}

func newRoomiest(b *builder) *roomiest {
	leaves := 1
	for leaves < len(b.room) {
		leaves *= 2
	}
	t := &roomiest{b: b, tree: make([]int32, 2*leaves), rest: make([]int64, len(b.room))}
	for i := range leaves {
		t.tree[leaves+i] = -1
		if i < len(b.room) {
			t.tree[leaves+i] = int32(i)
			t.rest[i] = b.largest(i)
		}
	}
	for i := leaves - 1; i >= 1; i-- {
		t.tree[i] = t.larger(t.tree[2*i], t.tree[2*i+1])
	}
	return t
}

func (t *roomiest) larger(x, y int32) int32 {
	if y < 0 || x >= 0 && t.rest[x] >= t.rest[y] {
		return x
	}
	return y
}

func (t *roomiest) node() int           { return int(t.tree[1]) }
func (t *roomiest) most() int64         { return t.rest[t.tree[1]] }
func (t *roomiest) room(node int) int64 { return t.rest[node] }

// update takes notice that the node's room has changed.
func (t *roomiest) update(node int) {
	t.rest[node] = t.b.largest(node)
	for i := (len(t.tree)/2 + node) / 2; i >= 1; i /= 2 {
		t.tree[i] = t.larger(t.tree[2*i], t.tree[2*i+1])
	}
}
