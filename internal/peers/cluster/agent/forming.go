package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/gossip"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// wait waits until the cluster has formed or has failed to.
func (a *Agent) wait(ctx context.Context) error {
	for {
		a.mu.Lock()
		left := time.Until(a.limit)
		a.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-a.formed:
		case <-a.gone:
		case <-ctx.Done():
			a.canceled()
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
			a.late()
			continue
		}
		timer.Stop()
		break
	}
	a.mu.Lock()
	err := a.failure
	a.mu.Unlock()
	if err == nil {
		return nil
	}
	_, late := err.(*cluster.MissingError)
	_, canceled := err.(*cluster.CanceledError)
	if a.hub != nil && !late && !canceled { // nodes that join a little later are sent it as well
		patience := grace
		if a.unfit != nil { // the others may not have started yet
			patience = tellTime
		}
		select {
		case <-a.hub.FailureSent():
		case <-time.After(patience):
		case <-ctx.Done():
		}
	}
	return err
}

// canceled notifies the other nodes that this node leaves before the cluster has formed.
func (a *Agent) canceled() {
	err := &cluster.CanceledError{Node: a.o.Node}
	if a.hub != nil {
		a.hub.Abort(err)
		return
	}
	a.finish()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up != nil {
		a.up.Send(&pb.Message{Kind: &pb.Message_Failed{Failed: session.EncodeFailure(err)}})
	}
}

// late fails forming, unless the deadline has been moved.
func (a *Agent) late() {
	a.mu.Lock()
	if time.Until(a.limit) > 0 {
		a.mu.Unlock()
		return
	}
	a.limit = a.limit.Add(time.Hour)
	status := a.status
	trouble := a.trouble
	refused := a.refused
	a.mu.Unlock()
	switch {
	case a.o.Failure != nil: // node 0 was not reached
		a.fail(a.o.Failure)
		return
	case a.hub != nil:
		a.hub.Expire() // notifies this node as well
		return
	case refused != nil:
		a.fail(refused)
		return
	}
	if status == nil || trouble != "" {
		a.fail(&cluster.AddressError{
			Node: a.o.Node, Doing: "reach", What: "node 0", Where: a.o.Join, Waited: a.o.Deadline,
			Why: trouble +
				". Check that node 0's daemon is running at this address and that its port is open",
		})
		return
	}
	e := &cluster.MissingError{
		Nodes:   a.o.Nodes,
		Missing: toInts(status.GetMissing()),
		Refused: status.GetRefused(),
		Waited:  a.o.Deadline,
	}
	for _, p := range status.GetPresent() {
		e.Present = append(e.Present, cluster.Present(int(p.GetNode()), p.GetAddress()))
	}
	a.fail(e)
}

// fail ends forming with err; after the cluster has formed err is only logged.
func (a *Agent) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failLocked(err)
}

func (a *Agent) failLocked(err error) {
	if a.hasFormed {
		a.o.Log.Warn("node 0 refused to let this node rejoin", "reason", err)
	} else if a.failure == nil {
		a.failure = err
		close(a.gone)
	}
}

// waiting returns what forming waits for, for Progress.
func (a *Agent) waiting() string {
	var missing []int
	for _, n := range a.status.GetMissing() {
		missing = append(missing, int(n))
	}
	if len(missing) == 0 {
		return "all nodes have joined"
	}
	s := fmt.Sprintf("waiting for %s of %d", cluster.Numbers("node", missing), a.o.Nodes)
	if r := a.status.GetRefused(); len(r) > 0 {
		s += "; refused: " + strings.Join(r, "; ")
	}
	return s
}

// joinFan is how many nodes join failure detection through one.
const joinFan = 8

// start joins failure detection, then reports ready to the hub; mu is held.
func (a *Agent) start() {
	up := a.up
	if a.closed || up == nil {
		return
	}
	// Nodes join failure detection through each other, as a tree: each sends the other its state
	// of all nodes, which is too much for node 0 to do with each. Node 0 takes the place of a node
	// that cannot be reached.
	through := (max(a.o.Node, 1) - 1) / joinFan
	if a.nodes[through].down {
		through = 0
	}
	self := a.nodes[a.o.Node]
	name, own := gossip.Name(self.Node, self.instance), self.gossip
	join, zero := a.nodes[through].gossip, a.nodes[0].gossip
	a.tasks.Go(func() {
		err := a.gossip.Start(name, own, a.heard)
		if err == nil && a.o.Node != 0 {
			if err = a.gossip.Join(join); err != nil && through != 0 {
				through, join = 0, zero
				err = a.gossip.Join(join)
			}
		}
		if err == nil {
			up.Send(&pb.Message{Kind: &pb.Message_Ready{Ready: &pb.Ready{}}})
			return
		}
		if isDone(a.done) {
			return
		}
		err = &cluster.AddressError{
			Node:  a.o.Node,
			Doing: "reach",
			What:  fmt.Sprintf("failure detection of node %d, TCP and UDP", through),
			Where: join,
			Why:   err.Error(),
		}
		up.Send(&pb.Message{Kind: &pb.Message_Failed{Failed: session.EncodeFailure(err)}})
		a.fail(err)
	})
}
