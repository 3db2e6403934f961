// Package cluster lets the daemons of one job on several nodes find each other and agree.
//
// Node 0 listens; the others join it. Before anything else is said both sides prove that they know
// the job's secret. When all nodes are there, hold the same facts true, and their ranks cover the
// world size, Form returns on every node; where they do not, it returns the same error on every
// node. From then on nodes watch each other (hashicorp/memberlist), gather small values and ask
// each other through node 0, and a node whose daemon was restarted may come back under its number.
//
// Who does what:
//
//	hub      node 0's half: a state machine without a network; decides who belongs
//	agent    every node's half, node 0's too: the members as this node knows them
//	session  one proven and sealed stream between an agent and the hub (server, dial)
//	gossip   memberlist: who is alive, without node 0 (transport: its streams and datagrams)
//
// INVARIANTS. Nothing listens before Form is called, and nothing but loopback or the addresses
// given. No byte about the job is sent to who has not proven knowledge of the secret. Limits are
// checked before memory is taken. Everything that waits ends with its context, its deadline, or
// Close.
//
// It does not move samples, and does not know what facts and payloads mean.
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

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/identity"
)

// Limits of what nodes give each other.
const (
	// Options.Payload, Options.Broadcast, and what one node gives to a Gather
	MaxPayload = 4 << 20
	MaxTotal   = 256 << 20 // all nodes' payloads together
	MaxNodes   = 1 << 16
)

// Fact is something that must be equal on all nodes.
type Fact struct{ Key, Value string }

// Options say who this node is.
type Options struct {
	Job       string // the same on all nodes, unlike any other job's
	Node      int    // in [0, Nodes)
	Nodes     int
	WorldSize int
	Ranks     []int // of this node; all nodes' are [0, WorldSize)
	// Listen is where node 0 listens for the others, host:port.
	Listen string
	// Listening, if not nil, is told where node 0 listens.
	Listening func(net.Addr)
	// Join is node 0's address, for the others.
	Join string
	// Exchange is where this node serves samples, host:port; host empty: the address under
	// which node 0 and this node see each other.
	Exchange string
	// Gossip is where this node takes part in failure detection, TCP and UDP; empty: host of
	// Exchange, and its port plus one, or if that is in use any that is free.
	Gossip string
	// Whole, of node 0: the job needs all nodes from its start. A daemon that was restarted is not
	// let back in; one that was cut off is.
	Whole bool
	// Network is how nodes reach each other; nil: the system's.
	Network Network
	Secret  identity.Secret
	TLS     *tls.Config // of both roles; nil: none
	// Failure is why this node cannot take part. Form then tells the others so by node 0, if that
	// is reached within some seconds, and returns it. Exchange and Gossip mean nothing then.
	Failure  error
	Deadline time.Duration
	Facts    []Fact
	// Payload is given to every node.
	Payload []byte
	// Broadcast is node 0's, given to every node.
	Broadcast []byte
	// Answer answers another node's question (Cluster.Ask), at most MaxAnswer bytes; nil: there is
	// no answer. It is called by several goroutines at a time, from before Form returns, and
	// returns soon once ctx, which ends with the cluster, is done. nil: this node answers nothing.
	Answer   func(ctx context.Context, what string) []byte
	Log      *slog.Logger
	Progress func(string) // what is waited for; called by one goroutine at a time
	// Refused is told, on node 0, of who was not let in while the cluster forms; called by several
	// goroutines, and must not block.
	Refused func(error)

	gossipIsDefault bool
}

// Member is one node of the cluster, as last heard.
type Member struct {
	Node     int
	Exchange string // host:port
	Ranks    []int
	Payload  []byte
}

// Cluster is this node's part in a formed cluster. Its methods may be called by many
// goroutines at a time.
type Cluster struct {
	agent *agent
	stop  func()
	halt  func() // ends connections without a word; for tests
}

// Form finds the other nodes. It returns when all of them are there and agree; else with
// one of the package's errors, the same on every node that can be reached, at the latest
// after Deadline and a grace of some seconds. Canceling ctx ends it at once; once Form has
// returned, ctx means nothing.
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

// complete checks options and sets what is empty.
func (o *Options) complete() error {
	bad := func(option, value, why string) error { return &OptionError{option, value, why} }
	switch {
	case o.Nodes < 1 || o.Nodes > MaxNodes:
		return bad("nodes", strconv.Itoa(o.Nodes), "must be in [1, "+strconv.Itoa(MaxNodes)+"]")
	case o.Node < 0 || o.Node >= o.Nodes:
		return bad("node", strconv.Itoa(o.Node),
			"must be in [0, nodes), and nodes is "+strconv.Itoa(o.Nodes))
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
				"must be in [0, world_size), and world_size is "+strconv.Itoa(o.WorldSize))
		}
		if i > 0 && r == o.Ranks[i-1] {
			return bad("ranks", strconv.Itoa(r), "is there twice")
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
	if len(o.Secret) < identity.MinSecret {
		return bad("secret", strconv.Itoa(len(o.Secret))+" bytes",
			"must have at least "+strconv.Itoa(identity.MinSecret)+
				" bytes: 'openssl rand -hex 32' draws a good one")
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

// splitAddress takes host:port apart; the host may be empty.
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

// Members are all nodes, by number.
func (c *Cluster) Members() []Member { return c.agent.list() }

// Dial connects to where a node serves samples, as it was last heard; it ends with ctx.
func (c *Cluster) Dial(ctx context.Context, node int) (net.Conn, error) {
	return c.agent.o.Network.Dial(ctx, c.agent.list()[node].Exchange)
}

// Broadcast is what node 0 gave to all. Not to be changed.
func (c *Cluster) Broadcast() []byte { return c.agent.told() }

// Alive reports whether a node's daemon is there as far as this node knows. A daemon that was
// killed is known to be gone within a second, a host or link that is silent after about 12.
func (c *Cluster) Alive(node int) bool { return c.agent.alive(node) }

// Notify calls f whenever a node goes or comes (back), from one goroutine, in order. Members
// has a node's new address when f is told that it is alive; a node that was restarted before
// anybody noticed is told to have gone and come. f must not block for long, and not call Close.
func (c *Cluster) Notify(f func(node int, alive bool)) { c.agent.notify(f) }

// Gather is collective: every node calls it with the same name and its own bytes, and gets all
// nodes' bytes, by number. Names should be unlike those of earlier gathers ("audit of epoch 3"),
// and at any time a node takes part in at most one of a name. What a node gave before its ctx ended
// may still count for the others.
//
// With a GatherError what the living nodes gave is returned beside it, nil for the others.
func (c *Cluster) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	return c.agent.gather(ctx, what, mine)
}

// Ask puts a question to all other nodes, by way of node 0, and returns what their Options.Answer
// said, by number. Of this node, and of those that are gone, have no answer, or gave none before
// ctx ended, it is nil.
func (c *Cluster) Ask(ctx context.Context, what string) [][]byte { return c.agent.ask(ctx, what) }

// Close leaves the cluster: the others are told at once that this node is gone. Idempotent.
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

// register is what this node says of itself.
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
