package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"
)

// askTime is how long the other nodes have to answer a question.
const askTime = 2 * time.Second

// The questions that nodes ask each other. Arguments follow the word as JSON. Nodes that ask the
// same at a time share the answers, so nothing in a question depends on who asks.
const (
	askReport = "report" // no argument; the answer is a NodeReport
	askAudit  = "audit"  // an epoch; the answer is an auditAnswer
	// the number of a turn; the answer is the ranks that have not supplied their parts
	askMissing = "missing"
)

// What nodes tell all others. Arguments follow the word as JSON.
const (
	tellFinal   = "final"   // the NodeReport of a node that leaves
	tellAudit   = "audit"   // an auditNews
	tellStopped = "stopped" // the node's stops
	tellAway    = "away"    // an awayMessage
	tellFaults  = "faults"  // samples that the node has found to be unusable
	tellStreams = "streams" // how many reads of the source at the same time are best
)

// answer returns the answer to another node's question.
func (c *Coordinator) answer(ctx context.Context, what string) []byte {
	word, text, _ := strings.Cut(what, " ")
	switch word {
	case askReport:
		if r := c.o.Local.Summary(); r != nil {
			return marshal(r.Nodes[0])
		}
	case askAudit:
		return c.answerAudit(ctx, text)
	case askMissing:
		return c.answerMissing(text)
	}
	return nil
}

// hear takes in a message of another node, and reports whether it did; if not, the node may send it
// again.
func (c *Coordinator) hear(what []byte) bool {
	word, text, _ := bytes.Cut(what, []byte(" "))
	switch string(word) {
	case tellFinal:
		return c.hearFinal(text)
	case tellAudit:
		return c.hearAudit(text)
	case tellStopped:
		return c.hearStopped(text)
	case tellAway:
		return c.hearAway(text)
	case tellFaults:
		return c.hearFaults(text)
	case tellStreams:
		return c.hearStreams(text)
	}
	return false
}

// open reports whether the job is open on this node now.
func (c *Coordinator) open() bool {
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	open, err := c.o.Local.Ready(now)
	return err == nil && open
}

// tell sends news to all other nodes, and returns which of them have it.
func (c *Coordinator) tell(ctx context.Context, word string, about any) (heard []bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return c.cluster.Tell(ctx, append([]byte(word+" "), marshal(about)...))
}

// marshal encodes a value whose encoding cannot fail.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// ask puts a question to the other nodes, with the argument about unless that is nil. It returns
// their answers by node number; nil where there was none within the time.
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

// silence is the reason why a node gives no answer.
type silence int

const (
	slow   silence = iota // unknown; it may answer later
	gone                  // the node is gone
	cutOff                // node 0, which relays questions, is gone
)

// Alive reports whether a node is alive, as far as is known on this node.
func (c *Coordinator) Alive(node int) bool { return c.cluster.Alive(node) }

// silent returns why a node gives no answer.
func (c *Coordinator) silent(n int) silence {
	switch {
	case !c.cluster.Alive(n):
		return gone
	case c.me != 0 && !c.cluster.Alive(0):
		return cutOff
	}
	return slow
}

// Missing implements order.Nodes.
func (c *Coordinator) Missing(ctx context.Context, turn int) (missing []int) {
	for _, answer := range c.ask(ctx, askTime, askMissing, turn) {
		var ranks []int
		if json.Unmarshal(answer, &ranks) == nil {
			missing = append(missing, ranks...)
		}
	}
	return missing
}

// answerMissing answers another node's question which ranks have not supplied their parts.
func (c *Coordinator) answerMissing(text string) []byte {
	var asked int
	if !c.open() || json.Unmarshal([]byte(text), &asked) != nil {
		return nil
	}
	turn, ranks := c.o.Local.Missing()
	if turn != asked { // the turn has ended meanwhile
		ranks = nil
	}
	return marshal(ranks)
}
