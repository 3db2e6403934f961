package stage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// batch is a Batch that is being staged.
//
//	          begin              arrived, the last             sent
//	planned --------> fetching ---------------------> staged --------> sent
//	                   ^    |                           |
//	              begin|    | arrived, the last,        | discard
//	                   |    v and some have no memory   v
//	                  parked ----------------------> discarded
//	                                discard
//
//	planned    All fields belong to the walker, which lays the batch out.
//	fetching   What the columns, dst, parts, spent and lefts have of sample i belongs to the
//	           worker that brings it, from when it takes the task until the sample has arrived.
//	           What several workers may set is guarded by mu. The last arrival, which brings left
//	           to 0, sees all of that, computes the totals, and closes done.
//	staged     Belongs to the publisher once done is closed: all samples are there, or err names
//	           one that cannot be.
//	parked     Belongs to the publisher: all samples have arrived except those in parked, for which
//	           there was no memory. It reserves memory for them, and has them brought again.
//	sent       The slots, and what Batch describes, belong to the process.
//	discarded  Final. The slots are freed once no read that was given up may write to them (hung).
//
// A worker whose read was given up owns nothing any more: the watchdog has counted its arrival
// (GivenUp).
type batch struct {
	Batch
	state batchState

	o       *Options
	stager  *Stager       // for due, left, reserve and what window.go has alone
	sizes   *sizes        // sizes of the rank's results, if they vary
	staged  *atomic.Int64 // number of the rank's staged batches
	view    *access.Epoch
	ctx     context.Context
	request cache.Request
	order   int64 // the global step

	parts  []part
	dst    [][]byte        // memory in the staging buffer; nil: it is in a class, or has none yet
	spent  []time.Duration // time of preprocessing, by sample and step
	lefts  []Left          // what is left to the process, by place: its Length is not 0
	left   atomic.Int32    // samples that have not arrived
	latest atomic.Int32    // the sample that was brought last, plus 1; 0: none had to be
	done   chan struct{}   // closed when left reaches 0
	// What was read from the source and is not accounted for yet, and the part of it that was read
	// directly.
	source, direct amount
	// later are tasks that wait until the process asks for the batch. They belong to the walker, and,
	// once the batch is queued, to what publishes batches.
	later []cache.Task
	// over and follows are guarded by stager.mu: whether all samples have arrived, and the next batch
	// of the same worker.
	over    bool
	follows *batch
	// hung counts the reads that were given up and may still write to the batch's memory.
	hung sync.WaitGroup

	mu      sync.Mutex // guards the following while samples are fetched
	err     error
	failed  int // the position of the sample that err is about
	leftOut bool
	leaves  int // results that are left to the process
	extraID []uint32
	chain   []cache.Task // of a worker's batch: samples to bring, one after another
	missing uint64       // set hash of the samples that were left out, minus that of their stand-ins
	slab    slab         // memory for results that vary in size, and for samples that were parked
	parked  []int        // positions of the samples for which there was no memory
	// The bytes that did not fit, by sample; nil: none was parked.
	wants []int64

	allocWait time.Duration // time spent waiting for memory in the buffer
	planned   time.Time
	ready     time.Time // when the last sample arrived
}

// part is the state of one sample of a batch.
type part struct {
	bytes   int64      // size of the sample as it was read
	from    cache.Tier // the tier in which it was found
	awaited cache.Tier // the tier that was waited for (cache.Sample.Awaited), if it was fetched
	slow    bool       // preprocessing took longer than fetching
	skipped bool
	absent  bool // it is delivered without its fields (Leave)
	counted bool // that the sample was left out or substituted (Samples)
}

// amount is a report.Amount that several workers add to.
type amount struct{ samples, bytes atomic.Int64 }

func (a *amount) add(bytes int64) {
	a.samples.Add(1)
	a.bytes.Add(bytes)
}

