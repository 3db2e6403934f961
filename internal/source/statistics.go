package source

import (
	"math"
	"math/bits"
	"slices"
)

// Statistics describes the sizes of samples, or of one of their fields.
type Statistics struct {
	Samples           int   // that have the field
	Bytes             int64 // of all
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

// Statistics computes the statistics of the samples in linear time. They are zero for an index
// without samples.
func (x *Index) Statistics() Statistics { return statistics(x.Len(), x.Size) }

// FieldStatistics computes the statistics of field f, of the samples that have it.
func (x *Index) FieldStatistics(f int) Statistics {
	return statistics(x.Len(), func(id int) int64 { return x.FieldSize(f, id) })
}

// FieldSize returns how many bytes field f of sample id has; Missing: the sample does not have it.
// An index without fields has one, the sample.
func (x *Index) FieldSize(f, id int) int64 {
	x.check(id)
	if x.tables == nil {
		return x.objectSize(id)
	}
	return x.length(id*x.layout.records.fields + f)
}

// Lacking returns the names of the fields that some samples do not have.
func (x *Index) Lacking() (names []string) {
	for f, name := range x.Fields() {
		for id := range x.Len() {
			if x.FieldSize(f, id) == Missing {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// statistics describes n sizes, of which those that are Missing do not count.
func statistics(n int, size func(id int) int64) Statistics {
	var counts [65]int
	s := Statistics{Smallest: math.MaxInt64}
	for id := range n {
		v := size(id)
		if v == Missing {
			continue
		}
		counts[bits.Len64(uint64(v))]++
		s.Samples++
		s.Bytes += v
		s.Smallest, s.Largest = min(s.Smallest, v), max(s.Largest, v)
	}
	if s.Samples == 0 {
		return Statistics{}
	}
	s.Mean = float64(s.Bytes) / float64(s.Samples)
	below := 0
	for bin := bits.Len64(uint64(s.Smallest)); bin <= bits.Len64(uint64(s.Largest)); bin++ {
		end := uint64(1) << bin
		s.Histogram = append(s.Histogram, Bin{
			From: int64(end >> 1), To: int64(min(end, math.MaxInt64)), Samples: counts[bin],
		})
		if rank := s.Samples/2 - below; rank >= 0 && rank < counts[bin] {
			s.Median = sizeOfRank(n, size, bin, rank)
		}
		below += counts[bin]
	}
	return s
}

// sizeOfRank returns the size with this rank among the sizes of one bin.
func sizeOfRank(n int, size func(id int) int64, bin, rank int) int64 {
	var sizes []int64
	for id := range n {
		if v := size(id); v != Missing && bits.Len64(uint64(v)) == bin {
			sizes = append(sizes, v)
		}
	}
	slices.Sort(sizes)
	return sizes[rank]
}
