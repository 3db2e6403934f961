package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Reports returns the reports of all jobs, by name.
func (n *Node) Reports() []*report.Report {
	var out []*report.Report
	for _, e := range n.list() {
		if r := e.report(); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// ClusterReports returns the reports of the job with this name, or if there is none, of the jobs
// whose names contain it, by name; see Rank.ClusterReport. An empty name selects all jobs.
func (n *Node) ClusterReports(ctx context.Context, name string) ([]*report.ClusterReport, error) {
	jobs := n.list()
	var names []string
	for _, e := range jobs {
		names = append(names, e.request.Job)
	}
	if i := slices.Index(names, name); i >= 0 {
		jobs = jobs[i : i+1]
	} else {
		jobs = slices.DeleteFunc(jobs, func(e *entry) bool {
			return !strings.Contains(e.request.Job, name)
		})
	}
	if len(jobs) == 0 && name != "" {
		running := "no jobs are running"
		if len(names) > 0 {
			running = "running jobs: " + strings.Join(names, ", ")
		}
		return nil, failure.Input("no job of this daemon has a name that contains %q; %s",
			name, running)
	}
	out := make([]*report.ClusterReport, len(jobs))
	var all sync.WaitGroup
	for i, e := range jobs {
		all.Go(func() { out[i] = e.clusterReport(ctx) })
	}
	all.Wait()
	return slices.DeleteFunc(out, func(c *report.ClusterReport) bool { return c == nil }), nil
}

// list returns the jobs by name.
func (n *Node) list() []*entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]*entry, 0, len(n.jobs))
	for _, e := range n.jobs {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Compare(a.request.Job, b.request.Job) })
	return out
}
