package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	// unheard: gossip said that this instance is gone, or does not know it. Only then may gossip say that it is
	// back: late news of a daemon that is known to have ended must not.
	unheard bool
	since   time.Time // when we heard of this instance first
}

// event is something to tell who asked by Notify.
type event struct {
	node  int
	alive bool
}

// agent is this node's half. What the hub says comes in by handle, from one goroutine at a time;
// what gossip says by heard. Three sources know of a node's end, whichever is first counts: its stream's
// end at node 0 when its port then refuses connections (a killed daemon: at once), node 0's word for it,
// and memberlist (a host or link that is silent: about 12 s, so that a daemon that gets no CPU
// for 10 s stays in). Whoever is wrongly thought gone is back as soon as it is heard.
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
	grace     = 2 * time.Second // beyond the deadline, for those who are to be told
	tellTime  = 5 * time.Second // to meet the others, for who only wants to say that it can not take part
	flushTime = 500 * time.Millisecond
)

func newAgent(o Options) *agent {
	a := &agent{
		o: o, instance: newInstance(), formed: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{}),
		events: newOutbox[event](), nodes: map[int]*node{}, calls: map[uint64]*call{}, queries: map[uint64]*query{}, limit: time.Now().Add(o.Deadline),
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
	a.nodes[0] = &node{Member: Member{0, a.o.Exchange, a.o.Ranks, a.o.Payload}, instance: a.instance}
	a.broadcast = a.o.Broadcast
	a.went = true
}

// wait waits until the cluster has formed, or can not.
func (a *agent) wait(ctx context.Context) error {
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
	_, late := err.(*MissingError)
	_, canceled := err.(*CanceledError)
	if a.hub != nil && !late && !canceled { // nodes that come a little later are told as well
		patience := grace
		if a.hub.own.GetFailure() != nil { // the others may not have begun yet
			patience = tellTime
		}
		select {
		case <-a.hub.allTold:
		case <-time.After(patience):
		case <-ctx.Done():
		}
	}
	return err
}

// canceled tells the others that this node goes before it began.
func (a *agent) canceled() {
	err := &CanceledError{a.o.Node}
	if a.hub != nil {
		a.hub.abort(err)
		return
	}
	a.finish()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up != nil {
		a.up.Send(&pb.Message{Kind: &pb.Message_Failed{Failed: encodeFailure(err)}})
	}
}

// late ends forming, if the deadline has not been moved.
func (a *agent) late() {
	a.mu.Lock()
	if time.Until(a.limit) > 0 {
		a.mu.Unlock()
		return
	}
	a.limit = a.limit.Add(time.Hour)
	status, trouble, refused := a.status, a.trouble, a.refused
	a.mu.Unlock()
	switch {
	case a.o.Failure != nil: // nobody was there to be told
		a.fail(a.o.Failure)
		return
	case a.hub != nil:
		a.hub.expire() // tells this node as well
		return
	case refused != nil:
		a.fail(refused)
		return
	}
	if status == nil || trouble != "" {
		a.fail(&AddressError{
			Node: a.o.Node, Doing: "reach", What: "node 0", Where: a.o.Join, Waited: a.o.Deadline,
			Why: trouble + ". Is node 0's daemon there, with the same addresses, and its port open?",
		})
		return
	}
	e := &MissingError{Nodes: a.o.Nodes, Missing: toInts(status.GetMissing()), Refused: status.GetRefused(), Waited: a.o.Deadline}
	for _, p := range status.GetPresent() {
		e.Present = append(e.Present, present(int(p.GetNode()), p.GetAddress()))
	}
	a.fail(e)
}

func present(n int, address string) string { return fmt.Sprintf("node %d (%s)", n, address) }

// fail ends forming. After it, only the log hears of it.
func (a *agent) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failLocked(err)
}

