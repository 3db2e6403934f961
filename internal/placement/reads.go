package placement

import (
	"cmp"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/access"
)

// reads tells, sample by sample, which nodes read it how often within the horizon.
//
// A table of who reads what in which epoch has F*E entries, of as many bits as a node's number takes: for 1024 nodes 11, five in
// a word, so 1.6 bytes per read. It is made for one range of samples at a time, of at most
// tableWords; where all samples fit into one range it is made once and kept, otherwise each pass draws the epochs anew.
// Epochs are drawn in parallel. Each fills a part of the table of its own, a word per sample for a few epochs, because it
// comes to the samples in random order, and the less memory these writes are spread over, the faster they are.
type reads struct {
	b       *builder
	epochs  int
	whole   bool // every rank reads everything: the table only counts
	width   int  // bits of an entry: a node's number plus 1, or 0 where the epoch does not deliver the sample
	perWord int  // epochs in a word
	words   int  // per sample
	span    int  // samples in a range
	lo, hi  int  // the range that the table is made for
	table   []uint64
	entries []uint32           // if whole, per sample of the range, in how many epochs it is read
	repeats map[int32][]repeat // what padding repeats
}

const (
	// tableWords bounds the table: 14.2 million samples over 90 epochs on 1024 nodes are one range, of 2.0 GB.
	tableWords = 1 << 28
	// block is how many samples a worker goes through at a time.
	block = 1024
)

// repeat is a further read of a sample in an epoch.
type repeat struct {
	epoch int32
	node  uint16
}

// nodeReads is how often a node reads a sample.
type nodeReads struct {
	node  int32
	count uint32
	first int32 // the epoch of its first read, counted from the horizon's start
}

// row is who reads a sample: the nodes in the order of their first read, but for those that only padding makes read it.
type row struct {
	by    []nodeReads
	total int      // reads of all nodes together
	count []uint32 // reads per node
}

func newReads(b *builder) *reads {
	r := &reads{
		b: b, epochs: b.to - b.in.From, whole: b.in.Stream.Spec().Scheme == access.Whole,
		width: bits.Len(uint(len(b.in.Nodes))),
	}
	workers := min(r.epochs, runtime.GOMAXPROCS(0))
	r.perWord = min(64/r.width, (r.epochs+workers-1)/workers)
	r.words = (r.epochs + r.perWord - 1) / r.perWord
	r.span = len(b.head)
	if !r.whole {
		r.span = max(1, min(r.span, tableWords/r.words))
	}
	return r
}

// each calls f for every sample that is worth it, ascending. The row is valid during the call.
func (r *reads) each(worth func(k int32) bool, f func(k int32, row *row)) {
	row := r.newRow()
	for lo := range r.ranges {
		for k := lo; k < min(len(r.b.head), lo+r.span); k++ {
			if worth(int32(k)) {
				r.load(lo)
				r.read(row, k)
				f(int32(k), row)
				row.reset()
			}
		}
	}
}

// eachAtOnce calls f for every sample, on all cores, in no particular order. The row is valid during the call.
func (r *reads) eachAtOnce(f func(k int32, row *row)) {
	for lo := range r.ranges {
		r.load(lo)
		var next atomic.Int64
		var all sync.WaitGroup
		for range min((r.hi-r.lo+block-1)/block, runtime.GOMAXPROCS(0)) {
			all.Go(func() {
				row := r.newRow()
				for from := r.lo + int(next.Add(block)) - block; from < r.hi; from = r.lo + int(next.Add(block)) - block {
					for k := from; k < min(r.hi, from+block); k++ {
						r.read(row, k)
						f(int32(k), row)
						row.reset()
					}
				}
			})
		}
		all.Wait()
	}
}

// ranges yields where each range of samples begins.
func (r *reads) ranges(yield func(lo int) bool) {
	for lo := 0; lo < len(r.b.head) && yield(lo); lo += r.span {
	}
}

func (r *reads) newRow() *row {
	n := len(r.b.in.Nodes)
	return &row{by: make([]nodeReads, 0, n+1), count: make([]uint32, n)}
}

