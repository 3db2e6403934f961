package job

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/preprocess"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/storageclass"
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
	dataset      *Dataset
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
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil, &protocol.ErrorMessage{Kind: protocol.KindBusy, Message: "the daemon ends: start the process again"}
	}
	j := n.jobs[m.Job]
	mine := j == nil
	if mine {
		j = &Job{
			node: n, log: n.log.With("job", m.Job), message: m, cfg: cfg, began: time.Now(),
			ready: make(chan struct{}), changed: make(chan struct{}), warnings: []string{},
			ranks: make(map[int]*Rank), ledgers: make(map[int]*prefetch.Ledger),
		}
		j.stops = j.newStops()
		j.life, j.end = context.WithCancelCause(context.Background())
		n.jobs[m.Job] = j
	}
	j.mu.Lock()
	j.refs++
	if !slices.Contains(j.came, m.Rank) {
		j.came = append(j.came, m.Rank)
		close(j.changed)
		j.changed = make(chan struct{})
	}
	j.mu.Unlock()
	n.mu.Unlock()

	if mine {
		if j.err = limit(j.assemble(ctx, progress)); j.err != nil {
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
	if !mine && errors.Is(err, context.Canceled) && ctx.Err() == nil {
		j.release()
		return n.Open(ctx, m, progress) // whoever made it went away
	}
	if err == nil && !mine {
		err = j.compare(m, cfg)
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

// assemble builds the job's parts.
func (j *Job) assemble(ctx context.Context, progress func(protocol.ProgressMessage)) error {
	m, n := &j.message, j.node
	d, err := n.OpenDataset(ctx, m.Dataset, j.cfg, func(files int64) {
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
		return badInput("the global batch of %d samples is larger than %d", m.Stream.GlobalBatch, protocol.MaxBatch)
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
	j.preprocessor = preprocess.New(program, preprocess.Options{
		Seed: *j.message.Stream.Seed, Threads: j.cfg.TransformThreads, Most: j.node.kinds.Machine.Processors,
	})
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

// openStores opens the configured storage classes' stores for the dataset, each
// with as much room as it may have and the dataset needs.
func (j *Job) openStores(ds storageclass.Dataset) error {
	s := j.dataset.shared
	for _, c := range j.cfg.StorageClasses {
		opened, err := j.openStore(c, ds)
		if err != nil {
			s.closeStores(j.log)
			return err
		}
		same := 1
		for _, other := range s.classes {
			if other.kind == c.Kind {
				same++
			}
		}
		opened.name = c.Kind // memory, file, file-2, ...
		if same > 1 {
			opened.name = fmt.Sprintf("%s-%d", c.Kind, same)
		}
		s.classes = append(s.classes, opened)
	}
	return nil
}

func (j *Job) openStore(c config.StorageClass, ds storageclass.Dataset) (usedClass, error) {
	class, err := j.node.class(c)
	if err != nil {
		return usedClass{}, err
	}
	room := min(c.Capacity, j.dataset.Index().Bytes())
	if c.Capacity == 0 { // what there is
		available, err := class.Available(ds)
		if err != nil {
			return usedClass{}, err
		}
		room = min(available, j.dataset.Index().Bytes())
	}
	store, err := class.Open(ds, room)
	return usedClass{kind: c.Kind, store: store, room: room}, err
}

func (s *sharedDataset) closeStores(log *slog.Logger) {
	for _, c := range s.classes {
		if err := c.store.Close(); err != nil {
			log.Error("close storage class", "class", c.name, "error", err)
		}
	}
	s.classes = nil
}

// difference is a parameter as two ranks gave it.
type difference struct {
	key          string
	theirs, mine any
}

// settings lists the configuration of two ranks. What is derived or measured may
// differ: it is what the first rank found.
func settings(theirs, mine *config.Config) []difference {
	said := func(c *config.Config, key string, value any) any {
		if source := c.Origins[key].Source; source == "" || strings.HasPrefix(source, "default") || strings.HasPrefix(source, "measured") {
			return config.Auto
		}
		return fmt.Sprint(value)
	}
	classes := func(c *config.Config) string {
		if !strings.HasSuffix(c.Origins["memory"].Source, "replaces it") {
			return "none"
		}
		return fmt.Sprintf("%+v", c.StorageClasses)
	}
	a, b := theirs, mine
	auto := func(key string, x, y any) difference { return difference{key, said(a, key, x), said(b, key, y)} }
	return []difference{
		{"policy", a.Policy, b.Policy},
		{"on_error", a.OnError, b.OnError},
		{"storage_class", classes(a), classes(b)},
		auto("memory", a.Memory, b.Memory),
		{"cache_dir", a.CacheDir, b.CacheDir},
		auto("cache_size", a.CacheSize, b.CacheSize),
		auto("disk_reserve", a.DiskReserve, b.DiskReserve),
		auto("staging_buffer", a.StagingBuffer, b.StagingBuffer),
		{"prefetch_batches", a.PrefetchBatches, b.PrefetchBatches},
		{"transform_threads", a.TransformThreads, b.TransformThreads},
		{"source_threads", a.SourceThreads, b.SourceThreads},
		{"cache_threads", a.CacheThreads, b.CacheThreads},
		{"source_timeout", a.SourceTimeout.String(), b.SourceTimeout.String()},
		{"index_dir", a.IndexDir, b.IndexDir},
		{"port", a.Port, b.Port},
		{"interface", a.Interface, b.Interface},
		{"start_timeout", a.StartTimeout.String(), b.StartTimeout.String()},
		{"tls", a.TLS, b.TLS},
		{"tls_cert", a.TLSCert, b.TLSCert},
		{"tls_key", a.TLSKey, b.TLSKey},
		{"tls_ca", a.TLSCA, b.TLSCA},
	}
}

// compare refuses a rank whose parameters differ from the job's.
func (j *Job) compare(m protocol.OpenMessage, cfg *config.Config) error {
	if m.Stream.Seed == nil {
		m.Stream.Seed = j.message.Stream.Seed
	}
	a, b := &j.message, &m
	differs := []difference{
		{"world_size", a.WorldSize, b.WorldSize},
		{"nodes", node(a), node(b)},
		{"dataset kind", a.Dataset.Kind, b.Dataset.Kind},
		{"dataset", a.Dataset.Path, b.Dataset.Path},
		{"extensions", fmt.Sprint(a.Dataset.Extensions), fmt.Sprint(b.Dataset.Extensions)},
		{"seed", *a.Stream.Seed, *b.Stream.Seed},
		{"epochs", a.Stream.Epochs, b.Stream.Epochs},
		{"global batch size", a.Stream.GlobalBatch, b.Stream.GlobalBatch},
		{"drop_last", a.Stream.DropLast, b.Stream.DropLast},
		{"shuffle", a.Stream.Shuffle, b.Stream.Shuffle},
		{"scheme", a.Stream.Scheme, b.Stream.Scheme},
		{"tail", a.Stream.Tail, b.Stream.Tail},
		{"transforms", listed(a), listed(b)},
	}
	differs = append(differs, settings(j.cfg, cfg)...)
	for _, d := range differs {
		if d.theirs != d.mine {
			return &protocol.ErrorMessage{
				Kind: protocol.KindMismatch,
				Message: fmt.Sprintf("rank %d disagrees with rank %d of job %s: %s is %v here and %v there; all ranks must say the same",
					b.Rank, a.Rank, a.Job, d.key, d.mine, d.theirs),
				Details: map[string]any{"key": d.key, "mine": d.mine, "theirs": d.theirs},
			}
		}
	}
	return nil
}

// listed is what a rank wants done to the samples, as text without blanks.
func listed(m *protocol.OpenMessage) string {
	if !transforms(m) {
		return "none"
	}
	var b bytes.Buffer
	if json.Compact(&b, m.Transforms) != nil {
		return string(m.Transforms)
	}
	return b.String()
}

// node says which of how many nodes a rank is on.
func node(m *protocol.OpenMessage) string {
	if m.Cluster == nil {
		return "one"
	}
	return fmt.Sprintf("node %d of %d, with %d ranks, node 0 at %s", m.Cluster.Node, m.Cluster.Nodes, m.Cluster.LocalWorldSize, m.Cluster.Address)
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
		s := j.dataset.shared
		s.mu.Lock()
		if s.cacheRefs--; s.cacheRefs == 0 {
			if s.cache.Close() {
				s.closeStores(j.log)
			} else {
				// Where the read still writes to must stay as it is.
				s.stuck, s.classes = true, nil
				j.node.stuck.Store(true)
				j.log.Error("a read from the source hangs: the dataset's caches stay in memory until the daemon ends")
			}
			s.cache = nil
			s.cached.Store(false)
		}
		s.mu.Unlock()
	}
	if j.preprocessor != nil {
		j.preprocessor.Close()
	}
	if j.dataset != nil {
		j.dataset.Close()
	}
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
