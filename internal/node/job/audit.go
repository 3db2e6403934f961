package job

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

// Audit waits until every rank of the job has finished the epoch or left, and compares what was
// delivered to them with what the epoch should deliver. For an epoch that was audited before, it
// returns the earlier result.
func (r *Rank) Audit(ctx context.Context, epoch int) (*audit.Result, error) {
	j := r.job
	if epochs := j.p.Order.Stream().Spec().Epochs; epoch < 0 ||
		epochs > 0 && epoch >= epochs && epoch > j.book.Last() {
		return nil, failure.Input("audit of epoch %d: epoch out of range: the job has %d epochs "+
			"(0: no end), counted from 0, and no rank has finished a later one",
			epoch, epochs)
	}
	if err := j.book.Check(epoch); err != nil {
		return nil, failure.Input("audit of epoch %d: %v", epoch, err)
	}
	asked := time.Now()
	result, err := j.book.Once(ctx, epoch, func(ctx context.Context) (*audit.Result, error) {
		return j.audit(ctx, epoch)
	})
	j.auditTook(epoch, asked)
	if err != nil {
		return nil, fmt.Errorf("audit of epoch %d: %w", epoch, err)
	}
	return result, nil
}

// auditTook records that a rank has waited for an epoch's audit from when it asked until now. While
// other ranks of this node were still taking batches, it was in the epoch, as they were.
func (j *Job) auditTook(epoch int, asked time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ended, ok := j.times(epoch); ok && ended.After(asked) {
		asked = ended
	}
	j.audited[epoch] = max(j.audited[epoch], time.Since(asked))
}

// audit performs an epoch's audit, once for all ranks of this node.
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
		return nil, failure.Input("the order of epoch %d is no longer known: audit an epoch "+
			"before taking a batch of the next one",
			epoch)
	}
	result := audit.Compare(e, parts)
	result.Why = cmp.Or(why, result.Why)
	return result, nil
}

// AuditParts waits until this node's ranks have finished an epoch, and returns what was delivered
// to them.
func (j *Job) AuditParts(ctx context.Context, epoch int) ([]audit.Part, error) {
	return j.book.Parts(ctx, epoch)
}
