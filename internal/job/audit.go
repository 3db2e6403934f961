package job

import (
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/access"
)

// auditKey is one rank's way through one epoch.
type auditKey struct{ epoch, rank int }

// auditEntry is where it began, and what it had delivered at the end.
type auditEntry struct {
	from     int // step; not 0 where a job was resumed in the middle
	hash     uint64
	finished bool
}

// Audit is what an epoch delivered, against what it should have.
type Audit struct {
	Epoch    int    `json:"epoch"`
	Complete bool   `json:"complete"` // all ranks have finished the epoch, and the hashes agree
	Expected string `json:"expected"` // set hash of the epoch's samples, hex
	// Delivered is the sum of what the ranks counted.
	Delivered string `json:"delivered"`
	Samples   int64  `json:"samples"` // delivered over all ranks
	Missing   []int  `json:"missing"` // ranks that left before they finished the epoch
}

// begin notes where a rank begins an epoch.
func (j *Job) begin(epoch, rank, step int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key := range j.audits {
		if key.rank == rank && key.epoch > epoch {
			delete(j.audits, key) // it comes again
		}
	}
	j.audits[auditKey{epoch, rank}] = auditEntry{from: step}
	j.epochNow.Store(int64(epoch))
}

// finished notes a rank's set hash at the end of an epoch.
func (j *Job) finished(epoch, rank int, hash uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := auditKey{epoch, rank}
	e := j.audits[key]
	e.hash, e.finished = hash, true
	j.audits[key] = e
	j.audited = max(j.audited, epoch)
	delete(j.audits, auditKey{epoch - keptAudits, rank})
	j.signal()
}

// knows tells whether any rank has begun the epoch. j.mu is held.
func (j *Job) knows(epoch int) bool {
	for key := range j.audits {
		if key.epoch == epoch {
			return true
		}
	}
	return false
}

// keptAudits is for how many epochs an audit can be asked for.
const keptAudits = 16

// signal wakes who waits for ranks. j.mu is held.
func (j *Job) signal() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// Audit waits until every rank has finished the epoch, or left, and compares the
// sum of their set hashes with that of the samples that the epoch should
// deliver, each exactly once (access.Epoch.Audit).
func (j *Job) Audit(ctx context.Context, epoch int) (*Audit, error) {
	if epochs := j.stream.Spec().Epochs; epoch < 0 || (epochs > 0 && epoch >= epochs) {
		return nil, badInput("audit of epoch %d: the job has %d epochs (0: no end), counted from 0", epoch, epochs)
	}
	if j.others != nil { // the other nodes' ranks are not counted here, and must not be waited for
		return nil, badInput("audit of epoch %d: the epochs of a job over several nodes can not be verified yet; leave verify out", epoch)
	}
	for {
		j.mu.Lock()
		if oldest := j.audited - keptAudits + 1; epoch < oldest && !j.knows(epoch) {
			j.mu.Unlock()
			return nil, badInput("audit of epoch %d: the last %d epochs can be audited, from epoch %d on", epoch, keptAudits, oldest)
		}
		changed := j.changed
		waiting := false
		for rank := range j.message.WorldSize {
			finished := j.audits[auditKey{epoch, rank}].finished
			_, left := j.ledgers[rank]
			left = left && j.ranks[rank] == nil
			waiting = waiting || (!finished && !left)
		}
		j.mu.Unlock()
		if !waiting {
			return j.compareAudit(epoch), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("audit of epoch %d: %w", epoch, ctx.Err())
		}
	}
}

func (j *Job) compareAudit(epoch int) *Audit {
	view := j.epoch(epoch)
	a := &Audit{Epoch: epoch, Missing: []int{}}
	var delivered, missing uint64
	from := map[int]bool{}
	first := 0
	j.mu.Lock()
	for rank := range j.message.WorldSize {
		e := j.audits[auditKey{epoch, rank}]
		if !e.finished {
			a.Missing = append(a.Missing, rank)
			continue
		}
		delivered += e.hash
		first, from[e.from] = e.from, true
		if l := j.ledgers[rank]; l != nil {
			n, s := l.Delivered(epoch)
			a.Samples += n
			missing += s
		}
	}
	j.mu.Unlock()
	expected := view.Audit() - missing
	if first > 0 {
		expected -= j.auditBefore(view, first)
	}
	a.Expected, a.Delivered = fmt.Sprintf("%016x", expected), fmt.Sprintf("%016x", delivered)
	a.Complete = len(a.Missing) == 0 && len(from) == 1 && expected == delivered
	return a
}

// auditBefore is the set hash of an epoch's steps before the given one.
func (j *Job) auditBefore(view *access.Epoch, step int) (sum uint64) {
	var ids []int32
	for t := range step {
		ids = view.Global(ids[:0], t)
		for _, id := range ids {
			sum += access.Mix(view.Number(), int(id))
		}
	}
	if j.stream.Spec().Scheme == access.Whole {
		sum *= uint64(j.message.WorldSize)
	}
	return sum
}
