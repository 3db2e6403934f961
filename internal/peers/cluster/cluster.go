// Package cluster is the contract of the cluster that the daemons of one job form, one daemon per
// node: what a node brings (Options), what it learns of the others (Member), the limits, the
// errors, and the network.
//
// Node 0 listens and the other nodes join it. Before anything else is exchanged, both sides prove
// that they have the job's secret. When all nodes have joined, their facts (the agreement keys) are
// equal and their ranks cover the world size, agent.Form returns on every node; otherwise it
// returns the same error on every node. From then on the nodes watch each other
// (hashicorp/memberlist), gather small values and ask each other through node 0, and a node whose
// daemon was restarted may rejoin under its number.
//
// The parts:
//
//	agent    every node's side, node 0's too: forms the cluster; the members as this node has them
//	hub      node 0's side: a state machine without a network; decides which nodes belong
//	session  one authenticated and sealed stream between an agent and the hub
//	gossip   memberlist: which nodes are alive, without node 0
//	outbox   the queue between a sender that must not block and a receiver that may
//
// INVARIANTS. Nothing listens before agent.Form is called, and then only on loopback or the
// addresses given. No byte about the job is sent to a peer that has not proved that it has the
// secret. Limits are checked before memory is allocated. Everything that waits ends with its
// context, its deadline, or Close.
//
// The cluster does not move samples, and does not interpret facts and payloads.
package cluster

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
)

// Limits of what nodes exchange.
const (
	// MaxPayload limits Options.Payload, Options.Broadcast, and one node's part of a Gather.
	MaxPayload = 4 << 20
	MaxTotal   = 256 << 20 // payloads of all nodes together
	MaxNodes   = 1 << 16
	// MaxAnswer is the largest answer, in bytes.
	MaxAnswer = 1 << 20
	// MaxQuestionTime is how long a question can wait for answers.
	MaxQuestionTime = 10 * time.Minute
)

// MaxQuestions is how many questions and news of other nodes a node handles at a time, and how many
// questions node 0 puts to the nodes; further ones get no answer.
func MaxQuestions(nodes int) int { return 64 + 4*nodes }

// Fact is an agreement key with this node's value. All nodes must have the same facts.
type Fact struct{ Key, Value string }

// Options configure agent.Form.
type Options struct {
	Job       string // the same on all nodes, and unique to the job
	Node      int    // in [0, Nodes)
	Nodes     int
	WorldSize int
	Ranks     []int // of this node; those of all nodes cover [0, WorldSize)
	// Listen is the address on which node 0 listens for the other nodes, host:port.
	Listen string
	// Listening, if not nil, is called with the address on which node 0 listens.
	Listening func(net.Addr)
	// Join is node 0's address, which the other nodes dial.
	Join string
	// Exchange is the address on which this node serves samples, host:port. If the host is empty,
	// it is the address under which node 0 and this node see each other.
	Exchange string
	// Gossip is this node's address for failure detection, TCP and UDP. If empty, it is the host of
	// Exchange with its port plus one, or with any free port if that one is in use.
	Gossip string
	// Whole, on node 0, means that the job needs all nodes from its start: a daemon that was
	// restarted cannot rejoin; one that was disconnected can.
	Whole bool
	// Network is how nodes reach each other; nil: the network of the operating system.
	Network Network
	Secret  auth.Secret
	TLS     *tls.Config // as client and as server; nil: no TLS
	// Failure is the reason why this node cannot take part. Form then reports it to the other nodes
	// through node 0, if node 0 can be reached within some seconds, and returns it. Exchange and
	// Gossip are ignored.
	Failure  error
	Deadline time.Duration
	Facts    []Fact
	// Remedy, if not nil, returns what a user can do if nodes differ in a fact.
	Remedy func(key string) string
	// Payload is sent to every node.
	Payload []byte
	// Broadcast, on node 0, is sent to every node.
	Broadcast []byte
	// Answer returns the answer to another node's question (Agent.Ask), at most MaxAnswer bytes, or
	// nil for no answer. It is called from several goroutines, possibly before Form returns, and
	// must return soon after ctx, which ends with the cluster, is done. A nil Answer answers no
	// question.
	Answer func(ctx context.Context, what string) []byte
	// Hear takes in what another node sends all others (Agent.Tell), and reports whether it did. It
	// is called from several goroutines, possibly before Form returns, and must not block. A nil Hear
	// takes in nothing.
	Hear     func(what []byte) bool
	Log      *slog.Logger
	Progress func(string) // called with what Form waits for; never concurrently
	// Refused, on node 0, is called with the reason whenever a connection is refused while the
	// cluster forms. It is called from several goroutines and must not block.
	Refused func(error)
}

// Member is one node of the cluster, as last reported.
type Member struct {
	Node     int
	Exchange string // host:port
	Ranks    []int
	Payload  []byte
}
