package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"

	"github.com/hdmlp/hdmlp/internal/invariants"
)

// node is a member as this node knows it.
type node struct {
	Member
	instance string
	gossip   string
	down     bool
	// unheard: gossip said that this instance is gone, or does not know it. Only then may gossip
	// say that it is back: late news of a daemon that is known to have ended must not.
	unheard bool
	since   time.Time // when we heard of this instance first
}

// event is something to tell who asked by Notify.
type event struct {
	node  int
	alive bool
}

// agent is this node's half. What the hub says comes in by handle, from one goroutine at a time;
// what gossip says by heard. Three sources know of a node's end, whichever is first counts: its
// stream's end at node 0 when its port then refuses connections (a killed daemon: at once), node
// 0's word for it, and memberlist (a host or link that is silent: about 12 s, so that a daemon that
// gets no CPU for 10 s stays in). Whoever is wrongly thought gone is back as soon as it is heard.
//
// Lock order: memberlist's, agent.mu, hub.mu. Nothing of memberlist's is called under agent.mu.
type agent struct {
	o        Options
	instance string
	hub      *hub // on node 0
	once     sync.Once
	formed   chan struct{} // closed when all may go
	gone     chan struct{} // closed when forming has failed
	done     chan struct{} // closed by close
	last     chan struct{} // closed by finish: no further connection to node 0
	finish   func()
	tasks    sync.WaitGroup
	events   *outbox[event]
	life     context.Context // ends with done
	end      context.CancelFunc

	mu        invariants.Mutex[agent]
	closed    bool
	went      bool // formed is closed
	failure   error
	limit     time.Time // forming ends with an error then
	status    *pb.Status
	trouble   string // why node 0 is not reached
	refused   error  // by a job that runs in node 0's place
	up        link   // to the hub; nil: there is none
	nodes     map[int]*node
	welcoming bool         // between welcome and complete
	incoming  []*pb.Member // of that
	broadcast []byte
	calls     map[uint64]*call
	queries   map[uint64]*query
	lastCall  uint64 // of calls and queries
	replies   int    // to others' questions, under way
	listeners []func(int, bool)
	gossip    *gossip
}

const (
	grace = 2 * time.Second // beyond the deadline, for those who are to be told
	// to meet the others, for who only wants to say that it cannot take part
	tellTime  = 5 * time.Second
	flushTime = 500 * time.Millisecond
	checkTime = time.Second // for a connection to a node that may be gone
)

func newAgent(o Options) *agent {
	a := &agent{
		o: o, instance: newInstance(), formed: make(chan struct{}), gone: make(chan struct{}),
		done:   make(chan struct{}),
		events: newOutbox[event](), nodes: map[int]*node{}, calls: map[uint64]*call{},
		queries: map[uint64]*query{}, limit: time.Now().Add(o.Deadline),
		trouble: "no answer",
	}
	a.life, a.end = context.WithCancel(context.Background())
	if o.Failure != nil {
		a.limit = time.Now().Add(min(o.Deadline, tellTime))
	}
	a.last = make(chan struct{})
	a.finish = sync.OnceFunc(func() { close(a.last) })
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

// alone is the cluster of one node.
func (a *agent) alone() {
	a.nodes[0] = &node{
		Member:   Member{0, a.o.Exchange, a.o.Ranks, a.o.Payload},
		instance: a.instance,
	}
	a.broadcast = a.o.Broadcast
	a.went = true
}

// connected: the hub listens by up. It returns what to register with.
func (a *agent) connected(up link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up, a.incoming, a.welcoming = up, nil, false
}

// disconnected: it does not anymore.
func (a *agent) disconnected(up link) {
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
	a.unanswered(func(int) bool { return true })
	zero, doubt := node{}, false
	if z := a.nodes[0]; a.went && z != nil && !z.down {
		zero, doubt = *z, true
	}
	a.mu.Unlock()
	if doubt {
		a.check(0, zero.instance, zero.gossip)
	}
}

// registration is what this node says of itself now; failure: why it cannot take part.
func (a *agent) registration(failure error) *pb.Register {
	r := a.o.register(a.instance)
	if failure != nil {
		r.Failure = encodeFailure(failure)
	} else {
		r.Gossip = a.gossip.address
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.went {
		r.Formed, r.Broadcast = true, a.broadcast
	}
	return r
}

// handle takes a message of the hub's.
func (a *agent) handle(m *pb.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch k := m.GetKind().(type) {
	case *pb.Message_Accepted:
		a.trouble, a.refused = "", nil
		// Node 0's deadline counts; only if it says nothing does this node's own.
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
		if !a.welcoming { // a node came back
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
		if !a.went && len(a.nodes) == a.o.Nodes && a.failure == nil {
			a.went = true
			close(a.formed)
		}
	case *pb.Message_Abort:
		err := decodeFailure(k.Abort)
		other, _ := err.(*JobError)
		_, late := err.(*LateError)
		if !a.went && (late || other != nil && other.Running) {
			a.keeps(err)
		} else {
			a.failLocked(err)
		}
	case *pb.Message_Ping:
		a.up.Send(&pb.Message{Kind: &pb.Message_Pong{Pong: &pb.Pong{}}})
	case *pb.Message_Down:
		a.mark(int(k.Down.GetNode()), k.Down.GetInstance(), true)
	case *pb.Message_Part:
		a.part(k.Part)
	case *pb.Message_Gathered:
		a.gathered(k.Gathered)
	case *pb.Message_Question:
		a.reply(k.Question)
	case *pb.Message_Answer:
		a.answered(k.Answer)
	default:
		return errHandshake
	}
	return nil
}

// task runs f in a goroutine that close waits for; false: it is too late.
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

// leave tells the others that this node goes.
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

// close ends all that the agent has begun.
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
	a.unanswered(func(int) bool { return true })
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
}