// take returns the amount, and resets it.
func (a *amount) take() report.Amount {
	return report.Amount{Samples: a.samples.Swap(0), Bytes: a.bytes.Swap(0)}
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

// follows reports whether state s may come after from.
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

// due returns when a sample of the batch is needed, in seconds from now: when the process needs the
// batch; but if threads that transform samples are the bottleneck, when they would have nothing
// else to do. If samples come later than that, batches do not: there are others to transform.
func (b *batch) due(now time.Time) float64 {
	due := b.stager.due(now, int(b.order))
	if p := b.stager.preprocessor; p != nil {
		due = max(due, p.Takes(int(b.stager.left.Load())))
	}
	return due
}

// begin starts the fetching of this many samples.
func (b *batch) begin(samples int) {
	b.to(fetching)
	b.left.Store(int32(samples))
	b.stager.left.Add(int64(samples))
	b.done = make(chan struct{})
}

// arrived counts the arrival of one sample. The last one ends the fetching.
func (b *batch) arrived() {
	b.stager.left.Add(-1)
	b.next()
	if b.left.Add(-1) > 0 {
		return
	}
	b.stager.ended(b)
	b.ready = time.Now()
	b.trim()
	b.o.Ledger.sourceReads(b.Epoch, b.source.take(), b.direct.take())
	if len(b.parked) > 0 {
		b.to(parked)
	} else {
		b.to(staged)
		b.staged.Add(1)
	}
	close(b.done)
}

// trim releases memory that the batch has reserved but not used. No more results may be added.
func (b *batch) trim() {
	if b.slab.slot.Data != nil {
		b.o.Buffer.Trim(b.slab.slot.ID, b.slab.used)
		b.slab = slab{}
	}
}

// setInPlace sets position i of the batch to sample id, which is in a class.
func (b *batch) setInPlace(i, id int, at cache.Located) {
	b.Segments[i], b.Offsets[i] = ClassSegment(at.Segment), uint64(at.Offset)
	b.set(i, id, at.Tier())
}

// set sets position i of the batch to sample id, which was found in tier from.
func (b *batch) set(i, id int, from cache.Tier) {
	index := b.o.Cache.Index()
	size := index.Size(id)
	b.IDs[i] = uint32(id)
	if b.Labels[i] = int64(id); index.Labelled() {
		b.Labels[i] = int64(index.Label(id))
	}
	if len(b.o.Outputs) == 0 {
		b.Lengths[i] = uint64(size)
	}
	b.parts[i].from, b.parts[i].bytes = from, size
}

// fail records that the batch cannot be delivered because of the sample at position i. The error at
// the first position is kept, not the first in time, so that it is the same in every run.
func (b *batch) fail(i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || i < b.failed {
		b.err, b.failed = err, i
	}
}

// GivenUp implements cache.Consumer.
func (b *batch) GivenUp(err error) {
	b.hung.Add(1)
	b.fail(len(b.IDs), err) // errors of samples take precedence
	b.arrived()
}

// correctAudit accounts for a difference between the batch and the stream.
func (b *batch) correctAudit(difference uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Audit += difference
	b.missing -= difference
}

// skip leaves out the sample at position i.
func (b *batch) skip(i int) {
	b.parts[i].skipped = true
	b.mu.Lock()
	b.leftOut = true
	b.mu.Unlock()
}

// addSlot adds a slot that was reserved by what the batch belongs to.
func (b *batch) addSlot(slot staging.Slot, extra *staging.Extra) {
	b.Slots = append(b.Slots, slot.ID)
	if extra != nil {
		b.Extras = append(b.Extras, *extra)
	}
}

// compact removes skipped samples from the columns. Results that form one tensor are moved
// together.
func (b *batch) compact() {
	if !b.leftOut {
		return
	}
	all, n := len(b.parts), 0
	for i := range b.parts {
		if b.parts[i].skipped {
			continue
		}
		b.Labels[n], b.IDs[n] = b.Labels[i], b.IDs[i]
		b.Occurrences[n] = b.Occurrences[i]
		n++
	}
	b.Labels, b.IDs = b.Labels[:n], b.IDs[:n]
	b.Occurrences = b.Occurrences[:n]
	to := 0 // over all outputs
	compacted := make([]uint64, 0, n*b.o.outputs())
	for o := range b.o.outputs() {
		tensor := len(b.o.Outputs) > 0 && b.o.Outputs[o].size() > 0
		first, offsets := to, b.Offsets[o*all:(o+1)*all]
		for i := range b.parts {
			if b.parts[i].skipped {
				continue
			}
			from := o*all + i
			offset := offsets[i]
			if tensor {
				// Those before it were moved to the beginning of the tensor.
				place := o*all + to - first
				if offset = offsets[to-first]; place < from {
					copy(b.dst[place], b.dst[from])
				}
			}
			b.Lengths[to], b.Segments[to] = b.Lengths[from], b.Segments[from]
			compacted = append(compacted, offset)
			to++
		}
	}
	b.Offsets = compacted
	b.Lengths, b.Segments = b.Lengths[:to], b.Segments[:to]
}

// listLeft lists what is left to the process, after compact.
func (b *batch) listLeft() {
	if b.leaves == 0 {
		return
	}
	n := uint32(0)
	for at := range b.lefts {
		if b.parts[at%len(b.parts)].skipped {
			continue
		}
		if left := b.lefts[at]; left.Length > 0 {
			left.Position = n
			b.Left = append(b.Left, left)
		}
		n++
	}
}

// unpack replaces the places of packed samples by those of their fields, after compact.
func (b *batch) unpack() {
	index := b.o.Cache.Index()
	k := len(index.Fields())
	if len(b.o.Outputs) > 0 {
		return
	}
	if k < 2 {
		for i := range b.IDs {
			if b.parts[i].absent { // then none was left out
				b.Lengths[i] = NoField
			}
		}
		return
	}
	n := len(b.IDs)
	offsets, lengths := make([]uint64, n*k), make([]uint64, n*k)
	segments := make([]uint32, n*k)
	var ranges []source.Range
	for i, id := range b.IDs {
		at := int64(0) // in the packed sample
		ranges = index.Ranges(ranges[:0], int(id))
		for f, r := range ranges {
			to := f*n + i
			lengths[to], segments[to] = NoField, b.Segments[i]
			if r.Length == source.Missing || b.parts[i].absent {
				continue
			}
			at = aligned(at, source.Align)
			offsets[to], lengths[to] = b.Offsets[i]+uint64(at), uint64(r.Length)
			at += r.Length
		}
	}
	b.Offsets, b.Lengths = offsets, lengths
	b.Segments = segments
}

// delivery returns what the ledger needs to know of a batch that is sent.
func (b *batch) delivery() delivery {
	d := delivery{
		epoch: b.Epoch, step: b.Step, missing: b.missing,
		planned: b.planned, ready: b.ready, allocWait: b.allocWait, reads: b.o.Ledger.noReads(),
	}
	for i := range b.parts {
		p := &b.parts[i]
		if p.skipped {
			continue
		}
		d.samples++
		if !p.absent {
			d.reads[p.from].Add(report.Amount{Samples: 1, Bytes: p.bytes})
		}
	}
	if i := int(b.latest.Load()) - 1; i >= 0 {
		d.fetched = true
		d.last = b.parts[i].awaited
		d.slow = b.parts[i].slow
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
