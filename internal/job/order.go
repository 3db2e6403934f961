package job

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/request"
)

// leastHeld is how many epochs may have been given and not be over, unless more come with OPEN: the one that runs, the next one, and
// some that a process has gone back from, or gives ahead of its jump.
const leastHeld = 4

// makeStream makes the job's access stream.
func (j *Job) makeStream() (err error) {
	m, o, samples := &j.message, j.order, j.dataset.Index().Len()
	if j.parts != nil {
		if j.stream, err = access.NewGivenShared(samples, m.WorldSize, o.Part.Batch, o.Part.Entries, 0); err == nil {
			err = j.stream.Give(o.First, o.Epochs[0])
		}
	} else if o.Batches != nil {
		j.stream, err = access.NewGiven(samples, o.Batches, m.Stream.Epochs)
		if given := m.Stream.Given; err == nil && j.stream.Delivered() != given.Entries {
			return failure.Input("stream.given.entries = %d: its batches have %d samples", given.Entries, j.stream.Delivered())
		}
		for i, ids := range o.Epochs {
			if err == nil {
				err = j.stream.Give(o.First+i, ids)
			}
		}
	} else {
		j.stream, err = access.New(access.Spec{
			Samples: samples, Seed: j.seed, Epochs: m.Stream.Epochs,
			WorldSize: m.WorldSize, GlobalBatch: m.Stream.GlobalBatch, DropLast: m.Stream.DropLast,
			Shuffle: access.Shuffle(m.Stream.Shuffle), Scheme: access.Scheme(m.Stream.Scheme), Tail: access.Tail(m.Stream.Tail),
			Subset: o.Subset,
		})
	}
	if err != nil {
		return failure.Input("%v", err)
	}
	if largest := min(j.stream.Spec().GlobalBatch, j.stream.Delivered()); largest > request.MaxBatch {
		return failure.Input("the global batch of %d samples (%d ranks) is larger than %d, the most that a batch may have: make batch_size smaller", largest, m.WorldSize, request.MaxBatch)
	}
	j.need = j.needOf(o)
	j.held = max(leastHeld, len(o.Epochs))
	j.order = o.Brief() // the stream has the lists
	return nil
}

// need is what a job reads of its dataset.
type need struct {
	bytes     int64   // of the samples that it needs at all, each once; of those of its first epoch, if epochs are given
	mean      float64 // bytes of a sample, as often as it is read
	positions int     // samples of an epoch, before it is padded or cut

	mu     sync.Mutex // guards what follows, of epochs that are given
	begun  map[int]bool
	epochs []placement.Demand
	seen   []uint64 // a bit per sample that an epoch begun has needed
}

func (j *Job) needOf(o *request.Order) *need {
	index := j.dataset.Index()
	ids := o.Subset
	if len(o.Epochs) > 0 {
		ids = o.Epochs[0]
	}
	n := &need{bytes: index.Bytes(), positions: index.Len(), begun: make(map[int]bool)}
	n.mean = float64(n.bytes) / float64(n.positions)
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

// newBytes adds up the samples whose bits are not set yet, and sets them.
func newBytes(ids []int32, seen []uint64, size func(int) int64) (sum int64) {
	for _, k := range ids {
		if bit := uint64(1) << (k % 64); seen[k/64]&bit == 0 {
			seen[k/64] |= bit
			sum += size(int(k))
		}
	}
	return sum
}

// demands returns those of the epochs begun, in their order, if epochs are given.
func (n *need) demands() []placement.Demand {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.epochs)
}

// goesOn notes that the process is in an epoch, which it begins with a step: those before it are over, but for other ranks (parts).
func (j *Job) goesOn(epoch, from int) {
	j.epochNow.Store(int64(epoch))
	if j.stream.Spec().Shuffle != access.Given {
		return
	}
	if j.parts == nil {
		j.stream.Forget(epoch)
	}
	e := j.stream.Epoch(epoch)
	n, index := j.need, j.dataset.Index()
	n.mu.Lock()
	defer n.mu.Unlock()
	if e == nil || n.begun[epoch] {
		return
	}
	n.begun[epoch] = true
	if n.seen == nil {
		n.seen = make([]uint64, index.Len()/64+1)
	}
	var d placement.Demand
	var ids []int32
	once := make([]uint64, len(n.seen))
	for step := from; step < j.stream.Steps(); step++ {
		ids = e.Global(ids[:0], step)
		d.Bytes += newBytes(ids, once, index.Size)
		d.New += newBytes(ids, n.seen, index.Size)
	}
	n.epochs = append(n.epochs, d)
}

