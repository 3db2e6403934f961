package job

import (
	"context"
	"fmt"
	"slices"

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

// auditPart is one rank's part of an epoch's audit, as nodes tell each other.
type auditPart struct {
	Rank     int    `json:"rank"`
	From     int    `json:"from"` // step
	Hash     uint64 `json:"hash"`
	Finished bool   `json:"finished"`
	Left     bool   `json:"left"`    // it will not finish: it is gone, or went on to a later epoch
	Samples  int64  `json:"samples"` // delivered
	Missing  uint64 `json:"missing"` // as Ledger.Delivered
}

// Audit is what an epoch delivered, against what it should have.
type Audit struct {
	Epoch    int    `json:"epoch"`
	Complete bool   `json:"complete"` // all ranks have finished the epoch, and the hashes agree
	Expected string `json:"expected"` // set hash of the epoch's samples, hex
	// Delivered is the sum of what the ranks counted.
	Delivered string `json:"delivered"`
	Samples   int64  `json:"samples"`       // delivered over all ranks
	Missing   []int  `json:"missing"`       // ranks that left before they finished the epoch, or of which nothing was heard
	Why       string `json:"why,omitempty"` // of the latter
}

// auditFlight is an audit that was begun once for all of the node's ranks.
type auditFlight struct {
	done  chan struct{}
	audit *Audit
	err   error
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
	for e := range j.flights {
		if e >= epoch {
			delete(j.flights, e)
		}
	}
	j.audits[auditKey{epoch, rank}] = auditEntry{from: step}
	j.epochNow.Store(int64(epoch))
	j.signal() // it has left earlier epochs
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
	delete(j.flights, epoch-keptAudits)
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

// Audit compares what the ranks were delivered in an epoch with what they should
// have been; see Job.Audit.
func (r *Rank) Audit(ctx context.Context, epoch int) (*Audit, error) {
	return r.job.Audit(ctx, epoch)
}

// Audit waits until every rank has finished the epoch, or left, and compares the
// sum of their set hashes with that of the samples that the epoch should
// deliver, each exactly once (access.Epoch.Audit).
func (j *Job) Audit(ctx context.Context, epoch int) (*Audit, error) {
	if epochs := j.stream.Spec().Epochs; epoch < 0 || (epochs > 0 && epoch >= epochs) {
		return nil, badInput("audit of epoch %d: the job has %d epochs (0: no end), counted from 0", epoch, epochs)
	}
	j.mu.Lock()
	if oldest := j.audited - keptAudits + 1; epoch < oldest && !j.knows(epoch) {
		j.mu.Unlock()
		return nil, badInput("audit of epoch %d: the last %d epochs can be audited, from epoch %d on", epoch, keptAudits, oldest)
	}
	flight := j.flights[epoch]
	mine := flight == nil
	if mine {
		flight = &auditFlight{done: make(chan struct{})}
		j.flights[epoch] = flight
	}
	j.mu.Unlock()
	if mine {
		flight.audit, flight.err = j.audit(ctx, epoch)
		if flight.err != nil {
			j.mu.Lock()
			if j.flights[epoch] == flight {
				delete(j.flights, epoch) // whoever comes now tries anew
			}
			j.mu.Unlock()
		}
		close(flight.done)
		return flight.audit, flight.err
	}
	select {
	case <-flight.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("audit of epoch %d: %w", epoch, ctx.Err())
	}
	if flight.err != nil {
		return j.Audit(ctx, epoch) // whoever began it went away
	}
	return flight.audit, nil
}

// audit is Audit once for all ranks of this node.
func (j *Job) audit(ctx context.Context, epoch int) (*Audit, error) {
	parts, err := j.awaitParts(ctx, epoch)
	why := ""
	if err == nil && j.others != nil {
		var more []auditPart
		more, why, err = j.others.audit(ctx, epoch, parts)
		parts = append(parts, more...)
	}
	if err != nil {
		return nil, fmt.Errorf("audit of epoch %d: %w", epoch, err)
	}
	a := j.compareAudit(epoch, parts)
	a.Why = why
	return a, nil
}

// ownRanks are the ranks of this node.
func (j *Job) ownRanks() []int {
	if j.others != nil {
		return j.others.cluster.Members()[j.others.me].Ranks
	}
	ranks := make([]int, j.message.WorldSize)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// awaitParts waits until each rank of this node has finished the epoch, or will not.
func (j *Job) awaitParts(ctx context.Context, epoch int) ([]auditPart, error) {
	ranks := j.ownRanks()
	for {
		j.mu.Lock()
		changed := j.changed
		parts, waiting := j.parts(epoch, ranks)
		j.mu.Unlock()
		if !waiting {
			return parts, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// parts lists the ranks' parts, and tells whether there are any to be waited for. j.mu is held.
func (j *Job) parts(epoch int, ranks []int) (out []auditPart, waiting bool) {
	for _, rank := range ranks {
		e := j.audits[auditKey{epoch, rank}]
		ledger := j.ledgers[rank]
		p := auditPart{Rank: rank, From: e.from, Hash: e.hash, Finished: e.finished}
		if ledger != nil {
			p.Samples, p.Missing = ledger.Delivered(epoch)
		}
		if !e.finished {
			p.Left = ledger != nil && j.ranks[rank] == nil || j.beyond(epoch, rank)
			waiting = waiting || !p.Left
		}
		out = append(out, p)
	}
	return out, waiting
}

// beyond tells whether a rank has begun a later epoch. j.mu is held.
func (j *Job) beyond(epoch, rank int) bool {
	for key := range j.audits {
		if key.rank == rank && key.epoch > epoch {
			return true
		}
	}
	return false
}

// compareAudit adds all ranks' parts up.
func (j *Job) compareAudit(epoch int, parts []auditPart) *Audit {
	view := j.epoch(epoch)
	a := &Audit{Epoch: epoch, Missing: []int{}}
	var delivered, missing uint64
	from := map[int]bool{}
	first := 0
	for _, p := range parts {
		if !p.Finished {
			a.Missing = append(a.Missing, p.Rank)
			continue
		}
		delivered += p.Hash
		first, from[p.From] = p.From, true
		a.Samples += p.Samples
		missing += p.Missing
	}
	slices.Sort(a.Missing)
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
