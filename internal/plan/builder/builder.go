// Package builder has the algorithms that policies share: a Builder collects copies of samples on
// nodes, within their capacities, chosen by one or several methods, and Finish sorts them into the
// order in which classes are filled.
//
// A policy chooses the methods, their order and how the plan is executed. The methods are:
//
//   - FirstCopies: one copy of each sample, greedily by what it saves all nodes (first.go)
//   - FillOwn, FillUnread: what each node reads most often itself, then any samples (own.go)
//   - KeepFirst, KeepFirstEpoch, KeepAsRead, KeepLater: what nodes read first, in order (keep.go)
//   - KeepParts, KeepRuns, KeepRest: contiguous parts of the dataset (parts.go)
//
// A Builder belongs to one call of Plan; Finish ends its use.
package builder

import (
	"iter"
	"math"
	"runtime"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Builder collects copies; Finish sorts them into the order of filling.
//
// It takes 8 bytes per sample and 16 per copy. The copies of a sample are a linked list: memory is
// proportional to what is planned, whatever the number of nodes.
type Builder struct {
	in         *plan.Input
	to         int     // the horizon is epochs [in.From, to)
	nodeOf     []int32 // of every rank
	full, last deal    // of a full global batch, and of an epoch's last one
	room       [][]int64
	open       *roomiest
	head       []int32 // per sample its first copy, or -1
	copies     []copyOf
	owner      []int32 // per sample, or -1
	// per sample a node that has it in Kept, or -1; nil: no node has any
	keeper []int32
	bytes  int64 // of all samples
	least  int64 // bytes of the smallest sample
	most   int64 // bytes of the largest sample

	// Seconds per MB from the source while all nodes read from it, from another node's class 1 and
	// from the node's own, each with all threads of the node, and the latency of a read from the
	// source. Without an environment, the source costs twice as much as the network.
	source, peer, local, latency float64
}

// copyOf is a copy of a sample on a node.
type copyOf struct {
	k    int32
	next int32 // the sample's next copy; -1: none
	// the epoch in which it is first needed, counted from the horizon's start, or a constant below
	first int32
	node  uint16
	class uint8 // noClass: it was dropped
}

// Values of copyOf.first that are not epochs.
const (
	held    = -1 - iota // the class already holds it
	never               // no node that it serves needs it within the horizon
	unknown             // the policy does not know; Finish looks it up
)

// noClass is above every class that copyOf.class can hold.
const noClass = math.MaxUint8

// AllClasses means all classes of a node, where a parameter is the number of classes to use.
const AllClasses = noClass

// deal is the assignment of a global batch to nodes: its positions in the order in which they are
// needed, and the node that reads each; nil if every node reads all.
type deal struct {
	position []int32
	node     []uint16
}

// New validates the input and returns a Builder with the copies that classes already hold, as far
// as they fit.
func New(in *plan.Input) (*Builder, error) {
	to, nodeOf, err := in.Check()
	if err != nil {
		return nil, err
	}
	f := in.Stream.Spec().Samples
	b := &Builder{
		in:     in,
		to:     to,
		nodeOf: nodeOf,
		head:   make([]int32, f),
		owner:  make([]int32, f),
		least:  math.MaxInt64,
		source: 2,
		peer:   1,
	}
	if e := in.Env; e != nil && len(e.Classes) > 1 {
		b.source, b.latency = 1/e.SourceRate(len(in.Nodes)), e.SourceLatency
		b.peer, b.local = b.fromPeer(1), b.fromClass(1)
	}
	for k := range f {
		b.head[k], b.owner[k] = -1, -1
		size := in.Size(k)
		b.least, b.most = min(b.least, size), max(b.most, size)
		b.bytes += size
	}
	for _, node := range in.Nodes {
		b.room = append(b.room, slices.Clone(node.Capacity[:min(noClass, len(node.Capacity))]))
	}
	b.open = newRoomiest(b)
	for n, node := range in.Nodes {
		for j, ids := range node.Held {
			for _, k := range ids {
				if s := in.Size(int(k)); s <= b.room[n][j] && !b.has(n, k) {
					b.add(n, j, k, s, held)
				}
			}
		}
	}
	b.findKeepers()
	largest, steps := 0, in.Stream.Steps()
	if in.Given() { // batches differ
		for step := range steps {
			if in.Stream.BatchSize(step) > in.Stream.BatchSize(largest) {
				largest = step
			}
		}
	}
	b.full, b.last = b.deal(largest), b.deal(steps-1)
	return b, nil
}

// findKeepers chooses for each kept sample one of the nodes that keep it, the one with the highest
// hash, so that the samples are spread over the nodes.
func (b *Builder) findKeepers() {
	for n, node := range b.in.Nodes {
		if len(node.Kept) > 0 && b.keeper == nil {
			b.keeper = slices.Repeat([]int32{-1}, len(b.head))
		}
		for _, k := range node.Kept {
			if was := b.keeper[k]; was < 0 || access.Mix(n, int(k)) > access.Mix(int(was), int(k)) {
				b.keeper[k] = int32(n)
			}
		}
	}
}

// OwnKept makes the keepers of samples that have no owner their owners.
func (b *Builder) OwnKept() {
	for k, n := range b.keeper {
		if b.owner[k] < 0 {
			b.owner[k] = n
		}
	}
}

func (b *Builder) deal(step int) deal {
	position, ranks := b.in.Stream.Deal(step)
	d := deal{position: position}
	if ranks != nil {
		d.node = make([]uint16, len(ranks))
		for i, r := range ranks {
			d.node[i] = uint16(b.nodeOf[r])
		}
	}
	return d
}

// dealOf returns the deal of a step. If batches differ in more than a short last one, there is one
// rank (access.NewGiven), and so the deal of a batch is a prefix of that of a larger one.
func (b *Builder) dealOf(step int) deal {
	switch m := b.in.Stream.BatchSize(step); m {
	case len(b.full.position):
		return b.full
	case len(b.last.position):
		return b.last
	default:
		return deal{b.full.position[:m], b.full.node[:m]}
	}
}

// steps yields, step by step, the samples of an epoch in the order in which the nodes together need
// them, and the node that reads each; nil if every node reads all. They are valid until the next
// step.
func (b *Builder) steps(epoch *access.Epoch) iter.Seq2[[]int32, []uint16] {
	return b.stepsFrom(epoch, 0)
}

// stepsFrom is steps from a step on.
func (b *Builder) stepsFrom(epoch *access.Epoch, from int) iter.Seq2[[]int32, []uint16] {
	return func(yield func([]int32, []uint16) bool) {
		batch, ids := make([]int32, 0, len(b.full.position)), make([]int32, len(b.full.position))
		for step := from; step < b.in.Stream.Steps(); step++ {
			d := b.dealOf(step)
			batch = epoch.Global(batch[:0], step)
			ids = ids[:len(batch)]
			for i, p := range d.position {
				ids[i] = batch[p]
			}
			if !yield(ids, d.node) {
				return
			}
		}
	}
}

// has reports whether the node holds the sample.
func (b *Builder) has(node int, k int32) bool {
	for c := b.head[k]; c >= 0; c = b.copies[c].next {
		if int(b.copies[c].node) == node {
			return true
		}
	}
	return false
}

// expect reserves memory for this many further copies, or for as many of mean size as fit on the
// nodes if that is less.
func (b *Builder) expect(copies int) {
	var room float64
	for _, classes := range b.room {
		for _, r := range classes {
			room += float64(r)
		}
	}
	fit := room / float64(b.bytes) * float64(len(b.head))
	b.copies = slices.Grow(b.copies, int(min(float64(copies), fit*1.02+float64(len(b.room)))))
}

// add adds a copy on the node, which first needs it in epoch `first`.
func (b *Builder) add(node, class int, k int32, size int64, first int32) {
	b.room[node][class] -= size
	b.open.update(node)
	b.copies = append(b.copies,
		copyOf{k: k, next: b.head[k], first: first, node: uint16(node), class: uint8(class)})
	b.head[k] = int32(len(b.copies) - 1)
}

// put adds a copy in the first class of the node, from class `from` on, in which it fits, and
// reports whether there is one.
func (b *Builder) put(node, from int, k int32, size int64, first int32) bool {
	for j := from; j < len(b.room[node]); j++ {
		if size <= b.room[node][j] {
			b.add(node, j, k, size, first)
			return true
		}
	}
	return false
}

// OneEpoch limits the horizon to its first epoch, which is enough if all epochs read the same
// samples.
func (b *Builder) OneEpoch() { b.to = b.in.From + 1 }

// Frequencies returns, per sample, how often all nodes together read it within the known horizon.
func (b *Builder) Frequencies() []uint32 {
	ranks := make([]int, len(b.nodeOf))
	for r := range ranks {
		ranks[r] = r
	}
	return b.in.Stream.Frequencies(ranks, b.in.From, b.to)
}

// PeersPay reports whether another node's copy is faster than the source.
func (b *Builder) PeersPay() bool { return b.peer < b.source }

// SecondCopiesPay reports whether a node's own copy is faster than another node's.
func (b *Builder) SecondCopiesPay() bool { return b.local < b.peer }

// fullUp reports whether not even the smallest sample fits on the node.
func (b *Builder) fullUp(node int) bool { return b.open.room(node) < b.least }

// Tidy runs the garbage collector if there is much garbage: the table of reads is so large that the
// collector would otherwise wait for as much again.
func (b *Builder) Tidy() {
	if len(b.head) >= many {
		runtime.GC()
	}
}

// roomiest finds the node with the most free capacity in one class. It is a tree of maxima over the
// nodes.
type roomiest struct {
	b    *Builder
	tree []int32 // tree[1] is the root; tree[leaves+n] is node n, or -1 after the last
	rest []int64 // per node, the most free capacity of one of its classes
}

func newRoomiest(b *Builder) *roomiest {
	leaves := 1
	for leaves < len(b.room) {
		leaves *= 2
	}
	t := &roomiest{b: b, tree: make([]int32, 2*leaves), rest: make([]int64, len(b.room))}
	for i := range leaves {
		t.tree[leaves+i] = -1
		if i < len(b.room) {
			t.tree[leaves+i] = int32(i)
			t.rest[i] = slices.Max(append(b.room[i], 0))
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

// update updates the tree after the node's free capacity has decreased.
func (t *roomiest) update(node int) {
	var most int64
	for _, r := range t.b.room[node] {
		most = max(most, r)
	}
	t.rest[node] = most
	// it was not the roomiest above this level
	for i := (len(t.tree)/2 + node) / 2; i >= 1 && t.tree[i] == int32(node); i /= 2 {
		t.tree[i] = t.larger(t.tree[2*i], t.tree[2*i+1])
	}
}
