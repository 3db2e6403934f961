package builder

import (
	"cmp"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Reads is a table of how often each node reads each sample within the horizon.
//
// The table has F*E entries, one per sample and epoch, of as many bits as a node's number takes:
// for 1024 nodes 11, five in a word, so 1.6 bytes per read. It is built for one range of samples at
// a time, of at most tableWords; if all samples fit into one range it is built once and kept,
// otherwise each pass draws the epochs again. Epochs are drawn in parallel. Each fills its own part
// of the table, a word per sample for a few epochs: the writes are in random order, and the less
// memory they are spread over, the faster they are.
type Reads struct {
	b      *Builder
	epochs int
	// whole: all nodes read the same samples, or one node reads samples repeatedly; the table only
	// counts
	whole bool
	times bool // if whole, each rank of a node reads all samples
	// bits of an entry: a node's number plus 1, or 0 if the epoch does not deliver the sample
	width   uint
	perWord int // epochs per word
	words   int // per sample
	span    int // samples in a range
	lo, hi  int // the range that the table holds
	table   []uint64
	entries []uint32 // if whole, per sample of the range, the number of epochs that read it
	// reads of a sample after the first in an epoch: padding, and repeats in a subset, a given order
	// or a mixture
	repeats map[int32][]repeat
}

const (
	// tableWords bounds the table: 14.2 million samples over 90 epochs on 1024 nodes are one range,
	// of 2.0 GB.
	tableWords = 1 << 28
	// block is how many samples a worker processes at a time.
	block = 1024
	// many is the number of samples from which work is spread over all cores and memory is
	// collected early.
	many = 1 << 20
)

// repeat are a node's further reads of a sample in epochs that have read it already.
type repeat struct {
	first int32 // the epoch of the first of them
	count uint32
	node  uint16
}

// reader is a node that reads a sample.
type reader struct {
	node  int32
	first int32 // the epoch of its first read, counted from the horizon's start
}

// row holds the readers of a sample in the order of their first read, without those that read it
// only because of padding.
type row struct {
	by    []reader
	count []uint32 // per node, its number of reads
	total int      // of all nodes
}

func NewReads(b *Builder) *Reads {
	spec := b.in.Stream.Spec()
	r := &Reads{
		b: b, epochs: b.to - b.in.From,
		times: spec.Scheme == access.Whole,
		whole: spec.Scheme == access.Whole ||
			len(b.in.Nodes) == 1 && (b.in.Varies() || spec.Subset != nil),
		width: uint(bits.Len(uint(len(b.in.Nodes)))),
	}
	r.perWord = 64 / int(r.width)
	if workers := runtime.GOMAXPROCS(0); len(b.head) >= many { // something to do for each
		r.perWord = min(r.perWord, (r.epochs+workers-1)/workers)
	}
	r.words = (r.epochs + r.perWord - 1) / r.perWord
	r.span = len(b.head)
	if !r.whole {
		r.span = max(1, min(r.span, tableWords/r.words))
	}
	return r
}

// each calls f for every sample for which worth returns true (nil: for all), in ascending order.
// The row is valid during the call.
func (r *Reads) each(worth func(k int32) bool, f func(k int32, row *row)) {
	row := r.newRow()
	for lo := range r.ranges {
		for k := lo; k < min(len(r.b.head), lo+r.span); k++ {
			if worth == nil || worth(int32(k)) {
				r.load(lo)
				r.read(row, k)
				f(int32(k), row)
			}
		}
	}
}

// eachAtOnce calls f for every sample, on all cores, in no particular order. The row is valid
// during the call.
func (r *Reads) eachAtOnce(f func(k int32, row *row)) {
	for lo := range r.ranges {
		r.load(lo)
		var next atomic.Int64
		var all sync.WaitGroup
		for range min((r.hi-r.lo+block-1)/block, runtime.GOMAXPROCS(0)) {
			all.Go(func() {
				row := r.newRow()
				for from := r.lo + int(next.Add(block)) - block; from < r.hi; from = r.lo +
					int(next.Add(block)) - block {
					for k := from; k < min(r.hi, from+block); k++ {
						r.read(row, k)
						f(int32(k), row)
					}
				}
			})
		}
		all.Wait()
	}
}

// ranges yields where each range of samples begins.
func (r *Reads) ranges(yield func(lo int) bool) {
	for lo := 0; lo < len(r.b.head) && yield(lo); lo += r.span {
	}
}

func (r *Reads) newRow() *row {
	n := len(r.b.in.Nodes)
	return &row{by: make([]reader, 0, n+1), count: make([]uint32, n)}
}

// read reads sample k of the range.
func (r *Reads) read(row *row, k int) {
	for _, n := range row.by {
		row.count[n.node] = 0
	}
	if r.whole {
		r.readWhole(row, k)
		return
	}
	by := row.by[:cap(row.by)]
	count := row.count
	width := r.width & 63
	n := 0
	total := 0
	mask := uint64(1)<<width - 1
	for w, at := 0, k-r.lo; w < r.words; w, at = w+1, at+r.hi-r.lo {
		for e, word := int32(w*r.perWord), r.table[at]; word != 0; e, word = e+1, word>>width {
			node := word&mask - 1
			if node >= uint64(len(count)) { // the epoch does not deliver it
				continue
			}
			c := count[node]
			count[node] = c + 1
			by[n] = reader{int32(node), e}
			n += int((c - 1) >> 31) // unchanged if c is 0; a branch would be hard to predict
			total++
		}
	}
	if len(r.repeats) > 0 {
		for _, x := range r.repeats[int32(k)] {
			i := slices.IndexFunc(by[:n], func(y reader) bool { return y.node == int32(x.node) })
			if i < 0 {
				i, n = n, n+1
				by[i] = reader{int32(x.node), x.first}
			}
			by[i].first = min(by[i].first, x.first)
			count[x.node] += x.count
			total += int(x.count)
		}
	}
	row.by, row.total = row.by[:n], total
}

// readWhole is read for a table that only counts.
func (r *Reads) readWhole(row *row, k int) {
	row.by, row.total = row.by[:0], 0
	for n, node := range r.b.in.Nodes {
		c := r.entries[k-r.lo]
		if r.times {
			c *= uint32(len(node.Ranks))
		}
		row.by = append(row.by, reader{node: int32(n)})
		row.count[n] = c
		row.total += int(c)
	}
}

// load builds the table for the range of samples from lo on.
func (r *Reads) load(lo int) {
	hi := min(len(r.b.head), lo+r.span)
	if r.lo == lo && r.hi == hi {
		return
	}
	r.lo = lo
	r.hi = hi
	r.repeats = map[int32][]repeat{}
	if r.whole {
		r.loadWhole()
		return
	}
	if r.table == nil {
		r.table = make([]uint64, (hi-lo)*r.words)
	} else {
		clear(r.table)
	}
	twice := r.b.in.Stream.Repeats()
	var mu sync.Mutex // guards r.repeats
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(r.words, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			var epoch *access.Epoch
			for w := int(next.Add(1)) - 1; w < r.words; w = int(next.Add(1)) - 1 {
				words := r.table[w*(hi-lo):][:hi-lo]
				for i := range min(r.perWord, r.epochs-w*r.perWord) {
					if r.b.in.Ended() != nil {
						return
					}
					e, shift := w*r.perWord+i, uint(i)*r.width
					epoch = r.b.in.Stream.EpochInto(epoch, r.b.in.From+e)
					for ids, nodes := range r.b.steps(epoch) {
						for j, k := range ids {
							at := int(k) - lo
							if uint(at) >= uint(len(words)) {
								continue
							}
							if twice && words[at]>>shift != 0 {
								mu.Lock()
								r.repeat(k, int32(e), nodes[j])
								mu.Unlock()
								continue
							}
							words[at] |= uint64(nodes[j]+1) << shift
						}
					}
				}
			}
		})
	}
	all.Wait()
	r.b.Tidy()
	for _, list := range r.repeats { // epochs finish in any order
		slices.SortFunc(list, func(x, y repeat) int {
			return cmp.Or(cmp.Compare(x.first, y.first), cmp.Compare(x.node, y.node))
		})
	}
}

