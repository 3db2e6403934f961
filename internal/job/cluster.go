package job

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hdmlp/hdmlp/internal/certificate"
	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/exchange"
	"github.com/hdmlp/hdmlp/internal/peer"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// others is a job's part in a cluster of nodes: the other nodes' caches as a place to read from, and this
// node's as one for them. nil: the job has one node.
type others struct {
	job      *Job
	me       int
	tls      *tls.Config // nil: without TLS
	cluster  *cluster.Cluster
	peers    *peer.Set
	listener net.Listener
	clients  []*exchange.Client // by node; nil for this one
	server   *exchange.Server   // once there is a cache
	ended    chan error         // of the server
	cache    atomic.Pointer[prefetch.Cache]
	rooms    []placement.Node // of all nodes
	roster   roster
}

// spans tells whether the job has several nodes.
func spans(m *protocol.OpenMessage) bool { return m.Cluster != nil && m.Cluster.Nodes > 1 }

// localRanks waits until all ranks of this node have come, and returns them.
func (j *Job) localRanks(ctx context.Context) ([]int, error) {
	want := j.message.Cluster.LocalWorldSize
	timeout := time.NewTimer(j.cfg.StartTimeout)
	defer timeout.Stop()
	for {
		j.mu.Lock()
		ranks := slices.Clone(j.came)
		changed := j.changed
		j.mu.Unlock()
		if len(ranks) >= want {
			slices.Sort(ranks)
			return ranks, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout.C:
			return nil, badInput("of the %d ranks of node %d only %v opened the loader within %v", want, j.message.Cluster.Node, ranks, j.cfg.StartTimeout)
		}
	}
}

// form finds the other nodes, and settles the seed with them.
func (j *Job) form(ctx context.Context, progress func(protocol.ProgressMessage)) error {
	m := &j.message
	c := m.Cluster
	ranks, err := j.localRanks(ctx)
	if err != nil {
		return err
	}
	host, ports, err := j.meeting()
	if err != nil {
		return err
	}
	o := &others{job: j, me: c.Node}
	if o.tls, err = j.tls(); err != nil {
		return badInput("%v", err)
	}
	j.others = o
	options := cluster.Options{
		Job: m.Job, Node: c.Node, Nodes: c.Nodes, WorldSize: m.WorldSize, Ranks: ranks,
		Secret: []byte(c.Secret), TLS: o.tls, Deadline: j.cfg.StartTimeout, Facts: j.facts(), Log: j.log,
	}
	defer tellWaiting(&options, progress)()
	local, err := cluster.Local(c.Node, j.cfg.Interface)
	if c.Node == 0 {
		if err != nil {
			return clusterError(err) // and listen nowhere
		}
		options.Listen = net.JoinHostPort(cmp.Or(local, host), strconv.Itoa(ports))
		seed := drawSeed()
		if m.Stream.Seed != nil {
			seed = *m.Stream.Seed
		}
		options.Broadcast = binary.LittleEndian.AppendUint64(nil, seed)
	} else {
		options.Join = net.JoinHostPort(host, strconv.Itoa(ports))
	}
	samples := 0 // any port
	if j.cfg.Port != 0 {
		samples = ports + 1
		options.Gossip = net.JoinHostPort(local, strconv.Itoa(ports+2))
	}
	if err == nil {
		o.listener, err = cluster.Listen(c.Node, "samples", local, samples)
	}
	if err == nil {
		options.Exchange = net.JoinHostPort(local, strconv.Itoa(o.listener.Addr().(*net.TCPAddr).Port))
	}
	options.Failure = err
	if o.cluster, err = cluster.Form(ctx, options); err != nil {
		return clusterError(err)
	}
	if told := o.cluster.Broadcast(); m.Stream.Seed == nil && len(told) == 8 {
		seed := binary.LittleEndian.Uint64(told)
		m.Stream.Seed = &seed
	}
	o.connect()
	return nil
}

// longWait is for how long nodes wait for each other before a process is warned of it.
const longWait = 10 * time.Second