func (a *agent) failLocked(err error) {
	if a.went {
		a.o.Log.Warn("node 0 does not let this node back in", "reason", err)
	} else if a.failure == nil {
		a.failure = err
		close(a.gone)
	}
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
		return &GatherError{what, []int{0}, "the connection to node 0 was lost, and gathers go through it"}
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

// registration is what this node says of itself now; failure: why it can not take part.
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

// waiting says what is waited for.
func (a *agent) waiting() string {
	var missing []int
	for _, n := range a.status.GetMissing() {
		missing = append(missing, int(n))
	}
	if len(missing) == 0 {
		return "all nodes are there"
	}
	s := fmt.Sprintf("waiting for %s of %d", numbers("node", missing), a.o.Nodes)
	if r := a.status.GetRefused(); len(r) > 0 {
		s += "; refused: " + strings.Join(r, "; ")
	}
	return s
}

func (a *agent) sane(m *pb.Member) bool {
	_, _, err := splitAddress(m.GetGossip())
	return int(m.GetNode()) < a.o.Nodes && err == nil
}

// learn takes in a member as node 0 sees it; under mu.
func (a *agent) learn(m *pb.Member) {
	n := int(m.GetNode())
	old := a.nodes[n]
	now := &node{
		Member:   Member{n, m.GetExchange(), toInts(m.GetRanks()), m.GetPayload()},
		instance: m.GetInstance(), gossip: m.GetGossip(), down: m.GetDown(), since: time.Now(),
	}
	if n == a.o.Node {
		now.down = false
	}
	a.nodes[n] = now
	if old == nil || n == a.o.Node {
		return
	}
	same := old.instance == now.instance
	if same {
		now.unheard, now.since = old.unheard && now.down, old.since
	}
	if !old.down && (now.down || !same) {
		a.events.put(event{n, false})
	}
	if !now.down && (old.down || !same) {
		a.events.put(event{n, true})
	}
}

// mark notes that an instance is gone, or back; it returns whether that is news. Under mu.
func (a *agent) mark(n int, instance string, down bool) bool {
	m := a.nodes[n]
	if m == nil || m.instance != instance || m.down == down || n == a.o.Node {
		return false
	}
	m.down = down
	if down {
		a.unanswered(func(gone int) bool { return gone == n })
	}
	a.o.Log.Info("a node went or came back", "node", n, "alive", !down)
	a.events.put(event{n, !down})
	return true
}

// heard is what gossip says; memberlist calls it under its lock.
func (a *agent) heard(n int, instance string, alive bool) {
	a.mu.Lock()
	m := a.nodes[n]
	news := false
	if m != nil && m.instance == instance && (!alive || m.unheard) {
		m.unheard = !alive
		news = a.mark(n, instance, !alive)
	}
	a.mu.Unlock()
	if news {
		a.pass(n, instance, alive)
	}
}

// pass has node 0 tell all that a node is gone, or back.
func (a *agent) pass(n int, instance string, alive bool) {
	switch {
	case a.hub == nil:
	case alive:
		a.hub.up(n, instance)
	default:
		a.hub.down(n, instance)
	}
}

// check finds out whether a node whose stream has ended is gone: nobody listens at its port anymore.
// A port that takes connections, or does not answer, proves nothing; that is for memberlist.
func (a *agent) check(n int, instance, gossip string) {
	a.task(func() {
		for _, pause := range []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond} {
			select {
			case <-a.done:
				return
			case <-time.After(pause):
			}
			c, err := net.DialTimeout("tcp", gossip, time.Second)
			if err == nil {
				_ = c.Close()
				continue
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				continue
			}
			if a.hub != nil {
				a.hub.down(n, instance) // tells this node as well
				return
			}
			a.mu.Lock()
			a.mark(n, instance, true)
			a.mu.Unlock()
			return
		}
	})
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

// start takes part in failure detection, then tells the hub; under mu.
func (a *agent) start() {
	up := a.up
	if a.closed || up == nil {
		return
	}
	self, zero := a.nodes[a.o.Node], a.nodes[0]
	name, own, join := gossipName(self.Node, self.instance), self.gossip, zero.gossip
	a.tasks.Go(func() {
		err := a.gossip.start(name, own, a.heard)
		if err == nil && a.o.Node != 0 {
			err = a.gossip.join(join)
		}
		if err == nil {
			up.Send(&pb.Message{Kind: &pb.Message_Ready{Ready: &pb.Ready{}}})
			return
		}
		if isDone(a.done) {
			return
		}
		err = &AddressError{Node: a.o.Node, Doing: "reach", What: "failure detection of node 0, TCP and UDP", Where: join, Why: err.Error()}
		up.Send(&pb.Message{Kind: &pb.Message_Failed{Failed: encodeFailure(err)}})
		a.fail(err)
	})
}

// mend looks from time to time for nodes that gossip lost: memberlist itself forgets who was silent
// for long, so that after a link was cut neither side would find the other again.
func (a *agent) mend() {
	for i := 0; ; i++ {
		select {
		case <-a.done:
			return
		case <-time.After(mendPause):
		}
		if lost := a.survey(time.Now()); len(lost) > 0 {
			_ = a.gossip.join(lost[i%len(lost)]) // gone, as we thought
		}
	}
}

// survey compares those who belong here with whom gossip knows, and returns the addresses of those it should look for. Gossip
// does not watch whom it has not heard of: where a link is cut before two nodes have heard of each other, it never tells
// that they are gone.
func (a *agent) survey(now time.Time) (lost []string) {
	a.mu.Lock()
	went := a.went
	a.mu.Unlock()
	if !went {
		return nil
	}
	knows := a.gossip.knows()
	var strangers []*node
	a.mu.Lock()
	for _, n := range a.nodes {
		if n.Node == a.o.Node || knows[gossipName(n.Node, n.instance)] {
			continue
		}
		if !n.down && now.Sub(n.since) > strangerTime {
			n.unheard = true
			a.mark(n.Node, n.instance, true)
			strangers = append(strangers, n)
		}
		if n.unheard || !n.down {
			lost = append(lost, n.gossip)
		}
	}
	a.mu.Unlock()
	for _, n := range strangers {
		a.pass(n.Node, n.instance, false)
	}
	slices.Sort(lost)
	return lost
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
