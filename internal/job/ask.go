package job

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/stats"
)

const (
	// askTime is how long the other nodes have to answer.
	askTime = 2 * time.Second
	// askReport is the question that is answered by a NodeReport in JSON.
	askReport = "report"
)

// answer answers another node's question.
func (j *Job) answer(ctx context.Context, what string) []byte {
	if text, ok := strings.CutPrefix(what, askAudit); ok {
		return j.answerAudit(ctx, text)
	}
	if what != askReport {
		return nil
	}
	c := j.summary()
	if c == nil {
		return nil
	}
	return marshal(c.Nodes[0])
}

// marshal encodes what always can be.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// heard is what a node said of itself, and when.
type heard struct {
	report stats.NodeReport
	at     time.Time
}

// reports are those of all nodes; mine is this one's.
func (o *others) reports(ctx context.Context, mine stats.NodeReport) []stats.NodeReport {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := o.cluster.Ask(ctx, askReport)
	now := time.Now()
	out := make([]stats.NodeReport, len(answers))
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, member := range o.cluster.Members() {
		r := &out[n]
		if *r = mine; n != o.me {
			*r = o.part(n, answers[n], now)
		}
		r.Node = n
		r.Address, _, _ = net.SplitHostPort(member.Exchange)
		if r.Ranks == nil {
			for _, rank := range member.Ranks {
				r.Ranks = append(r.Ranks, stats.RankTally{Rank: rank})
			}
		}
	}
	return out
}

// part is a node's answer, or else what it said last. o.mu is held.
func (o *others) part(n int, answer []byte, now time.Time) stats.NodeReport {
	var r stats.NodeReport
	var err error
	if answer != nil {
		if err = json.Unmarshal(answer, &r); err == nil {
			r.Answering, r.Age = true, 0
			o.last[n] = heard{r, now}
			return r
		}
	}
	last, known := o.last[n]
	r = last.report
	r.Answering, r.Age = false, -1
	if known {
		r.Age = now.Sub(last.at).Seconds()
	}
	switch {
	case err != nil:
		r.Why = fmt.Sprintf("it says what is no report: %v", err)
	case !o.cluster.Alive(n):
		r.Why = "it is gone"
	case n != 0 && o.me != 0 && !o.cluster.Alive(0):
		r.Why = "node 0, by way of which nodes ask each other, is gone"
	default:
		r.Why = fmt.Sprintf("nothing was heard within %v", askTime)
	}
	return r
}