// reset makes the row ready for another sample.
func (r *row) reset() {
	for _, n := range r.by {
		r.count[n.node] = 0
	}
}

// read reads sample k of the range.
func (r *reads) read(row *row, k int) {
	if r.whole {
		r.readWhole(row, k)
		return
	}
	by, count, total, n := row.by[:cap(row.by)], row.count, 0, 0
	mask := uint64(1)<<r.width - 1
	at := k - r.lo
	for w := range r.words {
		e := int32(w * r.perWord)
		for word := r.table[at]; word != 0; word >>= r.width {
			if v := word & mask; v != 0 {
				node := v - 1
				c := count[node]
				by[n] = nodeReads{node: int32(node), first: e} // kept if it is the node's first, without a branch that is hard to predict
				if c == 0 {
					n++
				}
				count[node] = c + 1
				total++
			}
			e++
		}
		at += r.hi - r.lo
	}
	if len(r.repeats) > 0 {
		for _, x := range r.repeats[int32(k)] {
			i := slices.IndexFunc(by[:n], func(y nodeReads) bool { return y.node == int32(x.node) })
			if i < 0 {
				i, n = n, n+1
				by[i] = nodeReads{node: int32(x.node), first: x.epoch}
			}
			by[i].first = min(by[i].first, x.epoch)
			count[x.node]++
			total++
		}
	}
	row.by, row.total = by[:n], total
	for i := range row.by {
		row.by[i].count = count[row.by[i].node]
	}
}

// readWhole reads a sample that every rank reads.
func (r *reads) readWhole(row *row, k int) {
	row.by, row.total = row.by[:0], 0
	for n, node := range r.b.in.Nodes {
		c := r.entries[k-r.lo] * uint32(len(node.Ranks))
		row.by = append(row.by, nodeReads{node: int32(n), count: c})
		row.count[n] = c
		row.total += int(c)
	}
}

// load makes the table for the range of samples from lo on.
func (r *reads) load(lo int) {
	hi := min(len(r.b.head), lo+r.span)
	if r.lo == lo && r.hi == hi {
		return
	}
	r.lo, r.hi, r.repeats = lo, hi, map[int32][]repeat{}
	if r.whole {
		r.loadWhole()
		return
	}
	if r.table == nil {
		r.table = make([]uint64, (hi-lo)*r.words)
	} else {
		clear(r.table)
	}
	twice := r.b.in.Stream.Delivered() > len(r.b.head)
	var mu sync.Mutex // guards r.repeats
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(r.words, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			var epoch *access.Epoch
			for w := int(next.Add(1)) - 1; w < r.words; w = int(next.Add(1)) - 1 {
				words := r.table[w*(hi-lo):][:hi-lo]
				for i := range min(r.perWord, r.epochs-w*r.perWord) {
					e, shift := w*r.perWord+i, i*r.width
					epoch = r.b.in.Stream.EpochInto(epoch, r.b.in.From+e)
					for ids, nodes := range r.b.steps(epoch) {
						for j, k := range ids {
							at := int(k) - lo
							if uint(at) >= uint(len(words)) {
								continue
							}
							if twice && words[at]>>shift != 0 {
								mu.Lock()
								r.repeats[k] = append(r.repeats[k], repeat{int32(e), nodes[j]})
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
	r.b.tidy()
	for _, list := range r.repeats { // whichever epoch came first
		slices.SortFunc(list, func(x, y repeat) int { return cmp.Or(cmp.Compare(x.epoch, y.epoch), cmp.Compare(x.node, y.node)) })
	}
}

// loadWhole counts, for all samples.
func (r *reads) loadWhole() {
	r.entries = make([]uint32, r.hi)
	var epoch *access.Epoch
	for e := r.b.in.From; e < r.b.to; e++ {
		epoch = r.b.in.Stream.EpochInto(epoch, e)
		for ids := range r.b.steps(epoch) {
			for _, k := range ids {
				r.entries[k]++
			}
		}
	}
}
