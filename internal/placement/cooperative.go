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
		b.fillOwn(r, 2) // a copy that is read once saves nothing: filling it was that read
	}
	p := b.finish(c.Name(), true, true)
	p.ReadOnce = true
	return p, nil
}

// candidates is how many nodes a sample may choose from before it takes any that has room.
const candidates = 4

// firstCopies places one copy of every sample that fits, greedily by benefit per byte.
func (b *builder) firstCopies(r *reads) {
	f := len(b.head)
	order := b.firstNeeded()
	turn := make([]int32, f)
	for i, k := range order {
		turn[k] = int32(i)
	}
	choice := make([][candidates]nodeReads16, f)
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
		rank = append(rank, uint64(^math.Float32bits(benefit))<<32|uint64(turn[k]))
	})
	slices.Sort(rank)

	open := newRoomiest(b)
	for _, key := range rank {
		k := order[uint32(key)]
		if n := b.choose(k, &choice[k], open); n >= 0 {
			b.put(n, 0, k)
			b.owner[k] = int32(n)
			open.update(n)
		}
	}
}

// nodeReads16 is nodeReads in four bytes.
type nodeReads16 struct{ node, count uint16 }

// mostReads returns the nodes that read a sample most often, most first. Nodes that
// tie stand in the order in which they first read it: at random, so that none is favoured.
func mostReads(by []nodeReads) (top [candidates]nodeReads16) {
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

// choose returns the node that gets the first copy of k: the one that reads it most
// often among those with room, the roomiest where they tie; -1 if it fits nowhere.
func (b *builder) choose(k int32, choice *[candidates]nodeReads16, open *roomiest) int {
	size := b.in.Size(int(k))
	if open.most() < size {
		return -1
	}
	best, room, count := -1, int64(0), uint16(0)
	for _, c := range choice {
		if c.count == 0 || best >= 0 && c.count < count {
			break
		}
		if at := open.room(int(c.node)); at >= size && at > room {
			best, room, count = int(c.node), at, c.count
		}
	}
	if best < 0 {
		return open.node()
	}
	return best
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

// benefitPerByte returns the seconds that the first copy of a sample saves per MB: all
// nodes read it total times, the node that gets the copy own times of these. Without an environment, reading
// from the source costs twice what the network costs.
func (b *builder) benefitPerByte(size int64, total, own int) float32 {
	mb := float64(size) / 1e6
	source, peer, local := 2*mb, mb, 0.0
	if e := b.in.Env; e != nil && len(e.Classes) > 1 {
		source, peer, local = e.FetchSource(mb, len(b.in.Nodes)), e.FetchPeer(mb, 1), e.FetchLocal(mb, 1)
	}
	saved := float64(max(0, total-1))*max(0, source-peer) + float64(own)*max(0, peer-local)
	return float32(saved / mb)
}

// copiesPay tells whether a node's own fastest class beats a peer's.
func (b *builder) copiesPay() bool {
	e := b.in.Env
	return e == nil || len(e.Classes) < 2 || e.FetchLocal(1, 1) < e.FetchPeer(1, 1)
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
