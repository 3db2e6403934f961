package groups

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// team is a group's job over several nodes, on this one. No process has it open.
type team struct {
	id     string         // of the group, on all nodes
	stream request.Stream // of the group's first member: its batches and epochs
	ranks  []int          // of this node
	secret []byte         // of the job; node 0 draws it

	life  context.Context // of the group on this node
	end   context.CancelFunc
	begin sync.Once     // guards the opening
	hears chan struct{} // closed when node 0 listens for the others
	port  int           // where it does; set before the channel is closed
	// opened is closed when the job is open, or cannot be opened, which err is the reason of.
	opened    chan struct{}
	producers map[int]*node.Rank // by rank
	err       error

	formed bool // it is open; guarded by Groups.mu
}

const idBytes, secretBytes = 8, sha256.Size

// drawn returns random bytes.
func drawn(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func newTeam(id string, ranks []int, first request.Stream) *team {
	t := &team{
		id: id, ranks: ranks, secret: drawn(secretBytes),
		stream: request.Stream{GlobalBatch: first.GlobalBatch, Epochs: first.Epochs},
		hears:  make(chan struct{}), opened: make(chan struct{}),
		producers: make(map[int]*node.Rank),
	}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// offer describes a node's group, for a job that is to join it.
type offer struct {
	Refused *failure.Error `json:"refused,omitempty"` // why it cannot be in the node's group
	Over    string         `json:"over"`              // the ID of the last group that has ended
	ID      string         `json:"id"`                // of the node's group; "": none
	Epoch   int            `json:"epoch"`             // of that group
	// What follows is said by node 0, and describes the group.
	Formed bool   `json:"formed"` // all nodes have, or had, it
	Batch  int    `json:"global_batch"`
	Epochs int    `json:"epochs"`
	Fresh  string `json:"fresh"` // the ID of another group, if that one has ended on a node
}

// meeting describes where the nodes of the group's job meet; node 0 sends it.
type meeting struct {
	Port   int    `json:"port"`   // of node 0
	Secret string `json:"secret"` // of the group's job, sealed
	Error  string `json:"error"`  // why it cannot be opened
}

// Agree implements node.Membership. The nodes have had members in different order, and members may
// have ended on some of them. So node 0 determines which group there is, and all nodes decide in
// the same way:
//
//   - If a node refuses the job, all do.
//   - If node 0's group has ended on no node, the job is in it. A node that has it keeps it from
//     ending, and one that has not yet seen a member of it opens it.
//   - Otherwise the job is the first of another group of that name.
//
// As long as the group is not formed, node 0 determines where its producers meet: on a port that
// the system chose, with a secret of their own, as any member may end before the others.
func (p *membership) Agree(ctx context.Context, t node.Team, open node.Opener,
	released func(),
) error {
	started := false
	defer func() {
		if !started {
			released()
		}
	}()
	offers, err := gather(ctx, p.name, t, "share", p.offer())
	if err != nil {
		return err
	}
	for _, o := range offers {
		if o.Refused != nil {
			return o.Refused
		}
	}
	first := offers[0]
	joins := !slices.ContainsFunc(offers, func(o offer) bool { return o.Over == first.ID })
	if err := p.adopt(first, joins, t); err != nil {
		return err
	}
	for _, o := range offers {
		if joins && p.joins() && o.ID == first.ID {
			p.epoch = max(p.epoch, o.Epoch)
		}
	}
	if joins && first.Formed {
		return nil
	}
	job := p.group.team
	var mine meeting
	if t.Me() == 0 {
		started = p.start(t, job.secret, 0, open, released)
		if mine, err = job.meet(ctx, p.key()); err != nil {
			return err
		}
	}
	meetings, err := gather(ctx, p.name, t, "share meets", mine)
	if err != nil || t.Me() == 0 {
		return err
	}
	met := meetings[0]
	secret, err := hex.DecodeString(met.Secret)
	switch {
	case met.Error != "":
		job.fail(errors.New("node 0: " + met.Error))
		p.groups.forget(p.group)
	case err != nil || len(secret) != secretBytes:
		return fmt.Errorf("share = %q: node 0 sent a secret that cannot be decoded", p.name)
	default:
		started = p.start(t, job.seal(p.key(), secret), met.Port, open, released)
	}
	return nil
}

// gather has all nodes of the job say something, and returns what they say.
func gather[T any](ctx context.Context, name string, t node.Team, what string, mine T) (
	all []T, err error,
) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	texts, err := t.GatherInTime(ctx, what, text)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, failure.Input("share = %q: the nodes could not agree on the job's group: %v",
			name, err)
	}
	all = make([]T, len(texts))
	for n, text := range texts {
		if err := json.Unmarshal(text, &all[n]); err != nil {
			return nil, fmt.Errorf("share = %q: node %d sent what cannot be decoded: %w", name, n,
				err)
		}
	}
	return all, nil
}

