package job

import (
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/failure"
)

// Audit waits until every rank of the job has finished the epoch, or left, and compares what they
// were delivered with what the epoch should deliver. Of an epoch that was audited, it says what was
// found then.
func (r *Rank) Audit(ctx context.Context, epoch int) (*audit.Result, error) {
	j := r.job
	if epochs := j.p.Order.Stream().Spec().Epochs; epoch < 0 ||
		epochs > 0 && epoch >= epochs && epoch > j.book.Last() {
		return nil,
			failure.Input("audit of epoch %d: the job has %d epochs (0: no end), counted from 0, "+
				"and no rank has finished one behind them",
				epoch, epochs)
	}
	if err := j.book.Check(epoch); err != nil {
		return nil, failure.Input("audit of epoch %d: %v", epoch, err)
	}
	result, err := j.book.Once(ctx, epoch, func(ctx context.Context) (*audit.Result, error) {
		return j.audit(ctx, epoch)
	})
	if err != nil {
		return nil, fmt.Errorf("audit of epoch %d: %w", epoch, err)
	}
	return result, nil
}

// audit is Audit once for all ranks of this node.
func (j *Job) audit(ctx context.Context, epoch int) (*audit.Result, error) {
	parts, err := j.book.Parts(ctx, epoch)
	why := ""
	if err == nil && j.p.Nodes != nil {
		var more []audit.Part
		more, why, err = j.p.Nodes.Audit(ctx, epoch, parts)
		parts = append(parts, more...)
	}
	if err != nil {
		return nil, err
	}
	e := j.p.Order.Epoch(epoch)
	if e == nil {
		return nil,
			failure.Input("the order of epoch %d is over and forgotten: ask before a batch of "+
				"another epoch is taken",
				epoch)
	}
	result := audit.Compare(e, parts)
	result.Why = why
	return result, nil
}

// AuditParts waits until this node's ranks are through an epoch, and returns what they were
// delivered.
func (j *Job) AuditParts(ctx context.Context, epoch int) ([]audit.Part, error) {
	return j.book.Parts(ctx, epoch)
}
