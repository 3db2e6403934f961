package job

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/catalog"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/preprocess"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// Job is one training job on this node: its ranks are the processes that opened
// it under the same name with the same parameters.
type Job struct {
	node *Node
	log  *slog.Logger

	// Immutable once ready is closed.
	ready        chan struct{}
	err          error
	message      protocol.OpenMessage // of the rank that made the job
	cfg          *config.Config
	dataset      *catalog.Dataset
	stream       *access.Stream
	room         int64 // bytes that the classes of all nodes have for the dataset
	cache        *prefetch.Cache
	use          *prefetch.Use            // of the cache
	planner      *planner                 // nil: the plan was there before the job
	preprocessor *preprocess.Preprocessor // nil: samples are delivered as they are
	output       *protocol.OutputMessage
	others       *others // nil: the job has one node
	faults       *prefetch.Faults
	book         *audit.Book
	stops        *stops
	warnings     []string
	fillRead     *prefetch.Ledger // source reads of the filler, and for other nodes

	// plan is what the job goes by at the moment; nil: nothing has been read yet, and the plan is not there.
	plan atomic.Pointer[placement.Plan]
	// life ends with the job; its cause is why, if it failed.
	life context.Context
	end  context.CancelCauseFunc

	began    time.Time    // when Open was called
	scanned  atomic.Int64 // files that the scan of the dataset has found so far
	epochNow atomic.Int64 // the epoch that was last begun or yielded from

	mu      sync.Mutex
	refs    int // ranks that are opening it or have it open
	ranks   map[int]*Rank
	ledgers map[int]*prefetch.Ledger // of all ranks that ever joined
	came    []int                    // ranks of this node that have asked to open it
	changed chan struct{}            // closed and replaced when came changes

	epochs struct { // has a lock of its own: to draw an epoch takes long
		sync.Mutex
		kept []*access.Epoch // those that ranks are in, newest last
	}
}

// keptEpochs is how many epochs' permutations a job keeps: ranks and the staging
// buffers' reading ahead are at most that far apart, as a rule.
const keptEpochs = 3

// Open makes the job of the message, or joins it, as one rank. The rank's Close
// leaves it; the job ends with its last rank.
func (n *Node) Open(ctx context.Context, m protocol.OpenMessage, progress func(protocol.ProgressMessage)) (*Rank, error) {
	if m.WorldSize < 1 || m.Rank < 0 || m.Rank >= m.WorldSize {
		return nil, badInput("rank %d is outside the world size %d: ranks are 0 to %d", m.Rank, m.WorldSize, m.WorldSize-1)
	}
	if len(m.Job) > protocol.MaxJob {
		return nil, badInput("the job's name has %d bytes, %d are allowed: %.40s...", len(m.Job), protocol.MaxJob, m.Job)
	}
	cfg, err := n.Resolve(m.Settings)
	joins := false
	if err != nil && n.has(&m) {
		// What the job, or another one on the dataset, has taken is there for it.
		joins = true
		cfg, err = n.resolve(m.Settings, config.Machine{})
	}
	if err != nil {
		return nil, err
	}
	if joins && !n.has(&m) {
		return n.Open(ctx, m, progress) // it ended just now
	}
	j, made, err := n.enter(m, cfg)
	if err != nil {
		return nil, err
	}
	if made {
		if j.err = j.assemble(ctx, progress); j.err != nil {
			if ctx.Err() != nil {
				j.err = ctx.Err()
			}
			j.forget() // whoever comes now tries anew
		}
		close(j.ready)
	}
	select {
	case <-j.ready:
	case <-ctx.Done():
		j.release()
		return nil, ctx.Err()
	}
	err = j.err
	if !made && errors.Is(err, context.Canceled) && ctx.Err() == nil {
		j.release()
		return n.Open(ctx, m, progress) // whoever made it went away
	}
	if err == nil && !made {
		err = j.compare(&m, cfg)
	}
	var r *Rank
	if err == nil {
		r, err = j.join(m.Rank)
	}
	if err != nil {
		j.release()
		return nil, err
	}
	return r, nil
}

