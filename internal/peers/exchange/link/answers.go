package link

import (
	"errors"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// read receives answers until the connection ends, and returns the reason.
func (l *Link) read() error {
	for {
		b, err := l.in.peek(wire.HeaderSize)
		if err != nil {
			return err
		}
		h, err := wire.Parse(b, true)
		if err != nil {
			return err
		}
		if h.Kind == wire.KindPong {
			if !wire.Sealed(b, digest.Of(nil)) {
				return wire.Malformed("a PONG with a wrong checksum")
			}
			l.in.r += wire.HeaderSize
			l.mu.Lock()
			l.hear()
			l.mu.Unlock()
			continue
		}
		if h.Kind.Answers() && l.in.holds(h) {
			if err := l.several(h); err != nil {
				return err
			}
			continue
		}
		c, err := l.expect(h)
		if err != nil {
			return err
		}
		copy(c.head[:], b) // settle publishes it
		l.in.r += wire.HeaderSize
		var result error
		if h.Kind.Answers() {
			err = l.in.payload(c, int(h.Length))
		} else {
			result, err = l.failure(c, h)
		}
		if err != nil {
			return l.blame(c, err)
		}
		l.answered(c, h, result)
	}
}

// several settles the calls whose samples lie in the buffer as a whole, as those of small samples
// do, many at a time: with one lock, and one look at each call. h is the header of the first one.
func (l *Link) several(h wire.Header) (err error) {
	arrived, bytes := l.arrived[:0], int64(0)
	l.mu.Lock()
	for more := true; more && err == nil; {
		var c *call
		if c, err = l.expected(h); err == nil {
			c.arrived = l.in.take(h, &c.head)
			bytes += int64(h.Length)
			arrived = append(arrived, c)
			l.ended(c)
			h, more = l.in.next()
		}
	}
	l.mu.Unlock()
	l.o.Counts.Samples.Add(int64(len(arrived)))
	l.o.Counts.Bytes.Add(bytes)
	for _, c := range arrived {
		if c.settle(nil) {
			l.release(c)
		}
	}
	l.arrived = arrived
	return err
}

// expect is expected for a call whose payload is about to be received.
func (l *Link) expect(h wire.Header) (*call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := l.expected(h)
	if err == nil {
		c.receiving = true
	}
	return c, err
}

// expected finds the call that h answers. A wrong answer settles the call as corrupt and ends the
// connection: nothing after it can be trusted. l.mu must be held.
func (l *Link) expected(h wire.Header) (*call, error) {
	if h.Tag >= uint32(len(l.calls)) {
		return nil, wire.Malformed("an answer with tag %d; the window is %d", h.Tag, len(l.calls))
	}
	c := &l.calls[h.Tag]
	if c.next == unlisted {
		return nil, wire.Malformed("an answer with tag %d, which has no request", h.Tag)
	}
	if !c.takes(h) {
		err := wire.Malformed("frame of kind %d with sample %d and %d bytes as the answer to sample "+
			"%d of %d bytes; a form may have %d", h.Kind, h.Sample, h.Length, c.sample, c.length, c.most)
		l.unlist(c)
		if c.settle(fmt.Errorf("%w: %w", wire.ErrCorrupt, err)) {
			l.inFlight.Add(-1)
		}
		return nil, err
	}
	return c, nil
}

// ended records that an intact answer to a call has arrived. l.mu must be held.
func (l *Link) ended(c *call) {
	l.unlist(c)
	l.hear()
	if !c.since.IsZero() {
		l.mu.latency += (time.Since(c.since) - l.mu.latency) / 16
	}
}

// failure reads a FAILURE's text and returns the call's error.
func (l *Link) failure(c *call, h wire.Header) (result, err error) {
	b, err := l.in.peek(int(h.Length))
	if err != nil {
		return nil, err
	}
	if !wire.Sealed(c.head[:], digest.Of(b)) {
		return nil, wire.Malformed("a FAILURE with a wrong checksum")
	}
	text := fmt.Errorf("the peer says: %q", b)
	l.in.r += int(h.Length)
	switch h.Code {
	case wire.CodeNotHeld:
		return wire.ErrNotHeld, nil
	case wire.CodeLength:
		return fmt.Errorf("%w: its length differs: %w", wire.ErrCorrupt, text), nil
	case wire.CodeCancelled:
		return fmt.Errorf("%w: %w", wire.ErrUnavailable, text), nil
	}
	return fmt.Errorf("%w: %w", wire.ErrFailed, text), nil
}

// blame settles the call in whose payload the connection broke.
func (l *Link) blame(c *call, err error) error {
	if errors.Is(err, wire.ErrFrame) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unlist(c)
		if c.settle(fmt.Errorf("%w: %w", wire.ErrCorrupt, err)) {
			l.inFlight.Add(-1)
		}
	}
	return err
}

// answered settles a call with its answer.
func (l *Link) answered(c *call, h wire.Header, result error) {
	l.mu.Lock()
	if !h.Kind.Answers() {
		c.since = time.Time{} // only samples are timed
	}
	l.ended(c)
	l.mu.Unlock()
	if h.Kind.Answers() {
		l.o.Counts.Samples.Add(1)
		l.o.Counts.Bytes.Add(int64(h.Length))
	}
	if c.settle(result) {
		l.release(c)
	}
}
