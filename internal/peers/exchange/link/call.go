package link

import (
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// call is one request on one connection, from taking a tag until its answer has arrived. There is
// one call per tag, which is reused.
//
// # Who may write to dst
//
// Only the connection's reader, in inlet and settle, and only with mu held; it never waits for the
// network with mu held: it copies bytes that have arrived, or makes one non-blocking read. A caller
// that leaves early takes mu and sets dst to nil. So it waits for at most one copy, whatever the
// peer does, and after leave has returned dst is not written to: further bytes of the answer go to
// the reader's own buffer. The connection need not be closed, and the tag stays in use until the
// answer has arrived, so a late answer never meets a new call.
//
// # Who releases the tag
//
// The later one of the caller and the answer (settled, left). The end of the connection counts as
// the answer to all calls.
type call struct {
	tag  uint32
	done chan error // the result for the caller, sent once; capacity 1
	// header of the answer, whose checksum covers dst; the caller reads it after done
	head [wire.HeaderSize]byte
	// arrived is the sample's bytes in the inlet's buffer, from Link.several until settle
	arrived []byte

	mu  invariants.Mutex[call] // guards the following
	dst []byte                 // nil if the caller has left or has its result
	// the caller has left, or got its result before the answer
	left       bool
	resultSent bool // the result was sent to done
	settled    bool // the answer has arrived

	// Guarded by Link.mu; the first three do not change while the call is in flight.
	sample     int32
	length     uint32    // of the sample
	most       uint32    // how many bytes a form of it may have; 0: none is taken
	since      time.Time // zero if the call is not timed
	deadline   int64     // tick of the watch at which the call times out
	frames     uint64    // frames received before the call was made
	receiving  bool      // its payload is being read
	expired    bool      // it timed out, and its answer has not arrived
	cancelled  bool      // a CANCEL was sent, or is about to be
	prev, next int32     // neighbours by deadline; unlisted if not in flight
}

// takes reports whether a header may be that of the answer to c.
func (c *call) takes(h wire.Header) bool {
	switch {
	case h.Sample != c.sample:
		return false
	case h.Kind == wire.KindSample:
		return h.Length == c.length
	case h.Kind == wire.KindForm:
		return 0 < h.Length && h.Length <= c.most
	}
	return true
}

// answer describes the answer to c, which is in dst. The error is wire.ErrCorrupt if it is not what
// was sent.
func (c *call) answer(dst []byte) (a routing.Answer, err error) {
	h, err := wire.Parse(c.head[:], true)
	if err != nil {
		return a, fmt.Errorf("%w: %w", wire.ErrCorrupt, err)
	}
	a = routing.Answer{
		Kind: uint8(h.Code), Size: int(h.Length), Digest: digest.Of(dst[:h.Length]),
		Waited: time.Duration(h.Waited) * wire.WaitUnit,
	}
	if !wire.Sealed(c.head[:], a.Digest) {
		err = fmt.Errorf("%w: its checksum does not match", wire.ErrCorrupt)
	}
	return a, err
}

// leave takes dst back for the caller. sent reports whether the result is already in done.
func (c *call) leave() (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.resultSent {
		c.dst, c.left = nil, true
	}
	return c.resultSent
}

// settle sends the caller its result, and the bytes that have arrived. gone reports that the caller
// has left, so that the tag has to be released by the connection.
func (c *call) settle(err error) (gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	copy(c.dst, c.arrived)
	c.arrived = nil
	c.dst, c.settled = nil, true
	if !c.left {
		c.resultSent = true
		c.done <- err
	}
	return c.left
}

// expire sends the caller a timeout, as if the caller had left at this moment: a late answer is
// discarded, and releases the tag.
func (c *call) expire(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left && !c.settled {
		c.dst = nil
		c.left = true
		c.resultSent = true
		c.done <- &expiry{err}
	}
}

// expiry marks the error of a call whose tag the caller must not release.
type expiry struct{ error }

func (e *expiry) Unwrap() error { return e.error }