// enter returns the job of the message, as one more of those that are opening it, each of whom releases it. Who made it
// assembles it.
func (n *Node) enter(m protocol.OpenMessage, cfg *config.Config) (j *Job, made bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, false, &protocol.ErrorMessage{Kind: protocol.KindBusy, Message: "the daemon ends: start the process again"}
	}
	j = n.jobs[m.Job]
	if made = j == nil; made {
		j = &Job{
			node: n, log: n.log.With("job", m.Job), message: m, cfg: cfg, began: time.Now(),
			ready: make(chan struct{}), changed: make(chan struct{}), warnings: []string{},
			ranks: make(map[int]*Rank), ledgers: make(map[int]*prefetch.Ledger),
		}
		j.stops = j.newStops()
		j.life, j.end = context.WithCancelCause(context.Background())
		n.jobs[m.Job] = j
	} else if err := j.alongside(&m); err != nil {
		return nil, false, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refs++
	if !slices.Contains(j.came, m.Rank) {
		j.came = append(j.came, m.Rank)
		close(j.changed)
		j.changed = make(chan struct{})
	}
	return j, made, nil
}

// assemble builds the job's parts.
func (j *Job) assemble(ctx context.Context, progress func(protocol.ProgressMessage)) error {
	m, n := &j.message, j.node
	d, err := n.catalog.Open(ctx, m.Dataset, j.cfg, func(files int64) {
		j.scanned.Store(files)
		progress(protocol.ProgressMessage{What: "scanning " + m.Dataset.Path, Done: files})
	})
	if err != nil {
		return err
	}
	j.dataset = d
	if spans(m) {
		if err := j.form(ctx, progress); err != nil {
			return err
		}
	}
	if m.Stream.Seed == nil {
		seed := drawSeed()
		m.Stream.Seed = &seed
	}
	index := d.Index()
	if m.Stream.GlobalBatch > index.Len() {
		return badInput("the global batch of %d samples (%d ranks) is larger than the dataset of %d samples: make batch_size smaller", m.Stream.GlobalBatch, m.WorldSize, index.Len())
	}
	if m.Stream.GlobalBatch > protocol.MaxBatch {
		return badInput("the global batch of %d samples (%d ranks) is larger than %d, the most that a batch may have: make batch_size smaller", m.Stream.GlobalBatch, m.WorldSize, protocol.MaxBatch)
	}
	j.stream, err = access.New(access.Spec{
		Samples: index.Len(), Seed: *m.Stream.Seed, Epochs: m.Stream.Epochs,
		WorldSize: m.WorldSize, GlobalBatch: m.Stream.GlobalBatch, DropLast: m.Stream.DropLast,
		Shuffle: access.Shuffle(m.Stream.Shuffle), Scheme: access.Scheme(m.Stream.Scheme), Tail: access.Tail(m.Stream.Tail),
	})
	if err != nil {
		return badInput("%v", err)
	}
	if err := checkFiles(j.cfg.SourceThreads); err != nil {
		return err
	}
	if err := j.compileTransforms(); err != nil {
		return err
	}
	j.book = audit.NewBook(j.ownRanks())
	j.faults = prefetch.NewFaults(prefetch.OnError(j.cfg.OnError))
	return j.assembleCache(ctx)
}

// assembleCache joins the dataset's cache, or makes it, and plans what the job has it keep.
func (j *Job) assembleCache(ctx context.Context) error {
	cache, madeBy, err := j.dataset.JoinCache(j.cfg)
	if err != nil {
		return err
	}
	j.cache = cache
	j.fillRead = prefetch.NewLedger(j.cache, nil)
	var peers prefetch.Peers
	if j.others != nil {
		peers = j.others.peers
	}
	j.use = j.cache.Use(peers)
	if err := j.makePlan(ctx); err != nil {
		return err
	}
	if j.others != nil { // now, so that who has a plan sooner and asks for a sample waits until it is known who keeps it
		j.others.serve(j.cache)
	}
	if madeBy == j.cfg {
		j.adviseRoom()
	} else if text := differences(madeBy, j.cfg); text != "" {
		j.warnings = append(j.warnings, "another job has the dataset open, and what it said of the caches holds: "+text)
	}
	return nil
}

