package cluster

import (
	"context"
	"log"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hdmlp/hdmlp/internal/invariants"
)

// Time limits of failure detection. A node that does not answer is suspected after one to two
// probes, and declared dead unless it says within suspicion probes that it lives. With these, a
// node that gets no CPU for 10 s is not declared dead; one that is cut off is, within about 12 s
// (18 s where there are more than 10 nodes and few of them notice).
const (
	probeInterval = time.Second
	probeTimeout  = 500 * time.Millisecond
	suspicion     = 10
	mendPause     = 5 * time.Second
	strangerTime  = 10 * time.Second // after so long, a node that gossip has never heard of is gone
	leaveTime     = 300 * time.Millisecond
)

// gossip is memberlist as it is used here. Its sockets are bound before the node registers, since
// their port is told to the others; it begins to speak when all nodes are known.
type gossip struct {
	log       *slog.Logger
	key       []byte
	transport *transport
	address   string // host:port; host empty: as others see this node

	mu     invariants.Mutex[gossip]
	list   *memberlist.Memberlist
	closed bool
}

// newGossip binds. at is the address of Options; local the one to bind to where at has no host.
func newGossip(ctx context.Context, o *Options, at, local string) (*gossip, error) {
	g := &gossip{log: o.Log, key: o.Secret.Derive(labelGossip, []byte(o.Job))}
	refuse := func(err error) error {
		return refusal(o.Node, "failure detection, TCP and UDP", at, err)
	}
	host, port, err := splitAddress(at)
	if err != nil {
		return nil, refuse(err)
	}
	bind := []string{local}
	if host != "" {
		found, err := resolve(host)
		if err != nil {
			return nil, refuse(err)
		}
		host = found[0]
		bind = []string{host, ""} // or everywhere, where the host is not this machine's: behind NAT
	}
	if local == "" && host == "" {
		bind = []string{""}
	}
	ports := []int{port}
	if o.gossipIsDefault && port != 0 {
		ports = append(ports, 0) // nobody asked for this one, and the others are told which it is
	}
	for _, p := range ports {
		for _, b := range bind {
			try := func() (err error) {
				g.transport, err = listenGossip(b, p, o)
				return err
			}
			if o.gossipIsDefault {
				err = try()
			} else {
				err = patiently(ctx, try)
			}
			if err == nil || !isErrno(err, syscall.EADDRNOTAVAIL) {
				break
			}
		}
		if err == nil || !isErrno(err, syscall.EADDRINUSE) {
			break
		}
		o.Log.Info("the port beside the exchange's is in use; failure detection takes another",
			"port", p)
	}
	if err != nil {
		return nil, refuse(err)
	}
	g.address = net.JoinHostPort(host, strconv.Itoa(g.transport.port()))
	return g, nil
}

// listenGossip binds TCP and UDP to one port; any, if port is 0. Host empty: everywhere.
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

// gossipName is unlike that of any earlier daemon of the node.
func gossipName(n int, instance string) string { return strconv.Itoa(n) + "." + instance }

func splitName(name string) (n int, instance string, ok bool) {
	number, instance, ok := strings.Cut(name, ".")
	n, err := strconv.Atoi(number)
	return n, instance, ok && err == nil
}

// start begins to speak under name, as others reach it at own. Idempotent.
func (g *gossip) start(name, own string, heard func(n int, instance string, alive bool)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	if g.list != nil {
		return nil
	}
	host, port, err := splitAddress(own)
	if err != nil {
		return err
	}
	c := memberlist.DefaultLANConfig()
	c.Name = name
	c.Transport = g.transport
	c.AdvertiseAddr, c.AdvertisePort = host, port
	c.SecretKey = g.key
	c.ProbeInterval, c.ProbeTimeout = probeInterval, probeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = suspicion, 2
	c.TCPTimeout = 5 * time.Second
	c.Events = listener(heard)
	c.Logger = log.New(logWriter{g.log}, "", 0)
	g.list, err = memberlist.Create(c)
	return err
}

// join gets to know all that the node at address knows. It also tells it, if it thinks
// that this node is dead, that it is not.
func (g *gossip) join(address string) error {
	g.mu.Lock()
	list, closed := g.list, g.closed
	g.mu.Unlock()
	if closed || list == nil {
		return ErrClosed
	}
	_, err := list.Join([]string{address})
	return err
}

// knows are the names of those who are there, or only suspected to be gone.
func (g *gossip) knows() map[string]bool {
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

func (g *gossip) leave() {
	g.mu.Lock()
	list := g.list
	g.mu.Unlock()
	if list != nil {
		_ = list.Leave(leaveTime) // nobody may be left to hear it
	}
}

func (g *gossip) close() {
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

// listener passes memberlist's events on.
type listener func(n int, instance string, alive bool)

func (f listener) tell(n *memberlist.Node, alive bool) {
	if number, instance, ok := splitName(n.Name); ok {
		f(number, instance, alive)
	}
}

func (f listener) NotifyJoin(n *memberlist.Node)  { f.tell(n, true) }
func (f listener) NotifyLeave(n *memberlist.Node) { f.tell(n, false) }
func (f listener) NotifyUpdate(*memberlist.Node)  {}

// logWriter makes debug messages of other libraries' lines: whatever matters is said elsewhere.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	if w.log.Enabled(context.Background(), slog.LevelDebug) {
		w.log.Debug(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}