// Drop releases the table; another pass would rebuild it.
func (r *Reads) Drop() {
	r.table = nil
	r.lo = 0
	r.hi = 0
}

// repeat records a further read of a sample in an epoch.
func (r *Reads) repeat(k, epoch int32, node uint16) {
	list := r.repeats[k]
	if i := slices.IndexFunc(list, func(x repeat) bool { return x.node == node }); i >= 0 {
		list[i].first, list[i].count = min(list[i].first, epoch), list[i].count+1
		return
	}
	r.repeats[k] = append(list, repeat{epoch, 1, node})
}

// loadWhole counts the reads of all samples.
func (r *Reads) loadWhole() {
	r.entries = make([]uint32, r.hi)
	var epoch *access.Epoch
	for e := r.b.in.From; e < r.b.to && r.b.in.Ended() == nil; e++ {
		epoch = r.b.in.Stream.EpochInto(epoch, e)
		for ids := range r.b.steps(epoch) {
			for _, k := range ids {
				r.entries[k]++
			}
		}
	}
}

// Memory returns the approximate number of bytes that a plan that counts reads (Frequency,
// Cooperative) takes to make, including the plan.
func Memory(in plan.Input) int64 {
	const (
		perSample   = 64
		perCopy     = 24
		perRepeated = 64
		perRepeat   = 24
	)
	samples := int64(in.Stream.Spec().Samples)
	epochs := in.Stream.Spec().Epochs
	if epochs == 0 {
		epochs = in.Epochs
	}
	epochs -= in.From
	if in.Given() {
		epochs = max(1, min(epochs, len(in.Stream.GivenEpochs())))
	}
	perWord := 64 / bits.Len(uint(len(in.Nodes)))
	words := samples * int64((epochs+perWord-1)/perWord)
	memory := 8*min(words, tableWords) + samples*(perSample+perCopy)
	// the map of repeats
	if (in.Stream.Spec().Subset != nil || in.Varies()) && len(in.Nodes) > 1 && in.Stream.Repeats() {
		memory += samples*perRepeated +
			perRepeat*min(samples*int64(len(in.Nodes)), int64(in.Stream.Delivered())*int64(epochs))
	}
	return memory
}
