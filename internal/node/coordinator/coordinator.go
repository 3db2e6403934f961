// Package coordinator implements the communication between the nodes of a job: they find each
// other, agree on what the job is, fetch samples from one another, learn of ranks that stop, and
// merge their reports and audits.
//
// It uses package cluster, and has access to the job on this node only by what others may ask of it
// (Job). All methods of Coordinator are safe for concurrent use.
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

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/peers/breaker"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/agent"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Job is the job on this node, as the other nodes' questions need it.
type Job interface {
	// Ready waits until the job is open on this node or could not be opened, and reports whether it
	// is open.
	Ready(ctx context.Context) (open bool, err error)
	// Summary returns the job's state on this node, whether or not it is open; nil: it could not be
	// opened.
	Summary() *report.ClusterReport
	// Steps returns the number of steps in an epoch. The job must be open.
	Steps() int
	// AuditParts waits until this node's ranks have finished an epoch, and returns what was
	// delivered to them. The job must be open.
	AuditParts(ctx context.Context, epoch int) ([]audit.Part, error)
	// Missing returns the turn in which ranks supply their parts of an epoch, and the ranks of this
	// node that have not. The job must be open.
	Missing() (turn int, ranks []int)
}

// Samples are the samples of this node. Bytes belong to the receiver once they are sent.
type Samples interface {
	// Held returns the sample, or a form that w takes, if it is in memory, where it stays until Hold
	// is released.
	Held(id int, w exchange.Want) (c cache.Copy, ok bool)
	// Has reports whether the sample is held in any storage class.
	Has(id int) bool
	// Serve sends a sample, or a form that w takes, and returns how many bytes it read from the
	// source for that.
	Serve(ctx context.Context, id int, w exchange.Want,
		send func(c cache.Copy, read bool) error) (source int64, err error)
	// Watch notifies w of samples that are given back, until leave is called.
	Watch(w watcher) (leave func())
	// FoundStreams returns how many reads of the source at the same time the node has found to be
	// best, the version of that (0: it has found nothing), and a channel that is closed when there is
	// a later one.
	FoundStreams() (found report.Streams, version int, news <-chan struct{})
	// ExpectStreams has the node find no number itself until it has waited for another one for some
	// time, and FollowStreams makes that its own one.
	ExpectStreams()
	FollowStreams(found report.Streams)
}

// Coordinator is one node's part in the cluster of a job's nodes: it reads from the other nodes'
// caches, serves this node's cache to them, and exchanges control messages.
type Coordinator struct {
	o        Options
	me       int
	tls      *tls.Config // nil: no TLS
	cluster  *agent.Agent
	peers    *breaker.Set
	listener net.Listener
	clients  []*exchange.Client // by node; nil for this node
	server   *exchange.Server   // nil until there is a cache
	ended    chan struct{}      // closed when the server has ended
	holder   atomic.Pointer[holder]
	serving  chan struct{} // closed once there is a holder

	news            []*broadcast
	cancelBroadcast context.CancelFunc // ends the broadcasts of news and away
	broadcasts      sync.WaitGroup

	away    away
	unwatch func() // ends the watch of the cache; nil until there is one

	// watch is separate from mu because note is called with it held.
	watch struct {
		sync.Mutex
		gone map[int]bool               // guarded by Mutex
		note func(node int, there bool) // guarded by Mutex; nil: nothing watches
	}

	mu   sync.Mutex                   // guards the following
	last map[int]heard                // by node, its latest report
	told map[int]map[int][]audit.Part // by epoch and node
}

func newCoordinator(o Options) *Coordinator {
	c := &Coordinator{
		o:       o,
		me:      o.Node,
		serving: make(chan struct{}),
		last:    make(map[int]heard),
		told:    make(map[int]map[int][]audit.Part),
	}
	c.news = []*broadcast{newBroadcast(tellStopped, c.stopsToTell)}
	if o.Faults != nil {
		c.news = append(c.news, newBroadcast(tellFaults, c.faultsToTell))
	}
	if c.me == 0 {
		streams := newBroadcast(tellStreams, c.streamsToTell)
		streams.passing = true
		c.news = append(c.news, streams)
	}
	c.watch.gone = make(map[int]bool)
	c.away.changed = make(chan struct{}, 1)
	return c
}

