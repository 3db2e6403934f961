package order

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/request"
)

// Nodes are the nodes of a job, to its Turns.
type Nodes interface {
	// Ranks are those of each node.
	Ranks() [][]int
	// Me is this node.
	Me() int
	// Gather tells the other nodes what this one says of a matter, and returns what all say, when
	// all have. It waits without a bound. An error that is no cluster.GatherError is a process's to
	// read.
	Gather(ctx context.Context, what string, mine []byte) ([][]byte, error)
	// GatherInTime is Gather, and waits for as long as nodes do for each other at the start.
	GatherInTime(ctx context.Context, what string, mine []byte) ([][]byte, error)
	// Missing asks the other nodes which of their ranks have not given their parts of a turn, and
	// returns those that are known.
	Missing(ctx context.Context, turn int) []int
}

// Turns are the orders of epochs that the ranks of a job on several nodes give together, each its
// own part. An epoch is known once all nodes have said their ranks' parts of it.
//
// Ranks give epochs in turns: in turn 0 what came with OPEN, in each further one the epoch that
// they begin next. A rank that waits for an epoch gives no further one, so that none is more than a
// turn ahead of the others. When each rank of this node has given its part of the turn, or one has
// left and never will, the node tells the others (exchange), and learns theirs. Then every node
// knows the same parts, and comes to the same end: the epoch is known, or, for good, none is any
// more. A rank waits for that as long as nodes wait for each other at the start (giveUp): another
// one may wait for it in the epoch before, if it alone has begun an epoch that its process then
// gave up.
//
// From that follows what a node may forget: in a turn all ranks have left the epoch of the one
// before the last.
type Turns struct {
	life    context.Context // of the job
	timeout time.Duration   // for which nodes wait for each other at the start
	log     *slog.Logger

	// Set by Open.
	nodes Nodes
	ranks []int // of this node
	world int
	// Set by Opened.
	stream *access.Stream
	news   func() // tells this node's ranks that an epoch is known

	mu sync.Mutex
	// by rank of this node, those that were not exchanged yet, in their order
	given map[int][]*request.Part
	left  map[int]bool // ranks of this node that have left, and not come back
	turn  int          // the one that comes next
	busy  bool         // it is being exchanged, or the job is not open yet
	last  int          // the epoch of the turn before
	err   error        // why no further epoch will be known; nil: they will
	// ends the wait for the other nodes' parts; nil: none is under way
	cancel func()
	// why this node's ranks read apart, where one has waited for too long
	gaveUp  string
	changed chan struct{} // closed and replaced when an epoch is known, or err is set
	tasks   sync.WaitGroup
}

// longWait is for how long a rank waits for others before that is logged.
const longWait = 10 * time.Second

// mostQueued is how many epochs a rank may have given that are not exchanged yet.
const mostQueued = 2

// NewTurns returns turns in which no rank has given anything; timeout is for how long nodes wait
// for each other at the start.
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

// Came notes what a rank brings with OPEN, as its part of turn 0; in a job that is open already it
// is given.
func (p *Turns) Came(mine *request.Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn == 0 {
		p.given[mine.Rank] = []*request.Part{mine}
		delete(p.left, mine.Rank)
	}
}

// give notes a rank's part of the epoch that it begins next, or of one that is known, which must be
// the same then.
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
	switch {
	case p.err != nil:
		return nil // the rank is told when it asks for the epoch
	case len(queue) > 0 && queue[len(queue)-1].Same(mine):
		return nil
	case len(queue) == mostQueued:
		return failure.Input("the order of epoch %d is given, while those of epochs %d and "+
			"%d wait for "+
			"the other ranks: give it later",
			mine.Epoch, queue[0].Epoch, queue[1].Epoch)
	}
	p.given[mine.Rank] = append(queue, mine)
	p.start()
	return nil
}

// Rejoin is give for what a rank brings with OPEN to a job that is open already.
func (p *Turns) Rejoin(mine *request.Part) error {
	if err := p.give(mine); err != nil || mine.Apart == "" {
		return err
	}
	return readApart("rank %d: %s", mine.Rank, mine.Apart)
}