// offer returns this node's description of the group.
func (p *membership) offer() (o offer) {
	if p.refused != nil {
		o.Refused = failure.Of(p.refused)
		return o
	}
	p.groups.mu.Lock()
	defer p.groups.mu.Unlock()
	o.Over = p.groups.over[p.name]
	switch here := p.groups.all[p.name]; {
	case p.group != nil || here == nil || here.jobs == 0:
	case here.team == nil:
		o.Refused = failure.Of(request.SameGroup(p.name, here.first, p.said, here.seed))
		return o
	default:
		here.jobs++
		p.group = here
	}
	if p.group != nil {
		o.ID, o.Epoch = p.group.team.id, p.group.epoch()
	}
	if p.said.Open.Cluster.Node == 0 {
		t := p.group.team
		o.Formed = t.formed
		o.Batch = t.stream.GlobalBatch
		o.Epochs = t.stream.Epochs
		o.Fresh = hex.EncodeToString(drawn(idBytes))
	}
	return o
}

// adopt makes the job a member of the group that node 0 has offered, or if it does not join that,
// of another one, which it founds. An error says what differs from the group on this node.
func (p *membership) adopt(o offer, joins bool, t node.Team) error {
	id, stream := o.ID, request.Stream{GlobalBatch: o.Batch, Epochs: o.Epochs}
	if !joins {
		id, stream = o.Fresh, p.said.Open.Stream
	}
	g := p.groups
	old := p.group
	ranks := t.Ranks()[t.Me()]
	if old == nil || old.team.id != id {
		g.mu.Lock()
		one := g.all[p.name]
		if one == nil || one.team == nil || one.team.id != id || one.jobs == 0 {
			one = g.found(p.name, p.said, t.Seed)
			one.team = newTeam(id, ranks, stream)
			if joins && o.Formed {
				one.team.fail(errors.New("it has just ended on this node"))
			}
		}
		one.jobs++
		p.group = one
		g.mu.Unlock()
		if old != nil {
			g.leave(old)
		}
	}
	one := p.group
	if err := request.SameGroup(p.name, one.first, p.said, one.seed); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if one.team.ranks == nil {
		one.team.ranks = ranks
	}
	if theirs := one.team.ranks; !slices.Equal(ranks, theirs) {
		return failure.Differs("local ranks", ranks, theirs, nil, "share = %q: this job has ranks "+
			"%v on node %d, and the group's first member, job %s, has %v; start all members in the "+
			"same way, or give this one another group", p.name, ranks, t.Me(),
			request.Name(one.first.Open.Job), theirs)
	}
	return nil
}

