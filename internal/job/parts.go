package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/request"
)

// parts are the orders of epochs that the ranks of a job on several nodes give together, each its own part. An epoch is known once all nodes have
// said their ranks' parts of it.
//
// Ranks give epochs in turns: in turn 0 what came with OPEN, in each further one the epoch that they begin next. A rank that waits for an epoch
// gives no further one, so that none is more than a turn ahead of the others. When each rank of this node has given its part of the turn, or one
// has left and never will, the node tells the others (exchange), and learns theirs. Then every node knows the same parts, and comes to the
// same end: the epoch is known, or, for good, none is any more. A rank waits for that as long as nodes wait for each other at the start (giveUp):
// another one may wait for it in the epoch before, if it alone has begun an epoch that its process then gave up.
//
// From that follows what a node may forget: in a turn all ranks have left the epoch of the one before the last.
type parts struct {
	job *Job

	mu      sync.Mutex
	given   map[int][]*request.Part // by rank of this node, those that were not exchanged yet, in their order
	left    map[int]bool            // ranks of this node that have left, and not come back
	turn    int                     // the one that comes next
	busy    bool                    // it is being exchanged, or the job is not open yet
	last    int                     // the epoch of the turn before
	err     error                   // why no further epoch will be known; nil: they will
	cancel  func()                  // ends the wait for the other nodes' parts; nil: none is under way
	gaveUp  string                  // why this node's ranks read apart, where one has waited for too long
	changed chan struct{}           // closed and replaced when an epoch is known, or err is set
	tasks   sync.WaitGroup
}

// mostQueued is how many epochs a rank may have given that are not exchanged yet.
const mostQueued = 2

// apart is what Details say of an error after which each rank may read by itself, in a job of its own.
const apart = "apart"

func newParts(j *Job) *parts {
	return &parts{job: j, given: make(map[int][]*request.Part), left: make(map[int]bool), busy: true, changed: make(chan struct{})}
}

// came notes what a rank brings with OPEN, as its part of turn 0; in a job that is open already it is given.
func (p *parts) came(mine *request.Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn == 0 {
		p.given[mine.Rank] = []*request.Part{mine}
		delete(p.left, mine.Rank)
	}
}

// give notes a rank's part of the epoch that it begins next, or of one that is known, which must be the same then.
func (p *parts) give(mine *request.Part) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, mine.Rank)
	if mine.Apart == "" {
		if e := p.job.stream.Epoch(mine.Epoch); e != nil {
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
		return failure.Input("the order of epoch %d is given, while those of epochs %d and %d wait for the other ranks: give it later", mine.Epoch, queue[0].Epoch, queue[1].Epoch)
	}
	p.given[mine.Rank] = append(queue, mine)
	p.start()
	return nil
}

// rejoin is give for what a rank brings with OPEN to a job that is open already.
func (p *parts) rejoin(mine *request.Part) error {
	if err := p.give(mine); err != nil || mine.Apart == "" {
		return err
	}
	return readApart("rank %d: %s", mine.Rank, mine.Apart)
}

// compare refuses a part of a known epoch that is another one than the rank has given.
func (p *parts) compare(known *access.Epoch, mine *request.Part) error {
	n := p.job.stream.RankSamples(mine.Rank)
	if len(mine.IDs) != n {
		return failure.Input("epoch %d is given again with %d samples, which had %d", mine.Epoch, len(mine.IDs), n)
	}
	for i, k := range mine.IDs {
		if was := known.At(mine.Rank, i); was != int(k) {
			return failure.Input("epoch %d is given again with another order: sample %d at index %d, which was %d", mine.Epoch, k, i, was)
		}
	}
	return nil
}

// leave notes that a rank has gone. What it has given holds.
func (p *parts) leave(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[rank] = true
	p.start()
}

// expects reports whether a rank may ask for an epoch that is not known: it has given its part of it, or will be told why it gets none.
func (p *parts) expects(rank, epoch int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || p.job.stream.Given(epoch) || slices.ContainsFunc(p.given[rank], func(x *request.Part) bool { return x.Epoch == epoch })
}

