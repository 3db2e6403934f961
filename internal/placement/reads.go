package placement

import "github.com/hdmlp/hdmlp/internal/access"

// reads tells, sample by sample, which nodes read it how often within the horizon.
//
// A table of who reads what in which epoch would have F*E entries, so it is made for one
// range of samples at a time, of at most tableEntries. Where all samples fit into one
// range it is made once and kept; otherwise each pass draws the epochs anew.
type reads struct {
	b       *builder
	epochs  int
	whole   bool // every rank reads everything: the table only counts
	lo, hi  int  // the range that the table is made for
	table   []uint16
	entries []uint32 // per sample of the range, how many of its table entries are in use, and of extra
	extra   map[int32][]uint16
	count   []uint32 // per node; all zero between samples
}

// tableEntries bounds the table: 2 bytes each, 1 GiB in all.
const tableEntries = 1 << 29

// nodeReads is how often a node reads a sample.
type nodeReads struct {
	node  int32
	count uint32
	first uint32 // how many reads by others come before its own first: below the horizon's epochs
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
			i := k - r.lo
			by = by[:0]
			n := int(r.entries[i])
			if r.whole {
				total := 0
				for node := range r.b.in.Nodes {
					c := n * len(r.b.in.Nodes[node].Ranks)
					by = append(by, nodeReads{node: int32(node), count: uint32(c)})
					total += c
				}
				f(int32(k), by, total)
				continue
			}
			for at, node := range r.table[i*r.epochs:][:min(n, r.epochs)] {
				by = r.note(by, node, at)
			}
			if n > r.epochs {
				for _, node := range r.extra[int32(k)] {
					by = r.note(by, node, r.epochs-1)
				}
			}
			for j := range by {
				by[j].count = r.count[by[j].node]
				r.count[by[j].node] = 0
			}
			f(int32(k), by, n)
		}
	}
}

func (r *reads) note(by []nodeReads, node uint16, at int) []nodeReads {
	if r.count[node] == 0 {
		by = append(by, nodeReads{node: int32(node), first: uint32(at)})
	}
	r.count[node]++
	return by
}

// load makes the table for samples [lo, hi).
func (r *reads) load(lo, hi int) {
	if r.entries != nil && r.lo == lo && r.hi == hi {
		return
	}
	r.lo, r.hi = lo, hi
	if r.entries == nil || len(r.entries) < hi-lo {
		r.entries = make([]uint32, hi-lo)
		if !r.whole {
			r.table = make([]uint16, (hi-lo)*r.epochs)
		}
	}
	clear(r.entries)
	r.extra = map[int32][]uint16{}
	for e := r.b.in.From; e < r.b.to; e++ {
		for rank, k := range r.b.in.Stream.Epoch(e).Readers(lo, hi) {
			i := int(k) - lo
			n := int(r.entries[i])
			node := uint16(r.b.nodeOf[rank])
			switch {
			case r.whole && rank != 0:
				continue
			case r.whole:
			case n < r.epochs:
				r.table[i*r.epochs+n] = node
			default: // padding repeats some samples
				r.extra[k] = append(r.extra[k], node)
			}
			r.entries[i]++
		}
	}
}
