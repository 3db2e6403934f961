package order

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Nodes gives Turns access to the nodes of a job.
type Nodes interface {
	// Ranks returns the ranks of each node.
	Ranks() [][]int
	// Me returns the number of this node.
	Me() int
	// Gather sends mine to the other nodes under the name what, and returns what each node sent,
	// once all have. It waits without a limit. Errors other than cluster.GatherError are fit for
	// the process.
	Gather(ctx context.Context, what string, mine []byte) ([][]byte, error)
	// GatherInTime is Gather with the timeout with which nodes wait for each other at the start.
	GatherInTime(ctx context.Context, what string, mine []byte) ([][]byte, error)
	// Missing returns those of the other nodes' ranks known not to have given their parts of a
	// turn.
	Missing(ctx context.Context, turn int) []int
}

// Turns exchanges the orders of epochs that the ranks of a job on several nodes give together, each
// rank its own part. An epoch is known once all nodes have sent their ranks' parts of it.
//
// Ranks give epochs in turns: in turn 0 the parts that came with OPEN, in each later turn the epoch
// that they begin next. A rank that waits for an epoch gives no more parts, so no rank is more than
// one turn ahead of the others. When every rank of this node has given its part of the turn, or one
// has left and never will, the node sends them to the other nodes (exchange), and receives theirs.
// Then every node has the same parts, and comes to the same result: the epoch is known, or no later
// epoch ever will be. A rank waits for that as long as nodes wait for each other at the start
// (giveUp), because another rank may wait for it in an earlier epoch, if it alone has begun an
// epoch that its process then gave up.
//
// It follows what a node may forget: in any turn, all ranks have left the epoch of the turn before
// the last.
type Turns struct {
	life    context.Context // of the job
	timeout time.Duration   // how long nodes wait for each other at the start
	log     *slog.Logger

	// Set by Open:
	nodes Nodes
	ranks []int // ranks of this node
	world int
	// Set by opened:
	stream *access.Stream
	news   func() // notifies this node's ranks that an epoch is known

	mu sync.Mutex // guards the following
	// given has, by rank of this node, the parts not exchanged yet, in order; and once err is set,
	// those that never will be, with which others of the same epochs are compared.
	given map[int][]*request.Part
	left  map[int]bool // ranks of this node that have left and not come back
	turn  int          // the next turn
	busy  bool         // the turn is being exchanged, or the job is not open yet
	last  int          // the epoch of the previous turn
	err   error        // why no later epoch will be known; nil: they will
	// cancel ends the wait for the other nodes' parts; nil: not waiting.
	cancel func()
	// gaveUp is why this node's ranks read apart, if one has waited for too long.
	gaveUp  string
	changed chan struct{} // closed and replaced when an epoch is known, or err is set
	tasks   sync.WaitGroup
}

// longWait is how long a rank waits for others before that is logged.
const longWait = 10 * time.Second

// maxQueued is how many epochs a rank may have given that are not exchanged yet.
const maxQueued = 2

// NewTurns returns turns in which no rank has given a part. timeout is how long nodes wait for each
// other at the start.
func NewTurns(life context.Context, timeout time.Duration, log *slog.Logger) *Turns {
	return &Turns{
		life:    life,
		timeout: timeout,
		log:     log,
		given:   make(map[int][]*request.Part),
		left:    make(map[int]bool),
		busy:    true,
		changed: make(chan struct{}),
	}
}

// Came records the part of turn 0 that a rank brings with OPEN. If the job is open already, Rejoin
// takes the part instead.
func (p *Turns) Came(mine *request.Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn == 0 {
		p.given[mine.Rank] = []*request.Part{mine}
		delete(p.left, mine.Rank)
	}
}

