// Package coordinator is what the nodes of a job tell each other: they find each other and agree on
// what the job is, fetch samples from one another, hear of ranks that stop, and add their reports
// and audits up.
//
// It knows the cluster, and of the job on this node what others may ask of it (Job). All methods of
// Coordinator are safe for concurrent use.
package coordinator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/breaker"
	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/exchange"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Job is the job on this node, of which the other nodes ask.
type Job interface {
	// Ready waits until the job is open on this node, and reports whether it is, or could not be
	// opened.
	Ready(ctx context.Context) (open bool, err error)
	// Summary is its state on this node, be it open or not; nil: it could not be opened.
	Summary() *stats.ClusterReport
	// Steps are those of an epoch. The job is open.
	Steps() int
	// AuditParts waits until this node's ranks are through an epoch, and returns what they were
	// delivered. The job is open.
	AuditParts(ctx context.Context, epoch int) ([]audit.Part, error)
	// Missing is the turn in which ranks give their parts of an epoch, and those of this node that
	// have not. The job is open.
	Missing() (turn int, ranks []int)
}

// Samples are those of this node. They belong to others once they are sent.
type Samples interface {
	// Held is the sample, if it lies in memory.
	Held(id int) (data []byte, digest uint32, ok bool)
	// Has reports whether the sample is held, wherever.
	Has(id int) bool
	// Serve sends a sample, and returns how many bytes left the source for it.
	Serve(ctx context.Context, id int,
		send func(data []byte, digest uint32) error) (source int64, err error)
	// SourceLatency is how long the source takes for a sample at the moment.
	SourceLatency() time.Duration
}

// Coordinator is a job's part in a cluster of nodes: the other nodes' caches as a place to read
// from, this node's as one for them, and what they tell each other.
type Coordinator struct {
	o        Options
	me       int
	tls      *tls.Config // nil: without TLS
	cluster  *cluster.Cluster
	peers    *breaker.Set
	listener net.Listener
	clients  []*exchange.Client // by node; nil for this one
	server   *exchange.Server   // once there is a cache
	ended    chan error         // of the server
	holder   atomic.Pointer[holder]

	back  chan struct{}      // has a token when a node may have come back
	hush  context.CancelFunc // ends tellStops
	tells sync.WaitGroup

	watch struct {
		sync.Mutex
		gone map[int]bool
		note func(node int, there bool) // nil: nothing watches
	}

	mu   sync.Mutex    // guards what follows
	last map[int]heard // what nodes last said of themselves
	told map[nodeEpoch][]audit.Part
}

func newCoordinator(o Options) *Coordinator {
	c := &Coordinator{
		o:    o,
		me:   o.Node,
		last: make(map[int]heard),
		told: make(map[nodeEpoch][]audit.Part),
		back: make(chan struct{}, 1),
	}
	c.watch.gone = make(map[int]bool)
	return c
}

// Me is this node.
func (c *Coordinator) Me() int { return c.me }

// Ranks are those of each node.
func (c *Coordinator) Ranks() [][]int {
	members := c.cluster.Members()
	ranks := make([][]int, len(members))
	for n, member := range members {
		ranks[n] = member.Ranks
	}
	return ranks
}

// Peers are the other nodes' caches.
func (c *Coordinator) Peers() *breaker.Set { return c.peers }

// States say how well the other nodes answer.
func (c *Coordinator) States() []stats.Peer { return c.peers.States() }

