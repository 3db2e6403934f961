package stage

import (
	"errors"
	"math"
	"sync"

	"github.com/hdmlp/hdmlp/internal/staging"
)

// Results of different sizes. The size of a sample's result is known once its header has been read,
// which is when it is preprocessed; its batch takes room before, in the order of the stream. So a
// batch reserves what its samples are expected to take, each takes a part of that when it knows how
// much, and what is left over goes back to the ring. A sample that finds no room takes some of the
// ring that is free at the time; if there is none it is parked: it is brought again, into room that
// is taken then, when its batch is the one that the process gets next.
//
// No worker ever waits for room, so none is kept from samples of other ranks, which this one may be
// waiting for. And the memory is bounded as it is for results of one size: the ring, and one batch
// in an extra segment if the process waits for it. Rejected: to read headers first, which is a
// second read from the source; and a part of the ring for each sample when it is there, in whatever
// order, of which the batch that is needed first might get none.

// errParked is why a sample is not there yet: it has no room.
var errParked = errors.New("no room for the result yet")

// slab is room of a batch that its samples take parts of.
type slab struct {
	slot staging.Slot
	used int64 // bytes
}

// take takes a part of n bytes; nil: so much is not left.
func (s *slab) take(n int) []byte {
	if s.used+int64(n) > int64(len(s.slot.Data)) {
		return nil
	}
	part := s.slot.Data[s.used : s.used+int64(n) : s.used+int64(n)]
	s.used += whole(n)
	return part
}

// whole is how much of a slab a part of n bytes takes: parts begin at multiples of 8.
func whole(n int) int64 { return (int64(n) + 7) &^ 7 }

// sizes is what is known of how large results are. It is safe for concurrent use.
type sizes struct {
	mu            sync.Mutex
	n             int
	mean, squares float64 // of the results; sum of the squared differences from the mean (Welford)
}

// fewSizes is how many results say too little.
const fewSizes = 16

func (s *sizes) add(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	off := float64(bytes) - s.mean
	s.mean += off / float64(s.n)
	s.squares += off * (float64(bytes) - s.mean)
}

// expect is what so many results take all but surely: three standard deviations more than on
// average.
func (s *sizes) expect(samples int) (bytes int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n < fewSizes {
		return 0, false
	}
	n := float64(samples)
	return int64(n*(s.mean+8) + 3*math.Sqrt(n*s.squares/float64(s.n-1))), true
}
