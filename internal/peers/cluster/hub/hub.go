// Package hub is node 0's side of a cluster: a state machine that decides which nodes belong, and
// through which nodes gather values, ask each other and send news. It has no network: messages come
// and go by links, of which package session makes those of other nodes.
package hub

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// Link is how the hub sends to one node. No method blocks.
type Link interface {
	Send(*pb.Message)
	SendPack(*session.Pack)
	Close() // after what was sent
}

// participant is one registered stream of a node: from its Register to the end of the stream.
type participant struct {
	Link
	seen  string // host:port of the node, as node 0 sees it
	local string // host:port of node 0 that the node dialed
	reg   *pb.Register
	ready bool
}

func (p *participant) node() int { return int(p.reg.GetNode()) }

type phase int

const (
	forming   phase = iota // some nodes have not joined
	welcoming              // all nodes have joined and agree; not all watch each other yet
	running                // all nodes have been sent Go
	failed                 // all nodes are sent the failure
)

// Hub is node 0's half: it decides which nodes belong to the cluster. It is a state machine without
// a network: input arrives by Attend, AttachOwn and Expire, output leaves by links, and
// timers are set by after.
//
//	forming --all joined--> welcoming --all ready--> running
//	   ^                       |                        |
//	   +--a node disconnects---+              nodes leave and rejoin
//
// Any difference, conflicting claim or deadline moves forming and welcoming to failed, which is
// final. A node's daemon is distinguished from its next daemon by instance. If two daemons claim
// one number, the hub pings the older: if it answers within contestTime, the newcomer is rejected
// as a duplicate, otherwise it takes the number over.
//
// Node 0's own agent is the first participant: the registrations of the others are compared with
// its own, which therefore cannot differ.
//
// INVARIANTS (under mu): members has one entry per node of the welcomed cluster; participants has
// at most one per node; the hub never waits for a link.
type Hub struct {
	o     Options
	after func(time.Duration, func()) // calls the function after the duration

	mu           invariants.Mutex[Hub] // guards the following
	phase        phase
	failure      error
	own          *pb.Register
	participants map[int]*participant
	members      map[int]*pb.Member   // as sent to all nodes
	contest      map[int]*participant // newcomers whose number is taken
	refused      []string             // refused connections, and why; sent with status
	loggedHosts  map[string]bool      // hosts whose refused connections were logged
	sent         map[int]bool         // nodes that were sent the failure
	allSent      chan struct{}        // closed when all nodes were
	deadline     time.Time
	stale        bool // a status message is scheduled
	lastRound    uint64
	gathers      map[string]*round
	polls        map[uint64]*poll
	tells        map[uint64]*telling
	pending      []told        // for the next round of news
	downs        []*pb.Message // of nodes that are gone, not sent
	holding      bool          // downs wait for others
}

const (
	contestTime = 2 * time.Second
	statusPause = 100 * time.Millisecond // for each 64 nodes
	maxRefused  = 16
)

// Options are what a hub does besides what it decides. Its functions do not block.
type Options struct {
	Deadline time.Duration           // of forming
	Whole    bool                    // see cluster.Options
	Remedy   func(key string) string // see cluster.Options; may be nil
	Log      *slog.Logger
	// Check finds out whether a node is gone whose stream has ended.
	Check func(node int, instance, gossip string)
	// Refused is called for connections that are refused while the cluster forms.
	Refused func(error)
}

// New returns a hub; own is node 0's own registration.
func New(own *pb.Register, o Options) *Hub {
	return &Hub{
		o: o, own: own,
		after:        func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		participants: map[int]*participant{}, members: map[int]*pb.Member{},
		contest:     map[int]*participant{},
		loggedHosts: map[string]bool{}, sent: map[int]bool{}, allSent: make(chan struct{}),
		deadline: time.Now().Add(o.Deadline),
		gathers:  map[string]*round{}, polls: map[uint64]*poll{}, tells: map[uint64]*telling{},
	}
}

func (h *Hub) nodes() int { return int(h.own.GetNodes()) }

