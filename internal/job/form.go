package job

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/cluster"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/identity"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

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
			return nil, badInput("of the %d ranks of node %d only %v opened the loader within %v: start the others there too, or correct their number, which the launcher or LOCAL_WORLD_SIZE says", want, j.message.Cluster.Node, ranks, j.cfg.StartTimeout)
		}
	}
}

// form finds the other nodes, and settles the seed with them.
func (j *Job) form(ctx context.Context, progress func(protocol.ProgressMessage)) error {
	ranks, err := j.localRanks(ctx)
	if err != nil {
		return err
	}
	o := &others{job: j, me: j.message.Cluster.Node, last: make(map[int]heard), told: make(map[nodeEpoch][]audit.Part), back: make(chan struct{}, 1)}
	if o.tls, err = j.tls(); err != nil {
		return badInput("%v", err)
	}
	j.others = o
	options, err := o.options(ctx, ranks)
	if err != nil {
		return err
	}
	stop := tellWaiting(&options, progress)
	o.cluster, err = cluster.Form(ctx, options)
	stop()
	if err != nil {
		return clusterError(o.me, err)
	}
	if seed := o.cluster.Broadcast(); j.message.Stream.Seed == nil && len(seed) == 8 {
		j.message.Stream.Seed = new(binary.LittleEndian.Uint64(seed))
	}
	if err := o.reach(ctx); err != nil {
		return err
	}
	if err := o.compareContents(ctx); err != nil {
		return err
	}
	o.connect()
	return nil
}

// options listens for samples, and says what the cluster is to know of this node: also why it can not take part.
func (o *others) options(ctx context.Context, ranks []int) (cluster.Options, error) {
	j, m := o.job, &o.job.message
	c := m.Cluster
	host, ports, err := j.meeting()
	if err != nil {
		return cluster.Options{}, err
	}
	options := cluster.Options{
		Job: m.Job, Node: c.Node, Nodes: c.Nodes, WorldSize: m.WorldSize, Ranks: ranks,
		Secret: []byte(c.Secret), TLS: o.tls, Deadline: j.cfg.StartTimeout, Whole: true, Facts: j.facts(), Answer: j.answer, Log: j.log,
	}
	local, err := cluster.Local(c.Node, j.cfg.Interface)
	if c.Node == 0 {
		if err != nil {
			return cluster.Options{}, clusterError(o.me, err) // and listen nowhere
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
		o.listener, err = cluster.Listen(ctx, options.Network, c.Node, "samples", local, samples)
	}
	if err == nil {
		options.Exchange = net.JoinHostPort(local, strconv.Itoa(o.listener.Addr().(*net.TCPAddr).Port))
	}
	options.Failure = err
	return options, nil
}

// reachTime is how long a node may take to answer a connection at the start.
const reachTime = 10 * time.Second

// reach finds out whether samples can be fetched: each node connects to the next one, and all hear what came of it. A port that
// is closed would otherwise only make the job slow.
func (o *others) reach(ctx context.Context) error {
	next := o.cluster.Members()[(o.me+1)%o.nodes()]
	says := ""
	within, cancel := context.WithTimeout(ctx, reachTime)
	conn, err := o.cluster.Dial(within, next.Node)
	cancel()
	if err == nil {
		conn.Close()
	} else {
		why := err.Error()
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			why = op.Err.Error()
		}
		says = (&cluster.AddressError{
			Node: o.me, Doing: "reach", What: fmt.Sprintf("samples of node %d", next.Node), Where: next.Exchange,
			Why: why + ". The keys port and interface say where a node serves samples, and that port must be open",
		}).Error()
	}
	all, err := o.gather(ctx, "reach", []byte(says))
	if err != nil {
		return clusterError(o.me, err)
	}
	for _, text := range all {
		if len(text) > 0 {
			return badInput("the nodes of the job did not come together: %s", text)
		}
	}
	return nil
}

// compareContents refuses nodes whose datasets have the same listing and other contents. A file that one of them cannot read is not
// compared. The job's version is node 0's.
func (o *others) compareContents(ctx context.Context) error {
	index := o.job.dataset.Index()
	mine, err := json.Marshal(nodeContents{Version: index.Fingerprint(), Contents: index.Contents()})
	if err != nil {
		return err
	}
	all, err := o.gather(ctx, "contents", mine)
	if err != nil {
		return clusterError(o.me, err)
	}
	var first nodeContents
	for n, text := range all {
		var theirs nodeContents
		if err := json.Unmarshal(text, &theirs); err != nil || len(theirs.Contents) != len(index.Contents()) {
			return badInput("node %d of the job says of its dataset's contents what cannot be understood: %v", n, err)
		}
		if n == 0 {
			first, o.job.version = theirs, theirs.Version
			continue
		}
		if i, same := dataset.SameContents(first.Contents, theirs.Contents); !same {
			id := index.Excerpts()[i].ID
			return &protocol.ErrorMessage{
				Kind: protocol.KindMismatch,
				Message: fmt.Sprintf("sample %d (%s) has other bytes on node %d than on node 0, although the datasets of both have the same names, sizes and times: "+
					"versions %x and %x; mount the same dataset on all nodes", id, index.Name(id), n, theirs.Version[:8], first.Version[:8]),
				Details: map[string]any{
					"key": "dataset contents", "mine": hex.EncodeToString(theirs.Version[:]), "theirs": hex.EncodeToString(first.Version[:]),
					"sample": id, "node": n,
				},
			}
		}
	}
	return nil
}

// nodeContents is what a node tells of its dataset.
type nodeContents struct {
	Version  [16]byte
	Contents [][16]byte // in the order of dataset.Index.Excerpts
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
	case !j.cfg.TLS:
		return nil, nil
	case j.cfg.TLSCert == "":
		return identity.DrawTLS()
	}
	return identity.LoadTLS(j.cfg.TLSCert, j.cfg.TLSKey, j.cfg.TLSCA)
}

// clusterError makes an error of the cluster one that a process of node me understands.
func clusterError(me int, err error) error {
	var difference *cluster.DifferenceError
	if errors.As(err, &difference) {
		mine, theirs := difference.Node0s, difference.Theirs
		if me == difference.Node {
			mine, theirs = theirs, mine
		}
		return &protocol.ErrorMessage{
			Kind: protocol.KindMismatch, Message: err.Error(),
			Details: map[string]any{"key": difference.Key, "mine": mine, "theirs": theirs, "node": difference.Node},
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
