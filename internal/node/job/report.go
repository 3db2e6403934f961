package job

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Report returns the state of the job on this node.
func (r *Rank) Report() *report.Report { return r.job.Report() }

const (
	// settleTime is how long a report over all nodes waits for ranks that are in the epoch that the
	// rank which asks has just finished, and settleInterval how long it waits before it asks again.
	settleTime     = 2 * time.Second
	settleInterval = 50 * time.Millisecond
)

// ClusterReport returns the merged reports of all nodes of the job. For a node that does not answer
// within 2 s it has the latest report. If the rank has just finished an epoch, the report waits up
// to 2 s for the ranks that have not, so that it has the whole epoch.
func (r *Rank) ClusterReport(ctx context.Context) *report.ClusterReport {
	for until := time.Now().Add(settleTime); ; {
		c := r.job.ClusterReport(ctx)
		if !behind(c, r.Number()) || time.Now().After(until) {
			return c
		}
		select {
		case <-time.After(settleInterval):
		case <-ctx.Done():
			return c
		}
	}
}

// behind reports whether a rank is at the end of an epoch in which others still are.
func behind(c *report.ClusterReport, rank int) bool {
	epoch := 0 // that the rank is at the beginning of
	for i := range c.Nodes {
		for _, r := range c.Nodes[i].Ranks {
			if r.Rank == rank && r.Step == 0 {
				epoch = r.Epoch
			}
		}
	}
	for i := range c.Nodes {
		for _, r := range c.Nodes[i].Ranks {
			if c.Nodes[i].Responding && r.Open && r.Epoch == epoch-1 {
				return true
			}
		}
	}
	return false
}

// Summary returns the totals of Report.
func (j *Job) Summary() *report.ClusterReport { return Summary(j.Report()) }

// Summary returns the totals of a report of this node.
func Summary(r *report.Report) *report.ClusterReport {
	c := r.Summary()
	c.Nodes[0].Host, _ = os.Hostname() // empty if it has none
	return c
}

// ClusterReport returns the merged reports of all nodes of the job.
func (j *Job) ClusterReport(ctx context.Context) *report.ClusterReport {
	c := j.Summary()
	if j.p.Nodes == nil {
		return c
	}
	return c.Over(j.p.Nodes.Reports(ctx, c.Nodes[0]))
}

// Described returns a report of what is known of a job before it is open.
func Described(m *request.Open, policy string) *report.Report {
	r := &report.Report{
		Settings: report.Settings{
			Job: m.Job, Dataset: m.Dataset.Path, Policy: policy, Nodes: 1, WorldSize: m.WorldSize,
			GlobalBatch: m.Stream.GlobalBatch,
		},
	}
	if m.Cluster != nil {
		r.Node, r.Nodes = m.Cluster.Node, m.Cluster.Nodes
	}
	return r
}

// Report returns the state of the job on this node.
func (j *Job) Report() *report.Report {
	o, stream := j.p.Order, &j.config.Request.Stream
	index := o.Index()
	r := Described(j.config.Request, j.config.Policy)
	r.Samples, r.Bytes = index.Len(), index.Bytes()
	if o.Turns() { // as the parts define it
		r.GlobalBatch = o.Stream().Spec().GlobalBatch
	}
	r.Seed, r.Planned = j.config.Seed, stream.Epochs
	r.Steps = o.Stream().Steps()
	r.DropLast, r.Shuffle = stream.DropLast, stream.Shuffle
	r.Scheme, r.Tail = stream.Scheme, stream.Tail
	r.Threads, r.Planning = j.p.Cache.Streams(), j.planner.Planning()
	r.Prefetch, r.First = j.prefetch(), o.First()
	r.Ranks, r.Classes = j.rankReports(), j.p.Dataset.Reports()
	for i := range min(len(j.held), len(r.Classes)) {
		r.Classes[i].Held = j.held[i]
	}
	r.Tiers, r.Faults = j.p.Cache.Speeds(), j.p.Unusable.List()
	if w, ok := j.p.Cache.Waiting(); ok {
		r.Waiting = &report.Waiting{
			Sample:  w.Sample,
			Path:    w.Path,
			Seconds: time.Since(w.Since).Seconds(),
		}
	}
	if p := stage.Preprocesses(j.p.Outputs); p != nil {
		r.Preprocessing = p.Report()
		r.Preprocessing.Result = int64(j.config.Samples.Expected(o.Mean()))
	}
	var capacity int64 // of the classes of all nodes
	switch {
	case !j.planner.Caches():
	case j.p.Nodes != nil:
		capacity = j.planner.Capacity()
	default: // of the one node
		for _, c := range r.Classes {
			capacity += c.Capacity
		}
	}
	if j.p.Nodes != nil {
		r.Peers = j.p.Nodes.States()
	}
	r.Requests, r.Series = j.p.Dataset.Requests(), j.series.report()
	r.Needed, r.Positions = o.Bytes(), o.Positions()
	r.Subset = stream.Subset != nil
	if stream.Mix != nil {
		r.Mixed = len(stream.Mix.Sizes)
	}
	r.Demands = o.Demands()
	r.Known, r.Agreed = j.planner.Known(), j.planner.Agreed()
	r.Lacked = j.lackedSoFar()
	j.mu.Lock()
	r.BeforeTraining, r.Reordered = j.preload.Seconds(), j.order
	j.mu.Unlock()
	r.Complete(j.beside(), capacity)
	j.describe(r)
	if !r.InGroup() { // else the group's own job reads and transforms: its report says what limits it
		r.CompareTime(j.planner.LiveEnvironment())
		r.Diagnose(j.planner.Caches() || len(r.Classes) == 0 && j.planner.Keeps(), j.config.Entries)
	}
	return r
}

// lackedSoFar returns report.Report.Lacked.
func (j *Job) lackedSoFar() map[int]int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.lacked)
}

// rankReports returns the reports of all ranks that ever joined on this node, by number.
func (j *Job) rankReports() []report.RankReport {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]report.RankReport, 0, len(j.ledgers))
	for rank, ledger := range j.ledgers {
		r := report.RankReport{Rank: rank, Epochs: ledger.Epochs()}
		if epoch, step, ok := ledger.Last(); ok {
			r.Position = report.Position{Epoch: epoch, Step: step + 1}
			if r.Step == j.p.Order.Stream().Steps() {
				r.Position = report.Position{Epoch: epoch + 1}
			}
		}
		if open := j.ranks[rank]; open != nil {
			r.Open, r.Epochs = true, open.stager.Epochs()
			r.Staging.Size = open.buffer.Limit()
			r.Staging.Used, r.Staging.Extra = open.buffer.Usage()
			if open.group != nil {
				group := open.group.Report()
				r.Group = &group
			}
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b report.RankReport) int { return cmp.Compare(a.Rank, b.Rank) })
	return out
}