// attach adds a node to the cluster, or sends it the reason why not. The caller calls receive and
// detach for it either way.
func (h *Hub) attach(p *participant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == failed {
		h.sendFailure(p)
		return
	}
	if err := h.examine(p); err != nil {
		h.reject(p, err)
		return
	}
	old := h.participants[p.node()]
	if old == nil || old.reg.GetInstance() == p.reg.GetInstance() {
		h.accept(p)
		return
	}
	if rival := h.contest[p.node()]; rival != nil {
		h.reject(p, &cluster.DuplicateError{
			Node:   p.node(),
			First:  rival.seen,
			Second: p.seen,
		})
		return
	}
	h.contest[p.node()] = p
	old.Send(&pb.Message{Kind: &pb.Message_Ping{Ping: &pb.Ping{}}})
	h.after(contestTime, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.contest[p.node()] == p && h.participants[p.node()] == old {
			h.drop(old)
		}
	})
}

// accept makes p its node's participant, replacing the previous one.
func (h *Hub) accept(p *participant) {
	n := p.node()
	old := h.participants[n]
	h.participants[n] = p
	if old != nil {
		old.Close()
		h.unheard(n)
	}
	if p.reg.GetFormed() && n != 0 && h.phase != running {
		h.own.Broadcast = p.reg.GetBroadcast() // node 0 was restarted, the job was not
	}
	p.Send(&pb.Message{
		Kind: &pb.Message_Accepted{
			Accepted: &pb.Accepted{RemainingMs: max(0, time.Until(h.deadline).Milliseconds())},
		},
	})
	switch {
	case h.phase == running:
		h.o.Log.Info("a node rejoined", "node", n, "address", p.seen)
		m := h.member(p)
		m.Down = true // until it is ready
		h.members[n] = m
		p.SendPack(h.greeting())
	case len(h.participants) == h.nodes():
		h.welcome()
	default:
		h.phase = forming
		h.status()
	}
}

// welcome sends all nodes the members, if they agree.
func (h *Hub) welcome() {
	if err := h.covered(); err != nil {
		h.fail(err)
		return
	}
	h.phase = welcoming
	clear(h.members)
	for n, p := range h.participants {
		p.ready = false
		h.members[n] = h.member(p)
	}
	greeting := h.greeting()
	for _, n := range slices.Sorted(maps.Keys(h.participants)) {
		h.participants[n].SendPack(greeting)
	}
}

// greeting returns the members of the cluster, as they are sent to a node.
func (h *Hub) greeting() *session.Pack {
	all := []*pb.Message{{
		Kind: &pb.Message_Welcome{Welcome: &pb.Welcome{Broadcast: h.own.GetBroadcast()}},
	}}
	for _, n := range slices.Sorted(maps.Keys(h.members)) {
		all = append(all, &pb.Message{Kind: &pb.Message_Member{Member: h.members[n]}})
	}
	complete := &pb.Message{Kind: &pb.Message_Complete{Complete: &pb.Complete{}}}
	return session.NewPack(append(all, complete)...)
}

// receive handles a message from p. It returns an error for a message that p may not send now.
func (h *Hub) receive(p *participant, m *pb.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := p.node()
	if h.participants[n] != p { // replaced, refused or contesting: its messages are ignored
		return nil
	}
	switch k := m.GetKind().(type) {
	case *pb.Message_Ready:
		h.ready(p)
	case *pb.Message_Failed:
		err := session.DecodeFailure(k.Failed)
		if h.phase == running {
			h.o.Log.Warn("a node could not rejoin", "node", n, "reason", err)
			h.drop(p)
			return nil
		}
		h.fail(err)
	case *pb.Message_Contribution:
		return h.contribute(p, k.Contribution)
	case *pb.Message_Withdraw:
		h.withdraw(p, k.Withdraw)
	case *pb.Message_Question:
		h.ask(p, k.Question)
	case *pb.Message_Answer:
		return h.answer(p, k.Answer)
	case *pb.Message_Tell:
		return h.tell(p, k.Tell)
	case *pb.Message_Heard:
		h.heard(p, k.Heard)
	case *pb.Message_Pong:
		if rival := h.contest[n]; rival != nil {
			delete(h.contest, n)
			h.reject(rival, &cluster.DuplicateError{
				Node:   n,
				First:  p.seen,
				Second: rival.seen,
			})
		}
	case *pb.Message_Leave:
		if h.phase == running {
			h.lose(n, p.reg.GetInstance())
		}
		h.drop(p)
	default:
		return session.ErrHandshake
	}
	return nil
}

