// Package cluster forms the cluster of the daemons of one job: one daemon per node.
//
// Node 0 listens and the other nodes join it. Before anything else is exchanged, both sides prove
// that they know the job's secret. When all nodes have joined, their facts (the agreement keys) are
// equal and their ranks cover the world size, Form returns on every node; otherwise it returns the
// same error on every node. From then on the nodes watch each other (hashicorp/memberlist), gather
// small values and ask each other through node 0, and a node whose daemon was restarted may rejoin
// under its number.
//
// The parts:
//
//	hub      node 0's half: a state machine without a network; decides which nodes belong
//	agent    every node's half, node 0's too: the members as this node knows them
//	session  one authenticated and sealed stream between an agent and the hub (server, dial)
//	gossip   memberlist: which nodes are alive, without node 0 (its network: transport)
//
// INVARIANTS. Nothing listens before Form is called, and then only on loopback or the addresses
// given. No byte about the job is sent to a peer that has not proved that it knows the secret.
// Limits are checked before memory is allocated. Everything that waits ends with its context, its
// deadline, or Close.
//
// The package does not move samples, and does not interpret facts and payloads.
package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// Limits of what nodes exchange.
const (
	// MaxPayload limits Options.Payload, Options.Broadcast, and one node's part of a Gather.
	MaxPayload = 4 << 20
	MaxTotal   = 256 << 20 // payloads of all nodes together
	MaxNodes   = 1 << 16
)

// Fact is an agreement key with this node's value. All nodes must have the same facts.
type Fact struct{ Key, Value string }

// Options configure Form.
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
	// Answer returns the answer to another node's question (Cluster.Ask), at most MaxAnswer bytes,
	// or nil for no answer. It is called from several goroutines, possibly before Form returns, and
	// must return soon after ctx, which ends with the cluster, is done. A nil Answer answers no
	// question.
	Answer func(ctx context.Context, what string) []byte
	// Hear takes in what another node tells all others (Cluster.Tell), and reports whether it did. It
	// is called from several goroutines, possibly before Form returns, and must not block. A nil Hear
	// takes in nothing.
	Hear     func(what []byte) bool
	Log      *slog.Logger
	Progress func(string) // called with what Form waits for; never concurrently
	// Refused, on node 0, is called with the reason whenever a connection is refused while the
	// cluster forms. It is called from several goroutines and must not block.
	Refused func(error)

	gossipIsDefault bool
}

// Member is one node of the cluster, as last reported.
type Member struct {
	Node     int
	Exchange string // host:port
	Ranks    []int
	Payload  []byte
}

// Cluster is this node's handle on a formed cluster. Its methods are safe for concurrent use.
type Cluster struct {
	agent *agent
	stop  func()
	halt  func() // ends connections without a leave message; for tests
}

// Form joins the cluster of the job. It returns when all nodes have joined and agree, and otherwise
// one of the package's errors, the same on every node that can be reached, at the latest some
// seconds after Deadline. Canceling ctx makes it return at once; after Form has returned, ctx has
// no effect.
func Form(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := newAgent(o)
	if o.Nodes == 1 {
		a.alone()
		return &Cluster{agent: a, stop: a.close}, nil
	}
	var stop, halt func()
	var err error
	if o.Node == 0 {
		stop, halt, err = serve(ctx, a)
	} else {
		stop, halt = join(a)
	}
	if err == nil {
		err = a.wait(ctx)
	}
	if err != nil {
		if stop != nil {
			stop()
		}
		a.close()
		return nil, err
	}
	return &Cluster{a, func() { a.leave(); stop(); a.close() }, halt}, nil
}

// complete validates the options and sets defaults.
func (o *Options) complete() error {
	bad := func(option, value, why string) error { return &OptionError{option, value, why} }
	switch {
	case o.Nodes < 1 || o.Nodes > MaxNodes:
		return bad("nodes", strconv.Itoa(o.Nodes), "must be in [1, "+strconv.Itoa(MaxNodes)+"]")
	case o.Node < 0 || o.Node >= o.Nodes:
		return bad("node", strconv.Itoa(o.Node),
			"must be in [0, nodes), where nodes is "+strconv.Itoa(o.Nodes))
	case o.WorldSize < 1:
		return bad("world_size", strconv.Itoa(o.WorldSize), "must be at least 1")
	case len(o.Payload) > MaxPayload:
		return &LimitError{"payload", int64(len(o.Payload)), MaxPayload}
	case len(o.Broadcast) > MaxPayload:
		return &LimitError{"broadcast", int64(len(o.Broadcast)), MaxPayload}
	}
	o.Ranks = slices.Sorted(slices.Values(o.Ranks))
	for i, r := range o.Ranks {
		if r < 0 || r >= o.WorldSize {
			return bad("ranks", strconv.Itoa(r),
				"must be in [0, world_size), where world_size is "+strconv.Itoa(o.WorldSize))
		}
		if i > 0 && r == o.Ranks[i-1] {
			return bad("ranks", strconv.Itoa(r), "is listed twice")
		}
	}
	o.Network = orSystem(o.Network)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Refused == nil {
		o.Refused = func(error) {}
	}
	if o.Deadline <= 0 {
		o.Deadline = 5 * time.Minute
	}
	if o.Nodes == 1 {
		return nil
	}
	if len(o.Secret) < auth.MinSecret {
		return bad("secret", strconv.Itoa(len(o.Secret))+" bytes",
			"must have at least "+strconv.Itoa(auth.MinSecret)+
				" bytes; 'openssl rand -hex 32' prints a good one")
	}
	named := []struct{ name, value string }{{"join", o.Join}, {"exchange", o.Exchange}}
	if o.Node == 0 {
		named[0].name, named[0].value = "listen", o.Listen
	}
	if o.Failure != nil {
		named = named[:1]
	}
	for _, n := range named {
		host, port, err := splitAddress(n.value)
		if err != nil {
			return bad(n.name, n.value, err.Error())
		}
		if n.name == "exchange" && o.Gossip == "" {
			o.gossipIsDefault = true
			o.Gossip = net.JoinHostPort(host, strconv.Itoa((port+1)%65536))
		}
	}
	if _, _, err := splitAddress(o.Gossip); err != nil && o.Failure == nil {
		return bad("gossip", o.Gossip, err.Error())
	}
	return nil
}

