package stage

import (
	"errors"
	"math"
	"sync"

	"github.com/hdmlp/hdmlp/internal/engine/staging"
)

// Results of different sizes. The size of a result is known once the sample's header has been read,
// when it is preprocessed, but its batch reserves memory earlier, in the order of the stream. So a
// batch reserves what its results are expected to take, each result takes a part of that once its
// size is known, and the rest is released to the ring. A result that does not fit takes free memory
// of the ring; if there is none, its sample is parked: it is brought again, into memory reserved
// then, when its batch is the next one for the process.
//
// No worker ever waits for memory, so none is blocked for samples of other ranks, for which this
// rank may be waiting. And memory is bounded as for results of one size: the ring, and one batch in
// an extra segment if the process waits for it. Rejected: reading the headers first, which reads
// each sample from the source twice; and allocating each result when it is ready, in any order,
// which may leave no memory for the batch that is needed first.
//
// The same holds for samples that are not transformed, and turn out to need memory after their
// batch was laid out: because their storage class cannot take them any more, or because a larger
// sample stands in for one that cannot be read. Memory is short for the class when it is for all,
// and a segment for each of the samples of all batches in progress would be more than a process may
// map.

// errParked reports that there was no memory for a result, or a sample.
var errParked = errors.New("no memory for the result yet")

// slab is memory of a batch of which its results take parts.
type slab struct {
	slot  staging.Slot
	used  int64 // bytes
	align int64 // parts begin at multiples of it
}

// take returns a part of n bytes; nil: there is not enough left.
func (s *slab) take(n int) []byte {
	if s.used+int64(n) > int64(len(s.slot.Data)) {
		return nil
	}
	part := s.slot.Data[s.used : s.used+int64(n) : s.used+int64(n)]
	s.used = aligned(s.used+int64(n), s.align)
	return part
}

// aligned returns the next multiple of align, a power of 2.
func aligned(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }

// sizes estimates the sizes of results. It is safe for concurrent use.
type sizes struct {
	mu            sync.Mutex // guards the following
	n             int
	mean, squares float64 // mean, and sum of squared differences from it (Welford)
}

// minSizes is the least number of results for an estimate.
const minSizes = 16

func (s *sizes) add(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	off := float64(bytes) - s.mean
	s.mean += off / float64(s.n)
	s.squares += off * (float64(bytes) - s.mean)
}

// expect returns how many bytes this number of results, which begin at multiples of align, almost
// certainly fits in: three standard deviations more than the mean.
func (s *sizes) expect(results int, align int64) (bytes int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n < minSizes {
		return 0, false
	}
	n := float64(results)
	return int64(n*(s.mean+float64(align)) + 3*math.Sqrt(n*s.squares/float64(s.n-1))), true
}
