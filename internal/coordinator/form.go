package coordinator

import (
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
	"strconv"
	"syscall"
	"time"

	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/identity"
	"github.com/hdmlp/hdmlp/internal/lockstep"
)

// Options say which of a job's nodes this is, and what it tells the others.
type Options struct {
	Job           string // its name
	WorldSize     int
	Nodes, Node   int
	Ranks         []int  // of this node
	Address       string // host:port of node 0's daemon, for the job's first loader
	Loader        int    // this one's number
	Secret        string
	Seed          uint64 // the job's, if this is node 0
	Facts         []Fact // which all nodes must agree on
	Index         *dataset.Index
	Port          int // 0: that of Address
	Interface     string
	Network       Network       // over which nodes reach each other; nil: the system's
	Timeout       time.Duration // for which nodes wait for each other at the start
	TLS           bool
	Cert, Key, CA string // files; empty: keys are drawn
	Local         Job
	Stops         *lockstep.Stops
	// Wrap, if not nil, stands between this node's samples and the other nodes: what they connect
	// to is what it makes of the listener.
	Wrap func(net.Listener) net.Listener
	// Progress is told which nodes are waited for, and, as a warning, what was refused. It may
	// block.
	Progress func(text string, warning bool)
	Log      *slog.Logger
}

// Network is how nodes reach each other.
type Network = cluster.Network

// Fact is something that all nodes of a job must say alike.
type Fact = cluster.Fact

// Agreement is what the nodes of a job have agreed on.
type Agreement struct {
	Seed    uint64   // node 0's
	Version [16]byte // of the dataset, as node 0 has it
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
	if c.tls, err = c.certificates(); err != nil {
		return a, failure.Input("%v", err)
	}
	options, err := c.options(ctx)
	if err != nil {
		return a, err
	}
	stop := tellWaiting(&options, c.o.Progress)
	formed, err := cluster.Form(ctx, options)
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

// options listens for samples, and says what the cluster is to know of this node: also why it
// cannot take part.
func (c *Coordinator) options(ctx context.Context) (cluster.Options, error) {
	o := &c.o
	host, ports, err := o.meeting()
	if err != nil {
		return cluster.Options{}, err
	}
	options := cluster.Options{
		Job: o.Job, Node: o.Node, Nodes: o.Nodes, WorldSize: o.WorldSize, Ranks: o.Ranks,
		Secret: []byte(o.Secret), TLS: c.tls, Network: o.Network, Deadline: o.Timeout, Whole: true,
		Facts: o.Facts, Answer: c.answer, Log: o.Log,
	}
	local, err := cluster.Local(o.Node, o.Interface)
	if o.Node == 0 {
		if err != nil {
			return cluster.Options{}, clusterError(c.me, err) // and listen nowhere
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

// reach finds out whether samples can be fetched: each node connects to the next one, and all hear
// what came of it. A port that is closed would otherwise only make the job slow.
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
			Why: why + ". The keys port and interface say where a node serves samples, and that " +
				"port must be open",
		}).Error()
	}
	all, err := c.gather(ctx, "reach", []byte(says))
	if err != nil {
		return clusterError(c.me, err)
	}
	for _, text := range all {
		if len(text) > 0 {
			return failure.Input("the nodes of the job did not come together: %s", text)
		}
	}
	return nil
}

// compareContents refuses nodes whose datasets have the same listing and other contents. A file
// that one of them cannot read is not compared. The job's version is node 0's.
func (c *Coordinator) compareContents(ctx context.Context) (version [16]byte, err error) {
	index := c.o.Index
	mine, err := json.Marshal(nodeContents{
		Version:  index.Fingerprint(),
		Contents: index.Contents(),
	})
	if err != nil {
		return version, err
	}
	all, err := c.gather(ctx, "contents", mine)
	if err != nil {
		return version, clusterError(c.me, err)
	}
	var first nodeContents
	for n, text := range all {
		var theirs nodeContents
		if err := json.Unmarshal(text, &theirs); err != nil ||
			len(theirs.Contents) != len(index.Contents()) {
			return version,
				failure.Input("node %d of the job says of its dataset's contents what cannot "+
					"be understood: %v",
					n, err)
		}
		if n == 0 {
			first = theirs
			continue
		}
		if i, same := dataset.SameContents(first.Contents, theirs.Contents); !same {
			id := index.Excerpts()[i].ID
			return version, failure.Differs("dataset contents",
				hex.EncodeToString(theirs.Version[:]), hex.EncodeToString(first.Version[:]),
				map[string]any{"sample": id, "node": n},
				"sample %d (%s) has other bytes on node %d than on node 0, although the datasets "+
					"of both have the same names, sizes and times: "+
					"versions %x and %x; mount the same dataset on all nodes", id, index.Name(id),
				n, theirs.Version[:8], first.Version[:8])
		}
	}
	return first.Version, nil
}

// nodeContents is what a node tells of its dataset.
type nodeContents struct {
	Version  [16]byte
	Contents [][16]byte // in the order of dataset.Index.Excerpts
}

// longWait is for how long nodes wait for each other before a process is warned of it.
const longWait = 10 * time.Second

// tellWaiting lets the process that opened the job hear which nodes are waited for, and which were
// refused, until stop. The cluster, which tells it, never waits for the process.
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

// portsPerLoader are what one loader of a script has: where node 0 is found, where samples are
// served, failure detection, and a spare.
const portsPerLoader = 4

// meeting is node 0's host, and the first of this loader's ports: the configuration's, or else what
// the launcher gave.
func (o *Options) meeting() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(o.Address)
	if err != nil {
		return "", 0, failure.Input("cluster.address = %q: %v", o.Address, err)
	}
	given, err := strconv.ParseUint(text, 10, 16)
	if err != nil || o.Loader < 0 || o.Loader > 255 {
		return "", 0,
			failure.Input("cluster.address = %q, cluster.loader = %d: a port is below 65536, a "+
				"loader below 256",
				o.Address, o.Loader)
	}
	port = cmp.Or(o.Port, int(given)) + portsPerLoader*o.Loader
	if port+portsPerLoader > 1<<16 {
		port -= 1 << 15
	}
	return host, port, nil
}

// certificates are how nodes talk to each other; nil: without TLS.
func (c *Coordinator) certificates() (*tls.Config, error) {
	switch {
	case !c.o.TLS:
		return nil, nil
	case c.o.Cert == "":
		return identity.DrawTLS()
	}
	return identity.LoadTLS(c.o.Cert, c.o.Key, c.o.CA)
}

// clusterError makes an error of the cluster one that a process of node me understands.
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
		return fmt.Errorf("the nodes of the job did not come together: %w", err)
	}
	return failure.Input("the nodes of the job did not come together: %v", err)
}
