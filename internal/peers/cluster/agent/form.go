package agent

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// Form joins the cluster of the job. It returns when all nodes have joined and agree, and otherwise
// one of the errors of package cluster, the same on every node that can be reached, at the latest
// some seconds after Deadline. Canceling ctx makes it return at once; after Form has returned, ctx
// has no effect.
func Form(ctx context.Context, o cluster.Options) (*Agent, error) {
	gossipIsDefault, err := complete(&o)
	if err != nil {
		return nil, err
	}
	a := newAgent(o)
	a.gossipIsDefault = gossipIsDefault
	if o.Nodes == 1 {
		a.alone()
		return a, nil
	}
	if o.Node == 0 {
		a.stop, a.halt, err = a.serve(ctx)
	} else {
		a.stop, a.halt = a.join()
	}
	if err == nil {
		err = a.wait(ctx)
	}
	if err != nil {
		if a.stop != nil {
			a.stop()
		}
		a.release()
		return nil, err
	}
	return a, nil
}

// complete validates the options and sets defaults. gossipIsDefault reports whether the address of
// failure detection is one, so that another port will do.
func complete(o *cluster.Options) (gossipIsDefault bool, err error) {
	bad := func(option, value, why string) (bool, error) {
		return false, &cluster.OptionError{Option: option, Value: value, Why: why}
	}
	switch {
	case o.Nodes < 1 || o.Nodes > cluster.MaxNodes:
		return bad("nodes", strconv.Itoa(o.Nodes), "must be in [1, "+strconv.Itoa(cluster.MaxNodes)+"]")
	case o.Node < 0 || o.Node >= o.Nodes:
		return bad("node", strconv.Itoa(o.Node),
			"must be in [0, nodes), where nodes is "+strconv.Itoa(o.Nodes))
	case o.WorldSize < 1:
		return bad("world_size", strconv.Itoa(o.WorldSize), "must be at least 1")
	case len(o.Payload) > cluster.MaxPayload:
		return false, &cluster.LimitError{
			What:  "payload",
			Size:  int64(len(o.Payload)),
			Limit: cluster.MaxPayload,
		}
	case len(o.Broadcast) > cluster.MaxPayload:
		return false, &cluster.LimitError{
			What:  "broadcast",
			Size:  int64(len(o.Broadcast)),
			Limit: cluster.MaxPayload,
		}
	}
	o.Ranks = slices.Sorted(slices.Values(o.Ranks))
	for i, r := range o.Ranks {
		if r < 0 || r >= o.WorldSize {
			return bad("ranks", strconv.Itoa(r),
				"must be in [0, world_size), where world_size is "+strconv.Itoa(o.WorldSize))
		}
		if i > 0 && r == o.Ranks[i-1] {
			return bad("ranks", strconv.Itoa(r), "is listed twice")
		}
	}
	o.Network = cluster.OrSystem(o.Network)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Refused == nil {
		o.Refused = func(error) {}
	}
	if o.Deadline <= 0 {
		o.Deadline = 5 * time.Minute
	}
	if o.Nodes == 1 {
		return false, nil
	}
	if len(o.Secret) < auth.MinSecret {
		return bad("secret", strconv.Itoa(len(o.Secret))+" bytes",
			"must have at least "+strconv.Itoa(auth.MinSecret)+
				" bytes; 'openssl rand -hex 32' prints a good one")
	}
	named := []struct{ name, value string }{{"join", o.Join}, {"exchange", o.Exchange}}
	if o.Node == 0 {
		named[0].name, named[0].value = "listen", o.Listen
	}
	if o.Failure != nil {
		named = named[:1]
	}
	for _, n := range named {
		host, port, err := cluster.SplitAddress(n.value)
		if err != nil {
			return bad(n.name, n.value, err.Error())
		}
		if n.name == "exchange" && o.Gossip == "" {
			gossipIsDefault = true
			o.Gossip = net.JoinHostPort(host, strconv.Itoa((port+1)%65536))
		}
	}
	if _, _, err := cluster.SplitAddress(o.Gossip); err != nil && o.Failure == nil {
		return bad("gossip", o.Gossip, err.Error())
	}
	return gossipIsDefault, nil
}

// register describes this node in the message with which it joins.
func register(o *cluster.Options, instance string) *pb.Register {
	r := &pb.Register{
		Job: o.Job, Node: uint32(o.Node), Instance: instance, Nodes: uint32(o.Nodes),
		WorldSize: uint32(o.WorldSize),
		Exchange:  o.Exchange, Gossip: o.Gossip, Payload: o.Payload,
	}
	for _, rank := range o.Ranks {
		r.Ranks = append(r.Ranks, uint32(rank))
	}
	for _, f := range o.Facts {
		r.Facts = append(r.Facts, &pb.Fact{Key: f.Key, Value: f.Value})
	}
	if o.Node == 0 {
		r.Broadcast = o.Broadcast
	}
	return r
}
