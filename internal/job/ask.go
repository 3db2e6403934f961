package job

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// askTime is how long the other nodes have to answer.
const askTime = 2 * time.Second

// The questions that nodes ask each other. What follows on the word is in JSON.
const (
	askReport  = "report"  // and nothing; the answer is a NodeReport
	askAudit   = "audit"   // an auditQuestion; an auditAnswer
	askStopped = "stopped" // the stops of the node that asks; whatever the answer, they were heard
	askMissing = "missing" // a turn of parts; the ranks that have not given theirs
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
	case askMissing:
		return j.answerMissing(text)
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
