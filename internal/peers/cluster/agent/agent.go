// Package agent is a node's side of a cluster: it forms the cluster (Form), and is the node's
// handle on it from then on. Node 0's agent has the hub as well.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/hub"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/outbox"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// node is a member as this node has it.
type node struct {
	cluster.Member
	instance string
	gossip   string
	down     bool
	// unheard: gossip reported this instance as dead, or has not seen it. Only then may gossip
	// report it alive again: outdated news must not revive a daemon that is known to have ended.
	unheard bool
	seen    bool      // gossip has known this instance
	since   time.Time // when this node was sent the instance
}

// event is a change to report to the listeners of Notify.
type event struct {
	node  int
	alive bool
}

// Agent is every node's half. The hub's messages arrive by handle, from one goroutine at a time;
// gossip's news by heard. A node's end is detected in three ways, of which the first counts: its
// stream to node 0 ends and its port then refuses connections (a killed daemon: at once), node 0
// reports it, or memberlist does (a silent host or link: about 13 s, so that a daemon that gets no
// CPU for 10 s stays a member). A node that was wrongly counted as gone is back as soon
// as gossip reports it alive.
//
// Lock order: memberlist's, agent.mu, hub.mu. No function of memberlist is called under agent.mu.
type Agent struct {
	o               cluster.Options
	gossipIsDefault bool // o.Gossip is a default
	instance        string
	hub             *hub.Hub // on node 0
	unfit           error    // on node 0, why it cannot take part
	stop            func()   // ends the connections; nil: there are none
	halt            func()   // ends them without what is queued; for tests
	once            sync.Once
	formed          chan struct{} // closed when the cluster has formed
	gone            chan struct{} // closed when forming has failed
	done            chan struct{} // closed by close
	noReconnect     chan struct{} // closed by finish: do not reconnect to node 0
	finish          func()
	tasks           sync.WaitGroup
	events          *outbox.Box[event]
	life            context.Context // ends with done
	end             context.CancelFunc

	mu        invariants.Mutex[Agent] // guards the following
	closed    bool
	hasFormed bool // formed is closed
	failure   error
	limit     time.Time // forming fails then
	status    *pb.Status
	trouble   string // why node 0 is not connected
	refused   error  // by another job that is running at node 0's address
	up        uplink // to the hub; nil if not connected
	nodes     map[int]*node
	welcoming bool         // between welcome and complete
	incoming  []*pb.Member // members received while welcoming
	broadcast []byte
	calls     map[uint64]*call
	lastCall  uint64
	rounds    map[uint64][][]byte // by node 0's number, parts whose end has not come
	replies   int                 // questions and news in progress
	listeners []func(int, bool)
	gossip    membership
}

// uplink is how a node sends to the hub. Neither method blocks.
type uplink interface {
	Send(*pb.Message)
	Close() // after what was sent
}

// membership is failure detection without node 0 (package gossip).
type membership interface {
	// Address returns this node's host:port; if the host is empty, it is as other nodes see it.
	Address() string
	// Start begins to watch the other nodes, under a name; own is the address that they use. heard is
	// called with what is found out.
	Start(name, own string, heard func(node int, instance string, alive bool)) error
	// Join exchanges what both nodes have found out with the node at an address.
	Join(address string) error
	// Known returns the names of the nodes that are alive or only suspected.
	Known() map[string]bool
	Leave()
	Close()
}

const (
	grace = 2 * time.Second // after the deadline, to notify the other nodes
	// tellTime is the time to reach node 0 for a node that only reports its failure.
	tellTime  = 5 * time.Second
	closeTime = 500 * time.Millisecond // for what was sent when the agent is closed
	checkTime = time.Second            // to dial a node that may be gone
)

func newAgent(o cluster.Options) *Agent {
	a := &Agent{
		o: o, instance: newInstance(), formed: make(chan struct{}), gone: make(chan struct{}),
		done:   make(chan struct{}),
		events: outbox.New[event](0), nodes: map[int]*node{}, calls: map[uint64]*call{},
		rounds: map[uint64][][]byte{}, limit: time.Now().Add(o.Deadline),
		trouble: "no answer",
	}
	a.life, a.end = context.WithCancel(context.Background())
	if o.Failure != nil {
		a.limit = time.Now().Add(min(o.Deadline, tellTime))
	}
	a.noReconnect = make(chan struct{})
	a.finish = sync.OnceFunc(func() { close(a.noReconnect) })
	a.tasks.Go(func() {
		for {
			e, ok := a.events.Take(a.done)
			if !ok {
				return
			}
			a.mu.Lock()
			listeners := slices.Clone(a.listeners)
			a.mu.Unlock()
			for _, f := range listeners {
				f(e.node, e.alive)
			}
		}
	})
	return a
}

// alone makes the cluster of a single node.
func (a *Agent) alone() {
	a.nodes[0] = &node{
		Member: cluster.Member{
			Node:     0,
			Exchange: a.o.Exchange,
			Ranks:    a.o.Ranks,
			Payload:  a.o.Payload,
		},
		instance: a.instance,
	}
	a.broadcast = a.o.Broadcast
	a.hasFormed = true
}

