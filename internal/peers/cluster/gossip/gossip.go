// Package gossip is failure detection without node 0: hashicorp/memberlist, over a network of its
// own (transport) that passes it only what comes from nodes with the job's secret.
package gossip

import (
	"context"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// Time limits of failure detection. A node that does not answer a probe is suspected, and declared
// dead unless it refutes that within suspicionTime. So a node that gets no CPU for 10 s is not
// declared dead; one that is disconnected is, within about 13 s, however many nodes there are.
const (
	probeInterval = 500 * time.Millisecond // at most
	probeTimeout  = 300 * time.Millisecond
	suspicionTime = 11 * time.Second
	leaveTime     = 300 * time.Millisecond
)

// Gossip wraps memberlist. Its sockets are bound before the node registers, since the other nodes
// are sent their port; it starts to send when all members are known.
type Gossip struct {
	log       *slog.Logger
	key       []byte
	transport *transport
	address   string // host:port; if the host is empty, as other nodes see this node

	mu     invariants.Mutex[Gossip] // guards the following
	list   *memberlist.Memberlist
	closed bool
}

// Options are a node's part in failure detection.
type Options struct {
	Job     string
	Node    int
	Nodes   int
	Secret  auth.Secret
	Address string // host:port to bind, TCP and UDP
	// IsDefault: another port will do if that one is in use.
	IsDefault bool
	Local     string // the host to bind if Address has none
	Network   cluster.Network
	Log       *slog.Logger
}

// New binds the sockets.
func New(ctx context.Context, o Options) (*Gossip, error) {
	g := &Gossip{log: o.Log, key: o.Secret.Derive(labelGossip, []byte(o.Job))}
	refuse := func(err error) error {
		return cluster.ListenError(o.Node, "failure detection, TCP and UDP", o.Address, err)
	}
	host, port, err := cluster.SplitAddress(o.Address)
	if err != nil {
		return nil, refuse(err)
	}
	bind := []string{o.Local}
	if host != "" {
		found, err := cluster.Resolve(host)
		if err != nil {
			return nil, refuse(err)
		}
		host = found[0]
		bind = []string{host, ""} // all addresses if the host is not this machine's: NAT
	}
	if o.Local == "" && host == "" {
		bind = []string{""}
	}
	ports := []int{port}
	if o.IsDefault && port != 0 {
		ports = append(ports, 0) // a default port: the other nodes are sent the actual one
	}
	for _, p := range ports {
		for _, b := range bind {
			try := func() (err error) {
				g.transport, err = listenGossip(b, p, &o)
				return err
			}
			if o.IsDefault {
				err = try()
			} else {
				err = cluster.ListenRetrying(ctx, try)
			}
			if err == nil || !cluster.IsErrno(err, syscall.EADDRNOTAVAIL) {
				break
			}
		}
		if err == nil || !cluster.IsErrno(err, syscall.EADDRINUSE) {
			break
		}
		o.Log.Info("the port after the exchange's is in use; failure detection uses another",
			"port", p)
	}
	if err != nil {
		return nil, refuse(err)
	}
	g.address = net.JoinHostPort(host, strconv.Itoa(g.transport.port()))
	return g, nil
}

// listenGossip binds TCP and UDP to one port, any if port is 0; an empty host is all addresses.
func listenGossip(host string, port int, o *Options) (t *transport, err error) {
	hosts := []string{host}
	if host == "" {
		hosts = []string{"::", "0.0.0.0"}
	}
	tries := 1
	if port == 0 {
		tries = 10 // the port that TCP got may be taken for UDP
	}
	for range tries {
		for _, h := range hosts {
			if t, err = listenTransport(o.Network, h, port, o.Secret, o.Job, o.Nodes); err == nil {
				return t, nil
			}
		}
	}
	return nil, err
}

// Address returns this node's host:port; if the host is empty, it is as other nodes see it.
func (g *Gossip) Address() string { return g.address }

// Name returns a memberlist name that is unique to the node's daemon.
func Name(n int, instance string) string { return strconv.Itoa(n) + "." + instance }

func splitName(name string) (n int, instance string, ok bool) {
	number, instance, ok := strings.Cut(name, ".")
	n, err := strconv.Atoi(number)
	return n, instance, ok && err == nil
}

// Start joins memberlist under name; own is the address that other nodes use. It is idempotent.
func (g *Gossip) Start(name, own string, heard func(n int, instance string, alive bool)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return cluster.ErrClosed
	}
	if g.list != nil {
		return nil
	}
	host, port, err := cluster.SplitAddress(own)
	if err != nil {
		return err
	}
	c := memberlist.DefaultLANConfig()
	c.Name = name
	c.Transport = g.transport
	c.AdvertiseAddr, c.AdvertisePort = host, port
	c.SecretKey = g.key
	c.ProbeInterval, c.SuspicionMult = suspect(g.transport.nodes)
	c.ProbeTimeout = probeTimeout
	c.SuspicionMaxTimeoutMult = 1 // no other node need confirm it: a node that is alive refutes it
	c.TCPTimeout = 5 * time.Second
	c.EnableCompression = false // LZW: most of its processor time, for packets of 1400 bytes
	c.Events = listener(heard)
	c.Logger = slog.NewLogLogger(g.log.Handler(), slog.LevelDebug)
	g.list, err = memberlist.Create(c)
	return err
}

// suspect returns the time between a node's probes, and after how many of them, times the logarithm
// of the number of nodes, memberlist declares a node dead that it suspects. Memberlist takes longer
// for more nodes, because news takes longer to reach all; but the logarithm of that base exceeds
// what the news takes by far.
func suspect(nodes int) (interval time.Duration, probes int) {
	scale := max(1, math.Log10(float64(nodes)))
	probes = int(math.Ceil(float64(suspicionTime) / float64(probeInterval) / scale))
	return time.Duration(float64(suspicionTime) / scale / float64(probes)), probes
}

// Join exchanges state with the node at address. If that node counts this one as dead, this
// corrects it.
func (g *Gossip) Join(address string) error {
	g.mu.Lock()
	list, closed := g.list, g.closed
	g.mu.Unlock()
	if closed || list == nil {
		return cluster.ErrClosed
	}
	_, err := list.Join([]string{address})
	return err
}

// Known returns the names of the nodes that are alive or only suspected.
func (g *Gossip) Known() map[string]bool {
	g.mu.Lock()
	list := g.list
	g.mu.Unlock()
	names := map[string]bool{}
	if list != nil {
		for _, n := range list.Members() {
			names[n.Name] = true
		}
	}
	return names
}

// Leave notifies the other nodes that this node leaves.
func (g *Gossip) Leave() {
	g.mu.Lock()
	list := g.list
	g.mu.Unlock()
	if list != nil {
		_ = list.Leave(leaveTime) // there may be no node left to receive it
	}
}

// Close closes the sockets.
func (g *Gossip) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	if g.list != nil {
		_ = g.list.Shutdown() // shuts the transport down as well
		return
	}
	_ = g.transport.Shutdown()
}

// listener forwards memberlist's events.
type listener func(n int, instance string, alive bool)

func (f listener) tell(n *memberlist.Node, alive bool) {
	if number, instance, ok := splitName(n.Name); ok {
		f(number, instance, alive)
	}
}

func (f listener) NotifyJoin(n *memberlist.Node) { f.tell(n, true) }

func (f listener) NotifyLeave(n *memberlist.Node) { f.tell(n, false) }

func (f listener) NotifyUpdate(*memberlist.Node) {}
