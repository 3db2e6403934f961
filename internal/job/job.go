// Package job is one training job on this node: its ranks, what they are delivered, and what it
// answers when they ask: what it waited for, whether every sample was delivered exactly once, which
// samples a step had.
//
// There is no network in sight: what the job has to ask its other nodes, it asks Nodes. What makes
// a job, and when it ends, node and assembly decide. All methods of Job and Rank are safe for
// concurrent use.
package job

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/lockstep"
	"github.com/hdmlp/hdmlp/internal/order"
	"github.com/hdmlp/hdmlp/internal/planner"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/stage"
	"github.com/hdmlp/hdmlp/internal/staging"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Nodes are the nodes of a job, to the job on one of them.
type Nodes interface {
	// Audit returns what the other nodes' ranks were delivered in an epoch; mine is what this one's
	// were. why names the nodes of which nothing was heard.
	Audit(ctx context.Context, epoch int,
		mine []audit.Part) (parts []audit.Part, why string, err error)
	// Reports are those of all nodes; mine is this one's.
	Reports(ctx context.Context, mine stats.NodeReport) []stats.NodeReport
	// States say how well the other nodes answer.
	States() []stats.Peer
}

// Dataset is what the job reads, as it lies on this node.
type Dataset interface {
	// Segments calls yield for the storage classes whose samples lie in shared memory, by their
	// place among the classes.
	Segments(yield func(class int, file *os.File, size int64))
	// Reports tell how full the storage classes are.
	Reports() []stats.Class
}

// Preprocessor makes what is delivered of the samples.
type Preprocessor interface {
	stage.Preprocessor
	Report() *stats.Preprocessing
}

// Memory is told of the memory that ranks take.
type Memory interface {
	// Staged notes that a rank has its staging buffer; nil: that it has left.
	Staged(rank int, b *staging.Buffer)
}

// Config is what a job is made of. It does not change.
type Config struct {
	Request *request.Open // of the rank that made the job
	Seed    uint64        // that was given, drawn or agreed on
	Version [16]byte      // of the dataset; with several nodes, as node 0 has it
	Ranks   []int         // of this node

	// What is in force of the configuration.
	Policy   string
	OnError  string
	Staging  int64 // bytes of a rank's staging buffer; 0: as many as its batches need
	Prefetch int   // batches that are staged and not taken, at most
	Threads  int   // that read from the source

	Warnings []string
	Output   *Output // what every sample becomes; nil: it stays as it is
	Samples  Sizes   // of the program that makes that; nil: there is none
}

// Parts are what a job works with. They belong to the caller, and outlive the job.
type Parts struct {
	Life         context.Context // ends with the job
	End          context.CancelCauseFunc
	Order        *order.Order
	Dataset      Dataset
	Cache        *cache.Cache
	Use          *cache.Use // of the cache
	Stops        *lockstep.Stops
	Preprocessor Preprocessor // nil: samples are delivered as they are
	Nodes        Nodes        // nil: the job has one node
	Peers        cache.Peers  // nil: the job has one node
	Memory       Memory
	Admit        request.Admit
	Log          *slog.Logger
}

// Job is one training job on this node: its ranks are the processes that opened it under the same
// name with the same parameters.
type Job struct {
	config   Config
	p        Parts
	planner  *planner.Planner
	faults   *cache.Faults
	book     *audit.Book
	fillRead *stage.Ledger // source reads of the filler, and for other nodes
	epochNow atomic.Int64  // the epoch that was last begun or yielded from

	mu       sync.Mutex // guards what follows
	ranks    map[int]*Rank
	ledgers  map[int]*stage.Ledger // of all ranks that ever joined
	warnings []string
}

// New makes a job, and has it planned. Close ends it; no rank may have it open then.
func New(ctx context.Context, c Config, p Parts, plan planner.Options) (*Job, error) {
	j := &Job{
		config: c, p: p, warnings: append([]string{}, c.Warnings...),
		faults: cache.NewFaults(cache.OnError(c.OnError)), book: audit.NewBook(c.Ranks),
		fillRead: stage.NewLedger(p.Cache, nil),
		ranks:    make(map[int]*Rank), ledgers: make(map[int]*stage.Ledger),
	}
	plan.Name, plan.Stream, plan.First, plan.Turns = c.Policy, p.Order.Stream(), p.Order.First(),
		p.Order.Turns()
	plan.Size, plan.Needed = p.Order.Index().Size, p.Order.Needed
	plan.Use, plan.Read, plan.Staged, plan.Ahead = p.Use, j.ReadAhead, j.staged, c.Prefetch
	plan.Fail, plan.Log = j.Fail, p.Log
	plan.Admit = func(bytes int64) error {
		return p.Admit(bytes, "plan of who caches what",
			"make memory or epochs smaller, or take policy minio")
	}
	var err error
	if j.planner, err = planner.New(ctx, plan); err != nil {
		return nil, err
	}
	return j, nil
}

// Opened notes that ranks may come: from now on they may be told of epochs that others give.
func (j *Job) Opened() {
	j.p.Order.Opened(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, r := range j.ranks {
			notify(r.news)
		}
	})
}

// Close ends the planning.
func (j *Job) Close() { j.planner.Close() }

// Planner has the job's plan.
func (j *Job) Planner() *planner.Planner { return j.planner }

// staged is how many batches the rank has staged that is furthest.
func (j *Job) staged() (most int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.ranks {
		most = max(most, r.stager.Staged())
	}
	return most
}

// ReadAhead charges what was read from the source for no batch of this node: to fill classes, or
// for other nodes.
func (j *Job) ReadAhead(bytes int64) { j.fillRead.Source(int(j.epochNow.Load()), bytes) }

// Seed is the job's.
func (j *Job) Seed() uint64 { return j.config.Seed }

// Fail ends the job with an error, on all its ranks here.
func (j *Job) Fail(err error) {
	j.p.Log.Error("the job fails", "error", err)
	j.p.End(err)
}

// failure is why the job failed; nil: it has not.
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

// goesOn notes that a process is in an epoch, which it begins with a step.
func (j *Job) goesOn(epoch, from int) {
	j.epochNow.Store(int64(epoch))
	j.p.Order.GoesOn(epoch, from)
}

// Warn adds a warning, which every rank is told that joins.
func (j *Job) Warn(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.warnings = append(j.warnings, text)
}

// NewStops returns the stops of a job that no rank has begun.
func NewStops(m *request.Open, log *slog.Logger) *lockstep.Stops {
	node, host := 0, ""
	if m.Spans() {
		node = m.Cluster.Node
		host, _ = os.Hostname()
		host = cmp.Or(host, "without a name")
	}
	return lockstep.New(node, host, func(told error) { log.Warn(told.Error()) })
}

// Disagree ends the job on all its ranks here if a rank that was never in it means another order:
// without it the others could not train either, and would wait for it. One that was in the job, and
// comes again with another order, is refused alone: the others may come again as well.
func (j *Job) Disagree(rank int, refused error) {
	e, ok := request.OfOrder(refused)
	if !ok {
		return
	}
	if _, was := j.Has(rank); !was {
		j.Fail(&failure.Error{
			Kind:    e.Kind,
			Message: "the job's ranks disagree, and all of them end: " + e.Message,
			Details: e.Details,
		})
	}
}