// ready notes that p takes part in failure detection. When all nodes do, they are sent Go.
func (h *Hub) ready(p *participant) {
	p.ready = true
	goAhead := &pb.Message{Kind: &pb.Message_Go{Go: &pb.Go{}}}
	if h.phase == running {
		m := h.member(p)
		h.members[p.node()] = m
		p.Send(goAhead)
		h.all(&pb.Message{Kind: &pb.Message_Member{Member: m}}, p)
		return
	}
	for _, q := range h.participants {
		if !q.ready {
			return
		}
	}
	if h.phase == welcoming && len(h.participants) == h.nodes() {
		h.phase = running
		h.refused = nil
		h.all(goAhead, nil)
	}
}

// all sends m to every participant except but, after which nodes are gone.
func (h *Hub) all(m *pb.Message, but *participant) {
	h.sayDowns()
	for _, n := range slices.Sorted(maps.Keys(h.participants)) {
		if p := h.participants[n]; p != but {
			p.Send(m)
		}
	}
}

// detach removes p, whose stream has ended.
func (h *Hub) detach(p *participant) {
	h.mu.Lock()
	n := p.node()
	if h.contest[n] == p {
		delete(h.contest, n)
	}
	var doubt *pb.Member
	if h.participants[n] == p {
		h.drop(p)
		if m := h.members[n]; h.phase == running && !m.GetDown() {
			doubt = m
		}
	}
	h.mu.Unlock()
	if doubt != nil {
		h.o.Check(n, doubt.GetInstance(), doubt.GetGossip())
	}
}

// drop removes p; a newcomer that contests its number takes it over.
func (h *Hub) drop(p *participant) {
	n := p.node()
	delete(h.participants, n)
	p.Close()
	if h.phase == welcoming {
		h.phase = forming
		for _, q := range h.participants {
			q.ready = false
		}
	}
	if h.phase == running {
		h.settle(n)
	}
	if h.phase == forming {
		h.status()
	}
	if rival := h.contest[n]; rival != nil && h.phase != failed {
		delete(h.contest, n)
		h.accept(rival)
	}
}

// Down is called when a node's daemon is known to be gone.
func (h *Hub) Down(node int, instance string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose(node, instance)
}

func (h *Hub) lose(node int, instance string) {
	m := h.members[node]
	if m == nil || m.GetInstance() != instance || m.GetDown() {
		return
	}
	m = &pb.Member{ // a new message: the old one may be queued in a link
		Node: m.Node, Instance: m.Instance, Exchange: m.Exchange, Gossip: m.Gossip, Ranks: m.Ranks,
		Payload: m.Payload, Down: true,
	}
	h.members[node] = m
	h.downs = append(h.downs, &pb.Message{
		Kind: &pb.Message_Down{Down: &pb.Down{Node: uint32(node), Instance: instance}},
	})
	if !h.holding {
		h.sayDowns()
	}
	h.settle(node)
}

// sayDowns sends all nodes which ones are gone. Those that go within tellPause after that are sent
// together: at its end, a job's nodes all leave at about the same time.
func (h *Hub) sayDowns() {
	if len(h.downs) == 0 {
		return
	}
	packed := session.NewPack(h.downs...)
	h.downs = nil
	for _, n := range slices.Sorted(maps.Keys(h.participants)) {
		h.participants[n].SendPack(packed)
	}
	if !h.holding {
		h.holding = true
		h.after(tellPause, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.holding = false
			h.sayDowns()
		})
	}
}

// Up reverts a down: the node is alive again.
func (h *Hub) Up(node int, instance string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, p := h.members[node], h.participants[node]
	if m == nil || p == nil || !m.GetDown() || m.GetInstance() != instance || !p.ready {
		return
	}
	m = h.member(p)
	h.members[node] = m
	h.all(&pb.Message{Kind: &pb.Message_Member{Member: m}}, nil)
}
