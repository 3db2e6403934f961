package exchange

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// add registers a connection.
func (s *Server) add(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.serving[c] = struct{}{}
}

// remove removes a connection; its requests that wait to be read are dropped.
func (s *Server) remove(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.serving, c)
	c.waiting = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	past := s.mu.past[c.node]
	past.add(c.mu.stats)
	s.mu.past[c.node] = past
}

// turn is a request that waits to be read.
type turn struct {
	tag    uint32
	source time.Duration // sourced when it came
}

// sourced returns for how long a request that always waited for its turn would have waited for the
// source: the time in which others were being read, and not sent, where of several each counts with
// its share. s.mu is held, and reading or sending are about to change.
func (c *serverConn) sourced(now time.Time) time.Duration {
	passed := now.Sub(c.changed)
	if c.reading > 0 {
		passed = passed * time.Duration(c.reading-c.sending) / time.Duration(c.reading)
	}
	c.source += passed
	c.changed = now
	return c.source
}

// wait adds a request to those that wait to be read. A connection has at most as many as its
// window.
func (s *Server) wait(c *serverConn, tag uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.waiting = append(c.waiting, turn{tag, c.sourced(time.Now())})
	s.enqueue(c)
}

// enqueue appends c to the queue, if it has requests to be read and is below its limit. s.mu is
// held.
func (s *Server) enqueue(c *serverConn) {
	if !c.queued && len(c.waiting) > 0 && c.reading < s.o.ReadingPerConn {
		c.queued = true
		s.mu.queue = append(s.mu.queue, c)
	}
}

// dispatch starts as many reads as the limits allow.
func (s *Server) dispatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.reading < s.o.Reading && len(s.mu.queue) > 0 {
		c := s.mu.queue[0]
		s.mu.queue = s.mu.queue[:copy(s.mu.queue, s.mu.queue[1:])]
		c.queued = false
		if len(c.waiting) == 0 {
			continue // its connection has ended
		}
		next, begun := c.waiting[0], time.Now()
		c.waiting = c.waiting[:copy(c.waiting, c.waiting[1:])]
		waited := c.sourced(begun) - next.source
		c.reading++
		s.mu.reading++
		s.enqueue(c)
		c.reads.Go(func() { s.read(c, next.tag, begun.Add(-waited)) })
	}
}

// read has the holder read one sample, and makes it the request's answer. since is from when on the
// request waits for the source.
func (s *Server) read(c *serverConn, tag uint32, since time.Time) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.mu.Lock()
	e := &c.mu.table[tag]
	e.cancel = cancel
	id, w := e.Sample, e.want()
	dropped := e.cancelled
	c.mu.Unlock()

	sent := false // then it does not count as one of the Server's Reading any more
	err := errors.New("cancelled before it was read")
	if !dropped {
		err = s.h.Sample(ctx, id, w, func(copy Copy, read bool) error {
			if sent {
				return errors.New("send was called twice")
			}
			sent = true
			s.sends(c)
			waited := time.Duration(0)
			if read {
				waited = time.Since(since)
			}
			return c.lend(tag, copy, waited)
		})
		if err == nil {
			err = errors.New("the holder sent nothing")
		}
	}
	if !sent {
		c.settle(tag, fmt.Errorf("sample %d: %w", id, err))
	}
	s.ended(c, sent)
}

// sends notes that a sample of c was read, and is being sent.
func (s *Server) sends(c *serverConn) {
	s.mu.Lock()
	s.mu.reading--
	c.sourced(time.Now())
	c.sending++
	s.mu.Unlock()
	s.dispatch()
}

// ended notes the end of a read of c, and whether its sample was sent.
func (s *Server) ended(c *serverConn, sent bool) {
	s.mu.Lock()
	c.sourced(time.Now())
	if sent {
		c.sending--
	} else {
		s.mu.reading--
	}
	c.reading--
	s.enqueue(c)
	s.mu.Unlock()
	s.dispatch()
}

// lend makes a copy the answer to a request, and waits until it was written or the connection has
// ended. waited is how long the request has waited for the source; 0: not at all.
func (c *serverConn) lend(tag uint32, copy Copy, waited time.Duration) error {
	sent := make(chan struct{})
	c.mu.Lock()
	e := &c.mu.table[tag]
	e.cancel = nil
	e.answer(copy)
	e.waited = waited
	e.sent = sent
	c.mu.ready = append(c.mu.ready, tag)
	c.mu.Unlock()
	c.wakeWriter()
	select {
	case <-sent:
		return nil
	case <-c.writerDone:
		return context.Cause(c.ctx)
	}
}
