package node

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/coordinator"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/peers/handover"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Datasets are opened before the nodes of a job form a cluster, when the script makes them. Node 0
// then listens for the other nodes of the launch, which ask it for the indexes that it makes: from
// when it first opens such a dataset until nothing was offered for start_timeout.

// comeTime is how long a node waits until node 0 opens the same dataset, at most: one that never
// does so delays the others by as much.
const comeTime = 30 * time.Second

// launches are those in which this node is node 0.
type launches struct {
	mu     sync.Mutex                // guards the following, and what is in them
	open   map[string]*launch        // by address
	failed map[string]request.Launch // by address: the last one that could not listen there
	closed bool
}

// launch is one of them, while it listens.
type launch struct {
	request request.Launch
	server  *handover.Server
	making  int         // indexes that are being made
	idle    *time.Timer // ends it; nil while indexes are made
}

var (
	errEnding = errors.New("the daemon is ending")
	errFailed = errors.New("it could not listen before")
)

// offer makes known that this node opens a dataset. done must be called when it is open, or could
// not be opened.
func (l *launches) offer(ctx context.Context, o handover.Options, r request.Launch,
	name handover.Name, objects int,
) (*handover.Offer, *launch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errEnding
	}
	now := l.open[o.Address]
	if now != nil && now.request != r { // an earlier one of the same port
		now.server.Close()
		delete(l.open, o.Address)
		now = nil
	}
	if now == nil {
		if l.failed[o.Address] == r {
			return nil, nil, errFailed // so that not each rank waits for the port
		}
		server, err := handover.Listen(ctx, o)
		if l.open == nil {
			l.open, l.failed = map[string]*launch{}, map[string]request.Launch{}
		}
		if err != nil {
			l.failed[o.Address] = r
			return nil, nil, err
		}
		now = &launch{request: r, server: server}
		l.open[o.Address] = now
	}
	now.making++
	if now.idle != nil {
		now.idle.Stop()
		now.idle = nil
	}
	return now.server.Offer(name, objects), now, nil
}

// done notes that an offer is made or has failed. The launch ends if there is no other within keep.
func (l *launches) done(address string, of *launch, keep time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.making--; of.making > 0 || l.open[address] != of {
		return
	}
	of.idle = time.AfterFunc(keep, func() {
		l.mu.Lock()
		over := l.open[address] == of && of.making == 0
		if over {
			delete(l.open, address)
		}
		l.mu.Unlock()
		if over {
			of.server.Close()
		}
	})
}

// close ends all.
func (l *launches) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, of := range l.open {
		if of.idle != nil {
			of.idle.Stop()
		}
		of.server.Close()
	}
	clear(l.open)
}

// exchange implements source.Exchange for a dataset that a process of a launch opens.
type exchange struct {
	launches *launches
	options  handover.Options
	request  request.Launch
	timeout  time.Duration // start_timeout
}

// newExchange returns the exchange of a launch; nil: it has one node.
func (n *Node) newExchange(r *request.Launch, cfg *config.Config) (source.Exchange, error) {
	if r == nil || r.Nodes <= 1 {
		return nil, nil
	}
	host, port, err := coordinator.IndexAddress(r.Address, cfg.Port)
	if err != nil {
		return nil, err
	}
	x := &exchange{
		launches: &n.launches, request: *r, timeout: cfg.StartTimeout,
		options: handover.Options{
			Launch: r.Name, Node: r.Node, Nodes: r.Nodes, Secret: []byte(r.Secret),
			Network: n.options.Network, Log: n.log,
		},
	}
	if r.Node == 0 {
		if host, err = coordinator.Host(cfg.Interface, host); err != nil {
			return nil, err
		}
	}
	x.options.Address = net.JoinHostPort(host, strconv.Itoa(port))
	x.options.TLS, err = coordinator.Certificates(cfg.TLS, cfg.TLSCert, cfg.TLSKey, cfg.TLSCA)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Makes implements source.Exchange.
func (x *exchange) Makes() bool { return x.options.Node == 0 }

// Offer implements source.Exchange.
func (x *exchange) Offer(name [16]byte, objects int) (source.Offer, error) {
	o, of, err := x.launches.offer(context.Background(), x.options, x.request, name, objects)
	if errors.Is(err, errFailed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &offer{o, func() { x.launches.done(x.options.Address, of, x.timeout) }}, nil
}

// Receive implements source.Exchange.
func (x *exchange) Receive(ctx context.Context, name [16]byte, progress func(done, of int)) (
	io.ReadCloser, int64, error,
) {
	c, err := handover.Receive(ctx, x.options, handover.Wanted{
		Name: name, Come: min(comeTime, x.timeout), Stall: x.timeout, Progress: progress,
	})
	if err != nil {
		return nil, 0, err
	}
	return c, c.Size(), nil
}

// offer implements source.Offer.
type offer struct {
	*handover.Offer
	done func()
}

// Ready implements source.Offer.
func (o *offer) Ready(x *source.Index) {
	o.Offer.Ready(x.Encoded())
	o.done()
}

// Failed implements source.Offer.
func (o *offer) Failed(why error) {
	o.Offer.Failed(why)
	o.done()
}