// needed leaves of each class what an epoch needs that is given: it is not known whether anything else will ever be read, and so it is kept
// when it is, and not read ahead.
func (j *Job) needed(classes [][]int32) [][]int32 {
	known := j.stream.GivenEpochs()
	if j.stream.Spec().Shuffle != access.Given {
		return classes
	}
	var epochs []*access.Epoch
	for _, e := range known {
		if epoch := j.stream.Epoch(e); epoch != nil { // not forgotten meanwhile
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

// orderMemory is how many bytes orders may still take that are yet to be given, and what is looked up in them: what came with OPEN is there.
func (j *Job) orderMemory() int64 {
	spec := j.stream.Spec()
	if spec.Shuffle != access.Given && spec.Subset == nil {
		return 0
	}
	const perEntry = 4
	samples, positions := int64(j.dataset.Index().Len()), int64(j.need.positions)
	tables := samples / 8                       // a bit per sample
	if j.program != nil && j.stream.Repeats() { // and, to tell one occurrence of a sample from another, where each one is
		tables += perEntry * (samples + positions)
	}
	if spec.Subset != nil {
		return keptEpochs * tables
	}
	return int64(j.held-len(j.stream.GivenEpochs()))*perEntry*positions + int64(j.held)*tables
}

// Give adds the order of an epoch, which lies in the file; the file stays the caller's.
func (r *Rank) Give(m request.Give, file *os.File) error {
	j := r.job
	what := fmt.Sprintf("the order of epoch %d", m.Epoch)
	if j.stream.Spec().Shuffle != access.Given {
		return failure.Input("%s is given, but the orders of this job are drawn: stream.shuffle is %q", what, j.stream.Spec().Shuffle)
	}
	if m.Epoch < 0 || m.Epoch > request.MaxEpoch {
		return failure.Input("%s is given: epochs are 0 to %d", what, request.MaxEpoch)
	}
	if j.parts != nil {
		return r.givePart(m, what, file)
	}
	if held := j.stream.GivenEpochs(); len(held) >= j.held && !slices.Contains(held, m.Epoch) {
		return failure.Input("%s is given, while those of epochs %v are known and not over: at most %d may be, so give it later", what, held, j.held)
	}
	if n := j.stream.Delivered(); m.Entries != n {
		return failure.Input("%s has %d samples; the batches of an epoch have %d", what, m.Entries, n)
	}
	ids, err := request.ReadSamples(file, what, m.Entries, nil) // the job has claimed the memory
	if err != nil {
		return err
	}
	if err := j.stream.Give(m.Epoch, ids); err != nil {
		return failure.Input("%v", err)
	}
	notify(r.news)
	return nil
}

// givePart adds this rank's part of an epoch. That it has another length than those before the other ranks hear as well.
func (r *Rank) givePart(m request.Give, what string, file *os.File) error {
	j := r.job
	mine := &request.Part{Rank: r.rank, Epoch: m.Epoch, Batch: j.order.Part.Batch, Entries: m.Entries, Apart: printable.Text(m.Apart)}
	if mine.Apart != "" {
		j.book.Leave(r.rank) // it is through with no epoch any more
		return j.parts.give(mine)
	}
	var admit request.Admit
	if m.Entries > j.stream.RankSamples(r.rank) { // else the job has claimed the memory
		admit = j.node.checkRoom
	}
	var err error
	if mine.IDs, err = request.ReadSamples(file, what, m.Entries, admit); err != nil {
		return err
	}
	samples := j.dataset.Index().Len()
	for i, k := range mine.IDs {
		if k < 0 || int(k) >= samples {
			return failure.Input("epoch %d is given with sample %d at index %d; allowed: 0 to %d", m.Epoch, k, i, samples-1)
		}
	}
	return j.parts.give(mine)
}
