package clustersim

import (
	"context"
	"sync"
)

// crew is what the processes of a launch tell each other, as by an allreduce: none begins a step
// before all have finished the one before.
type crew struct {
	mu       sync.Mutex // guards the following
	size     int        // processes that must train on a batch
	active   int        // processes that have not left
	changed  chan struct{}
	arrived  map[int]int // by step, how many processes have trained on its batch
	through  int         // steps that all have trained on
	first    int         // where they began
	broken   bool        // a process got an error, so no step will end
	lost     bool        // a process has given up, so that this remains so
	gathered int         // processes that wait to begin again
	lowest   int         // the first batch that one of them lacks
	round    int         // how often all have begun again
	returned int         // processes that wait to go back
	backs    int         // how often all have gone back
	last     int         // where they did
	steps    int         // batches of an epoch; 0: no process has the job open yet
	attended map[int]int // by rank, its next batch; for processes that train apart
}

// position is a batch, or the end of an epoch.
type position struct{ epoch, step int }

func newCrew(size int) *crew {
	return &crew{
		size: size, active: size, changed: make(chan struct{}), arrived: map[int]int{},
		attended: map[int]int{},
	}
}

// signal wakes all that wait; mu is held.
func (c *crew) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait waits until holds, which is called with mu held.
func (c *crew) wait(ctx context.Context, holds func() bool) error {
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

// finish waits until all processes have trained on a batch. ok is false if that will not happen.
func (c *crew) finish(ctx context.Context, position int) (ok bool, err error) {
	c.mu.Lock()
	round := c.round
	if c.arrived[position]++; c.arrived[position] == c.size {
		c.through = position + 1
		c.signal()
	}
	c.mu.Unlock()
	err = c.wait(ctx, func() bool {
		ok = c.through > position
		return ok || c.broken || c.round != round
	})
	return ok, err
}

// advance notes where a process is that trains apart.
func (c *crew) advance(rank, position int) {
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

// opened notes that a process has the job open, how many batches an epoch has, and where it begins.
// With another number of ranks an epoch may be shorter, and then ends before the batch.
func (c *crew) opened(steps int, at position) (from int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from = at.epoch*steps + min(at.step, steps)
	if c.steps == 0 {
		c.steps, c.through, c.first = steps, from, from
		for r := range c.size {
			c.attended[r] = from
		}
	}
	return from
}

// fail has all steps count as failed that not all processes have trained on; if the process will
// not begin again, also those that follow.
func (c *crew) fail(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken, c.lost = true, c.lost || over
	c.signal()
}

// gather waits until all processes have got their error, and returns the batch at which all begin
// again: the first that one of them lacks.
func (c *crew) gather(ctx context.Context, position int) (from int, err error) {
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

// back waits until all processes go back to a batch.
func (c *crew) back(ctx context.Context, to int) error {
	c.mu.Lock()
	backs := c.backs
	if c.returned++; c.returned == c.active {
		c.returned, c.arrived, c.through = 0, map[int]int{}, to
		c.backs++
		c.signal()
	}
	c.mu.Unlock()
	return c.wait(ctx, func() bool { return c.backs != backs })
}

// begin begins a round if all processes wait for it; mu is held.
func (c *crew) begin() {
	if c.gathered == 0 || c.gathered < c.active {
		return
	}
	c.gathered, c.broken, c.arrived = 0, c.lost, map[int]int{}
	c.last = c.lowest
	c.round++
	c.signal()
}

// leave notes that a process has ended. The others need not wait for one that is complete: it has
// had all batches.
func (c *crew) leave(complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if complete {
		c.size--
	}
	c.begin()
}

// reached returns the first batch that not all processes have trained on; ok is false if no process
// had the job open.
func (c *crew) reached() (p position, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == 0 {
		return p, false
	}
	return position{c.through / c.steps, c.through % c.steps}, true
}