// give records a rank's part of the epoch that it begins next, or of an epoch that is known, which
// must then be the same.
func (p *Turns) give(mine *request.Part) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, mine.Rank)
	if mine.Apart == "" {
		if e := p.stream.Epoch(mine.Epoch); e != nil {
			return p.compare(e, mine)
		}
	}
	queue := p.given[mine.Rank]
	if n := len(queue); n > 0 && queue[n-1].Epoch == mine.Epoch && queue[n-1].Apart == mine.Apart {
		if queue[n-1].Same(mine) {
			return nil
		}
		return cmp.Or(p.err, failure.Input("epoch %d is given again with another order, while it "+
			"waits for the other ranks", mine.Epoch))
	}
	switch {
	case p.err != nil:
		return nil // the rank gets the error, also of what ended its run, when it asks for the epoch
	case len(queue) == maxQueued:
		return failure.Input("the order of epoch %d is given too early: those of epochs %d and %d "+
			"still wait for the other ranks",
			mine.Epoch, queue[0].Epoch, queue[1].Epoch)
	}
	p.given[mine.Rank] = append(queue, mine)
	p.start()
	return nil
}

// Rejoin is give for the part that a rank brings with OPEN to a job that is already open.
func (p *Turns) Rejoin(mine *request.Part) error {
	if err := p.give(mine); err != nil || mine.Apart == "" {
		return err
	}
	return readApart("rank %d: %s", mine.Rank, mine.Apart)
}

// compare returns an error if a part of a known epoch differs from the one that the rank gave.
func (p *Turns) compare(known *access.Epoch, mine *request.Part) error {
	n := p.stream.RankSamples(mine.Rank)
	if len(mine.IDs) != n {
		return failure.Input("epoch %d is given again with %d samples; it had %d", mine.Epoch,
			len(mine.IDs), n)
	}
	for i, k := range mine.IDs {
		if was := known.At(mine.Rank, i); was != int(k) {
			return failure.Input("epoch %d is given again with another order: sample %d at index "+
				"%d, which was %d",
				mine.Epoch, k, i, was)
		}
	}
	return nil
}

// Leave records that a rank has left. Parts that it has given remain valid.
func (p *Turns) Leave(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[rank] = true
	p.start()
}

// expects reports whether a rank may ask for an epoch that is not known: it has given its part, or
// Await will return the error.
func (p *Turns) expects(rank, epoch int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || p.stream.Given(epoch) ||
		slices.ContainsFunc(p.given[rank], func(x *request.Part) bool { return x.Epoch == epoch })
}

