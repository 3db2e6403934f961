package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

// An epoch's audit over several nodes. Each node sends its parts to all others once its own ranks
// have finished the epoch, and asks for the parts that it has not received. So a node that has all
// parts has sent its own to every node, and may leave the job. Ranks that go back finish an epoch
// again: a node that receives parts of another pass than its own asks as well. A node that is asked
// answers when its ranks have finished, or after auditWait that they have not; then it is asked
// again. In the end node 0, which relays questions, sends to every node the parts that it had to
// ask for because it had not received them: the others cannot ask once it is gone. Rejected: a
// gather, which ends only when all nodes call it, and so never if the ranks of one of them break
// off the epoch or do not verify.

const (
	// auditWait is how long a node that is asked waits for its ranks.
	auditWait = 10 * time.Second
	// auditPause is the pause before a node that is alive but gave no answer is asked again.
	auditPause = 250 * time.Millisecond
)

// auditNews are parts by node number.
type auditNews struct {
	Epoch int                  `json:"epoch"`
	Told  map[int][]audit.Part `json:"told"`
}

// auditAnswer is a node's parts.
type auditAnswer struct {
	Done  bool         `json:"done"` // all its ranks have finished the epoch
	Parts []audit.Part `json:"parts"`
}

// Audit returns the parts of all other nodes' ranks, and why parts of some nodes are missing, if
// any are.
func (c *Coordinator) Audit(ctx context.Context, epoch int,
	mine []audit.Part,
) (parts []audit.Part, why string, err error) {
	if err := c.tellParts(ctx, auditNews{epoch, map[int][]audit.Part{c.me: mine}}); err != nil {
		return nil, "", err
	}
	known := map[int][]audit.Part{c.me: mine}
	asked := map[int][]audit.Part{}
	var whys []string
	for {
		c.mu.Lock()
		for n, told := range c.told[epoch] {
			if known[n] == nil && onePass(mine, told) {
				known[n] = told
			}
		}
		c.mu.Unlock()
		if len(known) == c.nodes() {
			break
		}
		for n, answer := range c.ask(ctx, auditWait+askTime, askAudit, epoch) {
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
				known[n], asked[n] = a.Parts, a.Parts
			}
		}
		if len(known) == c.nodes() {
			break
		}
		if err := pause(ctx, auditPause); err != nil {
			return nil, "", err
		}
	}
	if c.me == 0 && len(asked) > 0 {
		c.tell(ctx, tellAudit, auditNews{epoch, asked})
	}
	for n, p := range known {
		if n != c.me {
			parts = append(parts, p...)
		}
	}
	return parts, strings.Join(whys, "; "), nil
}

// onePass reports whether two nodes' ranks began an epoch at the same step. If not, the parts that
// one has received may be of an earlier pass: ranks that go back read the rest of the epoch again.
// Then the node is asked.
func onePass(a, b []audit.Part) bool {
	for _, p := range a {
		if slices.ContainsFunc(b, func(q audit.Part) bool {
			return p.Finished && q.Finished && p.From != q.From
		}) {
			return false
		}
	}
	return true
}

// tellParts sends this node's parts to the other nodes, until all that can be reached have them.
func (c *Coordinator) tellParts(ctx context.Context, news auditNews) error {
	told := make([]bool, c.nodes())
	for {
		for n, heard := range c.tell(ctx, tellAudit, news) {
			told[n] = told[n] || heard
		}
		done := true
		for n := range told {
			done = done && (told[n] || n == c.me || c.silent(n) != slow)
		}
		if done {
			return nil
		}
		if err := pause(ctx, auditPause); err != nil {
			return err
		}
	}
}

// pause waits, and returns an error if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	told := c.told[epoch][n]
	c.mu.Unlock()
	if told != nil {
		return told, ""
	}
	for _, rank := range c.cluster.Member(n).Ranks {
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
	return slices.Equal(ranks, c.cluster.Member(n).Ranks)
}

// answerAudit answers with this node's parts of an epoch.
func (c *Coordinator) answerAudit(ctx context.Context, text string) []byte {
	ctx, cancel := context.WithTimeout(ctx, auditWait)
	defer cancel()
	open, err := c.o.Local.Ready(ctx)
	if err != nil {
		return marshal(auditAnswer{})
	}
	var epoch int
	if !open || json.Unmarshal([]byte(text), &epoch) != nil {
		return nil
	}
	parts, err := c.o.Local.AuditParts(ctx, epoch)
	return marshal(auditAnswer{err == nil, parts})
}

// hearAudit stores other nodes' parts.
func (c *Coordinator) hearAudit(text []byte) bool {
	var news auditNews
	if !c.open() || json.Unmarshal(text, &news) != nil || news.Epoch < 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told[news.Epoch] == nil {
		c.told[news.Epoch] = map[int][]audit.Part{}
		maps.DeleteFunc(c.told, func(epoch int, _ map[int][]audit.Part) bool {
			return epoch <= news.Epoch-audit.Kept
		})
	}
	for n, parts := range news.Told {
		if n != c.me && c.covers(n, parts) {
			c.told[news.Epoch][n] = parts
		}
	}
	return true
}
