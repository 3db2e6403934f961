package job

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// An epoch's audit over several nodes. Each node, once its own ranks are through, asks all others for their parts, and
// the question tells its own: so when it has its answers, everybody has what it has to say, and it may leave the
// job. Node 0, without which the others can not ask any more, then tells everybody all parts. A node that is asked answers when its
// ranks are through, or after auditWait that they are not; then it is asked again. Rejected: a gather, which ends only
// when all nodes call it, and so never where the ranks of one of them break the epoch off, or do not verify.

const (
	// askAudit begins the question; an auditQuestion in JSON follows.
	askAudit = "audit "
	// auditWait is for how long a node that is asked waits for its ranks.
	auditWait = 10 * time.Second
	// auditPause lies between two questions to a node that gave no answer although it is there.
	auditPause = 250 * time.Millisecond
)

// auditQuestion asks for a node's part, and tells those of others, by node.
type auditQuestion struct {
	Epoch int                 `json:"epoch"`
	Told  map[int][]auditPart `json:"told"`
}

// auditAnswer is a node's part.
type auditAnswer struct {
	Done  bool        `json:"done"` // all its ranks are through
	Parts []auditPart `json:"parts"`
}

// nodeEpoch is a node's way through an epoch.
type nodeEpoch struct{ node, epoch int }

// audit returns the parts of all other nodes' ranks, and, where nothing was heard of some, why.
func (o *others) audit(ctx context.Context, epoch int, mine []auditPart) (parts []auditPart, why string, err error) {
	question := askAudit + string(marshal(auditQuestion{epoch, map[int][]auditPart{o.me: mine}}))
	heard := map[int][]auditPart{}
	var gone []string
	for {
		round, cancel := context.WithTimeout(ctx, auditWait+askTime)
		answers := o.cluster.Ask(round, question)
		cancel()
		for n, answer := range answers {
			if n == o.me || heard[n] != nil {
				continue
			}
			if answer == nil {
				last, why := o.silent(n, epoch)
				if last != nil {
					heard[n] = last
				}
				if why != "" {
					gone = append(gone, why)
				}
				continue
			}
			var a auditAnswer
			if err := json.Unmarshal(answer, &a); err != nil || a.Done && !o.covers(n, a.Parts) {
				return nil, "", fmt.Errorf("node %d says what is no part of an audit: %.200q", n, answer)
			}
			if a.Done {
				heard[n] = a.Parts
			}
		}
		if len(heard) == o.nodes()-1 {
			break
		}
		pause := time.NewTimer(auditPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, "", ctx.Err()
		}
	}
	for _, p := range heard {
		parts = append(parts, p...)
	}
	if o.me == 0 {
		heard[o.me] = mine
		round, cancel := context.WithTimeout(ctx, askTime)
		o.cluster.Ask(round, askAudit+string(marshal(auditQuestion{epoch, heard})))
		cancel()
	}
	return parts, strings.Join(gone, "; "), nil
}

// silent are the parts of a node that gave no answer: nil, if it is to be asked again; what it said when it asked; or, with the
// reason, nothing but its ranks.
func (o *others) silent(n, epoch int) (parts []auditPart, why string) {
	switch {
	case !o.cluster.Alive(n):
		why = fmt.Sprintf("node %d is gone", n)
	case o.me != 0 && !o.cluster.Alive(0):
		why = fmt.Sprintf("node %d can not be asked, as node 0 is gone", n)
	default:
		return nil, ""
	}
	o.mu.Lock()
	told := o.told[nodeEpoch{n, epoch}]
	o.mu.Unlock()
	if told != nil {
		return told, ""
	}
	for _, rank := range o.cluster.Members()[n].Ranks {
		parts = append(parts, auditPart{Rank: rank})
	}
	return parts, why
}

// covers tells whether parts are those of exactly a node's ranks.
func (o *others) covers(n int, parts []auditPart) bool {
	if n < 0 || n >= o.nodes() {
		return false
	}
	ranks := make([]int, len(parts))
	for i, p := range parts {
		ranks[i] = p.Rank
	}
	slices.Sort(ranks)
	return slices.Equal(ranks, o.cluster.Members()[n].Ranks)
}

// answerAudit notes the parts that a question tells, and gives those of this node.
func (j *Job) answerAudit(ctx context.Context, text string) []byte {
	var q auditQuestion
	ctx, cancel := context.WithTimeout(ctx, auditWait)
	defer cancel()
	select {
	case <-j.ready:
	case <-ctx.Done():
		return marshal(auditAnswer{})
	}
	if j.err != nil || json.Unmarshal([]byte(text), &q) != nil {
		return nil
	}
	j.others.tell(&q)
	parts, err := j.awaitParts(ctx, q.Epoch)
	return marshal(auditAnswer{err == nil, parts})
}

// tell notes other nodes' parts.
func (o *others) tell(q *auditQuestion) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, parts := range q.Told {
		if n != o.me && o.covers(n, parts) {
			o.told[nodeEpoch{n, q.Epoch}] = parts
		}
	}
	maps.DeleteFunc(o.told, func(of nodeEpoch, _ []auditPart) bool { return of.epoch <= q.Epoch-keptAudits })
}