// Await waits until an epoch is known, or never will be.
func (p *Turns) Await(ctx context.Context, epoch int) error {
	slow, timeout := time.NewTimer(longWait), time.NewTimer(p.timeout)
	defer slow.Stop()
	defer timeout.Stop()
	for {
		p.mu.Lock()
		changed, err := p.changed, p.err
		p.mu.Unlock()
		if p.stream.Given(epoch) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-slow.C:
			p.tasks.Go(func() { p.logWaiting(epoch) })
		case <-timeout.C:
			p.giveUp(epoch)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// start starts the exchange of the turn if this node's parts of it are complete. p.mu must be held.
func (p *Turns) start() {
	if p.busy || p.err != nil {
		return
	}
	mine, whole := p.heads()
	if !whole {
		return
	}
	p.busy = true
	turn := p.turn
	wait, cancel := context.WithCancel(p.life)
	p.cancel = cancel
	p.tasks.Go(func() {
		defer cancel()
		all, err := p.gather(wait, turn, mine)
		switch {
		case err == nil:
			err = p.exchange(p.life, turn, mine, all)
		case wait.Err() != nil:
			p.tellApart(turn, mine)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cancel = nil
		p.end(err)
		if err == nil && p.gaveUp != "" { // while samples were exchanged: the others have the epoch
			p.sayApart()
		}
	})
}

// giveUp makes this node's ranks read apart, because one has waited too long for an epoch. The
// other nodes learn of it when they come to the turn.
func (p *Turns) giveUp(epoch int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.stream.Given(epoch) {
		return
	}
	p.gaveUp = fmt.Sprintf("other ranks have not begun epoch %d within %v", epoch, p.timeout)
	p.err = readApart("%s", p.gaveUp)
	p.wake()
	if p.busy {
		p.cancel()
		return
	}
	p.sayApart()
}

// sayApart begins to tell the other nodes, when they come to the next turn, that this node's ranks
// read apart. p.mu must be held.
func (p *Turns) sayApart() {
	p.busy = true
	turn := p.turn
	mine, _ := p.heads()
	p.tasks.Go(func() { p.tellApart(turn, mine) })
}

// tellApart notifies the other nodes, when they come to the turn, that this node's ranks read
// apart.
func (p *Turns) tellApart(turn int, mine []*request.Part) {
	p.mu.Lock()
	why := p.gaveUp
	p.mu.Unlock()
	told := make([]*request.Part, len(mine))
	for i, x := range mine {
		told[i] = &request.Part{Rank: x.Rank, Epoch: x.Epoch, Apart: why}
	}
	_, _ = p.gather(p.life, turn, told) // their answers no longer matter
}

// heads returns the parts that this node sends in the turn. whole reports whether they are final:
// every rank has given one, or a rank has left without. p.mu must be held.
func (p *Turns) heads() (mine []*request.Part, whole bool) {
	waits := false
	for _, rank := range p.ranks {
		switch queue := p.given[rank]; {
		case len(queue) > 0:
			mine = append(mine, queue[0])
		case p.left[rank]:
			mine, whole = append(mine, &request.Part{Rank: rank, Left: true}), true
		default:
			mine, waits = append(mine, &request.Part{Rank: rank}), true
		}
	}
	return mine, whole || !waits
}

// end records that a turn was exchanged, and starts the next one if it can. p.mu must be held.
func (p *Turns) end(err error) {
	invariants.Check(p.busy, "turn %d ends before it has begun", p.turn)
	p.err = cmp.Or(p.err, err)
	p.turn++
	p.busy = false
	for rank, queue := range p.given {
		if p.err == nil && len(queue) > 0 {
			p.given[rank] = queue[1:]
		}
	}
	p.wake()
	p.start()
}

// wake ends the waits for an epoch that is now known, or never will be. p.mu must be held.
func (p *Turns) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Open exchanges turn 0, once the nodes have formed a cluster. It returns what the job's stream is
// made from: the first part, whose seed is used if none was set, and the order of all parts. admit
// is asked for the memory of the orders.
func (p *Turns) Open(ctx context.Context, nodes Nodes,
	admit request.Admit,
) (first request.Part, order []int32, err error) {
	p.nodes = nodes
	p.ranks = nodes.Ranks()[nodes.Me()]
	p.world = 0
	for _, ranks := range nodes.Ranks() {
		p.world += len(ranks)
	}
	p.mu.Lock()
	mine, _ := p.heads()
	p.mu.Unlock()
	all, err := p.gather(ctx, 0, mine)
	if err != nil {
		return request.Part{}, nil, err
	}
	if err := p.regular(all); err != nil {
		return request.Part{}, nil, err
	}
	ranks, entries := len(all), all[0].Entries
	if entries > request.MaxList/ranks {
		return request.Part{}, nil,
			failure.Input("stream.given: %d ranks with %d samples of an epoch "+
				"each; allowed: %d samples in all",
				ranks, entries, request.MaxList)
	}
	if err := admit(int64(minHeld)*4*int64(ranks*entries), "stream.given: the orders of epochs",
		"use shorter epochs"); err != nil {
		return request.Part{}, nil, err
	}
	if order, err = p.samples(ctx, 0, mine, entries); err != nil {
		return request.Part{}, nil, err
	}
	return *all[0], order, nil
}

// opened records that the job has its stream: from now on ranks' further parts are exchanged, and
// news is called when an epoch becomes known.
func (p *Turns) opened(stream *access.Stream, epoch int, news func()) {
	p.stream, p.news = stream, news
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = epoch
	p.end(nil)
}

// exchange sends the other nodes the samples of this node's parts of a turn, and adds the epoch
// that all parts make to the stream.
func (p *Turns) exchange(ctx context.Context, turn int, mine, all []*request.Part) error {
	stream := p.stream
	if err := p.agree(all, stream.RankSamples(0)); err != nil {
		return err
	}
	order, err := p.samples(ctx, turn, mine, all[0].Entries)
	if err != nil {
		return err
	}
	epoch := all[0].Epoch
	if err := stream.Give(epoch, order); err != nil {
		return failure.Input("%v", err)
	}
	stream.Forget(p.last)
	p.last = epoch // no other turn is in progress
	p.news()
	return nil
}

// Close waits until exchanges have ended. The job's life must have ended.
func (p *Turns) Close() { p.tasks.Wait() }
