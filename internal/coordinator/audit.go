package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/audit"
)

// An epoch's audit over several nodes. Each node asks all others for their parts once its own ranks
// have finished the epoch, and the question carries its own parts. So a node that has its answers
// has told every node what it has to say, and may leave the job. Node 0, which relays the
// questions, then sends all parts to every node, because the others cannot ask once it is gone. A
// node that is asked answers when its ranks have finished, or after auditWait that they have not;
// then it is asked again. Rejected: a gather, which ends only when all nodes call it, and so never
// if the ranks of one of them break off the epoch or do not verify.

const (
	// auditWait is how long a node that is asked waits for its ranks.
	auditWait = 10 * time.Second
	// auditPause is the pause before a node that is alive but gave no answer is asked again.
	auditPause = 250 * time.Millisecond
)

// auditQuestion asks for a node's parts, and carries those of others by node number.
type auditQuestion struct {
	Epoch int                  `json:"epoch"`
	Told  map[int][]audit.Part `json:"told"`
}

// auditAnswer is a node's parts.
type auditAnswer struct {
	Done  bool         `json:"done"` // all its ranks have finished the epoch
	Parts []audit.Part `json:"parts"`
}

// nodeEpoch identifies an epoch on a node.
type nodeEpoch struct{ node, epoch int }

// Audit returns the parts of all other nodes' ranks, and why parts of some nodes are missing, if
// any are.
func (c *Coordinator) Audit(ctx context.Context, epoch int,
	mine []audit.Part,
) (parts []audit.Part, why string, err error) {
	question := auditQuestion{epoch, map[int][]audit.Part{c.me: mine}}
	known := map[int][]audit.Part{c.me: mine}
	var whys []string
	for {
		for n, answer := range c.ask(ctx, auditWait+askTime, askAudit, question) {
			if _, ok := known[n]; ok {
				continue
			}
			if answer == nil {
				said, why := c.lastParts(n, epoch)
				if said != nil {
					known[n] = said
				}
				if why != "" {
					whys = append(whys, why)
				}
				continue
			}
			var a auditAnswer
			if err := json.Unmarshal(answer, &a); err != nil || a.Done && !c.covers(n, a.Parts) {
				return nil, "",
					fmt.Errorf("node %d sent an invalid answer to the audit: %.200q", n, answer)
			}
			if a.Done {
				known[n] = a.Parts
			}
		}
		if len(known) == c.nodes() {
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
	if c.me == 0 {
		c.ask(ctx, askTime, askAudit, auditQuestion{epoch, known})
	}
	for n, p := range known {
		if n != c.me {
			parts = append(parts, p...)
		}
	}
	return parts, strings.Join(whys, "; "), nil
}

// lastParts returns the parts of a node that gave no answer: nil if it is to be asked again; what
// it sent when it asked; or only its ranks, with the reason why nothing else is known.
func (c *Coordinator) lastParts(n, epoch int) (parts []audit.Part, why string) {
	switch c.silent(n) {
	case gone:
		why = fmt.Sprintf("node %d is gone", n)
	case cutOff:
		why = fmt.Sprintf("node %d cannot be asked, because node 0 is gone", n)
	default:
		return nil, ""
	}
	c.mu.Lock()
	told := c.told[nodeEpoch{n, epoch}]
	c.mu.Unlock()
	if told != nil {
		return told, ""
	}
	for _, rank := range c.cluster.Members()[n].Ranks {
		parts = append(parts, audit.Part{Rank: rank})
	}
	return parts, why
}

// covers reports whether parts are valid and those of exactly a node's ranks.
func (c *Coordinator) covers(n int, parts []audit.Part) bool {
	if n < 0 || n >= c.nodes() {
		return false
	}
	ranks := make([]int, len(parts))
	for i, p := range parts {
		if ranks[i] = p.Rank; p.From < 0 || p.From > c.o.Local.Steps() {
			return false
		}
	}
	slices.Sort(ranks)
	return slices.Equal(ranks, c.cluster.Members()[n].Ranks)
}

// answerAudit stores the parts that a question carries, and answers with those of this node.
func (c *Coordinator) answerAudit(ctx context.Context, text string) []byte {
	var q auditQuestion
	ctx, cancel := context.WithTimeout(ctx, auditWait)
	defer cancel()
	open, err := c.o.Local.Ready(ctx)
	if err != nil {
		return marshal(auditAnswer{})
	}
	if !open || json.Unmarshal([]byte(text), &q) != nil {
		return nil
	}
	c.tell(&q)
	parts, err := c.o.Local.AuditParts(ctx, q.Epoch)
	return marshal(auditAnswer{err == nil, parts})
}

// tell stores other nodes' parts.
func (c *Coordinator) tell(q *auditQuestion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, parts := range q.Told {
		if n != c.me && c.covers(n, parts) {
			c.told[nodeEpoch{n, q.Epoch}] = parts
		}
	}
	maps.DeleteFunc(c.told, func(of nodeEpoch, _ []audit.Part) bool {
		return of.epoch <= q.Epoch-audit.Kept
	})
}
