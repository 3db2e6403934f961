package node

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/report"
)

// onNodes returns a change of a request to a job over nodes with each ranks.
func onNodes(nodes, each int, address string) func(*request.Open) {
	return func(m *request.Open) {
		m.Cluster = &request.Cluster{
			Nodes: nodes, Node: m.Rank / each, LocalWorldSize: each, Address: address,
			Secret: "a secret that is long enough",
		}
	}
}

// spread opens the job with each ranks on each node, and returns its ranks in order.
func spread(t *testing.T, nodes []*Node, each int, change ...func(*request.Open)) []*Rank {
	t.Helper()
	address := testkit.Address(t)
	ranks := make([]*Rank, len(nodes)*each)
	errs := make([]error, len(ranks))
	change = append(change, onNodes(len(nodes), each, address))
	var all sync.WaitGroup
	for i := range ranks {
		all.Go(func() {
			ranks[i], errs[i] = nodes[i/each].Open(t.Context(), message(i, len(ranks), change...),
				nil, func(request.Step) {})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ranks
}

// TestAllNodesReportTheSameTotals checks that every node reports the same totals for the job, and
// the latest report of a node that is gone.
func TestAllNodesReportTheSameTotals(t *testing.T) {
	worlds := []*world{{}, {}, {}}
	nodes := make([]*Node, len(worlds))
	for i, w := range worlds {
		nodes[i] = w.node()
	}
	ranks := spread(t, nodes, 2, set("memory", "14000B"), func(m *request.Open) {
		m.Stream.GlobalBatch = 12
	})
	halfway := at{2, 0}
	together(ranks, func(r *Rank) { consume(t, r, at{}, halfway) })

	var first *report.ClusterReport
	for i, r := range ranks {
		c := r.ClusterReport(t.Context())
		if c.Node != i/2 || len(c.Nodes) != 3 || c.Planned != 4 || c.Steps != 4 {
			t.Errorf("rank %d: %+v", i, c)
			break
		}
		var sum report.Tally
		for n, node := range c.Nodes {
			if !node.Responding || node.Why != "" || node.Node != n || node.Address != "127.0.0.1" ||
				len(node.Classes) != 1 || len(node.Ranks) != 2 {
				t.Errorf("rank %d reports node %d as %+v", i, n, node)
			}
			for k, rank := range node.Ranks {
				if rank.Rank != 2*n+k || !rank.Open || rank.Batches != 8 ||
					rank.Position != (report.Position{Epoch: 2}) || rank.Staging.Size == 0 {
					t.Errorf("rank %d reports rank %d as %+v", i, rank.Rank, rank)
				}
			}
			sum.Add(&node.Tally)
		}
		var read int64
		for _, w := range worlds {
			read += w.bytes.Load()
		}
		var consumed int64
		for _, a := range c.Total.Reads {
			consumed += a.Samples
		}
		if c.Total.Batches != 48 || c.Total.Samples != 84 || consumed != 84 ||
			c.Total.Source.Bytes != read {
			t.Errorf("rank %d reports a total of %+v; %d bytes left the source", i, c.Total, read)
		}
		if sum.Batches != c.Total.Batches || sum.Source != c.Total.Source ||
			!maps.Equal(sum.Reads, c.Total.Reads) {
			t.Errorf("the nodes' sum is %+v, the total %+v", sum, c.Total)
		}
		if want := int64(total); c.Bound > want || c.Bound < want-3 || c.BoundShare < 0.9 {
			t.Errorf("a bound of %d, and a share of %v", c.Bound, c.BoundShare)
		}
		if i == 0 {
			first = c
		} else if a, b := text(t, first.Total), text(t, c.Total); a != b {
			t.Errorf("node 0 reports %s, node %d %s", a, c.Node, b)
		}
	}
	if s := first.Sentence; !strings.HasPrefix(s,
		"6 ranks on 3 nodes took 48 batches and waited 0.000 s each for data.") {
		t.Error(s)
	}
	for _, r := range ranks[4:] {
		r.Close()
	}
	testkit.Until(t, "node 1 knows that node 2 is gone", func() bool {
		return !ranks[2].entry.open.Coordinator.Alive(2)
	})
	c := ranks[2].ClusterReport(t.Context())
	gone := c.Nodes[2]
	if gone.Responding || gone.Age < 0 || gone.Why != "it is gone" || gone.Batches != 16 ||
		c.Total.Batches != 48 {
		t.Errorf("the lost node: %+v, the total: %+v", gone, c.Total)
	}
	if !strings.Contains(c.Sentence, "Node 2 does not answer: it is gone.") {
		t.Error(c.Sentence)
	}
	for _, r := range ranks[:4] {
		r.Close()
	}
	for i, w := range worlds {
		w.close(t, nodes[i])
	}
}

// TestBoundWithoutCachesCountsAllEpochs checks that if no node keeps anything, the bound is the
// dataset in each epoch, on one node and on several.
func TestBoundWithoutCachesCountsAllEpochs(t *testing.T) {
	for _, count := range []int{1, 2} {
		worlds, nodes := make([]*world, count), make([]*Node, count)
		for i := range worlds {
			worlds[i] = &world{}
			nodes[i] = worlds[i].node()
		}
		ranks := spread(t, nodes, 2, set("policy", "naive"))
		// One after the other: two that need a sample at the same time read it once.
		for _, r := range ranks {
			r.Wait() // before policy naive reads anything
			consume(t, r, at{}, end)
		}
		c := ranks[0].ClusterReport(t.Context())
		if c.Bound != 4*total || c.BoundShare != 1 {
			t.Errorf("%d nodes: a bound of %d, and a share of %v: %s", count, c.Bound, c.BoundShare,
				c.Sentence)
		}
		for _, r := range ranks {
			r.Close()
		}
		for i, w := range worlds {
			w.close(t, nodes[i])
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestClusterReportsAreSelectedByName checks selection by name or a part of it. A job of one node
// is its own cluster.
func TestClusterReportsAreSelectedByName(t *testing.T) {
	w := &world{}
	n := w.node()
	if _, err := n.ClusterReports(t.Context(), "j"); err == nil ||
		!strings.Contains(err.Error(), "no jobs are running") {
		t.Error(err)
	}
	if all, err := n.ClusterReports(t.Context(), ""); len(all) != 0 || err != nil {
		t.Error(all, err)
	}
	named := func(name string) func(*request.Open) {
		return func(m *request.Open) { m.Job = name }
	}
	var ranks []*Rank
	for _, name := range []string{"b train", "a train", "a train, the other"} {
		ranks = append(ranks, open(t, n, message(0, 1, named(name))))
	}
	for name, want := range map[string]int{"": 3, "train": 3, "a train": 1, "other": 1, "b": 1} {
		all, err := n.ClusterReports(t.Context(), name)
		if err != nil || len(all) != want {
			t.Errorf("%q: %d jobs, %v", name, len(all), err)
		}
		for i, c := range all {
			if i > 0 && all[i-1].Job > c.Job || len(c.Nodes) != 1 || !c.Nodes[0].Responding ||
				c.Sentence == "" {
				t.Errorf("%q: %+v", name, c)
			}
		}
	}
	_, err := n.ClusterReports(t.Context(), "valid")
	if e := new(failure.Error); !errors.As(err, &e) || e.Kind != failure.Config ||
		!strings.Contains(e.Message, "running jobs: a train, a train, the other, b train") {
		t.Error(err)
	}
	for _, r := range ranks {
		r.Close()
	}
	w.close(t, n)
}

// TestNodeThatLeavesTellsItsFigures: the report over all nodes has the last figures of a node that
// has left, although it was not asked before.
func TestNodeThatLeavesTellsItsFigures(t *testing.T) {
	worlds := []*world{{}, {}}
	ranks := spread(t, []*Node{worlds[0].node(), worlds[1].node()}, 1, func(m *request.Open) {
		m.Stream.GlobalBatch = 12
	})
	together(ranks, func(r *Rank) { consume(t, r, at{}, at{1, 0}) })
	ranks[1].Close()
	testkit.Until(t, "node 0 knows that node 1 is gone", func() bool {
		return !ranks[0].entry.open.Coordinator.Alive(1)
	})
	c := ranks[0].ClusterReport(t.Context())
	// Reads ahead may have begun a second epoch.
	if n := c.Nodes[1]; n.Responding || n.Age < 0 || n.Batches == 0 || len(n.Epochs) == 0 ||
		n.Epochs[0].Batches != n.Batches || n.Batches != c.Nodes[0].Batches {
		t.Errorf("%+v", n)
	}
	ranks[0].Close()
}