// tellWaiting lets the process that opened the job hear whom the nodes wait for, and who was refused, until stop.
// The cluster, which tells it, never waits for the process.
func tellWaiting(o *cluster.Options, progress func(protocol.ProgressMessage)) (stop func()) {
	said := make(chan protocol.ProgressMessage, 16)
	say := func(m protocol.ProgressMessage) {
		select {
		case said <- m:
		default:
		}
	}
	o.Progress = func(text string) { say(protocol.ProgressMessage{What: text}) }
	o.Refused = func(err error) { say(protocol.ProgressMessage{What: err.Error(), Warning: true}) }
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		late := time.NewTimer(longWait)
		defer late.Stop()
		waiting := ""
		for {
			select {
			case m := <-said:
				if progress(m); !m.Warning {
					waiting = m.What
				}
			case <-late.C:
				if waiting != "" {
					progress(protocol.ProgressMessage{What: waiting, Warning: true})
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// portsPerLoader are what one loader of a script has: where node 0 is found, where samples are served, failure detection, and a spare.
const portsPerLoader = 4

// meeting is node 0's host, and the first of this loader's ports: the configuration's, or else what the launcher gave.
func (j *Job) meeting() (host string, port int, err error) {
	c := j.message.Cluster
	host, text, err := net.SplitHostPort(c.Address)
	if err != nil {
		return "", 0, badInput("cluster.address = %q: %v", c.Address, err)
	}
	given, err := strconv.ParseUint(text, 10, 16)
	if err != nil || c.Loader < 0 || c.Loader > 255 {
		return "", 0, badInput("cluster.address = %q, cluster.loader = %d: a port is below 65536, a loader below 256", c.Address, c.Loader)
	}
	port = cmp.Or(j.cfg.Port, int(given)) + portsPerLoader*c.Loader
	if port+portsPerLoader > 1<<16 {
		port -= 1 << 15
	}
	return host, port, nil
}

// tls is how nodes talk to each other; nil: without TLS.
func (j *Job) tls() (*tls.Config, error) {
	switch {
	case j.cfg.TLS != "on":
		return nil, nil
	case j.cfg.TLSCert == "":
		return certificate.Drawn()
	}
	return certificate.Files(j.cfg.TLSCert, j.cfg.TLSKey, j.cfg.TLSCA)
}

// clusterError makes an error of the cluster one that a process understands.
func clusterError(err error) error {
	var difference *cluster.DifferenceError
	if errors.As(err, &difference) {
		return &protocol.ErrorMessage{
			Kind: protocol.KindMismatch, Message: err.Error(),
			Details: map[string]any{"key": difference.Key, "mine": difference.Theirs, "theirs": difference.Node0s, "node": difference.Node},
		}
	}
	var version *cluster.VersionError
	if errors.As(err, &version) {
		return &protocol.ErrorMessage{
			Kind: protocol.KindMismatch, Message: err.Error(),
			Details: map[string]any{"key": "control protocol", "mine": version.Mine, "theirs": version.Theirs},
		}
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("the nodes of the job did not come together: %w", err)
	}
	return badInput("the nodes of the job did not come together: %v", err)
}

// facts are what all nodes must agree on.
func (j *Job) facts() []cluster.Fact {
	m := &j.message
	fingerprint := j.dataset.Index().Fingerprint()
	seed := "drawn"
	if m.Stream.Seed != nil {
		seed = strconv.FormatUint(*m.Stream.Seed, 10)
	}
	facts := []cluster.Fact{
		{Key: "hdmlp's version", Value: j.node.kinds.Version},
		{Key: "protocol", Value: strconv.Itoa(protocol.Version)},
		{Key: "dataset fingerprint", Value: fmt.Sprintf("%x", fingerprint[:8])},
		{Key: "seed", Value: seed},
		{Key: "transforms", Value: listed(m)},
	}
	for _, f := range []struct {
		key   string
		value any
	}{
		{"epochs", m.Stream.Epochs},
		{"global batch size", m.Stream.GlobalBatch},
		{"drop_last", m.Stream.DropLast},
		{"shuffle", m.Stream.Shuffle},
		{"scheme", m.Stream.Scheme},
		{"tail", m.Stream.Tail},
		{"policy", j.cfg.Policy},
		{"on_error", j.cfg.OnError},
	} {
		facts = append(facts, cluster.Fact{Key: f.key, Value: fmt.Sprint(f.value)})
	}
	return facts
}

// connect makes the ways to the other nodes, and watches whether they are there.
func (o *others) connect() {
	fetchers := make([]peer.Fetcher, o.nodes())
	o.clients = make([]*exchange.Client, o.nodes())
	for n := range fetchers {
		if n == o.me {
			continue
		}
		dial := func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", o.cluster.Members()[n].Exchange)
		}
		o.clients[n] = exchange.NewClient(o.identity(), n, dial, exchange.ClientOptions{})
		fetchers[n] = o.clients[n]
	}
	o.peers = peer.NewSet(peer.Options{
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
}

// note takes notice that a node is there, or gone.
func (o *others) note(node int, there bool) {
	if there {
		o.clients[node].Reconnect()
	}
	o.peers.SetAlive(node, there)
	o.roster.note(node, there)
}

func (o *others) nodes() int { return o.job.message.Cluster.Nodes }

func (o *others) identity() exchange.Identity {
	c := o.job.message.Cluster
	return exchange.Identity{Job: o.job.message.Job, Node: c.Node, Nodes: c.Nodes, Secret: []byte(c.Secret), TLS: o.tls}
}

// room is what a node tells the others of its storage classes.
type room struct {
	Capacity []int64   `json:"capacity"`
	Held     [][]int32 `json:"held"`
}

// placementNodes tells the others what this node's classes have room for, and returns what all have.
func (o *others) placementNodes(ctx context.Context, mine placement.Node) ([]placement.Node, error) {
	text, err := json.Marshal(room{mine.Capacity, mine.Held})
	if err != nil {
		return nil, err
	}
	if len(text) > cluster.MaxPayload { // then the plan is made as if this node held nothing yet
		if text, err = json.Marshal(room{mine.Capacity, nil}); err != nil {
			return nil, err
		}
	}
	all, err := o.cluster.Gather(ctx, "room", text)
	if err != nil {
		return nil, clusterError(err)
	}
	out := make([]placement.Node, len(all))
	for n, member := range o.cluster.Members() {
		var r room
		if err := json.Unmarshal(all[n], &r); err != nil {
			return nil, badInput("node %d says of its storage classes: %v", n, err)
		}
		if len(r.Held) != len(r.Capacity) {
			r.Held = make([][]int32, len(r.Capacity))
		}
		samples := o.job.dataset.Index().Len()
		for j, held := range r.Held {
			if i := slices.IndexFunc(held, func(k int32) bool { return k < 0 || int(k) >= samples }); i >= 0 {
				return nil, badInput("node %d says that its storage class %d holds sample %d; the dataset has 0 to %d", n, j+1, held[i], samples-1)
			}
		}
		out[n] = placement.Node{Ranks: member.Ranks, Capacity: r.Capacity, Held: r.Held}
	}
	o.rooms = capacities(out)
	return out, nil
}

// serve gives the other nodes what the plan has this node answer for.
func (o *others) serve(cache *prefetch.Cache) {
	o.cache.Store(cache)
	o.server = exchange.NewServer(o.identity(), &holder{cache, o.readsOnce, o.job.readAhead}, exchange.ServerOptions{
		Refused: func(addr net.Addr, err error) { o.job.log.Warn("refused a connection", "from", addr, "error", err) },
	})
	listener := o.listener
	if wrap := o.job.node.kinds.Samples; wrap != nil {
		listener = wrap(listener)
	}
	o.ended = make(chan error, 1)
	go func() { o.ended <- o.server.Serve(context.Background(), listener) }()
}

// readsOnce tells whether a node that is asked for a sample reads it from the source.
func (o *others) readsOnce() bool {
	plan := o.job.plan.Load()
	return plan != nil && plan.ReadOnce
}

// leads tells the others how far this node will come before it has a plan, and returns what all say. Who is gone
// is taken to have begun where the others did, and to have kept what it could in an epoch of so many steps.
func (o *others) leads(ctx context.Context, mine placement.Lead, steps int) ([]placement.Lead, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := o.cluster.Gather(ctx, "lead", text)
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
		if err := json.Unmarshal(all[n], &leads[n]); err != nil {
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

// planned waits until all nodes that are there have their plans.
func (o *others) planned(ctx context.Context) error {
	_, err := o.cluster.Gather(ctx, "planned", nil)
	var gone *cluster.GatherError
	if ctx.Err() != nil || errors.As(err, &gone) {
		return ctx.Err() // who is gone is not waited for
	}
	return err
}

// close leaves the cluster; nobody asks or is asked any more.
func (o *others) close() {
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
	cache    *prefetch.Cache
	readOnce func() bool
	read     func(bytes int64) // told of what was read from the source
}

// Held is exchange.Holder's.
func (h *holder) Held(id int32) ([]byte, bool) { return h.cache.Held(int(id)) }

// Sample is exchange.Holder's.
func (h *holder) Sample(ctx context.Context, id int32, send func([]byte) error) error {
	if !h.readOnce() && !h.cache.Has(int(id)) {
		return exchange.ErrNotHeld
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
