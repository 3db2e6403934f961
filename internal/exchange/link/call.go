package link

import (
	"time"

	"github.com/hdmlp/hdmlp/internal/exchange/wire"
	"github.com/hdmlp/hdmlp/internal/invariants"
)

// call is one request of a client on one connection, from when it takes a tag
// until its answer came. There is one per tag, used again and again.
//
// # Who may write to dst
//
// Only the connection's reader does, and only in inlet, with mu held; inlet
// never waits for the network with mu held: it copies what has come already, or
// makes one read that does not block. A caller that leaves early takes mu and
// sets dst to nil. So it waits for one copy at most, whatever the peer does, and
// when leave has returned nobody writes to dst: what still comes for it goes to
// the reader's own buffer. The connection need not be torn, and the tag stays
// taken until the answer has come, so that a late answer never meets a new call.
//
// # Who gives the tag back
//
// Whoever comes second of the caller and the answer (settled, left). The
// connection's end counts as the answer to everything.
type call struct {
	tag  uint32
	done chan error // what the caller is told, once; capacity 1
	// a sample's header, whose sum covers dst; the caller's to read once it is told
	head [wire.HeaderSize]byte

	mu  invariants.Mutex[call] // guards the following
	dst []byte                 // nil: the caller has left, or was told
	// there is no caller any more, or it was told before the answer came
	left    bool
	told    bool // there is a message in done
	settled bool // the answer came

	// Guarded by link.mu; length does not change while the call is under way.
	sample     int32
	length     uint32
	since      time.Time // zero where the time it takes is not measured
	deadline   int64     // the tick of the watch at which its time is up
	frames     uint64    // that had come when it was made
	receiving  bool      // its payload is being read
	expired    bool      // its time was up once; its answer is still to come
	cancelled  bool      // the server is told, or about to be
	prev, next int32     // neighbours in order of deadline; unlisted: not under way
}

// leave takes dst away. told: there is a message in done all the same.
func (c *call) leave() (told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told {
		c.dst, c.left = nil, true
	}
	return c.told
}

// settle gives the caller its answer. gone: there is no caller, and the tag is
// the connection's to give back.
func (c *call) settle(err error) (gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dst, c.settled = nil, true
	if !c.left {
		c.told = true
		c.done <- err
	}
	return c.left
}

// expire tells the caller that its time is up, as if it had left at this moment:
// the answer, should it come, has nobody, and gives the tag back.
func (c *call) expire(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left && !c.settled {
		c.dst, c.left, c.told = nil, true, true
		c.done <- &expiry{err}
	}
}

// expiry marks the error of a call whose tag is not its caller's to give back.
type expiry struct{ error }

func (e *expiry) Unwrap() error { return e.error }
