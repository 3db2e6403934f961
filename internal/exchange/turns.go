package exchange

import (
	"context"
	"errors"
	"fmt"
)

// join takes a connection in.
func (s *Server) join(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.peers[p] = struct{}{}
}

// part lets a connection go: what it still waits for is not read.
func (s *Server) part(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.peers, p)
	p.waiting = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	past := s.mu.past[p.node]
	past.add(p.mu.stats)
	s.mu.past[p.node] = past
}

// wait puts a request among those to be read. There are as many of a connection as its window at most.
func (s *Server) wait(p *peer, tag uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.waiting = append(p.waiting, tag)
	s.line(p)
}

// line puts p at the end of the queue, if it has something to be read and may.
func (s *Server) line(p *peer) {
	if !p.queued && len(p.waiting) > 0 && p.reading < s.o.ReadingPerConn {
		p.queued = true
		s.mu.queue = append(s.mu.queue, p)
	}
}

// dispatch starts as many reads as may go on.
func (s *Server) dispatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.reading < s.o.Reading && len(s.mu.queue) > 0 {
		p := s.mu.queue[0]
		s.mu.queue = s.mu.queue[:copy(s.mu.queue, s.mu.queue[1:])]
		p.queued = false
		if len(p.waiting) == 0 {
			continue // it has parted
		}
		tag := p.waiting[0]
		p.waiting = p.waiting[:copy(p.waiting, p.waiting[1:])]
		p.reading++
		s.mu.reading++
		s.line(p)
		p.reads.Go(func() { s.read(p, tag) })
	}
}

// read has one sample read, and answers with it.
func (s *Server) read(p *peer, tag uint32) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	p.mu.Lock()
	e := &p.mu.table[tag]
	e.cancel = cancel
	id, dropped := e.sample, e.cancelled
	p.mu.Unlock()

	reads := true // holds one of the Server's Reading
	sent := false
	err := errors.New("cancelled")
	if !dropped {
		err = s.h.Sample(ctx, id, func(data []byte, digest uint32) error {
			if sent {
				return errors.New("send was called twice")
			}
			sent, reads = true, false
			s.rest(nil)
			return p.lend(tag, data, digest)
		})
		if err == nil {
			err = errors.New("the holder sent nothing")
		}
	}
	if !sent {
		p.settle(tag, fmt.Errorf("sample %d: %w", id, err))
	}
	if reads {
		s.rest(nil)
	}
	s.rest(p)
}

// rest gives back a place among those that read (nil), or among a connection's.
func (s *Server) rest(p *peer) {
	s.mu.Lock()
	if p == nil {
		s.mu.reading--
	} else {
		p.reading--
		s.line(p)
	}
	s.mu.Unlock()
	s.dispatch()
}

// lend makes data the answer to a request, and waits until it was written, or never will be.
func (p *peer) lend(tag uint32, data []byte, digest uint32) error {
	sent := make(chan struct{})
	p.mu.Lock()
	e := &p.mu.table[tag]
	e.cancel = nil
	e.answer(data, digest)
	e.sent = sent
	p.mu.ready = append(p.mu.ready, tag)
	p.mu.Unlock()
	p.kick()
	select {
	case <-sent:
		return nil
	case <-p.quiet:
		return context.Cause(p.ctx)
	}
}