// start opens the group's job on this node in the background, with node 0 at a port, unless that
// has been started before.
func (p *membership) start(t node.Team, secret []byte, port int, open node.Opener,
	released func(),
) (started bool) {
	one := p.group
	one.team.begin.Do(func() {
		started = true
		m := p.request(one.team.stream, t.Empties)
		m.Job = fmt.Sprintf("share %s@%s", p.name, one.team.id)
		m.Settings = one.first.Open.Settings
		cluster := *m.Cluster
		host, _, _ := net.SplitHostPort(cluster.Address) // the member's nodes have met there
		cluster.Address, cluster.Loader = net.JoinHostPort(host, strconv.Itoa(port)), 0
		cluster.Secret = hex.EncodeToString(secret)
		m.Cluster = &cluster
		go func() { // owned by the group: close waits for it
			defer close(one.team.opened)
			one.team.open(m, open)
			released()
			if one.team.err != nil {
				p.groups.forget(one)
				one.log.Warn("the job that prepares the group's batches could not be opened; "+
					"members prepare theirs themselves", "error", one.team.err)
				return
			}
			p.groups.mu.Lock()
			defer p.groups.mu.Unlock()
			one.team.formed = true
		}()
	})
	return started
}

// open opens the job as all ranks of this node.
func (t *team) open(m request.Open, open node.Opener) {
	ctx, cancel := context.WithCancel(t.life)
	defer cancel()
	var mu sync.Mutex // guards err and producers
	var all sync.WaitGroup
	for _, rank := range t.ranks {
		all.Go(func() {
			m := m
			m.Rank = rank
			r, err := open(ctx, m, t.listens)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				t.producers[rank] = r
			} else if t.err == nil {
				t.err = err
				cancel() // the others would wait for this one
			}
		})
	}
	all.Wait()
	if t.err != nil {
		for _, r := range t.producers {
			r.Close()
		}
		clear(t.producers)
	}
}

// listens records where node 0 listens.
func (t *team) listens(at net.Addr) {
	_, port, _ := net.SplitHostPort(at.String())
	t.port, _ = strconv.Atoi(port)
	close(t.hears)
}

// meet returns where the nodes meet, once node 0, which this is, listens.
func (t *team) meet(ctx context.Context, key []byte) (m meeting, err error) {
	select {
	case <-t.hears:
		m.Port, m.Secret = t.port, hex.EncodeToString(t.seal(key, t.secret))
	case <-t.opened:
		if t.err != nil {
			m.Error = t.err.Error()
			break
		}
		return t.meet(ctx, key) // it listens
	case <-ctx.Done():
		err = ctx.Err()
	}
	return m, err
}

// key returns a secret of the nodes of the member's job.
func (p *membership) key() []byte { return []byte(p.said.Open.Cluster.Secret) }

// seal hides the secret of the group's job from those that do not know the member's, and the other
// way round: control messages may be readable on the network.
func (t *team) seal(key, secret []byte) []byte {
	pad := hmac.New(sha256.New, key)
	_, _ = pad.Write([]byte("hdmlp group " + t.id)) // a hash never fails
	sealed := pad.Sum(nil)
	subtle.XORBytes(sealed, sealed, secret)
	return sealed
}

// fail records that the job cannot be opened, unless that has been started.
func (t *team) fail(err error) {
	t.begin.Do(func() {
		t.err = err
		close(t.opened)
	})
}

// rank returns the producer for a rank once the job is open. The error is an Alone if it cannot be
// opened.
func (t *team) rank(ctx context.Context, name string, number int) (*node.Rank, error) {
	select {
	case <-t.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t.err != nil {
		return nil, node.Alone{Reason: fmt.Errorf("share = %q: the job that prepares the group's "+
			"batches could not be opened: %w", name, t.err)}
	}
	return t.producers[number], nil
}

// close ends the opening, and closes the producers of no feed.
func (t *team) close(feeds map[int]*feeding) {
	t.end()
	t.fail(context.Canceled)
	<-t.opened
	for rank, r := range t.producers {
		if f := feeds[rank]; f == nil || f.feed.Load() == nil {
			r.Close()
		}
	}
}
