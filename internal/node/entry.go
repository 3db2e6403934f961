package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// entry is a job under its name, from when the first rank asks for it until the last one has left.
// Its states:
//
//   - starting: ready is open. The rank that made the entry assembles the job, the others wait.
//   - open: ready is closed, and err is nil. Ranks join and leave.
//   - failed: ready is closed, and err is the reason. The entry is no longer listed, so a rank that
//     comes now makes a new one.
//   - over: the last reference was released, and the job was taken apart.
//
// It answers questions of other nodes about the job (coordinator.Job).
type entry struct {
	node    *Node
	log     *slog.Logger
	request request.Open // from the rank that made the entry
	// produces: the job prepares the batches of a group, and no process has it open.
	produces bool
	config   *config.Config // made from request
	turns    *order.Turns   // nil: ranks give no parts of epochs
	began    time.Time      // when Open was called
	scanned  atomic.Int64   // files that the dataset's scan has found so far
	doing    atomic.Value   // string: what opening the job is about, after the scan
	// life ends with the job. Its cause is the error with which the job failed, if it did.
	life context.Context
	end  context.CancelCauseFunc

	ready chan struct{}
	// Immutable once ready is closed. open is the job if err is nil.
	err        error
	open       *Assembly
	membership Membership // in the group of the job; nil: it is in none
	dataset    *catalog.Dataset
	vantage    source.Vantage // of the process that made the entry
	access     *source.Access // the same, of a URL

	mu      sync.Mutex    // guards the following
	refs    int           // number of ranks that are opening the job or have it open
	leaving int           // how many of them have begun to leave (Rank.Leave)
	left    int           // how many have left since a rank last came
	came    []int         // ranks of this node that have asked to open the job
	opening map[int]int   // by rank, how many processes are opening the job
	changed chan struct{} // closed and replaced when came changes
}

func newEntry(n *Node, m request.Open, cfg *config.Config) *entry {
	m.Stream.List = nil // it belongs to the caller
	e := &entry{
		node: n, log: n.log.With("job", m.Job), request: m, config: cfg, began: time.Now(),
		ready: make(chan struct{}), opening: make(map[int]int), changed: make(chan struct{}),
	}
	e.life, e.end = context.WithCancelCause(context.Background())
	return e
}

// localRanks waits until all ranks of this node have asked to open the job, and returns them.
func (e *entry) localRanks(ctx context.Context) ([]int, error) {
	want, limit := e.request.Cluster.LocalWorldSize, e.config.StartTimeout
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		e.mu.Lock()
		ranks := slices.Clone(e.came)
		changed := e.changed
		e.mu.Unlock()
		if len(ranks) >= want {
			slices.Sort(ranks)
			return ranks, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout.C:
			return nil, failure.Input("of the %d ranks of node %d only %v opened the loader "+
				"within %v: start the others there too, or correct their number in "+
				"LOCAL_WORLD_SIZE, which the launcher sets",
				want, e.request.Cluster.Node, ranks, limit)
		}
	}
}

// forget removes the job from the node's list, so that no more ranks join it.
func (e *entry) forget() {
	e.node.mu.Lock()
	defer e.node.mu.Unlock()
	if e.node.jobs[e.request.Job] == e {
		delete(e.node.jobs, e.request.Job)
	}
}

// opened records that a process is not opening the job any more, and reports whether another one of
// its rank is.
func (e *entry) opened(rank int) (another bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opening[rank]--
	return e.opening[rank] > 0
}

// quit is release for a rank that did not join. The other ranks then do not wait for this one,
// unless another process has the rank, or is opening the job as well.
func (e *entry) quit(rank int) {
	another := e.opened(rank)
	select {
	case <-e.ready:
		if e.err == nil && !another {
			another, _ = e.open.Job.Has(rank)
		}
	default:
	}
	if e.turns != nil && !another {
		e.turns.Leave(rank)
	}
	e.release(0)
}

// leave records that a rank that has the job open begins to leave it.
func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaving++
}

// stays reports whether the job is not about to end: no rank is leaving it, or has left since one
// last came. Ranks that end together leave one after the other.
func (e *entry) stays() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refs > 0 && e.leaving == 0 && e.left == 0
}

// release releases a reference. The last one ends the job. left is 1 for a rank that has called
// leave, else 0.
func (e *entry) release(left int) {
	e.node.mu.Lock()
	e.mu.Lock()
	e.refs--
	e.leaving -= left
	e.left += left
	last := e.refs == 0
	e.mu.Unlock()
	if last && e.node.jobs[e.request.Job] == e {
		delete(e.node.jobs, e.request.Job)
	}
	e.node.mu.Unlock()
	if !last {
		return
	}
	if e.open != nil {
		e.open.Close()
	} else { // the job was not assembled
		e.end(context.Canceled)
		if e.turns != nil {
			e.turns.Close()
		}
	}
	if e.membership != nil {
		e.membership.Leave()
	}
}

// Ready implements coordinator.Job.
func (e *entry) Ready(ctx context.Context) (open bool, err error) {
	select {
	case <-e.ready:
		return e.err == nil, nil
	default:
	}
	select {
	case <-e.ready:
		return e.err == nil, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Steps implements coordinator.Job.
func (e *entry) Steps() int { return e.open.Order.Stream().Steps() }

// AuditParts implements coordinator.Job.
func (e *entry) AuditParts(ctx context.Context, epoch int) ([]audit.Part, error) {
	return e.open.Job.AuditParts(ctx, epoch)
}

// Missing implements coordinator.Job.
func (e *entry) Missing() (turn int, ranks []int) {
	if e.turns == nil {
		return -1, nil
	}
	return e.turns.Missing()
}

// Summary implements coordinator.Job.
func (e *entry) Summary() *report.ClusterReport {
	r := e.report()
	if r == nil {
		return nil
	}
	return job.Summary(r)
}

// report returns the state of the job, whether or not it is open; nil: it could not be opened.
func (e *entry) report() *report.Report {
	select {
	case <-e.ready:
		if e.err != nil {
			return nil
		}
		return e.open.Job.Report()
	default:
		return e.assembling()
	}
}

// clusterReport returns the merged reports of all nodes; nil: the job could not be opened.
func (e *entry) clusterReport(ctx context.Context) *report.ClusterReport {
	select {
	case <-e.ready:
		if e.err == nil {
			return e.open.Job.ClusterReport(ctx)
		}
	default:
	}
	return e.Summary()
}

// assembling returns the report of a job that is starting.
func (e *entry) assembling() *report.Report {
	e.mu.Lock()
	ranks := e.refs
	e.mu.Unlock()
	found := ""
	if n := e.scanned.Load(); n > 0 {
		found = fmt.Sprintf(", %d files found so far", n)
	}
	if doing, ok := e.doing.Load().(string); ok {
		found = "; " + doing
	}
	r := job.Described(&e.request, e.config.Policy)
	r.Assembling = true
	noun := "ranks"
	if e.request.WorldSize == 1 {
		noun = "rank"
	}
	r.Sentence = fmt.Sprintf("The job has been starting for %.1f s%s; %d of %d %s waiting.",
		time.Since(e.began).Seconds(), found, ranks, e.request.WorldSize, noun)
	return r
}