// compileTransforms prepares what the job wants done to its samples.
func (j *Job) compileTransforms() error {
	if !transforms(&j.message) {
		return nil
	}
	program, err := transform.Compile(j.message.Transforms)
	if err != nil {
		return badInput("%v", err)
	}
	out := program.Output()
	j.output = &protocol.OutputMessage{Shape: out.Shape, Type: out.Type.String()}
	threads, most := j.cfg.TransformThreads, j.node.options.Machine.Processors
	if threads > most {
		j.warnings = append(j.warnings, fmt.Sprintf("transform_threads = %d: the daemon may use %d processors, so that it is %d; more would only be in each other's way", threads, most, most))
		threads = most
	}
	j.preprocessor = preprocess.New(program, preprocess.Options{Seed: *j.message.Stream.Seed, Threads: threads, Most: most})
	return nil
}

// transforms tells whether a rank wants anything done to the samples.
func transforms(m *protocol.OpenMessage) bool {
	return len(m.Transforms) > 0 && string(m.Transforms) != "null"
}

// steps are the names of the job's transforms.
func (j *Job) steps() []string {
	if j.preprocessor == nil {
		return nil
	}
	return j.preprocessor.Steps()
}

// forget takes the job off the node's list, so that nobody joins it any more.
func (j *Job) forget() {
	j.node.mu.Lock()
	defer j.node.mu.Unlock()
	if j.node.jobs[j.message.Job] == j {
		delete(j.node.jobs, j.message.Job)
	}
}

// release leaves the job; the last one ends it.
func (j *Job) release() {
	j.node.mu.Lock()
	j.mu.Lock()
	j.refs--
	last := j.refs == 0
	j.mu.Unlock()
	if last && j.node.jobs[j.message.Job] == j {
		delete(j.node.jobs, j.message.Job)
	}
	j.node.mu.Unlock()
	if !last {
		return
	}
	j.end(context.Canceled)
	if j.planner != nil {
		j.planner.close()
	}
	if j.use != nil {
		j.use.Close()
	}
	if j.others != nil {
		j.others.close()
	}
	if j.cache != nil {
		j.dataset.LeaveCache()
	}
	if j.preprocessor != nil {
		j.preprocessor.Close()
	}
	if j.dataset != nil {
		j.dataset.Close()
	}
}

// fail ends the job with an error, on all its ranks here.
func (j *Job) fail(err error) {
	j.log.Error("the job fails", "error", err)
	j.end(err)
}

// failure is why the job failed; nil: it has not.
func (j *Job) failure() error {
	if err := context.Cause(j.life); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// epoch returns a view of an epoch; the last few are kept, because ranks share them.
func (j *Job) epoch(e int) *access.Epoch {
	j.epochs.Lock()
	defer j.epochs.Unlock()
	for _, v := range j.epochs.kept {
		if v.Number() == e {
			return v
		}
	}
	v := j.stream.Epoch(e)
	j.epochs.kept = append(j.epochs.kept, v)
	if len(j.epochs.kept) > keptEpochs {
		j.epochs.kept = slices.Delete(j.epochs.kept, 0, 1)
	}
	return v
}

func badInput(format string, args ...any) error {
	return &protocol.ErrorMessage{Kind: protocol.KindConfig, Message: fmt.Sprintf(format, args...)}
}

// drawSeed draws a seed that torch's manual_seed takes: 63 bits, and no
// overflow when an epoch is added to it.
func drawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) >> 2
}
