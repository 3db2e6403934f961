package order

import (
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

// need is what a job reads of its dataset.
type need struct {
	// bytes is the total size of the samples that the job reads, each counted once; if epochs are
	// given, of those in the first one.
	bytes     int64
	mean      float64 // mean size of a sample, weighted by how often it is read
	positions int     // samples of an epoch before padding or truncation

	mu     sync.Mutex // guards the following, which describes epochs that differ in what they read
	begun  map[int]bool
	epochs []plan.Demand
	seen   []uint64 // a bit for each sample that some epoch begun so far needs
}

func needOf(o *request.Order, index *source.Index, stream *access.Stream) *need {
	ids := o.Subset
	if len(o.Epochs) > 0 {
		ids = o.Epochs[0]
	}
	n := &need{bytes: index.Bytes(), positions: index.Len(), begun: make(map[int]bool)}
	n.mean = float64(n.bytes) / float64(n.positions)
	if mix := stream.Spec().Mixture; mix != nil {
		n.ofMix(mix, index, stream)
		return n
	}
	if ids == nil {
		return n
	}
	var all int64
	for _, k := range ids {
		all += index.Size(int(k))
	}
	n.bytes = newBytes(ids, make([]uint64, index.Len()/64+1), index.Size)
	n.positions, n.mean = len(ids), float64(all)/float64(len(ids))
	return n
}

// ofMix sets what a job reads of several datasets: all of those that ever have a weight. The mean
// is that of the first epoch.
func (n *need) ofMix(mix *request.Mix, index *source.Index, stream *access.Stream) {
	counts, id := stream.Mixed(0), 0
	n.bytes, n.mean = 0, 0
	n.positions = mix.Entries
	for d, size := range mix.Sizes {
		var bytes int64
		for range size {
			if stream.Has(id) {
				bytes += index.Size(id)
			}
			id++
		}
		n.bytes += bytes
		n.mean += float64(bytes) / float64(size) * float64(counts[d]) / float64(mix.Entries)
	}
}

// newBytes returns the total size of the samples whose bits in seen are not set, and sets these.
func newBytes(ids []int32, seen []uint64, size func(int) int64) (sum int64) {
	for _, k := range ids {
		if bit := uint64(1) << (k % 64); seen[k/64]&bit == 0 {
			seen[k/64] |= bit
			sum += size(int(k))
		}
	}
	return sum
}

// Demands returns the demands of the epochs begun so far, in order, if epochs differ in what they
// read: they are given, or of a mix.
func (o *Order) Demands() []plan.Demand {
	n := o.need
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.epochs)
}

// GoesOn records that a process is in an epoch, which it began at a step. Earlier epochs are then
// over, unless other ranks may still be in them (Turns).
func (o *Order) GoesOn(epoch, from int) {
	if !o.stream.Varies() {
		return
	}
	if o.turns == nil {
		o.stream.Forget(epoch)
	}
	e := o.Epoch(epoch)
	n, index := o.need, o.index
	n.mu.Lock()
	defer n.mu.Unlock()
	if e == nil || n.begun[epoch] {
		return
	}
	n.begun[epoch] = true
	if n.seen == nil {
		n.seen = make([]uint64, index.Len()/64+1)
	}
	var d plan.Demand
	var ids []int32
	once := make([]uint64, len(n.seen))
	for step := from; step < o.stream.Steps(); step++ {
		ids = e.Global(ids[:0], step)
		d.Bytes += newBytes(ids, once, index.Size)
		d.New += newBytes(ids, n.seen, index.Size)
	}
	n.epochs = append(n.epochs, d)
}

// Needed reduces each class to the samples that known epochs need, if epochs are given. Other
// samples may never be read, so they are kept if they are, but not read ahead.
func (o *Order) Needed(classes [][]int32) [][]int32 {
	known := o.stream.GivenEpochs()
	if !o.Given() {
		return classes
	}
	var epochs []*access.Epoch
	for _, e := range known {
		if epoch := o.stream.Epoch(e); epoch != nil { // not dropped meanwhile
			epochs = append(epochs, epoch)
		}
	}
	out := make([][]int32, len(classes))
	for i, ids := range classes {
		for _, k := range ids {
			if slices.ContainsFunc(epochs, func(e *access.Epoch) bool { return e.Has(int(k)) }) {
				out[i] = append(out[i], k)
			}
		}
	}
	return out
}

// Memory estimates how many bytes the orders that have not been given yet may take, with their
// lookup tables. Orders that came with OPEN exist already. transformed is set if samples are
// transformed: random transforms distinguish the occurrences of a sample.
func (o *Order) Memory(transformed bool) int64 {
	spec := o.stream.Spec()
	const perEntry = 4
	if o.stream.Order() != nil { // the epoch before, its places and its samples, and their table
		return keptEpochs * perEntry * (3*int64(o.stream.Delivered()) + int64(o.index.Len()))
	}
	if !o.stream.Varies() && spec.Subset == nil {
		return 0
	}
	samples, positions := int64(o.index.Len()), int64(o.need.positions)
	tables := samples / 8                  // a bit for each sample
	if transformed && o.stream.Repeats() { // positions of each occurrence
		tables += perEntry * (samples + positions)
	}
	if spec.Subset != nil {
		return keptEpochs * tables
	}
	if spec.Mixture != nil {
		return keptEpochs * (tables + perEntry*positions)
	}
	return int64(o.held-len(o.stream.GivenEpochs()))*perEntry*positions + int64(o.held)*tables
}

// Bytes returns the total size of the samples that the job reads, each counted once; if epochs are
// given, of those in the first one.
func (o *Order) Bytes() int64 { return o.need.bytes }

// Mean returns the mean size of a sample in bytes, weighted by how often it is read.
func (o *Order) Mean() float64 { return o.need.mean }

// Positions returns the number of samples in an epoch before padding or truncation.
func (o *Order) Positions() int { return o.need.positions }
