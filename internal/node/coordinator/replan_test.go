package coordinator

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// TestReportsAndVotesReachAllNodes: every node learns what all nodes report and vote; it is an
// error if a node is gone.
func TestReportsAndVotesReachAllNodes(t *testing.T) {
	nodes := formed(t, 3)
	known := model.Node{Source: model.GivenRate(200, 1e-3), Streams: 3}
	report := func(n int) plan.Report {
		r := plan.Report{
			Epoch: n, Plan: 1<<63 + uint64(n), Since: n, Took: 1.5 * float64(n), Transformers: 2 * n,
		}
		r.Node = plan.Node{
			Capacity: []int64{int64(n), 7}, Kept: []int32{3, int32(n + 4)}, Known: &known,
		}
		return r
	}
	var all sync.WaitGroup
	for n, c := range nodes {
		all.Go(func() {
			got, err := c.Reassess(t.Context(), 5, report(n))
			if err != nil || len(got) != len(nodes) {
				t.Errorf("node %d: %d reports, %v", n, len(got), err)
				return
			}
			for m := range nodes {
				want := report(m)
				want.Node.Ranks = []int{2 * m, 2*m + 1}
				if diff := cmp.Diff(want, got[m]); diff != "" {
					t.Errorf("node %d: node %d reports: %s", n, m, diff)
				}
			}
			votes, err := c.Vote(t.Context(), 5, plan.Vote{Plan: 1<<63 + uint64(n), Why: "because"})
			for m, v := range votes {
				if (v != plan.Vote{Plan: 1<<63 + uint64(m), Why: "because"}) {
					t.Errorf("node %d: node %d votes %+v", n, m, v)
				}
			}
			if err != nil || len(votes) != len(nodes) {
				t.Errorf("node %d: %d votes, %v", n, len(votes), err)
			}
		})
	}
	all.Wait()
	nodes[2].Close()
	for n, c := range nodes[:2] {
		all.Go(func() {
			const want = "not all nodes took part: no data from node 2"
			if _, err := c.Vote(t.Context(), 6, plan.Vote{}); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("node %d: %v", n, err)
			}
		})
	}
	all.Wait()
}

// TestInvalidReportsAreRefused: reports of impossible numbers are refused with the reason.
func TestInvalidReportsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"capacity":{"capacity":[1]},"epoch":-1}`:             "epoch -1",
		`{"capacity":{"capacity":[1]},"epoch":1099511627776}`:  "",
		`{"capacity":{"capacity":[1]},"epoch":1099511627777}`:  "epoch 1099511627777",
		`{"capacity":{"capacity":[1]},"epoch":1,"since":2}`:    "from epoch 2 on",
		`{"capacity":{"capacity":[1]},"transform_threads":-1}`: "and -1 threads",
		`{"capacity":{"capacity":[1]},"epoch_seconds":-1}`:     "epochs of -1 s",
		`{"capacity":{"capacity":[1]},"epoch_seconds":1e10}`:   "epochs of 1e+10 s",
		`{"capacity":{"capacity":[1]},"plan":-1}`:              "cannot unmarshal number -1",
		`{"capacity":{"capacity":[-1]}}`:                       "a capacity of -1 bytes",
		`{"capacity":{"capacity":[1],"known":{"streams":-1}}}`: "streams is -1",
		`{"epoch":1}`: "unexpected end",
		`{"capacity":{"capacity":[1]},"epoch":1,"transform_threads":4}`: "",
	} {
		if _, err := decodeReplan([]byte(text), samples); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// TestInvalidReportNamesItsNode: a report that cannot be used ends the round, on all nodes, with
// the node that sent it.
func TestInvalidReportNamesItsNode(t *testing.T) {
	var all sync.WaitGroup
	for n, c := range formed(t, 2) {
		all.Go(func() {
			got, err := c.Reassess(t.Context(), 1, plan.Report{Epoch: -n})
			if err == nil || !strings.Contains(err.Error(), "node 1 sent an invalid report") {
				t.Errorf("node %d: %+v, %v", n, got, err)
			}
		})
	}
	all.Wait()
}
