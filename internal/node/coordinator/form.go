package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/agent"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Options describe this node's part in a job.
type Options struct {
	Job         string // name
	WorldSize   int
	Nodes, Node int
	Ranks       []int  // ranks of this node
	Address     string // host:port of node 0's daemon, for the job's first loader
	Loader      int    // this loader's number
	Secret      string
	Seed        uint64                  // the job's seed, used if this is node 0
	Facts       []Fact                  // the agreement keys: all nodes must have the same values
	Remedy      func(key string) string // what a user can do if nodes differ in one
	Index       *source.Index
	Port        int // 0: the port of Address
	// Listening, if not nil, is called with the address on which node 0 listens. Its port is chosen
	// by the system if that of Address is 0.
	Listening     func(net.Addr)
	Interface     string
	Network       Network       // how nodes reach each other; nil: the system's network
	Timeout       time.Duration // how long nodes wait for each other at the start
	SourceTimeout time.Duration // of a read of a sample; 0: no limit
	TLS           bool
	Cert, Key, CA string // files; empty: keys are generated
	Local         Job
	Stops         *lockstep.Stops
	Faults        Faults // nil: the job leaves out no samples
	// Wrap, if not nil, wraps the listener that serves this node's samples.
	Wrap func(net.Listener) net.Listener
	// Progress reports which nodes are being waited for, and, with warning, which connections were
	// refused. It may block.
	Progress func(text string, warning bool)
	Log      *slog.Logger
}

// Network is how nodes reach each other.
type Network = cluster.Network

// Fact is an agreement key and this node's value: all nodes of a job must have the same.
type Fact = cluster.Fact

// Agreement is what the nodes of a job have agreed on.
type Agreement struct {
	Seed    uint64   // node 0's seed
	Version [16]byte // the dataset's version on node 0
}

// Form finds the other nodes, and agrees with them on what the job is.
func Form(ctx context.Context, o Options) (*Coordinator, Agreement, error) {
	c := newCoordinator(o)
	a, err := c.form(ctx)
	if err != nil {
		c.Close()
		return nil, Agreement{}, err
	}
	return c, a, nil
}

func (c *Coordinator) form(ctx context.Context) (a Agreement, err error) {
	if c.tls, err = Certificates(c.o.TLS, c.o.Cert, c.o.Key, c.o.CA); err != nil {
		return a, failure.Input("%v", err)
	}
	options, err := c.options(ctx)
	if err != nil {
		return a, err
	}
	stop := tellWaiting(&options, c.o.Progress)
	formed, err := agent.Form(ctx, options)
	stop()
	if err != nil {
		return a, clusterError(c.me, err)
	}
	c.cluster = formed
	if a.Seed = c.o.Seed; len(formed.Broadcast()) == 8 {
		a.Seed = binary.LittleEndian.Uint64(formed.Broadcast())
	}
	if err := c.reach(ctx); err != nil {
		return a, err
	}
	if a.Version, err = c.compareContents(ctx); err != nil {
		return a, err
	}
	c.connect()
	return a, nil
}

