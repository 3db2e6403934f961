package job

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// order is what a process says of its stream beside parameters: a part of the dataset, or the orders of epochs. The zero value: nothing.
type order struct {
	part    *part // of an epoch that the ranks of several nodes give together
	subset  []int32
	batches []int32 // of each epoch that is given
	first   int     // the first epoch that was given with OPEN
	epochs  [][]int32
	digest  string // of what the ranks of a job must agree on
}

// leastHeld is how many epochs may have been given and not be over, unless more come with OPEN: the one that runs, the next one, and
// some that a process has gone back from, or gives ahead of its jump.
const leastHeld = 4

// readOrder reads the list that came with OPEN.
func (n *Node) readOrder(m *protocol.OpenMessage) (*order, error) {
	stream := &m.Stream
	if given := access.Shuffle(stream.Shuffle) == access.Given; given != (stream.Given != nil) {
		return nil, badInput("stream.shuffle = %q: it is %q where the process gives the epochs' orders (stream.given), and else not", stream.Shuffle, access.Given)
	}
	switch {
	case stream.Subset != nil && stream.Given != nil:
		return nil, badInput("stream.subset and stream.given: at most one of them; orders that are given have samples of the dataset")
	case stream.Subset != nil:
		return n.readSubset(stream)
	case stream.Given != nil:
		switch {
		case spans(m):
			return n.readPart(m)
		case m.WorldSize != 1:
			return nil, badInput("stream.given: orders that the process gives are those of one rank, unless there are several nodes, and the world size is %d: give a DistributedSampler, or one process", m.WorldSize)
		}
		return n.readGiven(stream)
	}
	return &order{digest: "none"}, nil
}

func (n *Node) readSubset(stream *protocol.StreamMessage) (*order, error) {
	l, err := openList(stream.List, "stream.subset", 1, stream.Subset.Count, 0)
	if err == nil {
		err = n.checkList(l)
	}
	if err != nil {
		return nil, err
	}
	o := &order{}
	if o.subset, err = l.read(stream.Subset.Count); err != nil {
		return nil, err
	}
	o.digest = fmt.Sprintf("%d samples with the digest %s", len(o.subset), digestOf(o.subset))
	return o, nil
}

func (n *Node) readGiven(stream *protocol.StreamMessage) (*order, error) {
	g := stream.Given
	switch {
	case g.Batches < 1 || g.Batches > protocol.MaxList:
		return nil, badInput("stream.given.batches = %d: an epoch has 1 to %d batches", g.Batches, protocol.MaxList)
	case g.First < 0 || g.First > maxEpoch || g.Epochs > maxEpoch:
		return nil, badInput("stream.given.first = %d, epochs = %d: epochs are 0 to %d", g.First, g.Epochs, maxEpoch)
	}
	l, err := openList(stream.List, "stream.given", g.Epochs, g.Entries, g.Batches)
	if err == nil {
		err = n.checkList(l)
	}
	if err != nil {
		return nil, err
	}
	o := &order{first: g.First}
	if o.batches, err = l.read(g.Batches); err != nil {
		return nil, err
	}
	for range g.Epochs {
		ids, err := l.read(g.Entries)
		if err != nil {
			return nil, err
		}
		o.epochs = append(o.epochs, ids)
	}
	o.digest = fmt.Sprintf("%d batches with the digest %s", len(o.batches), digestOf(o.batches))
	return o, nil
}

// maxEpoch is the largest epoch that may be given: frames count them in 32 bits.
const maxEpoch = 1<<31 - 1

