package coordinator

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
func (c *Coordinator) answer(ctx context.Context, what string) []byte {
	word, text, _ := strings.Cut(what, " ")
	switch word {
	case askReport:
		if r := c.o.Local.Summary(); r != nil {
			return marshal(r.Nodes[0])
		}
	case askAudit:
		return c.answerAudit(ctx, text)
	case askStopped:
		return c.answerStopped(text)
	case askMissing:
		return c.answerMissing(ctx, text)
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

// ask puts a question to the other nodes, with what it is about, if that is not nil, and returns
// their answers, by number; nil: there was none within the time.
func (c *Coordinator) ask(ctx context.Context, within time.Duration, word string,
	about any,
) [][]byte {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if about != nil {
		word += " " + string(marshal(about))
	}
	return c.cluster.Ask(ctx, word)
}

// silence is why a node gives no answer.
type silence int

const (
	slow   silence = iota // nothing is known; it may answer yet
	gone                  // it is gone
	cutOff                // node 0 is gone, by way of which nodes ask each other
)

// Alive reports whether a node is there, as far as is known.
func (c *Coordinator) Alive(node int) bool { return c.cluster.Alive(node) }

// silent tells why a node gives no answer.
func (c *Coordinator) silent(n int) silence {
	switch {
	case !c.cluster.Alive(n):
		return gone
	case c.me != 0 && !c.cluster.Alive(0):
		return cutOff
	}
	return slow
}

// Missing is order.Nodes'.
func (c *Coordinator) Missing(ctx context.Context, turn int) (missing []int) {
	for _, answer := range c.ask(ctx, askTime, askMissing, turn) {
		var ranks []int
		if json.Unmarshal(answer, &ranks) == nil {
			missing = append(missing, ranks...)
		}
	}
	return missing
}

// answerMissing answers another node's question for the ranks that it waits for.
func (c *Coordinator) answerMissing(ctx context.Context, text string) []byte {
	now, cancel := context.WithCancel(ctx)
	cancel() // a job that is not open yet has nothing to say
	var asked int
	if open, err := c.o.Local.Ready(now); err != nil || !open ||
		json.Unmarshal([]byte(text), &asked) != nil {
		return nil
	}
	turn, ranks := c.o.Local.Missing()
	if turn != asked { // it was heard of meanwhile
		ranks = nil
	}
	return marshal(ranks)
}
