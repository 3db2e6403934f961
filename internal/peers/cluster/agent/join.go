package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/gossip"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

const (
	firstPause = 50 * time.Millisecond // between attempts to dial node 0
	lastPause  = time.Second
)

// join keeps this node connected to node 0, until stop is called, or halt, which does not flush. It
// reconnects when the connection is lost, before the cluster has formed and after.
func (a *Agent) join() (stop, halt func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	a.tasks.Go(func() {
		defer close(ended)
		for pauses := (auth.Backoff{First: firstPause, Last: lastPause}); ; {
			met, err := a.attend(ctx)
			if met && !a.occupied() {
				pauses.Reset()
			}
			if ctx.Err() != nil || isDone(a.noReconnect) || a.fatal(err) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-a.noReconnect:
				return
			case <-time.After(pauses.Next()):
			}
		}
	})
	a.tasks.Go(a.rejoinLost)
	halt = func() {
		cancel()
		<-ended
	}
	return func() {
		a.finish()
		a.mu.Lock()
		up := a.up
		a.mu.Unlock()
		if up != nil { // flush what was sent
			up.Close()
			select {
			case <-ended:
			case <-time.After(closeTime):
			}
		}
		halt()
	}, halt
}

// fatal reports whether another attempt would fail as well.
func (a *Agent) fatal(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.failure != nil {
		return true
	}
	switch err := err.(type) {
	case *cluster.SecretError:
		if err.Running {
			return false
		}
	case *cluster.VersionError, *cluster.TLSError:
	default:
		return false
	}
	if a.hasFormed { // another job's daemon is at node 0's address, perhaps not for long
		return false
	}
	a.failLocked(err)
	return true
}

// occupied reports whether another job is running at node 0's address.
func (a *Agent) occupied() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused != nil
}

// noteOccupied notes that another job, which may be about to end, is running at node 0's address;
// mu is held.
func (a *Agent) noteOccupied(refused error) {
	if a.refused == nil && !a.hasFormed && !a.closed {
		a.o.Progress(fmt.Sprintf("node %d is waiting for node 0: %v", a.o.Node, refused))
	}
	a.refused = refused
}

// attend runs one session with node 0, from dialing to the end of the connection. met reports
// whether the handshake was completed. The steps:
//
//  1. dial and authenticate;
//  2. bind the sockets of failure detection, and send Register;
//  3. send queued messages and handle received ones, until either ends;
//  4. note the disconnection.
func (a *Agent) attend(ctx context.Context) (met bool, err error) {
	c, err := session.Dial(ctx, session.ClientOptions{
		Node: a.o.Node, Join: a.o.Join, Network: a.o.Network, Secret: a.o.Secret, TLS: a.o.TLS,
	})
	if err != nil {
		a.noteTrouble(err)
		return false, err
	}
	failure := a.bind(ctx, c.Local)
	// before other goroutines can send
	c.Send(&pb.Message{Kind: &pb.Message_Register{Register: a.registration(failure)}})
	a.connected(c)
	if failure != nil {
		a.fail(failure) // and stay connected until it was sent
	}
	return true, c.Run(a.handle, func() { a.disconnected(c) })
}

// noteTrouble notes why node 0 was not reached, and reports it once while the cluster forms.
func (a *Agent) noteTrouble(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch err := err.(type) {
	case *cluster.SecretError:
		if err.Running {
			a.noteOccupied(err)
		}
	case *session.DialError:
		a.refused = nil
		if a.trouble != err.Why && !a.hasFormed && !a.closed {
			a.trouble = err.Why
			a.o.Progress(fmt.Sprintf("node %d is waiting for node 0 at %s: %s", a.o.Node, a.o.Join,
				err.Why))
		}
	}
}

// bind binds the sockets of failure detection, once the local address is known. It returns the
// reason why this node cannot take part, if any.
func (a *Agent) bind(ctx context.Context, local string) error {
	if a.o.Failure != nil || a.gossip != nil {
		return a.o.Failure
	}
	g, err := gossip.New(ctx, gossip.Options{
		Job: a.o.Job, Node: a.o.Node, Nodes: a.o.Nodes, Secret: a.o.Secret,
		Address: a.o.Gossip, IsDefault: a.gossipIsDefault, Local: local,
		Network: a.o.Network, Log: a.o.Log,
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.gossip = g
	a.mu.Unlock()
	return nil
}
