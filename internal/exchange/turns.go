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

// wait adds a request to those that wait to be read. A connection has at most as many as its
// window.
func (s *Server) wait(c *serverConn, tag uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.waiting = append(c.waiting, tag)
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
		tag := c.waiting[0]
		c.waiting = c.waiting[:copy(c.waiting, c.waiting[1:])]
		c.reading++
		s.mu.reading++
		s.enqueue(c)
		c.reads.Go(func() { s.read(c, tag) })
	}
}

// read has the holder read one sample, and makes it the request's answer.
func (s *Server) read(c *serverConn, tag uint32) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.mu.Lock()
	e := &c.mu.table[tag]
	e.cancel = cancel
	id, dropped := e.Sample, e.cancelled
	c.mu.Unlock()

	reads := true // counts as one of the Server's Reading
	sent := false
	err := errors.New("cancelled before it was read")
	if !dropped {
		err = s.h.Sample(ctx, id, func(data []byte, digest uint32, read bool) error {
			if sent {
				return errors.New("send was called twice")
			}
			sent, reads = true, false
			s.endRead(nil)
			return c.lend(tag, data, digest, read)
		})
		if err == nil {
			err = errors.New("the holder sent nothing")
		}
	}
	if !sent {
		c.settle(tag, fmt.Errorf("sample %d: %w", id, err))
	}
	if reads {
		s.endRead(nil)
	}
	s.endRead(c)
}

// endRead ends a read: one of the Server's if c is nil, else one of c's.
func (s *Server) endRead(c *serverConn) {
	s.mu.Lock()
	if c == nil {
		s.mu.reading--
	} else {
		c.reading--
		s.enqueue(c)
	}
	s.mu.Unlock()
	s.dispatch()
}

// lend makes data the answer to a request, and waits until it was written or the connection has
// ended. read says whether it was read from the source: then the request has waited for that,
// except while other answers were being sent, after which its own one would have come anyway.
func (c *serverConn) lend(tag uint32, data []byte, digest uint32, read bool) error {
	sent := make(chan struct{})
	c.mu.Lock()
	e := &c.mu.table[tag]
	e.cancel = nil
	e.answer(data, digest)
	if now := time.Now(); read {
		e.waited = max(now.Sub(e.since)-(c.sent(now)-e.busy), 0)
	}
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
