package clustersim

import (
	"context"
	"sync"
)

// crew is what the processes of a launch tell each other, as by an allreduce: none begins a step
// before all have finished the one before.
type crew struct {
	size int

	mu       sync.Mutex // guards the following
	active   int        // processes that have not left
	changed  chan struct{}
	arrived  map[int]int // by step, how many processes have trained on its batch
	through  int         // steps that all have trained on
	broken   bool        // a process got an error, so no step will end
	gathered int         // processes that wait to begin again
	lowest   int         // the first batch that one of them lacks
	round    int         // how often all have begun again
	last     int         // where they did
	attended map[int]int // by rank, its next batch; for processes that train apart
}

func newCrew(size, from int) *crew {
	c := &crew{
		size: size, active: size, changed: make(chan struct{}), arrived: map[int]int{}, through: from,
		attended: map[int]int{},
	}
	for rank := range size {
		c.attended[rank] = from
	}
	return c
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

// fail has all steps count as failed that not all processes have trained on.
func (c *crew) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
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

// begin begins a round if all processes wait for it; mu is held.
func (c *crew) begin() {
	if c.gathered == 0 || c.gathered < c.active {
		return
	}
	c.gathered, c.broken, c.arrived = 0, false, map[int]int{}
	c.last = c.lowest
	c.round++
	c.signal()
}

// leave notes that a process has ended.
func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	c.begin()
}

// reached returns the number of steps that all processes have trained on.
func (c *crew) reached() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.through
}