// connected notes the link to the hub of a new connection.
func (a *Agent) connected(up uplink) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up = up
	a.incoming = nil
	a.welcoming = false
}

// disconnected notes that the link is gone.
func (a *Agent) disconnected(up uplink) {
	a.mu.Lock()
	if a.up != up {
		a.mu.Unlock()
		return
	}
	a.up = nil
	a.endCalls(func(what string) error {
		return &cluster.GatherError{
			What:    what,
			Missing: []int{0},
			Why:     "the connection to node 0 was lost, and gathers go through it",
		}
	})
	zero, doubt := node{}, false
	if z := a.nodes[0]; a.hasFormed && z != nil && !z.down {
		zero, doubt = *z, true
	}
	a.mu.Unlock()
	if doubt {
		a.check(0, zero.instance, zero.gossip)
	}
}

// registration returns this node's registration, with the reason why it cannot take part, if any.
func (a *Agent) registration(failure error) *pb.Register {
	r := register(&a.o, a.instance)
	if failure != nil {
		r.Failure = session.EncodeFailure(failure)
	} else {
		r.Gossip = a.gossip.Address()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hasFormed {
		r.Formed, r.Broadcast = true, a.broadcast
	}
	return r
}

// handle handles a message from the hub.
func (a *Agent) handle(m *pb.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch k := m.GetKind().(type) {
	case *pb.Message_Accepted:
		a.trouble, a.refused = "", nil
		// Node 0's deadline applies; this node's own only if node 0 does not answer.
		left := min(time.Duration(k.Accepted.GetRemainingMs())*time.Millisecond, 24*time.Hour)
		if limit := time.Now().Add(left + grace); a.hub == nil && limit.After(a.limit) {
			a.limit = limit
		}
	case *pb.Message_Status:
		a.status = k.Status
		a.o.Progress(a.waiting())
	case *pb.Message_Welcome:
		a.broadcast = k.Welcome.GetBroadcast()
		a.incoming = nil
		a.welcoming = true
	case *pb.Message_Member:
		if !a.sane(k.Member) {
			return session.ErrHandshake
		}
		if !a.welcoming { // a node rejoined
			if len(a.nodes) == a.o.Nodes {
				a.learn(k.Member)
			}
			return nil
		}
		if len(a.incoming) >= a.o.Nodes {
			return session.ErrHandshake
		}
		a.incoming = append(a.incoming, k.Member)
	case *pb.Message_Complete:
		if len(a.incoming) != a.o.Nodes {
			return session.ErrHandshake
		}
		for _, n := range a.incoming {
			a.learn(n)
		}
		a.incoming, a.welcoming = nil, false
		if len(a.nodes) != a.o.Nodes {
			return session.ErrHandshake
		}
		a.start()
	case *pb.Message_Go:
		if !a.hasFormed && len(a.nodes) == a.o.Nodes && a.failure == nil {
			a.hasFormed = true
			close(a.formed)
		}
	case *pb.Message_Abort:
		err := session.DecodeFailure(k.Abort)
		other, _ := err.(*cluster.JobError)
		_, late := err.(*cluster.LateError)
		if !a.hasFormed && (late || other != nil && other.Running) {
			a.noteOccupied(err)
		} else {
			a.failLocked(err)
		}
	case *pb.Message_Ping:
		a.up.Send(&pb.Message{Kind: &pb.Message_Pong{Pong: &pb.Pong{}}})
	case *pb.Message_Down:
		a.mark(int(k.Down.GetNode()), k.Down.GetInstance(), true)
	case *pb.Message_Part:
		return a.part(k.Part)
	case *pb.Message_Gathered:
		a.gathered(k.Gathered)
	case *pb.Message_Question:
		a.reply(k.Question)
	case *pb.Message_News:
		a.news(k.News)
	default:
		return session.ErrHandshake
	}
	return nil
}

// task runs f in a goroutine that close waits for. It returns false if the agent is closed.
func (a *Agent) task(f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.tasks.Go(f)
	return true
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// leave notifies the other nodes that this node leaves.
func (a *Agent) leave() {
	a.finish()
	a.mu.Lock()
	up := a.up
	a.mu.Unlock()
	if up != nil {
		up.Send(&pb.Message{Kind: &pb.Message_Leave{Leave: &pb.Leave{}}})
	}
	if a.gossip != nil {
		a.gossip.Leave()
	}
}

// release ends the agent's goroutines and waits for them.
func (a *Agent) release() {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	close(a.done)
	a.end()
	a.endCalls(func(string) error { return cluster.ErrClosed })
	a.mu.Unlock()
	if a.gossip != nil {
		a.gossip.Close()
	}
	a.tasks.Wait()
}

func newInstance() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func toInts(s []uint32) []int {
	out := make([]int, len(s))
	for i, v := range s {
		out[i] = int(v)
	}
	return out
}
