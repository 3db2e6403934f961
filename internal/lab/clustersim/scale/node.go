package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/coordinator"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

const (
	ranksPerNode = 8
	steps        = 100 // of an epoch
)

// node is a node of the job: the real coordinator over a job and a cache that only answer.
type node struct {
	*coordinator.Coordinator
	number int
	host   *networktest.Host
	stops  *lockstep.Stops
	heard  atomic.Int64 // stops of other nodes
	nodes  int
	gone   []atomic.Bool // by node, what this node was notified of
	losses atomic.Int64  // how often it was notified that a node is gone
}

func ip(n int) string { return fmt.Sprintf("10.0.%d.%d", n/200, 1+n%200) }

// form forms a node's coordinator.
func (n *node) form(ctx context.Context, index *source.Index) (err error) {
	n.stops = lockstep.New(n.number, ip(n.number), func(error) { n.heard.Add(1) })
	o := coordinator.Options{
		Job: "job", WorldSize: n.nodes * ranksPerNode, Nodes: n.nodes, Node: n.number,
		Address: ip(0) + ":6000", Secret: "0123456789abcdef0123456789abcdef", Seed: 1,
		Facts: facts(), Index: index, Network: n.host, Timeout: 2 * time.Minute,
		Local: n, Stops: n.stops, Progress: func(string, bool) {},
		Log: slog.New(slog.DiscardHandler),
	}
	for r := range ranksPerNode {
		o.Ranks = append(o.Ranks, n.number*ranksPerNode+r)
	}
	if n.Coordinator, _, err = coordinator.Form(ctx, o); err != nil {
		return fmt.Errorf("node %d: %w", n.number, err)
	}
	n.gone = make([]atomic.Bool, n.nodes)
	n.Watch(func(other int, there bool) {
		if n.gone[other].Store(!there); !there {
			n.losses.Add(1)
		}
	})
	return nil
}

// facts are as many agreement keys as a job has, and of their size.
func facts() (all []coordinator.Fact) {
	for i := range 40 {
		all = append(all, coordinator.Fact{Key: fmt.Sprintf("parameter_%d", i), Value: "a value"})
	}
	return all
}

// agree does what the planner does before the first epoch.
func (n *node) agree(ctx context.Context) error {
	mine := plan.Node{Capacity: []int64{64 << 30, 1 << 40}, Known: n.known()}
	if _, err := n.Capacities(ctx, mine); err != nil {
		return err
	}
	window := plan.BootstrapWindow{Step: n.number % 5, Steps: 3}
	if _, err := n.BootstrapWindows(ctx, window, steps); err != nil {
		return err
	}
	return n.Planned(ctx)
}

// known is what a node has measured: with values of its own, as real ones have.
func (n *node) known() *model.Node {
	tier := func(k float64) model.Known {
		return model.GivenRate(k*(1000+float64(n.number)/7), 1e-4*float64(1+n.number)/3)
	}
	return &model.Node{
		Network: tier(1), Source: tier(0.3), Streams: 16,
		Classes: []model.NodeClass{
			{Name: "memory", Read: tier(10), Write: tier(5), Stores: 4},
			{Name: "disk", Path: "/scratch", Read: tier(2), Write: tier(1), Stores: 4},
		},
	}
}

// report is a node's report, of the size of a real one.
func (n *node) report() report.NodeReport {
	r := report.NodeReport{
		Node:       n.number,
		Host:       ip(n.number),
		Responding: true,
		Classes: []report.Class{
			{Name: "memory", Capacity: 64 << 30, Used: 1 << 30},
			{Name: "disk", Path: "/scratch", Capacity: 1 << 40, Used: 1 << 30},
		},
		Prediction: report.Prediction{Epochs: make([]report.Epoch, 3), Tiers: make([]model.Speed, 4)},
	}
	for k := range ranksPerNode {
		r.Ranks = append(r.Ranks, report.RankTally{Rank: n.number*ranksPerNode + k, Open: true})
	}
	return r
}

// stop has the node's first rank end with an error.
func (n *node) stop() {
	run := n.stops.Begin(n.number*ranksPerNode, 0, func() {}, func(int) {})
	_ = run.End(errors.New("sample 3 cannot be read"), false)
}

// Ready implements coordinator.Job.
func (n *node) Ready(context.Context) (bool, error) { return true, nil }

// Summary implements coordinator.Job.
func (n *node) Summary() *report.ClusterReport {
	return &report.ClusterReport{Nodes: []report.NodeReport{n.report()}}
}

// Steps implements coordinator.Job.
func (n *node) Steps() int { return steps }

// Missing implements coordinator.Job.
func (n *node) Missing() (int, []int) { return 0, nil }

// AuditParts implements coordinator.Job.
func (n *node) AuditParts(context.Context, int) (parts []audit.Part, err error) {
	for k := range ranksPerNode {
		p := audit.Part{Rank: n.number*ranksPerNode + k, Finished: true}
		parts = append(parts, p)
	}
	return parts, nil
}
