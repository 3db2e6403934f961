package placement

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/access"
)

// reads tells, sample by sample, which nodes read it how often within the horizon.
//
// A table of who reads what in which epoch has F*E entries. It is made for one range of samples at a time, of at most
// tableEntries; where all samples fit into one range it is made once and kept, otherwise each pass draws the
// epochs anew. Epochs are drawn in parallel. Each fills a part of the table of its own, because it comes to the samples in
// random order, and the less memory these writes are spread over, the faster they are; whoever goes through the samples
// turns block samples of it at a time into rows.
type reads struct {
	b       *builder
	epochs  int
	whole   bool     // every rank reads everything: the table only counts
	lo, hi  int      // the range that the table is made for
	table   []uint16 // of epoch e and sample k: e*(hi-lo) + k-lo
	rows    []uint16 // of block samples: who reads them, epoch by epoch
	entries []uint32 // if whole, per sample of the range, in how many epochs it is read
	extra   map[int32][]uint16
	count   []uint32 // per node; all zero between samples
}

const (
	// tableEntries bounds the table, 2 bytes each: 14.2 million samples over 90 epochs are one range, of 2.6 GB.
	tableEntries = 1300 << 20
	// block is how many samples are turned into rows together.
	block = 128
	// nobody marks a sample that an epoch does not deliver.
	nobody = 1<<16 - 1
)

// nodeReads is how often a node reads a sample.
type nodeReads struct {
	node  int32
	count uint32
	first uint32 // the epoch of its first read, counted from the horizon's start
}

func newReads(b *builder) *reads {
	return &reads{
		b: b, epochs: b.to - b.in.From, whole: b.in.Stream.Spec().Scheme == access.Whole,
		count: make([]uint32, len(b.in.Nodes)),
	}
}

// each calls f for every sample, ascending, with the nodes that read it, and how
// often they do together. The slice is valid during the call.
func (r *reads) each(f func(k int32, by []nodeReads, total int)) {
	samples := r.b.in.Stream.Spec().Samples
	span := samples
	if !r.whole {
		span = max(1, min(samples, tableEntries/r.epochs))
	}
	var by []nodeReads
	for lo := 0; lo < samples; lo += span {
		r.load(lo, min(samples, lo+span))
		for k := r.lo; k < r.hi; k++ {
			var total int
			if r.whole {
				by, total = r.byAll(by[:0], int(r.entries[k-r.lo]))
			} else {
				if (k-r.lo)%block == 0 {
					r.turn(k)
				}
				by, total = r.byTable(by[:0], k)
			}
			f(int32(k), by, total)
		}
	}
}

// byAll appends the readers of a sample that every rank reads in so many epochs.
func (r *reads) byAll(by []nodeReads, epochs int) (_ []nodeReads, total int) {
	for n := range r.b.in.Nodes {
		c := epochs * len(r.b.in.Nodes[n].Ranks)
		by = append(by, nodeReads{node: int32(n), count: uint32(c)})
		total += c
	}
	return by, total
}

// turn makes the rows of the samples from k on.
func (r *reads) turn(k int) {
	n := min(block, r.hi-k)
	for e := range r.epochs {
		at := e
		for _, node := range r.table[e*(r.hi-r.lo)+k-r.lo:][:n] {
			r.rows[at] = node
			at += r.epochs
		}
	}
}

// byTable appends the readers of sample k that the table has.
func (r *reads) byTable(by []nodeReads, k int) (_ []nodeReads, total int) {
	count := r.count
	for e, node := range r.rows[(k-r.lo)%block*r.epochs:][:r.epochs] {
		if node == nobody {
			continue
		}
		if count[node] == 0 {
			by = append(by, nodeReads{node: int32(node), first: uint32(e)})
		}
		count[node]++
		total++
	}
	if len(r.extra) > 0 { // padding repeats some samples
		for _, node := range r.extra[int32(k)] {
			if count[node] == 0 {
				by = append(by, nodeReads{node: int32(node), first: uint32(r.epochs - 1)})
			}
			count[node]++
			total++
		}
	}
	for j := range by {
		by[j].count = count[by[j].node]
		count[by[j].node] = 0
	}
	return by, total
}

// load makes the table for samples [lo, hi).
func (r *reads) load(lo, hi int) {
	if r.lo == lo && r.hi == hi {
		return
	}
	r.lo, r.hi, r.extra = lo, hi, map[int32][]uint16{}
	if r.whole {
		r.entries = make([]uint32, hi-lo)
		for e := r.b.in.From; e < r.b.to; e++ {
			for rank, k := range r.b.in.Stream.Epoch(e).Readers(lo, hi) {
				if rank == 0 {
					r.entries[int(k)-lo]++
				}
			}
		}
		return
	}
	if r.table == nil {
		r.table, r.rows = make([]uint16, (hi-lo)*r.epochs), make([]uint16, block*r.epochs)
	}
	var mu sync.Mutex // guards r.extra
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(r.epochs, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			var epoch *access.Epoch
			for {
				e := int(next.Add(1)) - 1
				if e >= r.epochs {
					return
				}
				column := r.table[e*(hi-lo):][:hi-lo]
				for i := range column {
					column[i] = nobody
				}
				epoch = r.b.in.Stream.EpochInto(epoch, r.b.in.From+e)
				for rank, k := range epoch.Readers(lo, hi) {
					at, node := &column[int(k)-lo], uint16(r.b.nodeOf[rank])
					if *at == nobody {
						*at = node
						continue
					}
					mu.Lock()
					r.extra[k] = append(r.extra[k], node)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for _, nodes := range r.extra {
		slices.Sort(nodes) // whichever epoch came first
	}
}