// options opens the listener for samples, and returns what the cluster is to know of this node; if
// this node cannot take part, it includes the reason.
func (c *Coordinator) options(ctx context.Context) (cluster.Options, error) {
	o := &c.o
	host, ports, err := o.meeting()
	if err != nil {
		return cluster.Options{}, err
	}
	options := cluster.Options{
		Job: o.Job, Node: o.Node, Nodes: o.Nodes, WorldSize: o.WorldSize, Ranks: o.Ranks,
		Secret: []byte(o.Secret), TLS: c.tls, Network: o.Network, Deadline: o.Timeout, Whole: true,
		Facts: o.Facts, Remedy: o.Remedy, Answer: c.answer, Hear: c.hear, Log: o.Log,
		Listening: o.Listening,
	}
	local, err := cluster.Local(o.Node, o.Interface)
	if o.Node == 0 {
		if err != nil {
			return cluster.Options{}, clusterError(c.me, err) // do not listen at all
		}
		options.Listen = net.JoinHostPort(cmp.Or(local, host), strconv.Itoa(ports))
		options.Broadcast = binary.LittleEndian.AppendUint64(nil, o.Seed)
	} else {
		options.Join = net.JoinHostPort(host, strconv.Itoa(ports))
	}
	samples := 0 // any port
	if o.Port != 0 {
		samples = ports + 1
		options.Gossip = net.JoinHostPort(local, strconv.Itoa(ports+2))
	}
	if err == nil {
		c.listener, err = cluster.Listen(ctx, options.Network, o.Node, "samples", local, samples)
	}
	if err == nil {
		options.Exchange = net.JoinHostPort(local,
			strconv.Itoa(c.listener.Addr().(*net.TCPAddr).Port))
	}
	options.Failure = err
	return options, nil
}

// reachTime is how long a node may take to answer a connection at the start.
const reachTime = 10 * time.Second

// reach checks that samples can be fetched: each node connects to the next one, and all learn the
// results. Otherwise a closed port would merely make the job slow.
func (c *Coordinator) reach(ctx context.Context) error {
	next := c.cluster.Members()[(c.me+1)%c.nodes()]
	says := ""
	within, cancel := context.WithTimeout(ctx, reachTime)
	conn, err := c.cluster.Dial(within, next.Node)
	cancel()
	if err == nil {
		conn.Close()
	} else {
		why := err.Error()
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			why = op.Err.Error()
		}
		says = (&cluster.AddressError{
			Node: c.me, Doing: "reach", What: fmt.Sprintf("samples of node %d", next.Node),
			Where: next.Exchange,
			Why: why + "; a node serves its samples on the interface and port that the keys " +
				"interface and port set: make sure that this port is open",
		}).Error()
	}
	all, err := c.gather(ctx, "reach", []byte(says))
	if err != nil {
		return clusterError(c.me, err)
	}
	for _, text := range all {
		if len(text) > 0 {
			return failure.Input("the job's nodes could not form a cluster: %s", text)
		}
	}
	return nil
}

// compareContents returns an error if the nodes' datasets have the same listing but different
// contents. A file that a node cannot read is not compared. The job's version is node 0's. As a
// rule all versions are equal, and the contents need not be sent.
func (c *Coordinator) compareContents(ctx context.Context) (version [16]byte, err error) {
	index := c.o.Index
	mine := nodeContents{Version: index.Fingerprint()}
	all, err := c.gather(ctx, "version", mine.Version[:])
	if err != nil {
		return version, clusterError(c.me, err)
	}
	if !slices.ContainsFunc(all, func(theirs []byte) bool {
		return !bytes.Equal(theirs, mine.Version[:])
	}) {
		return mine.Version, nil
	}
	mine.Contents = index.Contents()
	if all, err = c.gather(ctx, "contents", marshal(mine)); err != nil {
		return version, clusterError(c.me, err)
	}
	var first nodeContents
	for n, text := range all {
		var theirs nodeContents
		if err := json.Unmarshal(text, &theirs); err != nil ||
			len(theirs.Contents) != len(index.Contents()) {
			return version,
				failure.Input("node %d sent dataset contents that cannot be decoded: %v",
					n, err)
		}
		if n == 0 {
			first = theirs
			continue
		}
		if i, same := source.SameContents(first.Contents, theirs.Contents); !same {
			id := index.Excerpts()[i].ID
			return version, failure.Differs("dataset contents",
				hex.EncodeToString(theirs.Version[:]), hex.EncodeToString(first.Version[:]),
				map[string]any{"sample": id, "node": n},
				"sample %d (%s) has other bytes on node %d than on node 0, although both datasets "+
					"have the same names, sizes and times: versions %x and %x; mount the same "+
					"dataset on all nodes",
				id, index.Name(id), n, theirs.Version[:8], first.Version[:8])
		}
	}
	return first.Version, nil
}

