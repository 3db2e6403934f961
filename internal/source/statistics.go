package source

import (
	"math"
	"math/bits"
	"slices"
)

// Statistics describes the sizes of a dataset's samples.
type Statistics struct {
	Smallest, Largest int64 // bytes
	Mean              float64
	// Median is the upper median.
	Median int64
	// Histogram counts samples by size, from the smallest sample's bin to the largest one's,
	// including empty bins in between.
	Histogram []Bin
}

// Bin counts the samples of at least From and less than To bytes. From and To are successive powers
// of two, or 0 and 1.
type Bin struct {
	From, To int64
	Samples  int
}

// Statistics computes the statistics in linear time. They are zero for an index without samples.
func (x *Index) Statistics() Statistics {
	n := x.Len()
	if n == 0 {
		return Statistics{}
	}
	var counts [65]int
	s := Statistics{
		Smallest: x.MaxSize(),
		Largest:  x.MaxSize(),
		Mean:     float64(x.Bytes()) / float64(n),
	}
	for id := range n {
		size := x.Size(id)
		counts[bits.Len64(uint64(size))]++
		s.Smallest = min(s.Smallest, size)
	}
	first, last := bits.Len64(uint64(s.Smallest)), bits.Len64(uint64(s.Largest))
	below := 0
	for bin := first; bin <= last; bin++ {
		end := uint64(1) << bin
		s.Histogram = append(s.Histogram, Bin{
			From: int64(end >> 1), To: int64(min(end, math.MaxInt64)), Samples: counts[bin],
		})
		if rank := n/2 - below; rank >= 0 && rank < counts[bin] {
			s.Median = x.sizeOfRank(bin, counts[bin], rank)
		}
		below += counts[bin]
	}
	return s
}

// sizeOfRank returns the size with this rank among the sizes of one bin.
func (x *Index) sizeOfRank(bin, count, rank int) int64 {
	sizes := make([]int64, 0, count)
	for id := range x.Len() {
		if size := x.Size(id); bits.Len64(uint64(size)) == bin {
			sizes = append(sizes, size)
		}
	}
	slices.Sort(sizes)
	return sizes[rank]
}
