package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// replanReport is a node's plan.Report.
type replanReport struct {
	Capacity     json.RawMessage `json:"capacity"` // a capacityReport
	Epoch        int             `json:"epoch"`
	Plan         uint64          `json:"plan"`
	Since        int             `json:"since"`
	Took         float64         `json:"epoch_seconds"`
	Transformers int             `json:"transform_threads"`
}

// Limits of what a node may report.
const (
	mostEpoch        = 1 << 40
	mostTransformers = 1 << 16
	maxEpochSeconds  = 1e9 // epoch, seconds
)

// Reassess implements planner.Nodes.
func (c *Coordinator) Reassess(ctx context.Context, round int,
	mine plan.Report,
) ([]plan.Report, error) {
	capacity, _, err := encodeCapacity(mine.Node, min(cluster.MaxPayload,
		cluster.MaxTotal/c.nodes())-1<<10)
	if err != nil {
		return nil, err
	}
	all, err := c.all(ctx, fmt.Sprintf("replan %d", round), replanReport{
		Capacity: capacity, Epoch: mine.Epoch, Plan: mine.Plan, Since: mine.Since,
		Took: mine.Took, Transformers: mine.Transformers,
	})
	if err != nil {
		return nil, err
	}
	out := make([]plan.Report, len(all))
	for n, member := range c.cluster.Members() {
		if out[n], err = decodeReplan(all[n], c.o.Index.Len()); err != nil {
			return nil, fmt.Errorf("node %d sent an invalid report: %w", n, err)
		}
		out[n].Node.Ranks = member.Ranks
	}
	return out, nil
}

// decodeReplan decodes a node's report, for a dataset with the given number of samples.
func decodeReplan(text []byte, samples int) (out plan.Report, err error) {
	var r replanReport
	if err := json.Unmarshal(text, &r); err != nil {
		return out, err
	}
	if r.Epoch < 0 || r.Epoch > mostEpoch || r.Since < 0 || r.Since > r.Epoch || r.Transformers < 0 ||
		r.Transformers > mostTransformers {
		return out, fmt.Errorf("epoch %d, a plan from epoch %d on, and %d threads that transform; "+
			"allowed: 0 to %d, no later epoch, and 0 to %d", r.Epoch, r.Since, r.Transformers,
			mostEpoch, mostTransformers)
	}
	if !(r.Took >= 0 && r.Took <= maxEpochSeconds) {
		return out, fmt.Errorf("epochs of %g s; allowed: 0 to %g", r.Took, maxEpochSeconds)
	}
	out = plan.Report{
		Epoch: r.Epoch, Plan: r.Plan, Since: r.Since, Took: r.Took, Transformers: r.Transformers,
	}
	if out.Node, err = decodeCapacity(r.Capacity, samples); err != nil {
		return out, err
	}
	out.Node.Held = nil
	return out, nil
}

// Vote implements planner.Nodes.
func (c *Coordinator) Vote(ctx context.Context, round int,
	mine plan.Vote,
) ([]plan.Vote, error) {
	all, err := c.all(ctx, fmt.Sprintf("vote %d", round), mine)
	if err != nil {
		return nil, err
	}
	votes := make([]plan.Vote, len(all))
	for n, text := range all {
		if err := json.Unmarshal(text, &votes[n]); err != nil {
			return nil, fmt.Errorf("node %d sent an invalid vote: %w", n, err)
		}
	}
	return votes, nil
}

// all gathers what every node has to say; it is an error if one is gone or does not answer.
func (c *Coordinator) all(ctx context.Context, what string, mine any) ([][]byte, error) {
	all, err := c.gather(ctx, what, marshal(mine))
	var missing *cluster.GatherError
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("not all nodes took part: %s", missing.Reason())
	}
	return all, err
}