// nodeContents describes a node's dataset to node 0.
type nodeContents struct {
	Version  [16]byte
	Contents [][16]byte // in the order of source.Index.Excerpts
}

// longWait is how long nodes wait for each other before the process is warned.
const longWait = 10 * time.Second

// tellWaiting reports to the process that opened the job which nodes are being waited for, and
// which were refused, until stop is called. The cluster, which reports them, never waits for the
// process.
func tellWaiting(o *cluster.Options, progress func(text string, warning bool)) (stop func()) {
	type saying struct {
		text    string
		warning bool
	}
	said := make(chan saying, 16)
	say := func(s saying) {
		select {
		case said <- s:
		default:
		}
	}
	o.Progress = func(text string) { say(saying{text, false}) }
	o.Refused = func(err error) { say(saying{err.Error(), true}) }
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		late := time.NewTimer(longWait)
		defer late.Stop()
		waiting := ""
		for {
			select {
			case s := <-said:
				if progress(s.text, s.warning); !s.warning {
					waiting = s.text
				}
			case <-late.C:
				if waiting != "" {
					progress(waiting, true)
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

// portsPerLoader is the number of consecutive ports that each loader of a script uses: rendezvous
// with node 0, samples, failure detection, and, of the first one, indexes.
const portsPerLoader = 4

// meeting returns node 0's host, and the first of this loader's ports: the configured one, or else
// the launcher's.
func (o *Options) meeting() (host string, port int, err error) {
	return meeting(o.Address, o.Port, o.Loader)
}

func meeting(address string, configured, loader int) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, failure.Input("cluster.address = %q: %v", address, err)
	}
	given, err := strconv.ParseUint(text, 10, 16)
	if err != nil || loader < 0 || loader > 255 {
		return "", 0, failure.Input("cluster.address = %q, cluster.loader = %d: the port must be "+
			"below 65536 and the loader below 256", address, loader)
	}
	port = cmp.Or(configured, int(given)) + portsPerLoader*loader
	if port+portsPerLoader > 1<<16 {
		port -= 1 << 15
	}
	return host, port, nil
}

// IndexAddress returns node 0's host, and the port at which it gives indexes to other nodes, before
// the job begins: the last of its first loader. address is as Options.Address, and configured the
// key port; 0: it is that of address.
func IndexAddress(address string, configured int) (host string, port int, err error) {
	host, port, err = meeting(address, configured, 0)
	return host, port + portsPerLoader - 1, err
}

// Host returns the host on which node 0 listens: that of the key interface or, without, the one
// of its address.
func Host(configured, address string) (string, error) {
	local, err := cluster.Local(0, configured)
	return cmp.Or(local, address), err
}

// Certificates returns the TLS configuration between nodes, of the configuration's keys; nil: no
// TLS.
func Certificates(on bool, cert, key, ca string) (*tls.Config, error) {
	switch {
	case !on:
		return nil, nil
	case cert == "":
		return auth.DrawTLS()
	}
	return auth.LoadTLS(cert, key, ca)
}

// clusterError converts an error of package cluster into one that a process of node me understands.
func clusterError(me int, err error) error {
	var difference *cluster.DifferenceError
	if errors.As(err, &difference) {
		mine, theirs := difference.Node0s, difference.Theirs
		if me == difference.Node {
			mine, theirs = theirs, mine
		}
		return failure.Differs(difference.Key, mine, theirs,
			map[string]any{"node": difference.Node}, "%v", err)
	}
	var version *cluster.VersionError
	if errors.As(err, &version) {
		return failure.Differs("control protocol", version.Mine, version.Theirs, nil, "%v", err)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("the job's nodes could not form a cluster: %w", err)
	}
	return failure.Input("the job's nodes could not form a cluster: %v", err)
}
