package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/assembly"
	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/catalog"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/job"
	"github.com/hdmlp/hdmlp/internal/order"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// entry is a job under its name, from when the first rank asks for it until the last one has left.
// Its states:
//
//   - being put together: ready is open. The rank that made it assembles it, the others wait.
//   - open: ready is closed, and err nil. Ranks join and leave.
//   - failed: ready is closed, and err says why. It has no name any more, so that a rank that comes then makes a new one.
//   - over: the last of those that hold it has released it, and it was taken apart.
//
// It answers what other nodes ask of the job (coordinator.Job).
type entry struct {
	node    *Node
	log     *slog.Logger
	request request.Open   // of the rank that made the job
	config  *config.Config // which was made of that
	turns   *order.Turns   // nil: ranks give no parts of epochs
	began   time.Time      // when Open was called
	scanned atomic.Int64   // files that the scan of the dataset has found so far
	// life ends with the job; its cause is why, if it failed.
	life context.Context
	end  context.CancelCauseFunc

	ready chan struct{}
	// Immutable once ready is closed. open is the job, if err is nil.
	err     error
	open    *assembly.Assembly
	dataset *catalog.Dataset
	vantage dataset.Vantage // of the process that made the job

	mu      sync.Mutex    // guards what follows
	refs    int           // ranks that are opening it or have it open
	came    []int         // ranks of this node that have asked to open it
	changed chan struct{} // closed and replaced when came changes
}

func newEntry(n *Node, m request.Open, cfg *config.Config) *entry {
	m.Stream.List = nil // it is the caller's
	e := &entry{
		node: n, log: n.log.With("job", m.Job), request: m, config: cfg, began: time.Now(),
		ready: make(chan struct{}), changed: make(chan struct{}),
	}
	e.life, e.end = context.WithCancelCause(context.Background())
	return e
}

// localRanks waits until all ranks of this node have come, and returns them.
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
			return nil,
				failure.Input("of the %d ranks of node %d only %v opened the loader within %v: "+
					"start the others there too, or correct their number, which the launcher or "+
					"LOCAL_WORLD_SIZE says",
					want, e.request.Cluster.Node, ranks, limit)
		}
	}
}

// forget takes the job off the node's list, so that no rank joins it any more.
func (e *entry) forget() {
	e.node.mu.Lock()
	defer e.node.mu.Unlock()
	if e.node.jobs[e.request.Job] == e {
		delete(e.node.jobs, e.request.Job)
	}
}

// quit is release for a rank that did not come to join: the others are not to wait for it.
func (e *entry) quit(rank int) {
	joined := false
	select {
	case <-e.ready:
		if e.err == nil {
			joined, _ = e.open.Job.Has(rank) // another process is this rank
		}
	default:
	}
	if e.turns != nil && !joined {
		e.turns.Leave(rank)
	}
	e.release()
}

// release leaves the job; the last one ends it.
func (e *entry) release() {
	e.node.mu.Lock()
	e.mu.Lock()
	e.refs--
	last := e.refs == 0
	e.mu.Unlock()
	if last && e.node.jobs[e.request.Job] == e {
		delete(e.node.jobs, e.request.Job)
	}
	e.node.mu.Unlock()
	switch {
	case !last:
	case e.open != nil:
		e.open.Close()
	default: // nothing was put together
		e.end(context.Canceled)
		if e.turns != nil {
			e.turns.Close()
		}
	}
}

// Ready is coordinator.Job's.
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

// Steps is coordinator.Job's.
func (e *entry) Steps() int { return e.open.Order.Stream().Steps() }

// AuditParts is coordinator.Job's.
func (e *entry) AuditParts(ctx context.Context, epoch int) ([]audit.Part, error) {
	return e.open.Job.AuditParts(ctx, epoch)
}

// Missing is coordinator.Job's.
func (e *entry) Missing() (turn int, ranks []int) {
	if e.turns == nil {
		return -1, nil
	}
	return e.turns.Missing()
}

// Summary is coordinator.Job's.
func (e *entry) Summary() *stats.ClusterReport {
	r := e.report()
	if r == nil {
		return nil
	}
	return job.Summary(r)
}

// report reports the job as it is, be it open or not yet; nil: it could not be opened.
func (e *entry) report() *stats.Report {
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

// clusterReport is nil if the job could not be opened.
func (e *entry) clusterReport(ctx context.Context) *stats.ClusterReport {
	select {
	case <-e.ready:
		if e.err == nil {
			return e.open.Job.ClusterReport(ctx)
		}
	default:
	}
	return e.Summary()
}

// assembling reports a job that is being put together.
func (e *entry) assembling() *stats.Report {
	e.mu.Lock()
	ranks := e.refs
	e.mu.Unlock()
	found := ""
	if n := e.scanned.Load(); n > 0 {
		found = fmt.Sprintf(", %d files found so far", n)
	}
	r := job.Described(&e.request, e.config.Policy)
	r.Assembling = true
	r.Sentence = fmt.Sprintf("The job is being put together since %.1f s%s; %d of %d rank(s) "+
		"wait for it.",
		time.Since(e.began).Seconds(), found, ranks, e.request.WorldSize)
	return r
}