// compare refuses a part of a known epoch that is another one than the rank has given.
func (p *Turns) compare(known *access.Epoch, mine *request.Part) error {
	n := p.stream.RankSamples(mine.Rank)
	if len(mine.IDs) != n {
		return failure.Input("epoch %d is given again with %d samples, which had %d", mine.Epoch,
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

// Leave notes that a rank has gone. What it has given holds.
func (p *Turns) Leave(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[rank] = true
	p.start()
}

// expects reports whether a rank may ask for an epoch that is not known: it has given its part of
// it, or will be told why it gets none.
func (p *Turns) expects(rank, epoch int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || p.stream.Given(epoch) ||
		slices.ContainsFunc(p.given[rank], func(x *request.Part) bool { return x.Epoch == epoch })
}

// Await waits until an epoch is known, or will not be.
func (p *Turns) Await(ctx context.Context, epoch int) error {
	patience, timeout := time.NewTimer(longWait), time.NewTimer(p.timeout)
	defer patience.Stop()
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
		case <-patience.C:
			p.tasks.Go(func() { p.sayWaiting(epoch) })
		case <-timeout.C:
			p.giveUp(epoch)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// start has the turn exchanged if this node has all that it can say of it. p.mu is held.
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
	})
}

// giveUp has this node's ranks read apart, because one has waited for an epoch for so long. The
// other nodes learn it when they come to the turn.
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
	p.busy = true
	turn := p.turn
	mine, _ := p.heads()
	p.tasks.Go(func() { p.tellApart(turn, mine) })
}

// tellApart tells the other nodes, when they come to the turn, that this one's ranks read apart.
func (p *Turns) tellApart(turn int, mine []*request.Part) {
	p.mu.Lock()
	why := p.gaveUp
	p.mu.Unlock()
	told := make([]*request.Part, len(mine))
	for i, x := range mine {
		told[i] = &request.Part{Rank: x.Rank, Epoch: x.Epoch, Apart: why}
	}
	_, _ = p.gather(p.life, turn, told) // what they say does not matter any more
}

// heads are the parts that this node has to tell in the turn; whole: of all its ranks, or one has
// left that has given none. p.mu is held.
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

// end notes that a turn was exchanged, and begins the next if that can be. p.mu is held.
func (p *Turns) end(err error) {
	invariants.Check(p.busy, "turn %d ends, and was not begun", p.turn)
	p.err = cmp.Or(p.err, err)
	p.turn++
	p.busy = false
	for rank, queue := range p.given {
		if len(queue) > 0 {
			p.given[rank] = queue[1:]
		}
	}
	p.wake()
	p.start()
}

// wake ends the waits for an epoch that is known now, or never will be. p.mu is held.
func (p *Turns) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Open exchanges turn 0, once the nodes have found each other, and returns what the job's stream is
// made of: the first part, whose seed counts where none is given, and the order of all parts. admit
// is asked for the memory that orders take.
func (p *Turns) Open(ctx context.Context, nodes Nodes,
	admit request.Admit,
) (first request.Part, order []int32, err error) {
	p.nodes, p.ranks, p.world = nodes, nodes.Ranks()[nodes.Me()], 0
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
	if err := admit(int64(leastHeld)*4*int64(ranks*entries), "stream.given: the orders of epochs",
		"give shorter ones"); err != nil {
		return request.Part{}, nil, err
	}
	if order, err = p.samples(ctx, 0, mine, entries); err != nil {
		return request.Part{}, nil, err
	}
	return *all[0], order, nil
}

// opened notes that the job has its stream: from now on ranks' further epochs are exchanged, and
// news is called when one is known.
func (p *Turns) opened(stream *access.Stream, epoch int, news func()) {
	p.stream, p.news = stream, news
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = epoch
	p.end(nil)
}

// exchange tells the other nodes the samples of this one's parts of a turn, and makes of all parts
// an epoch that is known.
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
	p.last = epoch // no other turn is under way
	p.news()
	return nil
}

// Close waits for what goes on; the job's life has ended.
func (p *Turns) Close() { p.tasks.Wait() }
