package stage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/staging"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// batch is a Batch in the making.
//
//	          begin              arrived, the last             sent
//	planned --------> fetching ---------------------> staged --------> sent
//	                   ^    |                           |
//	              begin|    | arrived, the last,        | discard
//	                   |    v and some have no room     v
//	                  parked ----------------------> discarded
//	                                discard
//
//	planned    The walker's, which lays it out: all fields.
//	fetching   Entry i of the columns, parts, spent and wants is that of the worker that brings sample i, from when it takes
//	           the task until the sample has arrived. What several workers may set is guarded by mu. The last arrival,
//	           the one that brings left to 0, sees all of that, sets what sums it up, and closes done.
//	staged     The publisher's, once done is closed: all samples are there, or err says which cannot be.
//	parked     The publisher's: all have arrived but those in parked, which have no room. It takes room for them, and has them
//	           brought again.
//	sent       The process's: what is in Batch, and the slots.
//	discarded  The end. The slots are given back, once no read that was given up may write to them (hung).
//
// A worker whose read was given up owns nothing any more: the watchdog has arrived in its place
// (GivenUp).
type batch struct {
	Batch
	state batchState

	o       *Options
	sizes   *sizes        // of the rank's results, where they differ
	staged  *atomic.Int64 // counts the rank's staged batches
	view    *access.Epoch
	ctx     context.Context
	request cache.Request
	order   int64 // the global step
	// occurs says per sample how often the epoch has it besides (access.Epoch.Occurrence), where
	// samples are preprocessed; nil: never.
	occurs []int32

	parts  []part
	spent  []time.Duration // by preprocessing: per sample, per step
	wants  []int64         // where results differ in size, per sample: how many bytes it lacked
	left   atomic.Int32    // samples that have not arrived
	latest atomic.Int32    // the sample that was the last to be brought, plus 1; 0: none had to be
	done   chan struct{}   // closed when left gets to 0
	// What was read from the source and is not charged yet.
	sourceSamples, sourceBytes atomic.Int64
	// hung are the reads that were given up and may still write to the batch's room.
	hung sync.WaitGroup

	mu      sync.Mutex // guards the following while samples are fetched
	err     error
	failed  int // the sample that err is about
	leftOut bool
	extraID []uint32
	extras  []staging.Extra
	missing uint64 // set hash of the samples that were left out, less that of those that stand in
	slab    slab   // where results differ in size: room for them
	parked  []int  // samples that have none

	roomWait time.Duration // the wait for room in the buffer
	planned  time.Time
	ready    time.Time // when the last sample arrived
}

// part is what a batch knows of one of its samples.
type part struct {
	room    []byte      // its part of the staging buffer; nil: it lies in a class, or has none yet
	bytes   int64       // of it, as it was read
	from    cache.Place // where it was found
	slow    bool        // preprocessing took longer than fetching
	skipped bool
}

type batchState uint8

const (
	planned batchState = iota
	fetching
	staged
	parked
	sent
	discarded
)

func (s batchState) String() string {
	return [...]string{"planned", "fetching", "staged", "parked", "sent", "discarded"}[s]
}

// follows reports whether a batch may come from a state to the next.
func (s batchState) follows(from batchState) bool {
	switch s {
	case fetching:
		return from == planned || from == parked
	case staged, parked:
		return from == fetching
	case sent:
		return from == staged
	case discarded:
		return from == staged || from == parked
	}
	return false
}

func (b *batch) to(next batchState) {
	if invariants.Enabled {
		invariants.Check(next.follows(b.state), "batch %d of epoch %d: from %v to %v", b.Step,
			b.Epoch, b.state, next)
	}
	b.state = next
}

// begin says that so many samples are to arrive from now on.
func (b *batch) begin(samples int) {
	b.to(fetching)
	b.left.Store(int32(samples))
	b.done = make(chan struct{})
}

