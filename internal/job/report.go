package job

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/request"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Report reports the job as it is on this node.
func (r *Rank) Report() *stats.Report { return r.job.report() }

// ClusterReport asks the job's other nodes, and adds up what they say. Whoever does not answer within 2 s is reported as
// last heard.
func (r *Rank) ClusterReport(ctx context.Context) *stats.ClusterReport {
	return r.job.clusterReport(ctx)
}

// Reports lists the reports of all jobs, by name.
func (n *Node) Reports() []*stats.Report {
	var out []*stats.Report
	for _, j := range n.list() {
		if r := j.now(); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// ClusterReports are those of the jobs whose name is, or if there is none, whose names contain the given one, by name; see
// Rank.ClusterReport. Empty: all jobs.
func (n *Node) ClusterReports(ctx context.Context, name string) ([]*stats.ClusterReport, error) {
	jobs := n.list()
	var names []string
	for _, j := range jobs {
		names = append(names, j.message.Job)
	}
	if i := slices.Index(names, name); i >= 0 {
		jobs = jobs[i : i+1]
	} else {
		jobs = slices.DeleteFunc(jobs, func(j *Job) bool { return !strings.Contains(j.message.Job, name) })
	}
	if len(jobs) == 0 && name != "" {
		running := "none is running"
		if len(names) > 0 {
			running = "running are " + strings.Join(names, ", ")
		}
		return nil, failure.Input("no job of this daemon is named %q, or has that in its name: %s", name, running)
	}
	out := make([]*stats.ClusterReport, len(jobs))
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { out[i] = j.clusterReport(ctx) })
	}
	all.Wait()
	return slices.DeleteFunc(out, func(c *stats.ClusterReport) bool { return c == nil }), nil
}

// list returns the jobs, by name.
func (n *Node) list() []*Job {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]*Job, 0, len(n.jobs))
	for _, j := range n.jobs {
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *Job) int { return cmp.Compare(a.message.Job, b.message.Job) })
	return out
}

// now reports the job as it is, be it open or not yet; nil: it could not be opened.
func (j *Job) now() *stats.Report {
	select {
	case <-j.ready:
		if j.err != nil {
			return nil
		}
		return j.report()
	default:
		return j.assembling()
	}
}

// summary is now's, added up; nil: the job could not be opened.
func (j *Job) summary() *stats.ClusterReport {
	r := j.now()
	if r == nil {
		return nil
	}
	c := r.Summary()
	c.Nodes[0].Host, _ = os.Hostname() // empty: it has none
	return c
}

// clusterReport is nil if the job could not be opened.
func (j *Job) clusterReport(ctx context.Context) *stats.ClusterReport {
	c := j.summary()
	if c == nil || c.Nodes[0].Assembling || j.others == nil {
		return c
	}
	return c.Over(j.others.reports(ctx, c.Nodes[0]))
}

// assembling reports a job that is being put together.
func (j *Job) assembling() *stats.Report {
	j.mu.Lock()
	ranks := j.refs
	j.mu.Unlock()
	found := ""
	if n := j.scanned.Load(); n > 0 {
		found = fmt.Sprintf(", %d files found so far", n)
	}
	r := described(&j.message, j.cfg.Policy)
	r.Assembling = true
	r.Sentence = fmt.Sprintf("The job is being put together since %.1f s%s; %d of %d rank(s) wait for it.",
		time.Since(j.began).Seconds(), found, ranks, j.message.WorldSize)
	return r
}

// described is a report of what is known of a job before it is open.
func described(m *request.Open, policy string) *stats.Report {
	r := &stats.Report{
		Job: m.Job, Dataset: m.Dataset.Path, Policy: policy, Nodes: 1, WorldSize: m.WorldSize, GlobalBatch: m.Stream.GlobalBatch,
	}
	if m.Cluster != nil {
		r.Node, r.Nodes = m.Cluster.Node, m.Cluster.Nodes
	}
	return r
}

// report reports a job that is open.
func (j *Job) report() *stats.Report {
	index, stream := j.dataset.Index(), &j.message.Stream
	r := described(&j.message, j.cfg.Policy)
	r.Samples, r.Bytes = index.Len(), index.Bytes()
	if j.parts != nil { // as the parts have it
		r.GlobalBatch = j.stream.Spec().GlobalBatch
	}
	r.Seed, r.Planned, r.Steps = j.seed, stream.Epochs, j.stream.Steps()
	r.DropLast, r.Shuffle, r.Scheme, r.Tail = stream.DropLast, stream.Shuffle, stream.Scheme, stream.Tail
	r.Threads, r.Planning = j.cfg.SourceThreads, j.planner.Planning()
	r.Ranks, r.Classes = j.rankReports(), j.dataset.Reports()
	r.Places, r.Faults = j.cache.Speeds(), j.faults.List()
	if w, ok := j.cache.Waiting(); ok {
		r.Waiting = &stats.Waiting{Sample: w.Sample, Path: w.Path, Seconds: time.Since(w.Since).Seconds()}
	}
	if j.preprocessor != nil {
		r.Preprocessing = j.preprocessor.Report()
	}
	var room int64 // of the classes of all nodes
	switch {
	case !j.planner.Caches():
	case j.others != nil:
		room = j.planner.Room()
	default: // a store that was warm may have more than was asked for
		for _, c := range r.Classes {
			room += c.Room
		}
	}
	if j.others != nil {
		r.Peers = j.others.peers.States()
	}
	r.Needed, r.Positions, r.Subset = j.need.bytes, j.need.positions, stream.Subset != nil
	r.Demands = j.need.demands()
	r.Complete(j.fillRead.Epochs(), room)
	return r
}

// rankReports are those of all ranks that ever joined here, by number.
func (j *Job) rankReports() []stats.RankReport {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]stats.RankReport, 0, len(j.ledgers))
	for rank, ledger := range j.ledgers {
		r := stats.RankReport{Rank: rank, Epochs: ledger.Epochs()}
		if epoch, step, ok := ledger.Last(); ok {
			r.Position = stats.Position{Epoch: epoch, Step: step + 1}
			if r.Step == j.stream.Steps() {
				r.Position = stats.Position{Epoch: epoch + 1}
			}
		}
		if open := j.ranks[rank]; open != nil {
			r.Open = true
			_, r.Staging.Size = open.buffer.Ring()
			r.Staging.Used, r.Staging.Extra = open.buffer.Usage()
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b stats.RankReport) int { return cmp.Compare(a.Rank, b.Rank) })
	return out
}
