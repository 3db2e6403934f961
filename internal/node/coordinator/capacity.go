package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// capacityReport describes a node: the sizes of its storage classes, and what they hold. Sets of
// samples are packed, so that warm caches of large datasets fit as well.
type capacityReport struct {
	Capacity []int64  `json:"capacity"`
	Held     [][]byte `json:"held,omitempty"` // by class
	Kept     []byte   `json:"kept,omitempty"`
	// Known is what is known of the node's tiers.
	Known json.RawMessage `json:"known,omitempty"`
}

// encodeCapacity encodes this node's capacity report. If that takes more than most bytes, the sets
// of samples are left out, and the plan is made as if the node held nothing yet; whole reports
// whether they are included.
func encodeCapacity(mine plan.Node, most int) (text []byte, whole bool, err error) {
	r := capacityReport{Capacity: mine.Capacity, Kept: plan.PackSet(mine.Kept)}
	if mine.Known != nil {
		if r.Known, err = json.Marshal(mine.Known); err != nil {
			return nil, false, err
		}
	}
	for _, ids := range mine.Held {
		r.Held = append(r.Held, plan.PackSet(ids))
	}
	if text, err = json.Marshal(r); err != nil || len(text) <= most {
		return text, true, err
	}
	text, err = json.Marshal(capacityReport{Capacity: mine.Capacity, Known: r.Known})
	return text, false, err
}

// decodeCapacity decodes a node's capacity report.
func decodeCapacity(text []byte, samples int) (node plan.Node, err error) {
	var r capacityReport
	if err := json.Unmarshal(text, &r); err != nil {
		return node, err
	}
	if len(r.Held) > len(r.Capacity) {
		return node, fmt.Errorf("%d storage classes hold samples, but the node has %d", len(r.Held),
			len(r.Capacity))
	}
	for j, capacity := range r.Capacity {
		if capacity < 0 {
			return node, fmt.Errorf("storage class %d has a capacity of %d bytes", j+1, capacity)
		}
	}
	if len(r.Known) > 0 {
		if err = json.Unmarshal(r.Known, &node.Known); err == nil && node.Known != nil {
			err = node.Known.Validate()
		}
		if err != nil {
			return node, fmt.Errorf("what is known of its tiers: %w", err)
		}
	}
	node.Capacity, node.Held = r.Capacity, make([][]int32, len(r.Capacity))
	for j, packed := range r.Held {
		if node.Held[j], err = plan.UnpackSet(packed, samples); err != nil {
			return node, fmt.Errorf("storage class %d: %w", j+1, err)
		}
	}
	if node.Kept, err = plan.UnpackSet(r.Kept, samples); err != nil {
		return node, fmt.Errorf("kept samples: %w", err)
	}
	return node, nil
}

// Capacities implements planner.Nodes.
func (c *Coordinator) Capacities(ctx context.Context,
	mine plan.Node,
) ([]plan.Node, error) {
	text, whole, err := encodeCapacity(mine, min(cluster.MaxPayload, cluster.MaxTotal/c.nodes()))
	if err != nil {
		return nil, err
	}
	if !whole {
		c.o.Log.Warn("the list of samples in this node's caches is too large to send to the " +
			"other nodes; the samples may be read again")
	}
	all, err := c.gather(ctx, "capacity", text)
	if err != nil {
		return nil, clusterError(c.me, err)
	}
	return c.decode(all)
}

// BootstrapWindows implements planner.Nodes. A node that is gone is assumed to have begun where the
// others did, and to have kept what it could in an epoch.
func (c *Coordinator) BootstrapWindows(ctx context.Context, mine plan.BootstrapWindow,
	steps int,
) ([]plan.BootstrapWindow, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := c.gather(ctx, "window", text)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var gone *cluster.GatherError
	if err != nil && !errors.As(err, &gone) {
		return nil, err
	}
	known := mine
	windows := make([]plan.BootstrapWindow, c.nodes())
	for n := len(windows) - 1; n >= 0; n-- {
		if n >= len(all) || all[n] == nil {
			continue
		}
		if windows[n], err = decodeWindow(all[n], steps); err != nil {
			return nil, fmt.Errorf("node %d sent an invalid bootstrap window: %w", n, err)
		}
		known = windows[n]
	}
	for n := range windows {
		if n >= len(all) || all[n] == nil {
			windows[n] = plan.BootstrapWindow{Epoch: known.Epoch, Step: known.Step, Steps: steps}
		}
	}
	return windows, nil
}

// mostEpoch is the largest epoch that a node may report.
const mostEpoch = 1 << 40

// decodeWindow decodes a node's bootstrap window, given the number of steps in an epoch.
func decodeWindow(text []byte, steps int) (l plan.BootstrapWindow, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	if l.Epoch < 0 || l.Epoch > mostEpoch || l.Step < 0 || l.Step > steps || l.Steps < 0 ||
		l.Steps > steps {
		return l, fmt.Errorf("%d steps from epoch %d, step %d on; an epoch has %d steps",
			l.Steps, l.Epoch, l.Step, steps)
	}
	return l, nil
}

// decode decodes the capacity reports of all nodes.
func (c *Coordinator) decode(all [][]byte) (nodes []plan.Node, err error) {
	out := make([]plan.Node, len(all))
	for n, member := range c.cluster.Members() {
		if out[n], err = decodeCapacity(all[n], c.o.Index.Len()); err != nil {
			return nil, failure.Input("node %d sent an invalid capacity report: %v", n, err)
		}
		out[n].Ranks = member.Ranks
	}
	return out, nil
}

// Preloaded implements planner.Nodes.
func (c *Coordinator) Preloaded(ctx context.Context) error { return c.all(ctx, "preloaded") }

// Nominal sends the others the configured capacities of this node's storage classes, and returns
// those of all nodes, with their ranks.
func (c *Coordinator) Nominal(ctx context.Context, mine []int64) ([]plan.Node, error) {
	all, err := c.gather(ctx, "nominal", marshal(capacityReport{Capacity: mine}))
	if err != nil {
		return nil, clusterError(c.me, err)
	}
	return c.decode(all)
}

// Planned implements planner.Nodes.
func (c *Coordinator) Planned(ctx context.Context) error { return c.all(ctx, "planned") }

// all waits until all nodes that are alive have come to a point.
func (c *Coordinator) all(ctx context.Context, point string) error {
	_, err := c.gather(ctx, point, nil)
	var gone *cluster.GatherError
	if ctx.Err() != nil || errors.As(err, &gone) {
		return ctx.Err() // do not wait for a node that is gone
	}
	return err
}
