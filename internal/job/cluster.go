package job

import (
	"context"
	"crypto/tls"
	"encoding/json"
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
	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/exchange"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/request"
)

// others is a job's part in a cluster of nodes: the other nodes' caches as a place to read from, and this
// node's as one for them. nil: the job has one node.
type others struct {
	job      *Job
	me       int
	tls      *tls.Config // nil: without TLS
	cluster  *cluster.Cluster
	peers    *breaker.Set
	listener net.Listener
	clients  []*exchange.Client // by node; nil for this one
	server   *exchange.Server   // once there is a cache
	ended    chan error         // of the server
	cache    atomic.Pointer[cache.Cache]

	back  chan struct{}      // has a token when a node may have come back
	hush  context.CancelFunc // ends tellStops
	tells sync.WaitGroup

	watch struct {
		sync.Mutex
		gone map[int]bool
		note func(node int, there bool) // nil: nobody watches
	}

	mu   sync.Mutex    // guards what follows
	last map[int]heard // what nodes last said of themselves
	told map[nodeEpoch][]audit.Part
}

// spans tells whether the job has several nodes.
func spans(m *request.Open) bool { return m.Cluster != nil && m.Cluster.Nodes > 1 }

// connect makes the ways to the other nodes, and watches whether they are there.
func (o *others) connect() {
	fetchers := make([]breaker.Fetcher, o.nodes())
	o.clients = make([]*exchange.Client, o.nodes())
	for n := range fetchers {
		if n == o.me {
			continue
		}
		dial := func(ctx context.Context) (net.Conn, error) { return o.cluster.Dial(ctx, n) }
		o.clients[n] = exchange.NewClient(o.identity(), n, dial, exchange.ClientOptions{})
		fetchers[n] = o.clients[n]
	}
	o.peers = breaker.NewSet(breaker.Options{
		Node: o.me, Peers: fetchers,
		Source: func() time.Duration {
			if c := o.cache.Load(); c != nil {
				return c.SourceLatency()
			}
			return 0
		},
		Tell: func(node int, text string) { o.job.log.Warn("node " + strconv.Itoa(node) + " " + text) },
	})
	o.cluster.Notify(o.note)
	for n := range o.nodes() {
		if !o.cluster.Alive(n) { // it went before we listened
			o.note(n, false)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.hush = cancel
	o.tells.Go(func() { o.tellStops(ctx) })
}

// note takes notice that a node is there, or gone.
func (o *others) note(node int, there bool) {
	if there {
		o.clients[node].Reconnect()
	}
	o.peers.SetAlive(node, there)
	o.watch.Lock()
	if o.watch.gone == nil {
		o.watch.gone = make(map[int]bool)
	}
	o.watch.gone[node] = !there
	if o.watch.note != nil {
		o.watch.note(node, there)
	}
	o.watch.Unlock()
	select {
	case o.back <- struct{}{}:
	default:
	}
}

// Watch is planner.Nodes'.
func (o *others) Watch(note func(node int, there bool)) {
	o.watch.Lock()
	defer o.watch.Unlock()
	o.watch.note = note
	for node, gone := range o.watch.gone {
		if gone {
			note(node, false)
		}
	}
}

// SetOwner is planner.Nodes'.
func (o *others) SetOwner(owner func(id int) int) { o.peers.SetOwner(owner) }

func (o *others) nodes() int { return o.job.message.Cluster.Nodes }

func (o *others) identity() exchange.Identity {
	c := o.job.message.Cluster
	return exchange.Identity{Job: o.job.message.Job, Node: c.Node, Nodes: c.Nodes, Secret: []byte(c.Secret), TLS: o.tls}
}

// serve gives the other nodes what the plan has this node answer for.
func (o *others) serve(cache *cache.Cache) {
	o.cache.Store(cache)
	var named refusals
	o.server = exchange.NewServer(o.identity(), &holder{cache, o.job.planner.ReadsOnce, o.job.readAhead}, exchange.ServerOptions{
		Refused: func(addr net.Addr, err error) {
			if !errors.Is(err, io.EOF) && named.first(addr) { // EOF: it only looked whether somebody is there, as the nodes do at the start
				o.job.log.Warn("refused a connection; further ones of this host are not mentioned", "from", addr, "error", err)
			}
		},
	})
	listener := o.listener
	if wrap := o.job.node.options.Samples; wrap != nil {
		listener = wrap(listener)
	}
	o.ended = make(chan error, 1)
	go func() { o.ended <- o.server.Serve(context.Background(), listener) }()
}

// refusals are the hosts whose connections were refused. Each is named once, and only so many: the log lies in memory, and a flood must not fill it.
type refusals struct {
	mu    sync.Mutex
	hosts map[string]bool
}

const mostRefusals = 16

// first says whether this is to be told: the first one of its host.
func (r *refusals) first(addr net.Addr) bool {
	host, _, _ := net.SplitHostPort(addr.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[host] || len(r.hosts) == mostRefusals {
		return false
	}
	if r.hosts == nil {
		r.hosts = map[string]bool{}
	}
	r.hosts[host] = true
	return true
}

// gather is the cluster's Gather, with a bound: a node that is there, and says nothing for as long as nodes wait for each other
// at the start, is like one that is gone.
func (o *others) gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	within, cancel := context.WithTimeout(ctx, o.job.cfg.StartTimeout)
	defer cancel()
	all, err := o.cluster.Gather(within, what, mine)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &cluster.GatherError{What: what, Why: fmt.Sprintf("not all of them answered within %v", o.job.cfg.StartTimeout)}
	}
	return all, err
}

// Leads tells the others how far this node will come before it has a plan, and returns what all say. Who is gone
// is taken to have begun where the others did, and to have kept what it could in an epoch of so many steps.
func (o *others) Leads(ctx context.Context, mine placement.Lead, steps int) ([]placement.Lead, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := o.gather(ctx, "lead", text)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var gone *cluster.GatherError
	if err != nil && !errors.As(err, &gone) {
		return nil, err
	}
	known := mine
	leads := make([]placement.Lead, o.nodes())
	for n := len(leads) - 1; n >= 0; n-- {
		if n >= len(all) || all[n] == nil {
			continue
		}
		if leads[n], err = decodeLead(all[n], steps); err != nil {
			return nil, fmt.Errorf("node %d says of where it begins: %w", n, err)
		}
		known = leads[n]
	}
	for n := range leads {
		if n >= len(all) || all[n] == nil {
			leads[n] = placement.Lead{Epoch: known.Epoch, Step: known.Step, Steps: steps}
		}
	}
	return leads, nil
}

// decodeLead is what a node told of its lead; an epoch has so many steps.
func decodeLead(text []byte, steps int) (l placement.Lead, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	if l.Epoch < 0 || l.Step < 0 || l.Step > steps || l.Steps < 0 || l.Steps > steps {
		return l, fmt.Errorf("%d steps from epoch %d, step %d on; an epoch has %d steps", l.Steps, l.Epoch, l.Step, steps)
	}
	return l, nil
}

// Planned waits until all nodes that are there have their plans.
func (o *others) Planned(ctx context.Context) error {
	_, err := o.gather(ctx, "planned", nil)
	var gone *cluster.GatherError
	if ctx.Err() != nil || errors.As(err, &gone) {
		return ctx.Err() // who is gone is not waited for
	}
	return err
}

// close leaves the cluster; nobody asks or is asked any more.
func (o *others) close() {
	if o.hush != nil {
		o.hush()
		o.tells.Wait()
	}
	if o.server != nil {
		o.server.Close()
		<-o.ended
	}
	if o.listener != nil {
		_ = o.listener.Close()
	}
	if o.cluster != nil {
		_ = o.cluster.Close()
	}
	for _, c := range o.clients {
		if c != nil {
			_ = c.Close()
		}
	}
}

// holder serves what a cache has, and, where samples are read once for all nodes, what it has to read.
type holder struct {
	cache    *cache.Cache
	readOnce func(context.Context) (bool, error)
	read     func(bytes int64) // told of what was read from the source
}

// Held is exchange.Holder's.
func (h *holder) Held(id int32) ([]byte, uint32, bool) { return h.cache.Held(int(id)) }

// Sample is exchange.Holder's.
func (h *holder) Sample(ctx context.Context, id int32, send func([]byte, uint32) error) error {
	if !h.cache.Has(int(id)) {
		switch once, err := h.readOnce(ctx); {
		case err != nil:
			return err
		case !once:
			return exchange.ErrNotHeld
		}
	}
	source, err := h.cache.Serve(ctx, int(id), send)
	if source > 0 {
		h.read(source)
	}
	if errors.Is(err, dataset.ErrNoSample) {
		return exchange.ErrNotHeld
	}
	return err
}
