package link

import (
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// watch ends calls that take too long, and sends a PING if the connection is silent.
//
// A call that times out ends alone if intact frames arrived since it was made: the peer works, and
// only this sample is slow. Otherwise, or if it is its own payload that stalls, the connection is
// at fault. The call's tag stays in use; its CANCEL must be answered within another Timeout, or the
// peer violates the protocol.
//
// Time is counted in ticks: reading a clock for every call would cost more than the rest of the
// watch.
func (l *Link) watch() {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.dead:
			return
		}
		if err := l.inspect(); err != nil {
			l.Fail(err)
			return
		}
	}
}

// ticks returns how many ticks take at least d; the first tick may be short.
func (l *Link) ticks(d time.Duration) int64 { return int64((d+l.tick-1)/l.tick) + 1 }

// hear records that an intact frame arrived.
func (l *Link) hear() {
	l.mu.frames++
	l.mu.heard, l.mu.pinged = l.mu.now, false
}

func (l *Link) inspect() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wakeWriter()
	l.mu.now++
	for l.mu.first != none {
		c := &l.calls[l.mu.first]
		if l.mu.now < c.deadline {
			break
		}
		slow := fmt.Errorf("%w: no answer within %v", wire.ErrUnavailable, l.o.Timeout)
		switch {
		case c.receiving:
			slow = fmt.Errorf("%w: sample %d was incomplete after %v",
				wire.ErrUnavailable, c.sample, l.o.Timeout)
		case l.mu.frames == c.frames:
			slow = fmt.Errorf("%w: no frame arrived within %v", wire.ErrUnavailable, l.o.Timeout)
		case c.expired:
			slow = fmt.Errorf("%w: a cancelled request was not answered", wire.ErrUnavailable)
		default:
			l.unlist(c)
			c.expired, c.deadline = true, l.mu.now+l.ticks(l.o.Timeout)
			l.list(c)
			c.expire(slow)
			l.cancelLocked(c)
			continue
		}
		// Calls that timed out get this error; the others, that the connection was lost.
		for at := l.mu.first; at != none; at = l.calls[at].next {
			if late := &l.calls[at]; l.mu.now >= late.deadline {
				late.expire(slow)
			}
		}
		return slow
	}
	switch quiet := l.mu.now - l.mu.heard; {
	case l.mu.pinged && quiet >= l.ticks(l.o.KeepAlive)+l.ticks(l.o.Timeout):
		return fmt.Errorf("%w: no frame arrived for %v", wire.ErrUnavailable,
			time.Duration(quiet)*l.tick)
	case !l.mu.pinged && quiet >= l.ticks(l.o.KeepAlive):
		l.mu.ping, l.mu.pinged = true, true
	}
	return nil
}

// list appends c to the calls in flight; deadlines never decrease.
func (l *Link) list(c *call) {
	c.prev, c.next = l.mu.last, none
	if l.mu.last == none {
		l.mu.first = int32(c.tag)
	} else {
		l.calls[l.mu.last].next = int32(c.tag)
	}
	l.mu.last = int32(c.tag)
}

func (l *Link) unlist(c *call) {
	if c.prev == none {
		l.mu.first = c.next
	} else {
		l.calls[c.prev].next = c.next
	}
	if c.next == none {
		l.mu.last = c.prev
	} else {
		l.calls[c.next].prev = c.prev
	}
	c.prev, c.next = unlisted, unlisted
}
