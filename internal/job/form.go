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
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/identity"
	"github.com/hdmlp/hdmlp/internal/request"
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
			return nil, failure.Input("of the %d ranks of node %d only %v opened the loader within %v: start the others there too, or correct their number, which the launcher or LOCAL_WORLD_SIZE says", want, j.message.Cluster.Node, ranks, j.cfg.StartTimeout)
		}
	}
}

// form finds the other nodes, and settles the seed with them: node 0's, who says the one that it has drawn where none is given.
func (j *Job) form(ctx context.Context, drawn uint64, progress request.Progress) (seed uint64, err error) {
	ranks, err := j.localRanks(ctx)
	if err != nil {
		return 0, err
	}
	o := &others{job: j, me: j.message.Cluster.Node, last: make(map[int]heard), told: make(map[nodeEpoch][]audit.Part), back: make(chan struct{}, 1)}
	if o.tls, err = j.tls(); err != nil {
		return 0, failure.Input("%v", err)
	}
	j.others = o
	options, err := o.options(ctx, ranks, drawn)
	if err != nil {
		return 0, err
	}
	stop := tellWaiting(&options, progress)
	o.cluster, err = cluster.Form(ctx, options)
	stop()
	if err != nil {
		return 0, clusterError(o.me, err)
	}
	if seed = drawn; len(o.cluster.Broadcast()) == 8 {
		seed = binary.LittleEndian.Uint64(o.cluster.Broadcast())
	}
	if err := o.reach(ctx); err != nil {
		return 0, err
	}
	if err := o.compareContents(ctx); err != nil {
		return 0, err
	}
	o.connect()
	return seed, nil
}

// options listens for samples, and says what the cluster is to know of this node: also why it can not take part.
func (o *others) options(ctx context.Context, ranks []int, seed uint64) (cluster.Options, error) {
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
			return failure.Input("the nodes of the job did not come together: %s", text)
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
			return failure.Input("node %d of the job says of its dataset's contents what cannot be understood: %v", n, err)
		}
		if n == 0 {
			first, o.job.version = theirs, theirs.Version
			continue
		}
		if i, same := dataset.SameContents(first.Contents, theirs.Contents); !same {
			id := index.Excerpts()[i].ID
			return failure.Differs("dataset contents", hex.EncodeToString(theirs.Version[:]), hex.EncodeToString(first.Version[:]),
				map[string]any{"sample": id, "node": n},
				"sample %d (%s) has other bytes on node %d than on node 0, although the datasets of both have the same names, sizes and times: "+
					"versions %x and %x; mount the same dataset on all nodes", id, index.Name(id), n, theirs.Version[:8], first.Version[:8])
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
func tellWaiting(o *cluster.Options, progress request.Progress) (stop func()) {
	said := make(chan request.Step, 16)
	say := func(m request.Step) {
		select {
		case said <- m:
		default:
		}
	}
	o.Progress = func(text string) { say(request.Step{What: text}) }
	o.Refused = func(err error) { say(request.Step{What: err.Error(), Warning: true}) }
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
					progress(request.Step{What: waiting, Warning: true})
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
		return "", 0, failure.Input("cluster.address = %q: %v", c.Address, err)
	}
	given, err := strconv.ParseUint(text, 10, 16)
	if err != nil || c.Loader < 0 || c.Loader > 255 {
		return "", 0, failure.Input("cluster.address = %q, cluster.loader = %d: a port is below 65536, a loader below 256", c.Address, c.Loader)
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
		return failure.Differs(difference.Key, mine, theirs, map[string]any{"node": difference.Node}, "%v", err)
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
