package devcluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/files"
)

// Cluster is several nodes on this machine. New creates one, and Close removes it and kills
// everything that runs on it.
type Cluster struct {
	options    Options
	name       string
	marker     string // TORCHELASTIC_RUN_ID of every process
	secret     string
	port       int
	loopback   error // why nodes are loopback addresses; nil: they are namespaces
	bridge     *thread
	nodes      []*Node
	state      *stateFile
	closeOnce  sync.Once
	closeError error
}

// Node is one node of a cluster.
type Node struct {
	cluster *Cluster
	index   int
	address netip.Addr
	thread  *thread // its processes' parent, in the node's namespaces if it has any
}

// errRequested is the reason for loopback addresses if namespaces would be possible.
var errRequested = errors.New("--loopback is given")

// New creates a cluster, after killing what dead runs left. It starts a thread for each node, and
// no process.
func New(o Options) (*Cluster, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.RanksPerNode = max(o.RanksPerNode, 1)
	c := &Cluster{options: o, name: o.Name, secret: random(32)}
	if c.name == "" {
		c.name = random(4)
	}
	c.marker = "hdmlp-dev-" + c.name + "-" + random(8)
	if c.loopback = privileged(); c.loopback == nil && o.Loopback {
		c.loopback = errRequested
	}
	if what := o.needNamespaces(); what != "" && c.loopback != nil {
		return nil, unsupported{fmt.Errorf("%s need nodes with network namespaces, but nodes are "+
			"loopback addresses: %w", what, c.loopback)}
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// random returns n random bytes, in hexadecimal.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func (c *Cluster) start() error {
	network := netip.MustParsePrefix("127.0.0.0/8")
	if c.loopback == nil {
		network = subnet(c.name)
		var err error
		if c.bridge, err = newThread(makeBridge); err != nil {
			return err
		}
	}
	at := network.Addr()
	for i := range c.options.Nodes {
		at = at.Next()
		n := &Node{cluster: c, index: i, address: at}
		c.nodes = append(c.nodes, n)
		if err := n.start(network.Bits()); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	var err error
	if c.port, err = c.freePort(); err != nil {
		return err
	}
	s, err := c.describe()
	if err != nil {
		return err
	}
	c.state, err = newStateFile(files.System{}, s)
	return err
}

// start starts the node's thread, and creates its namespaces and its link.
func (n *Node) start(bits int) (err error) {
	if n.cluster.loopback != nil {
		n.thread, err = newThread(func() error { return nil })
		return err
	}
	mounts, err := n.cluster.options.mounts(n.index)
	if err != nil {
		return err
	}
	if n.thread, err = newThread(func() error { return unshare(mounts) }); err != nil {
		return err
	}
	l := n.cluster.Link(n.index)
	if err := n.cluster.bridge.do(func() error { return plug(l, n.thread.tid) }); err != nil {
		return err
	}
	if err := n.thread.do(func() error { return address(n.address, bits) }); err != nil {
		return err
	}
	return l.Set(n.cluster.options.link(n.index))
}

// freePort returns a free port of node 0, below those that the kernel uses for outgoing
// connections.
func (c *Cluster) freePort() (port int, err error) {
	if c.options.MasterPort != 0 {
		return c.options.MasterPort, nil
	}
	if c.loopback == nil {
		return 29500, nil // torchrun's own; the namespace is new
	}
	seed := int(time.Now().UnixNano() / 1000 % 6000)
	for i := range 6000 {
		port = 20000 + (seed+i)%6000*2
		l, err := net.Listen("tcp", net.JoinHostPort(c.nodes[0].Address(), strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no port from 20000 to 32000 is free at %s", c.nodes[0].Address())
}

// Name returns the run's name.
func (c *Cluster) Name() string { return c.name }

// OnLoopback returns why the nodes are loopback addresses; nil if they are namespaces.
func (c *Cluster) OnLoopback() error { return c.loopback }

// StateFile returns the path of the run's state file, by which other processes find the run. It is
// the argument of [Reap].
func (c *Cluster) StateFile() string { return c.state.path }

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.nodes) }

// Node returns node i, counted from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Link returns node i's link.
func (c *Cluster) Link(i int) Link {
	n := c.nodes[i]
	l := Link{node: i, err: c.noLinks()}
	if l.err != nil {
		return l
	}
	if l.bridge, l.err = c.bridge.namespace(); l.err == nil {
		l.home, l.err = n.thread.namespace()
	}
	return l
}

func (c *Cluster) noLinks() error {
	if c.loopback == nil {
		return nil
	}
	return noLinks(c.loopback.Error())
}

func noLinks(why string) error {
	return unsupported{fmt.Errorf("the nodes are loopback addresses, which have no links: %s", why)}
}

// Address returns the node's IP address.
func (n *Node) Address() string { return n.address.String() }

// Do calls f on a thread of the node: sockets that f opens itself, not in goroutines that it
// starts, are on the node. Calls for the same node are serialised, and Close waits for them.
func (n *Node) Do(f func() error) error {
	return n.thread.do(f)
}

// Close kills all processes of the run, no matter which process started them, and removes nodes and
// links.
func (c *Cluster) Close() error {
	c.closeOnce.Do(func() { c.closeError = c.close() })
	return c.closeError
}

func (c *Cluster) close() error {
	err := c.kill()
	for _, n := range c.nodes {
		if n.thread != nil {
			n.thread.close()
		}
	}
	if c.bridge != nil {
		c.bridge.close()
	}
	return errors.Join(err, c.state.remove())
}