// arrived counts one sample; the last one ends the fetching.
func (b *batch) arrived() {
	if b.left.Add(-1) > 0 {
		return
	}
	b.ready = time.Now()
	b.trim()
	b.o.Ledger.sourceReads(b.Epoch,
		stats.Amount{Samples: b.sourceSamples.Swap(0), Bytes: b.sourceBytes.Swap(0)})
	if len(b.parked) > 0 {
		b.to(parked)
	} else {
		b.to(staged)
		b.staged.Add(1)
	}
	close(b.done)
}

// trim gives back what the batch has reserved in vain, once nothing more goes there.
func (b *batch) trim() {
	if b.slab.slot.Data != nil {
		b.o.Buffer.Trim(b.slab.slot.ID, b.slab.used)
		b.slab = slab{}
	}
}

// setInPlace notes that position i of the batch is the sample id, which lies in a class.
func (b *batch) setInPlace(i, id int, at cache.Located) {
	b.Segments[i], b.Offsets[i] = ClassSegment(at.Class), uint64(at.Offset)
	b.set(i, id, at.Place())
}

// set notes that position i of the batch is the sample id, which was found there.
func (b *batch) set(i, id int, from cache.Place) {
	index := b.o.Cache.Index()
	size := index.Size(id)
	b.IDs[i], b.Labels[i], b.Lengths[i] = uint32(id), int64(index.Label(id)), uint64(size)
	b.parts[i].from, b.parts[i].bytes = from, size
}

// fail notes that the batch cannot be delivered, because of sample i. The first one by position
// counts, not by time: it is the same in every run.
func (b *batch) fail(i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || i < b.failed {
		b.err, b.failed = err, i
	}
}

// GivenUp is cache.Consumer's.
func (b *batch) GivenUp(err error) {
	b.hung.Add(1)
	b.fail(len(b.IDs), err) // what failed by itself comes first
	b.arrived()
}

// correctAudit takes notice that the batch has other samples than the stream says.
func (b *batch) correctAudit(difference uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Audit += difference
	b.missing -= difference
}

// skip leaves a sample out.
func (b *batch) skip(i int) {
	b.parts[i].skipped = true
	b.mu.Lock()
	b.leftOut = true
	b.mu.Unlock()
}

// addSlot takes notice of a slot that was taken for a sample after the layout.
func (b *batch) addSlot(slot staging.Slot, extra *staging.Extra) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extraID = append(b.extraID, slot.ID)
	if extra != nil {
		b.extras = append(b.extras, *extra)
	}
}

// compact takes skipped samples out of the columns. What lies sample by sample, as one tensor,
// stays so.
func (b *batch) compact() {
	if !b.leftOut {
		return
	}
	n := 0
	for i := range b.parts {
		if b.parts[i].skipped {
			continue
		}
		if !b.o.inOnePiece() {
			b.Offsets[n] = b.Offsets[i]
		} else if n < i {
			copy(b.parts[n].room, b.parts[i].room)
		}
		b.Labels[n], b.Lengths[n] = b.Labels[i], b.Lengths[i]
		b.IDs[n], b.Segments[n] = b.IDs[i], b.Segments[i]
		n++
	}
	b.Labels, b.Offsets, b.Lengths = b.Labels[:n], b.Offsets[:n], b.Lengths[:n]
	b.IDs, b.Segments = b.IDs[:n], b.Segments[:n]
}

// delivery is what the ledger has to know of a batch that goes to the process.
func (b *batch) delivery() delivery {
	d := delivery{
		epoch: b.Epoch, step: b.Step, missing: b.missing,
		planned: b.planned, ready: b.ready, roomWait: b.roomWait, reads: b.o.Ledger.noReads(),
	}
	for i := range b.parts {
		if p := &b.parts[i]; !p.skipped {
			d.reads[p.from].Add(stats.Amount{Samples: 1, Bytes: p.bytes})
			d.samples++
		}
	}
	if i := int(b.latest.Load()) - 1; i >= 0 {
		d.fetched, d.last, d.slow = true, b.parts[i].from, b.parts[i].slow
	}
	if d.slow {
		steps := len(b.spent) / len(b.parts)
		d.spent = make([]time.Duration, steps)
		for i, t := range b.spent {
			d.spent[i%steps] += t
		}
	}
	return d
}
