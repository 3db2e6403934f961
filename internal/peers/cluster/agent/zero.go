package agent

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/hub"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/outbox"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

const whatControl = "control"

// serve makes a the agent of node 0: it listens on the control port, binds the sockets of failure
// detection, creates the hub with its own agent as the first participant, and serves the other
// nodes until stop is called, or halt, which does not flush.
func (a *Agent) serve(ctx context.Context) (stop, halt func(), err error) {
	host, port, _ := cluster.SplitAddress(a.o.Listen)
	listener, err := cluster.Listen(ctx, a.o.Network, 0, whatControl, host, port)
	if err != nil {
		return nil, nil, err
	}
	if found, err := cluster.Resolve(host); err == nil && host != "" {
		host = found[0]
	}
	a.unfit = a.bind(ctx, host)
	if a.o.Listening != nil {
		a.o.Listening(listener.Addr())
	}
	own := a.registration(a.unfit)
	a.hub = hub.New(own, hub.Options{
		Deadline: a.o.Deadline, Whole: a.o.Whole, Remedy: a.o.Remedy, Log: a.o.Log,
		Check: a.check, Refused: a.o.Refused,
	})
	box := outbox.New[*pb.Message](0)
	a.connected(a.hub.AttachOwn(localLink{box}, a.o.Listen))
	a.tasks.Go(func() {
		for {
			m, ok := box.Take(a.done)
			if !ok {
				return
			}
			_ = a.handle(m) // the own hub sends only valid messages
		}
	})
	server := session.NewServer(session.ServerOptions{
		Nodes: a.o.Nodes, Instance: a.instance, Secret: a.o.Secret, TLS: a.o.TLS, Log: a.o.Log,
	}, a.hub)
	a.tasks.Go(func() {
		if err := server.Serve(listener); err != nil {
			a.fail(cluster.ListenError(0, whatControl, a.o.Listen, err))
		}
	})
	a.tasks.Go(a.rejoinLost)
	halt = func() {
		server.Close()
		box.Close()
	}
	return func() {
		a.hub.CloseLinks()
		server.Flush()
		halt()
	}, halt, nil
}

// localLink is the hub's link to its own agent.
type localLink struct{ box *outbox.Box[*pb.Message] }

func (l localLink) Send(m *pb.Message) { l.box.Put(m) }

func (l localLink) Close() {}

func (l localLink) SendPack(p *session.Pack) {
	for _, m := range p.Messages {
		l.box.Put(m)
	}
}