// splitAddress splits host:port; the host may be empty.
func splitAddress(s string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, errors.New("must be host:port")
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, errors.New("the port must be in [0, 65535]")
	}
	return host, int(n), nil
}

// Members returns all nodes, by number.
func (c *Cluster) Members() []Member { return c.agent.list() }

// Member returns one node.
func (c *Cluster) Member(node int) Member { return c.agent.member(node) }

// Dial connects to the address on which a node serves samples, as last reported.
func (c *Cluster) Dial(ctx context.Context, node int) (net.Conn, error) {
	return c.agent.o.Network.Dial(ctx, c.Member(node).Exchange)
}

// Broadcast returns what node 0 sent to all nodes. The caller must not modify it.
func (c *Cluster) Broadcast() []byte { return c.agent.told() }

// Alive reports whether a node's daemon is running, as far as this node knows. A daemon that was
// killed is noticed within a second; a host or link that is silent, after about 13 seconds.
func (c *Cluster) Alive(node int) bool { return c.agent.alive(node) }

// Notify calls f with the nodes that are lost, and from then on whenever a node is lost or comes
// back, from one goroutine, in order. A loss may be reported twice. When f is called with alive
// true, Members already has the node's new address. A node that was restarted before its loss was
// noticed is reported as lost and then as back. f must not block for long, and must not call Close.
func (c *Cluster) Notify(f func(node int, alive bool)) { c.agent.notify(f) }

// Gather is collective: every node calls it with the same name and its own bytes, and gets the
// bytes of all nodes, by number. A name should not be reused ("audit of epoch 3"), and a node can
// have only one gather of a name in progress. A node's bytes may count for the others even if its
// own ctx ended first.
//
// If nodes are missing, Gather returns a *GatherError together with what the others gave; the
// entries of the missing nodes are nil.
func (c *Cluster) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	return c.agent.gather(ctx, what, mine)
}

// Ask sends a question to all other nodes, through node 0, and returns what their Options.Answer
// returned, by number. The entry is nil for this node, and for nodes that are gone, have no answer,
// or did not answer in nine tenths of the time until ctx ends. Nodes that ask the same while a
// question waits for answers share these, and its time.
func (c *Cluster) Ask(ctx context.Context, what string) [][]byte { return c.agent.ask(ctx, what) }

// Tell sends all other nodes news, through node 0, and returns which of them have taken it in
// (Options.Hear), by number; this node counts as one. It takes 1.5 s if a node does not respond.
// News of more than MaxPayload bytes is not sent.
func (c *Cluster) Tell(ctx context.Context, what []byte) (heard []bool) {
	return c.agent.tell(ctx, what)
}

// Close leaves the cluster; the other nodes are notified at once. Close is idempotent.
func (c *Cluster) Close() error {
	c.agent.once.Do(c.stop)
	return nil
}

func newInstance() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func toInts(s []uint32) []int {
	out := make([]int, len(s))
	for i, v := range s {
		out[i] = int(v)
	}
	return out
}

func toUints(s []int) []uint32 {
	out := make([]uint32, len(s))
	for i, v := range s {
		out[i] = uint32(v)
	}
	return out
}

// register describes this node in the message with which it joins.
func (o *Options) register(instance string) *pb.Register {
	r := &pb.Register{
		Job: o.Job, Node: uint32(o.Node), Instance: instance, Nodes: uint32(o.Nodes),
		WorldSize: uint32(o.WorldSize),
		Ranks:     toUints(o.Ranks), Exchange: o.Exchange, Gossip: o.Gossip, Payload: o.Payload,
	}
	for _, f := range o.Facts {
		r.Facts = append(r.Facts, &pb.Fact{Key: f.Key, Value: f.Value})
	}
	if o.Node == 0 {
		r.Broadcast = o.Broadcast
	}
	return r
}