// connect makes the ways to the other nodes, and watches whether they are there.
func (c *Coordinator) connect() {
	fetchers := make([]breaker.Fetcher, c.nodes())
	c.clients = make([]*exchange.Client, c.nodes())
	for n := range fetchers {
		if n == c.me {
			continue
		}
		dial := func(ctx context.Context) (net.Conn, error) { return c.cluster.Dial(ctx, n) }
		c.clients[n] = exchange.NewClient(c.identity(), n, dial, exchange.ClientOptions{})
		fetchers[n] = c.clients[n]
	}
	c.peers = breaker.NewSet(breaker.Options{
		Node: c.me, Peers: fetchers,
		Source: func() time.Duration {
			if h := c.holder.Load(); h != nil {
				return h.samples.SourceLatency()
			}
			return 0
		},
		Tell: func(node int, text string) {
			c.o.Log.Warn("node " + strconv.Itoa(node) + " " + text)
		},
	})
	c.cluster.Notify(c.note)
	for n := range c.nodes() {
		if !c.cluster.Alive(n) { // it went before we listened
			c.note(n, false)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.hush = cancel
	c.tells.Go(func() { c.tellStops(ctx) })
}

// note takes notice that a node is there, or gone.
func (c *Coordinator) note(node int, there bool) {
	if there {
		c.clients[node].Reconnect()
	}
	c.peers.SetAlive(node, there)
	c.watch.Lock()
	c.watch.gone[node] = !there
	if c.watch.note != nil {
		c.watch.note(node, there)
	}
	c.watch.Unlock()
	select {
	case c.back <- struct{}{}:
	default:
	}
}

// Watch is planner.Nodes'.
func (c *Coordinator) Watch(note func(node int, there bool)) {
	c.watch.Lock()
	defer c.watch.Unlock()
	c.watch.note = note
	for node, gone := range c.watch.gone {
		if gone {
			note(node, false)
		}
	}
}

// SetOwner is planner.Nodes'.
func (c *Coordinator) SetOwner(owner func(id int) int) { c.peers.SetOwner(owner) }

func (c *Coordinator) nodes() int { return c.o.Nodes }

func (c *Coordinator) identity() exchange.Identity {
	return exchange.Identity{
		Job:    c.o.Job,
		Node:   c.me,
		Nodes:  c.o.Nodes,
		Secret: []byte(c.o.Secret),
		TLS:    c.tls,
	}
}

// Serve gives the other nodes samples that this one holds, and, where readsOnce says that samples
// are read once for all nodes, those that it has to read; read is told of the bytes that left the
// source for it.
func (c *Coordinator) Serve(samples Samples, readsOnce func(context.Context) (bool, error),
	read func(bytes int64),
) {
	h := &holder{samples, readsOnce, read}
	c.holder.Store(h)
	var named refusals
	c.server = exchange.NewServer(c.identity(), h, exchange.ServerOptions{
		Refused: func(addr net.Addr, err error) {
			// EOF: it only looked whether a node is there, as the nodes do at the start
			if !errors.Is(err, io.EOF) && named.first(addr) {
				c.o.Log.Warn("refused a connection; further ones of this host are not mentioned",
					"from", addr, "error", err)
			}
		},
	})
	listener := c.listener
	if c.o.Wrap != nil {
		listener = c.o.Wrap(listener)
	}
	c.ended = make(chan error, 1)
	go func() { c.ended <- c.server.Serve(context.Background(), listener) }()
}

// gather is the cluster's Gather, with a bound: a node that is there, and says nothing for as long
// as nodes wait for each other at the start, is like one that is gone.
func (c *Coordinator) gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	within, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	all, err := c.cluster.Gather(within, what, mine)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &cluster.GatherError{
			What: what,
			Why:  fmt.Sprintf("not all of them answered within %v", c.o.Timeout),
		}
	}
	return all, err
}

// Close leaves the cluster: no node is asked any more, and none asks. It may not be complete.
func (c *Coordinator) Close() {
	if c.hush != nil {
		c.hush()
		c.tells.Wait()
	}
	if c.server != nil {
		c.server.Close()
		<-c.ended
	}
	if c.listener != nil {
		_ = c.listener.Close()
	}
	if c.cluster != nil {
		_ = c.cluster.Close()
	}
	for _, client := range c.clients {
		if client != nil {
			_ = client.Close()
		}
	}
}

// Gather is order.Nodes'.
func (c *Coordinator) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	all, err := c.cluster.Gather(ctx, what, mine)
	return all, c.gathered(err)
}

// GatherInTime is order.Nodes'.
func (c *Coordinator) GatherInTime(ctx context.Context, what string,
	mine []byte,
) ([][]byte, error) {
	all, err := c.gather(ctx, what, mine)
	return all, c.gathered(err)
}

// gathered leaves errors alone that say which nodes are missing, and makes others what a process
// understands.
func (c *Coordinator) gathered(err error) error {
	var missing *cluster.GatherError
	if err == nil || errors.As(err, &missing) {
		return err
	}
	return clusterError(c.me, err)
}
