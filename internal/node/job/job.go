// Package job implements one training job on this node: its ranks, what is delivered to them, and
// the answers to their questions: what the job waited for, whether every sample was delivered
// exactly once, which samples a step had.
//
// The package does no networking: it reaches the job's other nodes through Nodes. Package node
// decides how a job is made and when it ends. All methods of Job and Rank are safe for
// concurrent use.
package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/planner"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Nodes gives a job access to its other nodes.
type Nodes interface {
	// Audit returns what was delivered to the other nodes' ranks in an epoch; mine is what was
	// delivered to this node's ranks. why names the nodes that did not answer.
	Audit(ctx context.Context, epoch int,
		mine []audit.Part) (parts []audit.Part, why string, err error)
	// Reports returns the reports of all nodes; mine is this node's.
	Reports(ctx context.Context, mine report.NodeReport) []report.NodeReport
	// States returns how well each other node answers.
	States() []report.Peer
}

// Dataset is the dataset that a job reads, as open on this node.
type Dataset interface {
	// Reports returns how full the storage classes are.
	Reports() []report.Class
	// Requests returns what its store was asked for; nil: it is in files.
	Requests() *report.Requests
}

// Memory tracks the memory that ranks take.
type Memory interface {
	// Staged records the staging buffer of a rank, or, if b is nil, that the rank has left.
	Staged(rank int, b *staging.Buffer)
}

// Config describes a job. It does not change.
type Config struct {
	Request *request.Open // of the rank that made the job
	Seed    uint64        // given, drawn or agreed on
	Version [16]byte      // of the dataset; with several nodes, as node 0 has it
	Ranks   []int         // ranks of this node

	// The configuration in force:
	Policy   string
	Staging  int64 // bytes of a rank's staging buffer; 0: derived from its batches
	Prefetch int   // most batches staged and not yet taken
	Entries  bool  // storage classes are the [[storage_class]] entries of a file
	Produces bool  // the job prepares the batches of a group
	// TakesForms: samples may come in another form than as read.
	TakesForms bool
	// FixedPrefetch is set if Prefetch was given, and is kept.
	FixedPrefetch bool

	Warnings []string
	Outputs  []Output // what is delivered of each sample: at least one
	Samples  Sizes    // sizes of transformed samples; nil: delivered unchanged
}

// Parts are what a job works with. They belong to the caller, and must outlive the job.
type Parts struct {
	Life     context.Context // ends with the job
	End      context.CancelCauseFunc
	Order    *order.Order
	Dataset  Dataset
	Cache    *cache.Cache
	Use      *cache.Use // of the cache
	Stops    *lockstep.Stops
	Unusable *stage.Unusable
	Outputs  []stage.Output // nil: samples are delivered unchanged
	Nodes    Nodes          // nil: the job has one node
	Peers    cache.Peers    // nil: the job has one node
	Planning planner.Local
	Memory   Memory
	Admit    request.Admit
	Log      *slog.Logger
}

// Job is one training job on this node. Its ranks are the processes that opened it under the same
// name and with the same parameters.
type Job struct {
	config   Config
	p        Parts
	planner  *planner.Planner
	held     []report.Amount // by storage class, when the job began
	book     *audit.Book
	fillRead *stage.Ledger // what was read from the source for no batch of this node
	buffers  buffers       // of the ranks
	series   *series
	// epochNow is the epoch that a rank began or took a batch of last, and first the one that was
	// the first of all; none: there is none.
	epochNow, first atomic.Int64

	mu       sync.Mutex            // guards the following
	since    time.Time             // when reads for the job began; zero: they have not
	starts   map[int]*state        // by epoch, when a rank began it
	lacked   map[int]int64         // report.Report.Lacked
	audited  map[int]time.Duration // by epoch: report.Epoch.Audit
	ranks    map[int]*Rank
	ledgers  map[int]*stage.Ledger // of all ranks that ever joined
	left     map[int]int64         // by rank, how large its staging buffer was when it left
	warnings []string
	consumed float64           // c of this node, MB/s; 0: not known yet
	preload  time.Duration     // what filling the classes before training took
	order    *report.Reordered // nil: the order is that which was asked for
}

// none is no epoch.
const none = -1

// New returns a job, and starts its planning. Close must be called only after all ranks have left.
func New(ctx context.Context, c Config, p Parts) (*Job, error) {
	j := &Job{
		config: c, p: p, warnings: append([]string{}, c.Warnings...),
		book:     audit.NewBook(c.Ranks),
		fillRead: stage.NewLedger(p.Cache, nil),
		ranks:    make(map[int]*Rank), ledgers: make(map[int]*stage.Ledger),
		starts: make(map[int]*state), lacked: make(map[int]int64), left: make(map[int]int64),
		audited: make(map[int]time.Duration),
		series:  newSeries(p.Order.Stream().Steps(), p.Cache),
	}
	j.epochNow.Store(none)
	j.first.Store(none)
	for _, c := range p.Planning.Classes {
		var held report.Amount
		for _, id := range c.Held {
			held.Add(report.Amount{Samples: 1, Bytes: p.Order.Index().Size(int(id))})
		}
		j.held = append(j.held, held)
	}
	var err error
	if j.planner, err = planner.New(ctx, j.plannerOptions()); err != nil {
		return nil, err
	}
	if j.planner.FillsAtOnce() {
		j.since = time.Now()
	}
	j.measureOrder()
	return j, nil
}