// Me returns the number of this node.
func (c *Coordinator) Me() int { return c.me }

// Ranks returns the ranks of each node.
func (c *Coordinator) Ranks() [][]int {
	members := c.cluster.Members()
	ranks := make([][]int, len(members))
	for n, member := range members {
		ranks[n] = member.Ranks
	}
	return ranks
}

// Peers returns the other nodes' caches.
func (c *Coordinator) Peers() *breaker.Set { return c.peers }

// States returns how well each other node answers.
func (c *Coordinator) States() []report.Peer { return c.peers.States() }

// connect creates the clients for the other nodes, and watches whether these are alive.
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
		Node: c.me, Peers: fetchers, Timeout: c.o.SourceTimeout,
		Tell: func(node int, text string) {
			c.o.Log.Warn("node " + strconv.Itoa(node) + " " + text)
		},
	})
	c.cluster.Notify(c.note)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancelBroadcast = cancel
	for _, b := range c.news {
		c.broadcasts.Go(func() { b.run(ctx, c) })
	}
	c.broadcasts.Go(func() { c.broadcastAway(ctx) })
}

// note records that a node is alive or gone.
func (c *Coordinator) note(node int, there bool) {
	if there {
		c.clients[node].Reconnect()
		c.away.notify() // it received no changes while it was gone
	}
	c.peers.SetAlive(node, there)
	c.watch.Lock()
	c.watch.gone[node] = !there
	if c.watch.note != nil {
		c.watch.note(node, there)
	}
	c.watch.Unlock()
	for _, b := range c.news {
		select {
		case b.back <- struct{}{}:
		default:
		}
	}
}

// Watch implements planner.Nodes.
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

// SetOwner implements planner.Nodes.
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

// Serve starts to serve samples to the other nodes: those that this node holds, and, if readsOnce
// reports that samples are read once for all nodes, those that it has to read. read is called with
// the number of bytes read from the source.
func (c *Coordinator) Serve(samples Samples, readsOnce func(context.Context) (bool, error),
	read func(bytes int64),
) {
	h := &holder{samples, readsOnce, read}
	c.holder.Store(h)
	close(c.serving)
	if c.me != 0 {
		samples.ExpectStreams()
	}
	c.unwatch = samples.Watch(c)
	var named refusals
	c.server = exchange.NewServer(c.identity(), h, exchange.ServerOptions{
		Refused: func(addr net.Addr, err error) {
			// EOF: the connection was only a probe, which nodes make at the start
			if !errors.Is(err, io.EOF) && named.first(addr) {
				c.o.Log.Warn("refused a connection; further ones from this host are not logged",
					"from", addr, "error", err)
			}
		},
	})
	listener := c.listener
	if c.o.Wrap != nil {
		listener = c.o.Wrap(listener)
	}
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		if err := c.server.Serve(context.Background(), listener); err != nil {
			c.o.Log.Error("the other nodes get no more samples from this node, and read them from "+
				"the source", "error", err)
		}
	}()
}

// gather is cluster.Gather with a timeout: a node that is alive but silent for as long as nodes
// wait for each other at the start counts as gone.
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

// Close leaves the cluster; no questions are asked or answered after it. It may be called on a
// coordinator that was only partly formed.
func (c *Coordinator) Close() {
	if c.unwatch != nil {
		c.unwatch()
	}
	if c.cancelBroadcast != nil {
		c.cancelBroadcast()
		c.broadcasts.Wait()
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

// Gather implements order.Nodes.
func (c *Coordinator) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	all, err := c.cluster.Gather(ctx, what, mine)
	return all, c.gathered(err)
}

// GatherInTime implements order.Nodes.
func (c *Coordinator) GatherInTime(ctx context.Context, what string,
	mine []byte,
) ([][]byte, error) {
	all, err := c.gather(ctx, what, mine)
	return all, c.gathered(err)
}

// gathered returns errors that say which nodes are missing as they are, and makes all others errors
// that a process understands.
func (c *Coordinator) gathered(err error) error {
	var missing *cluster.GatherError
	if err == nil || errors.As(err, &missing) {
		return err
	}
	return clusterError(c.me, err)
}
