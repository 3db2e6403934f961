package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// node is a member as this node knows it.
type node struct {
	Member
	instance string
	gossip   string
	down     bool
	// unheard: gossip reported this instance as dead, or does not know it. Only then may gossip
	// report it alive again: outdated news must not revive a daemon that is known to have ended.
	unheard bool
	seen    bool      // gossip has known this instance
	since   time.Time // when this node learned of the instance
}

// event is a change to report to the listeners of Notify.
type event struct {
	node  int
	alive bool
}

// agent is every node's half. The hub's messages arrive by handle, from one goroutine at a time;
// gossip's news by heard. A node's end is detected in three ways, of which the first counts: its
// stream to node 0 ends and its port then refuses connections (a killed daemon: at once), node 0
// reports it, or memberlist does (a silent host or link: about 13 s, so that a daemon that gets no
// CPU for 10 s stays a member). A node that was wrongly thought gone is back as soon as it is
// heard.
//
// Lock order: memberlist's, agent.mu, hub.mu. No function of memberlist is called under agent.mu.
type agent struct {
	o           Options
	instance    string
	hub         *hub // on node 0
	once        sync.Once
	formed      chan struct{} // closed when the cluster has formed
	gone        chan struct{} // closed when forming has failed
	done        chan struct{} // closed by close
	noReconnect chan struct{} // closed by finish: do not reconnect to node 0
	finish      func()
	tasks       sync.WaitGroup
	events      *outbox[event]
	life        context.Context // ends with done
	end         context.CancelFunc

	mu        invariants.Mutex[agent] // guards the following
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
	gossip    *gossip
}

const (
	grace = 2 * time.Second // after the deadline, to tell the other nodes
	// tellTime is the time to reach node 0 for a node that only reports its failure.
	tellTime  = 5 * time.Second
	flushTime = 500 * time.Millisecond
	checkTime = time.Second // to dial a node that may be gone
)

func newAgent(o Options) *agent {
	a := &agent{
		o: o, instance: newInstance(), formed: make(chan struct{}), gone: make(chan struct{}),
		done:   make(chan struct{}),
		events: newOutbox[event](0), nodes: map[int]*node{}, calls: map[uint64]*call{},
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
			e, ok := a.events.take(a.done)
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
func (a *agent) alone() {
	a.nodes[0] = &node{
		Member:   Member{0, a.o.Exchange, a.o.Ranks, a.o.Payload},
		instance: a.instance,
	}
	a.broadcast = a.o.Broadcast
	a.hasFormed = true
}

// connected notes the link to the hub of a new connection.
func (a *agent) connected(up uplink) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up, a.incoming, a.welcoming = up, nil, false
}

// disconnected notes that the link is gone.
func (a *agent) disconnected(up uplink) {
	a.mu.Lock()
	if a.up != up {
		a.mu.Unlock()
		return
	}
	a.up = nil
	a.endCalls(func(what string) error {
		return &GatherError{
			what,
			[]int{0},
			"the connection to node 0 was lost, and gathers go through it",
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
func (a *agent) registration(failure error) *pb.Register {
	r := a.o.register(a.instance)
	if failure != nil {
		r.Failure = encodeFailure(failure)
	} else {
		r.Gossip = a.gossip.address
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hasFormed {
		r.Formed, r.Broadcast = true, a.broadcast
	}
	return r
}

// handle handles a message from the hub.
func (a *agent) handle(m *pb.Message) error {
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
		a.broadcast, a.incoming, a.welcoming = k.Welcome.GetBroadcast(), nil, true
	case *pb.Message_Member:
		if !a.sane(k.Member) {
			return errHandshake
		}
		if !a.welcoming { // a node rejoined
			if len(a.nodes) == a.o.Nodes {
				a.learn(k.Member)
			}
			return nil
		}
		if len(a.incoming) >= a.o.Nodes {
			return errHandshake
		}
		a.incoming = append(a.incoming, k.Member)
	case *pb.Message_Complete:
		if len(a.incoming) != a.o.Nodes {
			return errHandshake
		}
		for _, n := range a.incoming {
			a.learn(n)
		}
		a.incoming, a.welcoming = nil, false
		if len(a.nodes) != a.o.Nodes {
			return errHandshake
		}
		a.start()
	case *pb.Message_Go:
		if !a.hasFormed && len(a.nodes) == a.o.Nodes && a.failure == nil {
			a.hasFormed = true
			close(a.formed)
		}
	case *pb.Message_Abort:
		err := decodeFailure(k.Abort)
		other, _ := err.(*JobError)
		_, late := err.(*LateError)
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
		return errHandshake
	}
	return nil
}

// task runs f in a goroutine that close waits for. It returns false if the agent is closed.
func (a *agent) task(f func()) bool {
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
func (a *agent) leave() {
	a.finish()
	a.mu.Lock()
	up := a.up
	a.mu.Unlock()
	if up != nil {
		up.Send(&pb.Message{Kind: &pb.Message_Leave{Leave: &pb.Leave{}}})
	}
	if a.gossip != nil {
		a.gossip.leave()
	}
}

// close ends the agent's goroutines and waits for them.
func (a *agent) close() {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	close(a.done)
	a.end()
	a.endCalls(func(string) error { return ErrClosed })
	a.mu.Unlock()
	if a.gossip != nil {
		a.gossip.close()
	}
	a.tasks.Wait()
}

func (a *agent) list() []Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Member, a.o.Nodes)
	for i := range out {
		out[i] = a.nodes[i].Member
	}
	return out
}

func (a *agent) member(n int) Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[n].Member
}

func (a *agent) told() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broadcast
}

func (a *agent) alive(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.nodes[n]
	return m != nil && !m.down
}

func (a *agent) notify(f func(int, bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, f)
	for n := range a.o.Nodes {
		if m := a.nodes[n]; m != nil && m.down {
			a.events.put(event{n, false}) // its event may have been taken before
		}
	}
}
