package pressure

import (
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Rate is the growth of the other processes, in bytes per second, for which memory is reserved: it
// is survived from its first byte on.
const Rate = 100e6

const (
	mib = 1 << 20
	// The reserve is at least 1/leastShare of the limit within these bounds, and at most
	// 1/mostShare of the limit.
	leastShare   = 16
	leastReserve = 16 * mib
	mostLeast    = 256 * mib
	mostShare    = 4
	// reactionTime is the time from a growth's first byte until segments are given back, and what
	// else adds to the delay: a poll near the mark, a step of the process, and what the kernel takes
	// to free pages.
	reactionTime = 750 * time.Millisecond
	// maxDelay bounds how long giving back is expected to take, and leastHorizon how little time it
	// is granted.
	maxDelay, leastHorizon = 10 * time.Second, 200 * time.Millisecond
	// trendWindow is the time over which growth is measured.
	trendWindow = time.Second
	// stallLimit is the share of the time in which tasks wait for memory from which on memory counts
	// as short before the reserve is touched.
	stallLimit = 0.1
	// minRegrowDelay is how long there must be room before the cache grows again. It doubles, up to
	// maxRegrowDelay, if memory soon becomes short again.
	minRegrowDelay, maxRegrowDelay = 10 * time.Second, 5 * time.Minute
	// leastGrowth is the least that the cache is allowed to grow by.
	leastGrowth = 8 * mib
	// The next poll is when the room above the reserve would be used up at so many times Rate,
	// within these bounds.
	pollRate                 = 8
	minPoll, maxPoll         = 50 * time.Millisecond, time.Second
	maxLeaving               = 30 * time.Second
	resumeFactor, growFactor = 1.75, 1.5 // times the reserve
)

// Reading is what is measured at one time. Sizes are in bytes.
type Reading struct {
	At    time.Time
	Limit int64  // of what bounds Free
	Free  int64  // what processes can allocate before something is killed
	What  string // what bounds Free, for people: "control group /a", "the machine"
	// Stalled is the total time in which tasks waited for memory; negative: unknown.
	Stalled time.Duration

	Taken   int64         // what the cache has allocated, of which
	Leaving int64         // this much was given back lately, and will be free soon
	Delay   time.Duration // how long it takes until what is given back is free
}

// Action is what to do until the next Reading.
type Action struct {
	Allow int64 // how much the cache may grow by
	// Horizon is for how long ahead of its use a sample may be promised to a process where it is: so
	// long it may take until a segment is free.
	Horizon  time.Duration
	GiveBack int64 // bytes to give back
	Why      string
	Next     time.Duration // until the next Reading
	// Begins and Ends report that an episode, in which memory is given back, begins or ends.
	Begins, Ends bool
}

// Controller decides how much memory the cache may take, and when it must give some back. It is a
// state machine without a clock:
//
//	           room is used up: not Allow        free < reserve: GiveBack
//	growing ------------------------------> full -----------------------> short
//	   ^                                     |                              |
//	   |   room for resumeDelay              |                              |
//	   +-------------------------------------+------------------------------+
//
// The reserve is what other processes take at Rate until what is given back is free. If they are
// seen to grow faster, the excess is given back as well, so that the reserve remains. The marks at
// which the cache grows, and grows again, are above the reserve, so that it does not give back what
// it has just taken.
//
// INVARIANT: after every Action, Free + Leaving + GiveBack is at least the reserve, as far as the
// cache has as much, and the cache cannot take Free below it.
type Controller struct {
	state       state
	history     []Reading // of the last window
	room        time.Time // since when there has been room to grow; zero: there is none
	resumed     time.Time // when the cache began to grow again; zero, long ago: it has not
	regrowDelay time.Duration
}

type state uint8

const (
	growing state = iota
	full
	short
)

// Reserve returns what is to be kept free below a limit if giving back takes so long.
func Reserve(limit int64, delay time.Duration) int64 {
	least := min(max(limit/leastShare, leastReserve), mostLeast)
	need := int64(Rate * (min(delay, maxDelay) + reactionTime).Seconds())
	return max(min(max(need, least), limit/mostShare), min(least, limit/2))
}

// Horizon returns how long giving back may take below a limit, so that the reserve suffices.
func Horizon(limit int64) time.Duration {
	covers := time.Duration(float64(limit/mostShare) / Rate * float64(time.Second))
	return min(max(covers-reactionTime, leastHorizon), maxDelay)
}

// Step takes a Reading, and returns what to do.
func (c *Controller) Step(r Reading) (a Action) {
	c.regrowDelay = max(c.regrowDelay, minRegrowDelay)
	growth, stall := c.trend(r)
	delay := min(r.Delay, maxDelay)
	reserve := Reserve(r.Limit, delay)
	// Growth beyond what the reserve is for.
	excess := max(int64(growth*(delay+reactionTime).Seconds())-reserve, 0)
	low := reserve + min(excess, r.Limit/mostShare)
	why := fmt.Sprintf("%s had %s left of %s", r.What, human.Format(max(r.Free, 0)),
		human.Format(r.Limit))
	if stall >= stallLimit {
		low += reserve / 2
		why += fmt.Sprintf(", and processes waited %.0f %% of the time for memory", 100*stall)
	}
	if coming := r.Free + r.Leaving; coming < low && r.Taken > r.Leaving {
		a.GiveBack, a.Why = low+reserve/4-coming, why
		if c.state != short {
			a.Begins = true
			if r.At.Sub(c.resumed) < 2*c.regrowDelay {
				c.regrowDelay = min(2*c.regrowDelay, maxRegrowDelay)
			}
		}
		c.state = short
	}
	if a.Horizon = Horizon(r.Limit); c.state == short {
		a.Horizon /= 2 // what is given back next is free sooner
	}
	a.Ends = c.grow(r, reserve, &a)
	a.Next = time.Duration(float64(r.Free-low) / (pollRate * Rate) * float64(time.Second))
	a.Next = min(max(a.Next, minPoll), maxPoll)
	return a
}

// grow sets how much the cache may grow by, and reports whether an episode ends.
func (c *Controller) grow(r Reading, reserve int64, a *Action) (ends bool) {
	spare := r.Free - int64(growFactor*float64(reserve))
	if c.state == growing {
		if spare < leastGrowth {
			c.state = full
			c.room = time.Time{}
			return false
		}
		a.Allow = spare
		return false
	}
	if r.Free < int64(resumeFactor*float64(reserve)) || spare < leastGrowth {
		c.room = time.Time{}
		return false
	}
	if c.room.IsZero() {
		c.room = r.At
	}
	if r.At.Sub(c.room) < c.regrowDelay {
		return false
	}
	ends = c.state == short
	c.state = growing
	c.resumed = r.At
	a.Allow = spare
	return ends
}

// trend adds a Reading to the history, and returns how fast other processes grew over the window,
// in bytes per second, and in which share of it tasks waited for memory.
func (c *Controller) trend(r Reading) (growth, stall float64) {
	for len(c.history) > 0 && (r.At.Sub(c.history[0].At) > trendWindow ||
		c.history[0].What != r.What || c.history[0].Limit != r.Limit || r.At.Before(c.history[0].At)) {
		c.history = c.history[1:]
	}
	c.history = append(c.history, r)
	first := c.history[0]
	passed := r.At.Sub(first.At).Seconds()
	if passed < trendWindow.Seconds()/2 {
		return 0, 0 // too short to tell
	}
	others := func(x Reading) int64 { return x.Limit - x.Free - x.Taken }
	growth = max(float64(others(r)-others(first))/passed, 0)
	if r.Stalled >= 0 && first.Stalled >= 0 {
		stall = (r.Stalled - first.Stalled).Seconds() / passed
	}
	return growth, stall
}