// await waits until an epoch is known, or will not be.
func (p *parts) await(ctx context.Context, epoch int) error {
	patience, timeout := time.NewTimer(longWait), time.NewTimer(p.job.cfg.StartTimeout)
	defer patience.Stop()
	defer timeout.Stop()
	for {
		p.mu.Lock()
		changed, err := p.changed, p.err
		p.mu.Unlock()
		if p.job.stream.Given(epoch) {
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
func (p *parts) start() {
	if p.busy || p.err != nil {
		return
	}
	mine, whole := p.heads()
	if !whole {
		return
	}
	p.busy = true
	turn := p.turn
	wait, cancel := context.WithCancel(p.job.life)
	p.cancel = cancel
	p.tasks.Go(func() {
		defer cancel()
		all, err := p.gather(wait, turn, mine)
		switch {
		case err == nil:
			err = p.exchange(p.job.life, turn, mine, all)
		case wait.Err() != nil:
			p.tellApart(turn, mine)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cancel = nil
		p.end(err)
	})
}

// giveUp has this node's ranks read apart, because one has waited for an epoch for so long. The other nodes learn it when they come to the turn.
func (p *parts) giveUp(epoch int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.job.stream.Given(epoch) {
		return
	}
	p.gaveUp = fmt.Sprintf("other ranks have not begun epoch %d within %v", epoch, p.job.cfg.StartTimeout)
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
func (p *parts) tellApart(turn int, mine []*request.Part) {
	p.mu.Lock()
	why := p.gaveUp
	p.mu.Unlock()
	told := make([]*request.Part, len(mine))
	for i, x := range mine {
		told[i] = &request.Part{Rank: x.Rank, Epoch: x.Epoch, Apart: why}
	}
	_, _ = p.gather(p.job.life, turn, told) // what they say does not matter any more
}

// heads are the parts that this node has to tell in the turn; whole: of all its ranks, or one has left that has given none. p.mu is held.
func (p *parts) heads() (mine []*request.Part, whole bool) {
	waits := false
	for _, rank := range p.job.ownRanks() {
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
func (p *parts) end(err error) {
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
func (p *parts) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// unformed is the error of nodes that did not come together: what does not say that they differ keeps no rank from reading by itself.
func (p *parts) unformed(err error) error {
	var e *failure.Error
	if p == nil || !errors.As(err, &e) || e.Kind != failure.Config {
		return err
	}
	return readApart("%s", e.Message)
}

// shareOrders learns the parts of all ranks for the first epoch, once the nodes have found each other. Unless a seed is given, rank 0's process says it.
func (j *Job) shareOrders(ctx context.Context) error {
	first, order, err := j.parts.open(ctx)
	if err != nil {
		return err
	}
	shared := *j.order
	shared.Part, shared.Epochs = &first, [][]int32{order}
	j.seed, j.order = first.Seed, &shared
	return nil
}

// open exchanges turn 0, and returns what the job's stream is made of.
func (p *parts) open(ctx context.Context) (first request.Part, order []int32, err error) {
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
		return request.Part{}, nil, failure.Input("stream.given: %d ranks with %d samples of an epoch each; allowed: %d samples in all", ranks, entries, request.MaxList)
	}
	if err := p.job.node.checkRoom(int64(leastHeld)*4*int64(ranks*entries), "stream.given: the orders of epochs", "give shorter ones"); err != nil {
		return request.Part{}, nil, err
	}
	if order, err = p.samples(ctx, 0, mine, entries); err != nil {
		return request.Part{}, nil, err
	}
	return *all[0], order, nil
}

// opened notes that the job has its stream: from now on ranks' further epochs are exchanged.
func (p *parts) opened(epoch int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = epoch
	p.end(nil)
}

// exchange tells the other nodes the samples of this one's parts of a turn, and makes of all parts an epoch that is known.
func (p *parts) exchange(ctx context.Context, turn int, mine, all []*request.Part) error {
	stream := p.job.stream
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
	j := p.job
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.ranks {
		notify(r.news)
	}
	return nil
}

// regular tells why the parts of turn 0 make no order that can be shared: then each rank reads apart. all are by rank.
func (p *parts) regular(all []*request.Part) error {
	if err := withoutPart(all); err != nil {
		return err
	}
	first := all[0]
	for _, x := range all {
		switch {
		case x.Entries < 1 || x.Batch < 1:
			return readApart("rank %d has no samples in epoch %d", x.Rank, x.Epoch)
		case x.Epoch != first.Epoch:
			return readApart("rank %d begins with epoch %d, and rank %d with epoch %d", x.Rank, x.Epoch, first.Rank, first.Epoch)
		case x.Batch != first.Batch:
			return readApart("rank %d has batches of %d samples, and rank %d of %d", x.Rank, x.Batch, first.Rank, first.Batch)
		case x.Entries != first.Entries:
			return readApart("rank %d has %d samples in epoch %d, and rank %d has %d", x.Rank, x.Entries, x.Epoch, first.Rank, first.Entries)
		}
	}
	return nil
}

// agree tells why the parts of a later turn make no epoch of so many samples per rank. Ranks that all have another number of samples read apart;
// ranks that disagree are an error.
func (p *parts) agree(all []*request.Part, entries int) error {
	if err := withoutPart(all); err != nil {
		return err
	}
	first := all[0]
	if first.Epoch < p.last {
		return readApart("they go back from epoch %d to epoch %d", p.last, first.Epoch)
	}
	differs := func(key string, x *request.Part, mine, theirs int, format string, args ...any) error {
		return &failure.Error{
			Kind: failure.Mismatch, Message: "the ranks disagree about the sampler: " + fmt.Sprintf(format, args...),
			Details: map[string]any{"key": key, "mine": mine, "theirs": theirs, "epoch": x.Epoch, "of_rank": x.Rank},
		}
	}
	for _, x := range all {
		if x.Epoch != first.Epoch {
			return differs("epoch", x, x.Epoch, first.Epoch, "after epoch %d rank %d goes on with epoch %d, and rank %d with epoch %d", p.last, x.Rank, x.Epoch, first.Rank, first.Epoch)
		}
	}
	alike := true
	for _, x := range all {
		alike = alike && x.Entries == first.Entries
	}
	for _, x := range all {
		if !alike && x.Entries != entries {
			return differs("samples of an epoch", x, x.Entries, entries, "rank %d ends epoch %d at index %d, and the part of each rank had %d samples until then", x.Rank, x.Epoch, x.Entries, entries)
		}
	}
	if first.Entries != entries {
		return readApart("epoch %d has %d samples on each rank, and had %d before", first.Epoch, first.Entries, entries)
	}
	return nil
}

// withoutPart tells which rank gave no part.
func withoutPart(all []*request.Part) error {
	epoch := 0
	for _, x := range all {
		epoch = max(epoch, x.Epoch)
	}
	for _, x := range all {
		if x.Left {
			return lost(epoch, fmt.Sprintf("rank %d has left the job", x.Rank), map[string]any{"of_rank": x.Rank})
		}
	}
	for _, x := range all {
		if x.Apart != "" {
			return readApart("rank %d: %s", x.Rank, x.Apart)
		}
	}
	return nil
}

// lost is the error of an epoch of which a part will not come.
func lost(epoch int, why string, details map[string]any) error {
	details["key"], details["epoch"] = "the order of an epoch", epoch
	return &failure.Error{
		Kind: failure.Mismatch, Details: details,
		Message: fmt.Sprintf("the order of epoch %d cannot be known: %s, and has not given its part of it; start all ranks again", epoch, why),
	}
}

// readApart is an error after which each rank reads by itself.
func readApart(format string, args ...any) error {
	return &failure.Error{
		Kind: failure.Config, Message: "the nodes cannot exchange the order that the ranks' samplers draw: " + fmt.Sprintf(format, args...),
		Details: map[string]any{apart: true},
	}
}

// close waits for what goes on; the job's life has ended.
func (p *parts) close() { p.tasks.Wait() }
