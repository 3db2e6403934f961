package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
)

// heard is a node's latest report, and when it arrived.
type heard struct {
	report report.NodeReport
	at     time.Time
}

// Reports returns the reports of all nodes; mine is this node's.
func (c *Coordinator) Reports(ctx context.Context, mine report.NodeReport) []report.NodeReport {
	answers := c.ask(ctx, askTime, askReport, nil)
	now := time.Now()
	out := make([]report.NodeReport, len(answers))
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, member := range c.cluster.Members() {
		r := &out[n]
		if *r = mine; n != c.me {
			*r = c.part(n, answers[n], now)
		}
		r.Node = n
		r.Address, _, _ = net.SplitHostPort(member.Exchange)
		if r.Ranks == nil {
			for _, rank := range member.Ranks {
				r.Ranks = append(r.Ranks, report.RankTally{Rank: rank})
			}
		}
	}
	return out
}

// Leave sends this node's final figures to the other nodes, which report them when it is gone.
// Close follows.
func (c *Coordinator) Leave(final report.NodeReport) {
	final.Node = c.me
	c.tell(context.Background(), tellFinal, final)
}

// hearFinal takes in the final figures of another node.
func (c *Coordinator) hearFinal(text []byte) bool {
	var r report.NodeReport
	if err := json.Unmarshal(text, &r); err != nil || r.Node < 0 || r.Node >= c.nodes() ||
		r.Node == c.me {
		c.o.Log.Warn("a node sent invalid final figures", "node", r.Node, "error", err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[r.Node] = heard{r, time.Now()}
	return true
}

// part returns the report in a node's answer, or else its latest report. c.mu must be held.
func (c *Coordinator) part(n int, answer []byte, now time.Time) report.NodeReport {
	var r report.NodeReport
	var err error
	if answer != nil {
		if err = json.Unmarshal(answer, &r); err == nil {
			r.Responding, r.Age = true, 0
			c.last[n] = heard{r, now}
			return r
		}
	}
	last, known := c.last[n]
	r = last.report
	r.Responding, r.Age = false, -1
	if known {
		r.Age = now.Sub(last.at).Seconds()
	}
	switch why := c.silent(n); {
	case err != nil:
		r.Why = fmt.Sprintf("it sent an invalid report: %v", err)
	case why == gone:
		r.Why = "it is gone"
	case why == cutOff:
		r.Why = "node 0, which relays questions between nodes, is gone"
	default:
		r.Why = fmt.Sprintf("timed out after %v", askTime)
	}
	return r
}
