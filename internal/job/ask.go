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

// askTime is how long the other nodes have to answer.
const askTime = 2 * time.Second

// The questions that nodes ask each other. What follows on the word is in JSON.
const (
	askReport  = "report"  // and nothing; the answer is a NodeReport
	askAudit   = "audit"   // an auditQuestion; an auditAnswer
	askStopped = "stopped" // the stops of the node that asks; whatever the answer, they were heard
)

// answer answers another node's question.
func (j *Job) answer(ctx context.Context, what string) []byte {
	word, text, _ := strings.Cut(what, " ")
	switch word {
	case askReport:
		if c := j.summary(); c != nil {
			return marshal(c.Nodes[0])
		}
	case askAudit:
		return j.answerAudit(ctx, text)
	case askStopped:
		return j.answerStopped(text)
	}
	return nil
}

// marshal encodes what always can be.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// ask puts a question to the other nodes, with what it is about, if that is not nil, and returns their answers, by number; nil: there was
// none within the time.
func (o *others) ask(ctx context.Context, within time.Duration, word string, about any) [][]byte {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if about != nil {
		word += " " + string(marshal(about))
	}
	return o.cluster.Ask(ctx, word)
}

// silence is why a node gives no answer.
type silence int

const (
	slow   silence = iota // nothing is known; it may answer yet
	gone                  // it is gone
	cutOff                // node 0 is gone, by way of which nodes ask each other
)

// silent tells why a node gives no answer.
func (o *others) silent(n int) silence {
	switch {
	case !o.cluster.Alive(n):
		return gone
	case o.me != 0 && !o.cluster.Alive(0):
		return cutOff
	}
	return slow
}

// heard is what a node said of itself, and when.
type heard struct {
	report stats.NodeReport
	at     time.Time
}

// reports are those of all nodes; mine is this one's.
func (o *others) reports(ctx context.Context, mine stats.NodeReport) []stats.NodeReport {
	answers := o.ask(ctx, askTime, askReport, nil)
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
	switch why := o.silent(n); {
	case err != nil:
		r.Why = fmt.Sprintf("it says what is no report: %v", err)
	case why == gone:
		r.Why = "it is gone"
	case why == cutOff:
		r.Why = "node 0, by way of which nodes ask each other, is gone"
	default:
		r.Why = fmt.Sprintf("nothing was heard within %v", askTime)
	}
	return r
}
