package process

import (
	"context"
	"sync"
)

// Crew is what the processes of a launch tell each other, as by an allreduce: none begins a step
// before all have finished the one before. Its methods are safe for concurrent use.
type Crew struct {
	mu       sync.Mutex // guards the following
	size     int        // processes that must train on a batch
	active   int        // processes that have not left
	changed  chan struct{}
	arrived  map[step]int // how many processes have trained on a batch
	through  int          // steps that all have trained on
	first    int          // where they began
	broken   bool         // a process got an error, so no step will end
	failures int          // the most errors that a process got after which each begins again alone
	failed   map[int]int  // by number, how many processes have got that many such errors
	lost     bool         // a process has given up, so that this remains so
	gathered int          // processes that wait to begin again
	lowest   int          // the first batch that one of them lacks
	round    int          // how often all have begun again
	returned int          // processes that wait to go back
	backs    int          // how often all have gone back
	last     int          // where they did
	steps    int          // batches of an epoch; 0: no process has the job open yet
	attended map[int]int  // by rank, its next batch; for processes that train apart
}

// step is a batch that processes train on after so many errors.
type step struct{ position, errors int }

// Position is a batch, or the end of an epoch.
type Position struct{ Epoch, Step int }

// NewCrew returns the crew of a launch with so many processes.
func NewCrew(size int) *Crew {
	return &Crew{
		size: size, active: size, changed: make(chan struct{}), arrived: map[step]int{},
		attended: map[int]int{}, failed: map[int]int{},
	}
}

// signal wakes all that wait; mu is held.
func (c *Crew) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait waits until holds, which is called with mu held.
func (c *Crew) wait(ctx context.Context, holds func() bool) error {
	c.mu.Lock()
	for !holds() {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
	}
	c.mu.Unlock()
	return nil
}

// Through waits until all processes have trained on so many batches.
func (c *Crew) Through(ctx context.Context, batches int) error {
	return c.wait(ctx, func() bool { return c.steps > 0 && c.through >= c.first+batches })
}

// Alone waits until all processes but one have left.
func (c *Crew) Alone(ctx context.Context) error {
	return c.wait(ctx, func() bool { return c.active == 1 })
}

// Finish waits until all processes have trained on a batch, after so many errors (FailAlone). ok is
// false if that will not happen.
func (c *Crew) Finish(ctx context.Context, position, errors int) (ok bool, err error) {
	c.mu.Lock()
	round := c.round
	at := step{position, errors}
	if c.arrived[at]++; c.arrived[at] == c.size {
		c.through = position + 1
		c.signal()
	}
	c.mu.Unlock()
	err = c.wait(ctx, func() bool {
		ok = c.through > position
		return ok || c.broken || c.round != round || c.failures > errors
	})
	return ok, err
}

// Advance notes where a process is that trains apart.
func (c *Crew) Advance(rank, position int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attended[rank] = position
	least := position
	for _, p := range c.attended {
		least = min(least, p)
	}
	c.through = max(c.through, least)
	c.signal()
}

// Opened notes that a process has the job open, how many batches an epoch has, and where it begins.
// With another number of ranks an epoch may be shorter, and then ends before the batch.
func (c *Crew) Opened(steps int, at Position) (from int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from = at.Epoch*steps + min(at.Step, steps)
	if c.steps == 0 {
		c.steps = steps
		c.through = from
		c.first = from
		for r := range c.size {
			c.attended[r] = from
		}
	}
	return from
}

// Fail has all steps count as failed that not all processes have trained on; if the process will
// not begin again, also those that follow.
func (c *Crew) Fail(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken, c.lost = true, c.lost || over
	c.signal()
}

// FailAlone notes that a process has got so many errors. All steps count as failed of those that
// have had fewer.
func (c *Crew) FailAlone(errors int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[errors]++
	c.failures = max(c.failures, errors)
	c.signal()
}

// AllFailed waits until all processes have got so many errors: before, none may begin again.
func (c *Crew) AllFailed(ctx context.Context, errors int) error {
	return c.wait(ctx, func() bool { return c.failed[errors] >= c.active })
}

// Gather waits until all processes have got their error, and returns the batch at which all begin
// again: the first that one of them lacks.
func (c *Crew) Gather(ctx context.Context, position int) (from int, err error) {
	c.mu.Lock()
	round := c.round
	if c.gathered == 0 || position < c.lowest {
		c.lowest = position
	}
	c.gathered++
	c.begin()
	c.mu.Unlock()
	err = c.wait(ctx, func() bool { return c.round != round })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, err
}

// Back waits until all processes go back to a batch.
func (c *Crew) Back(ctx context.Context, to int) error {
	c.mu.Lock()
	backs := c.backs
	if c.returned++; c.returned == c.active {
		c.returned = 0
		c.arrived = map[step]int{}
		c.through = to
		c.backs++
		c.signal()
	}
	c.mu.Unlock()
	return c.wait(ctx, func() bool { return c.backs != backs })
}

// begin begins a round if all processes wait for it; mu is held.
func (c *Crew) begin() {
	if c.gathered == 0 || c.gathered < c.active {
		return
	}
	c.gathered = 0
	c.broken = c.lost
	c.arrived = map[step]int{}
	c.last, c.through = c.lowest, min(c.through, c.lowest)
	c.round++
	c.signal()
}

// Leave notes that a process has ended. The others need not wait for one that is complete: it has
// had all batches.
func (c *Crew) Leave(complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	c.active--
	if complete {
		c.size--
		for at, processes := range c.arrived {
			if processes == c.size {
				c.through = max(c.through, at.position+1)
			}
		}
	}
	c.begin()
}

// Reached returns the first batch that not all processes have trained on; ok is false if no process
// had the job open.
func (c *Crew) Reached() (p Position, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == 0 {
		return p, false
	}
	return Position{c.through / c.steps, c.through % c.steps}, true
}
