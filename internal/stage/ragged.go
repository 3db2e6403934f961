package prefetch

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/staging"
)

// Results of different sizes. The size of a sample's result is known once its header has been read, which is when it is preprocessed; its
// batch takes room before, in the order of the stream. So a batch reserves what its samples are expected to take, each takes a
// part of that when it knows how much, and what is left over goes back to the ring. A sample that finds no room takes some of the ring
// that is free at the time; if there is none it is parked: it is brought again, into room that is taken then, when its batch is the one that
// the process gets next.
//
// No worker ever waits for room, so none is kept from samples of other ranks, which this one may be waiting for. And the
// memory is bounded as it is for results of one size: the ring, and one batch in an extra segment if the process waits for it.
// Rejected: to read headers first, which is a second read from the source; and a part of the ring for each sample when it
// is there, in whatever order, of which the batch that is needed first might get none.

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

// inOnePiece reports whether the samples of a batch lie one after the other, as one tensor.
func (s *Stager) inOnePiece() bool { return s.o.Preprocessor != nil && s.o.Preprocessor.Size() > 0 }

// ragged reports whether results differ in size.
func (s *Stager) ragged() bool { return s.o.Preprocessor != nil && s.o.Preprocessor.Size() == 0 }

// layOutRagged is layOut for results of different sizes.
func (s *Stager) layOutRagged(ctx context.Context, b *batch) (tasks []task, err error) {
	for i := range b.IDs {
		tasks = append(tasks, task{order: b.order, batch: b, index: i})
	}
	if len(tasks) == 0 {
		return nil, nil
	}
	b.wants = make([]int64, len(tasks))
	need, known := s.sizes.expect(len(tasks))
	if !known {
		for _, id := range b.IDs {
			need += s.o.Preprocessor.Expected(s.o.Cache.index.Size(int(id)))
		}
		need += need / 4
	}
	_, ring := s.o.Buffer.Ring()
	start := time.Now()
	slot, extra, err := s.o.Buffer.Alloc(ctx, min(need, ring/2))
	if err != nil {
		return nil, err
	}
	b.roomWait = time.Since(start)
	b.slab = slab{slot: slot}
	b.Slots = append(b.Slots, slot.ID)
	if extra != nil {
		b.Extras = append(b.Extras, *extra)
	}
	return tasks, nil
}

// place returns where the result of sample i goes, which has so many bytes; errParked if there is no room. It is asked again where a result
// is made in another way.
func (b *batch) place(i, size int) ([]byte, error) {
	if b.stager.inOnePiece() || len(b.room[i]) == size {
		return b.room[i], nil
	}
	b.stager.sizes.add(size)
	b.mu.Lock()
	defer b.mu.Unlock()
	from := &b.slab
	part := from.take(size)
	if part == nil {
		slot, ok := b.stager.o.Buffer.TryAlloc(int64(size))
		if !ok {
			b.wants[i] += whole(size)
			b.parked = append(b.parked, i)
			return nil, errParked
		}
		b.extraID = append(b.extraID, slot.ID)
		from = &slab{slot: slot}
		part = from.take(size)
	}
	b.room[i] = part
	b.Segments[i], b.Offsets[i] = from.slot.Segment, uint64(from.slot.Offset+from.used-whole(size))
	return part, nil
}

// trim gives back what the batch has reserved in vain, once nothing more goes there.
func (b *batch) trim() {
	if b.slab.slot.Data != nil {
		b.stager.o.Buffer.Trim(b.slab.slot.ID, b.slab.used)
		b.slab = slab{}
	}
}

// complete waits until all samples of the next batch are there, and takes room for those that are parked.
func (s *Stager) complete(ctx context.Context, b *batch) error {
	for {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if b.err != nil || len(b.parked) == 0 {
			return b.err
		}
		if err := s.unpark(ctx, b); err != nil {
			return err
		}
	}
}

// unpark brings the parked samples of a batch whose other samples are there.
func (s *Stager) unpark(ctx context.Context, b *batch) error {
	var need int64
	tasks := make([]task, len(b.parked))
	for n, i := range b.parked {
		need += b.wants[i]
		tasks[n] = task{order: b.order, batch: b, index: i}
	}
	s.lack(true)
	defer s.lack(false)
	start := time.Now()
	slot, extra, err := s.o.Buffer.AllocFirst(ctx, need)
	if err != nil {
		return err
	}
	b.roomWait += time.Since(start)
	b.extraID = append(b.extraID, slot.ID)
	if extra != nil {
		b.extras = append(b.extras, *extra)
	}
	b.slab, b.parked = slab{slot: slot}, nil
	b.done = make(chan struct{})
	b.left.Store(int32(len(tasks)))
	s.o.Cache.pool.submit(tasks)
	return nil
}

// lack says whether the next batch waits for room, so that nothing comes to the process unless it gets some.
func (s *Stager) lack(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking = yes
	s.urge()
}

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

// expect is what so many results take all but surely: three standard deviations more than on average.
func (s *sizes) expect(samples int) (bytes int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n < fewSizes {
		return 0, false
	}
	n := float64(samples)
	return int64(n*(s.mean+8) + 3*math.Sqrt(n*s.squares/float64(s.n-1))), true
}