// digestOf is what nodes compare instead of a list.
func digestOf(list []int32) string {
	h := sha256.New()
	var piece [4096]byte
	for part := range slices.Chunk(list, len(piece)/4) {
		for i, v := range part {
			binary.LittleEndian.PutUint32(piece[4*i:], uint32(v))
		}
		h.Write(piece[:4*len(part)])
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// list reads 32-bit numbers from a descriptor that a process passed, which may be anything.
type list struct {
	file *os.File
	what string // brought it
	at   int64
	need int64 // bytes of it that are to be read
	size int64
}

// openList looks at a descriptor that is to hold `rows` times `entries` numbers after `before` of them.
// It must be in memory: a read of it neither blocks nor fails then, and never waits for somebody else's file system.
func openList(file *os.File, what string, rows, entries, before int) (*list, error) {
	if rows < 1 || rows > protocol.MaxList || entries < 1 || entries > protocol.MaxList || rows*entries > protocol.MaxList {
		return nil, badInput("%s: %d epoch(s) of %d samples; allowed: at least 1, and at most %d samples in all", what, rows, entries, protocol.MaxList)
	}
	if file == nil {
		return nil, fmt.Errorf("%w: %s came without its descriptor", protocol.ErrProtocol, what)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, badInput("%s: its descriptor cannot be used: %v", what, err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, badInput("%s: its descriptor is no memfd: pass one made by memfd_create", what)
	}
	l := &list{file: file, what: what, size: st.Size, need: 4 * (int64(before) + int64(rows)*int64(entries))}
	if st.Size < l.need {
		return nil, l.short(l.need)
	}
	return l, nil
}

// checkList refuses a list that the memory has no room for.
func (n *Node) checkList(l *list) error {
	return n.checkRoom(l.need, l.what+": the list of samples", "give a shorter one")
}

func (l *list) short(need int64) error {
	return badInput("%s: its descriptor has %d bytes, and %d are needed: 4 for each entry", l.what, l.size, need)
}

// read reads the next entries, a piece at a time. Nothing is mapped, so that it does not matter if the process makes the file shorter
// meanwhile.
func (l *list) read(entries int) ([]int32, error) {
	out := make([]int32, 0, entries)
	piece := make([]byte, min(4*entries, 1<<20))
	for len(out) < entries {
		part := piece[:min(len(piece), 4*(entries-len(out)))]
		n, err := l.file.ReadAt(part, l.at)
		l.at += int64(n)
		switch {
		case errors.Is(err, io.EOF) && n < len(part):
			l.size = l.at
			return nil, l.short(l.at + int64(4*(entries-len(out))-n))
		case err != nil && n < len(part):
			return nil, badInput("%s: its descriptor cannot be read: %v", l.what, err)
		}
		for ; len(part) > 0; part = part[4:] {
			out = append(out, int32(binary.LittleEndian.Uint32(part)))
		}
	}
	return out, nil
}

// makeStream makes the job's access stream.
func (j *Job) makeStream() (err error) {
	m, o, samples := &j.message, j.order, j.dataset.Index().Len()
	if j.parts != nil {
		if j.stream, err = access.NewGivenShared(samples, m.WorldSize, o.part.Batch, o.part.Entries, 0); err == nil {
			err = j.stream.Give(o.first, o.epochs[0])
		}
	} else if o.batches != nil {
		j.stream, err = access.NewGiven(samples, o.batches, m.Stream.Epochs)
		if given := m.Stream.Given; err == nil && j.stream.Delivered() != given.Entries {
			return badInput("stream.given.entries = %d: its batches have %d samples", given.Entries, j.stream.Delivered())
		}
		for i, ids := range o.epochs {
			if err == nil {
				err = j.stream.Give(o.first+i, ids)
			}
		}
	} else {
		j.stream, err = access.New(access.Spec{
			Samples: samples, Seed: *m.Stream.Seed, Epochs: m.Stream.Epochs,
			WorldSize: m.WorldSize, GlobalBatch: m.Stream.GlobalBatch, DropLast: m.Stream.DropLast,
			Shuffle: access.Shuffle(m.Stream.Shuffle), Scheme: access.Scheme(m.Stream.Scheme), Tail: access.Tail(m.Stream.Tail),
			Subset: o.subset,
		})
	}
	if err != nil {
		return badInput("%v", err)
	}
	if largest := min(j.stream.Spec().GlobalBatch, j.stream.Delivered()); largest > protocol.MaxBatch {
		return badInput("the global batch of %d samples (%d ranks) is larger than %d, the most that a batch may have: make batch_size smaller", largest, m.WorldSize, protocol.MaxBatch)
	}
	j.need = j.needOf(o)
	j.held = max(leastHeld, len(o.epochs))
	o.batches, o.epochs = nil, nil // the stream has them
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

func (j *Job) needOf(o *order) *need {
	index := j.dataset.Index()
	ids := o.subset
	if len(o.epochs) > 0 {
		ids = o.epochs[0]
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
func (r *Rank) Give(m protocol.GiveMessage, file *os.File) error {
	j := r.job
	what := fmt.Sprintf("the order of epoch %d", m.Epoch)
	if j.stream.Spec().Shuffle != access.Given {
		return badInput("%s is given, but the orders of this job are drawn: stream.shuffle is %q", what, j.stream.Spec().Shuffle)
	}
	if m.Epoch < 0 || m.Epoch > maxEpoch {
		return badInput("%s is given: epochs are 0 to %d", what, maxEpoch)
	}
	if j.parts != nil {
		return r.givePart(m, what, file)
	}
	if held := j.stream.GivenEpochs(); len(held) >= j.held && !slices.Contains(held, m.Epoch) {
		return badInput("%s is given, while those of epochs %v are known and not over: at most %d may be, so give it later", what, held, j.held)
	}
	if n := j.stream.Delivered(); m.Entries != n {
		return badInput("%s has %d samples; the batches of an epoch have %d", what, m.Entries, n)
	}
	l, err := openList(file, what, 1, m.Entries, 0) // the job has claimed the memory
	if err != nil {
		return err
	}
	ids, err := l.read(m.Entries)
	if err != nil {
		return err
	}
	if err := j.stream.Give(m.Epoch, ids); err != nil {
		return badInput("%v", err)
	}
	notify(r.news)
	return nil
}
