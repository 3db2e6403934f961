package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/distance"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Preload fills the storage classes of all nodes, if the policy does so before training, within a
// time.
func (j *Job) Preload(ctx context.Context, within time.Duration, progress request.Progress) error {
	late := errors.New("late")
	limited, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	begin := time.Now()
	var done, all int64
	preloads, err := j.planner.Preload(limited, func(bytes, of int64) {
		done, all = bytes, of
		progress(request.Step{What: fmt.Sprintf("filling the caches before training: %s of %s",
			human.Format(bytes), human.Format(of))})
	})
	if err == nil && preloads {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.preload = time.Since(begin)
	}
	if err != nil && errors.Is(context.Cause(limited), late) {
		if done < all {
			return failure.Input("policy = %s fills the caches before training, and has %s of %s on "+
				"this node after %v (preload_timeout): give preload_timeout more, or use a policy "+
				"that fills them while it trains", j.config.Policy, human.Format(done),
				human.Format(all), within)
		}
		return failure.Input("policy = %s fills the caches before training, and other nodes have not "+
			"filled theirs after %v (preload_timeout): look at their logs, give preload_timeout "+
			"more, or use a policy that fills them while it trains", j.config.Policy, within)
	}
	return err
}

// measureOrder measures the policy's own order, in the background, because it draws several epochs;
// the goroutine ends with the job.
func (j *Job) measureOrder() {
	stream := j.p.Order.Stream()
	order := stream.Order()
	if order == nil {
		return
	}
	j.order = &report.Reordered{
		Batches: order.Deal != nil, Configured: j.p.Order.Configured(),
	}
	nodeOf, nodes := j.planner.NodeOf()
	go func() {
		seen, far := distance.Of(j.p.Life, stream, nodeOf, nodes)
		j.mu.Lock()
		defer j.mu.Unlock()
		measured := *j.order
		measured.Seen, measured.Distance = seen, far
		j.order = &measured
	}()
}