// plannerOptions returns the options of the job's planner.
func (j *Job) plannerOptions() planner.Options {
	return planner.Options{
		Local:  j.p.Planning,
		Name:   j.config.Policy,
		Stream: j.p.Order.Stream(),
		First:  j.p.Order.First(),
		Turns:  j.p.Order.Turns(),
		Size:   j.p.Order.Index().Size,
		Needed: j.p.Order.Needed,
		Use:    j.p.Use,
		Read:   j.ReadAhead,
		Staged: j.staged,
		Ahead:  j.config.Prefetch,
		Admit: func(bytes int64) error {
			return j.p.Admit(bytes, "placement plan",
				"reduce memory or epochs, or use policy minio")
		},
		Fail: j.Fail,
		Log:  j.p.Log,
	}
}

// Opened records that ranks may join: from now on they may be notified of epochs that others
// supply.
func (j *Job) Opened() {
	j.p.Order.Opened(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, r := range j.ranks {
			notify(r.news)
		}
	})
}

// Close ends planning.
func (j *Job) Close() { j.planner.Close() }

// Planner returns the planner of the job.
func (j *Job) Planner() *planner.Planner { return j.planner }

// staged returns how many batches the rank that is furthest ahead has staged.
func (j *Job) staged() (most int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.ranks {
		most = max(most, r.stager.Staged())
	}
	return most
}

// ReadAhead accounts for bytes read from the source for no batch of this node: to fill storage
// classes, or for other nodes.
func (j *Job) ReadAhead(bytes int64) { j.fillRead.Source(int(j.epochNow.Load()), bytes) }

// beside returns what was read for no batch of this node, by epoch. What was read before a rank
// began counts for the epoch that the first one began.
func (j *Job) beside() []report.EpochTally {
	all := j.fillRead.Epochs()
	for i := range all {
		if all[i].Epoch == none {
			all[i].Epoch = max(int(j.first.Load()), 0)
		}
	}
	return all
}

// Seed returns the job's seed.
func (j *Job) Seed() uint64 { return j.config.Seed }

// Fail ends the job with an error, for all its ranks on this node.
func (j *Job) Fail(err error) {
	j.p.Log.Error("job failed", "error", err)
	j.p.End(err)
}

// failure returns the error with which the job failed; nil: it has not.
func (j *Job) failure() error {
	if err := context.Cause(j.p.Life); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Has reports whether a rank has the job open now, and whether it ever had.
func (j *Job) Has(rank int) (open, ever bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ranks[rank] != nil, j.ledgers[rank] != nil
}

// goesOn records that a process is in an epoch, which it began at a step.
func (j *Job) goesOn(epoch, from int) {
	j.first.CompareAndSwap(none, int64(epoch))
	// No rank reads before one of them has noted the state. Those that note it later change nothing.
	if j.epochNow.Load() != int64(epoch) {
		j.begins(epoch)
		j.epochNow.Store(int64(epoch))
	}
	j.p.Order.GoesOn(epoch, from)
}

// Warn adds a warning for every rank that joins from now on.
func (j *Job) Warn(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.warn(text)
}

// warn is Warn for callers that hold j.mu. Ranks may each find the same.
func (j *Job) warn(text string) {
	if !slices.Contains(j.warnings, text) {
		j.warnings = append(j.warnings, text)
	}
}

// NewUnusable returns a job's record of samples that cannot be used, by policy on_error.
func NewUnusable(policy string) *stage.Unusable { return stage.NewUnusable(policy) }

// NewStops returns the stops of a job before any rank has begun.
func NewStops(m *request.Open, log *slog.Logger) *lockstep.Stops {
	node, host := 0, ""
	if m.Spans() {
		node = m.Cluster.Node
		host, _ = os.Hostname()
		host = cmp.Or(host, "unnamed host")
	}
	return lockstep.New(node, host, func(told error) { log.Warn(told.Error()) })
}

// Disagree returns the error for a rank that the job refuses: refused, and what happens to the
// other ranks. It ends the job for all its ranks if refused is about the order and rank was never
// in the job: without that rank the others could not train, and would wait for it. A rank that was
// in the job, and comes back with another order, is refused alone, because the others may come back
// with it as well. So is one that differs in anything else, such as the dataset that it sees,
// because a process that does not may take its place.
func (j *Job) Disagree(rank int, refused error) error {
	e, ordered := request.OfOrder(refused)
	if e == nil || e.Kind != failure.Mismatch {
		return refused
	}
	told := *e
	if _, was := j.Has(rank); !ordered || was {
		told.Message += fmt.Sprintf(". Only rank %d is refused; the job's other ranks continue",
			rank)
		return &told
	}
	told.Message += ". The job ends on all ranks, because which samples ranks get depends on it"
	others := told
	others.Details = maps.Clone(told.Details)
	others.Details["mine"], others.Details["theirs"] = told.Details["theirs"], told.Details["mine"]
	j.Fail(&others)
	return &told
}
