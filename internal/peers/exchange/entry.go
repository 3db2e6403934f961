package exchange

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// entry is one request.
type entry struct {
	wire.Request
	taken     bool
	cancelled bool
	since     time.Time
	waited    time.Duration      // for a read from the source; 0 if there was none
	cancel    context.CancelFunc // while the sample is being read; else nil
	copy      Copy               // the answer: a copy of the sample,
	code      wire.Code          // or a failure with a text
	text      string
	sent      chan struct{} // closed when the copy was written; may be nil
}

// unsent releases a copy that will not be sent. Lenders that wait for sent learn of the
// connection's end instead.
func (e *entry) unsent() {
	if e.copy.Hold != nil {
		e.copy.Hold.Release()
		e.copy.Hold = nil
	}
}

// done notifies the lender of the copy that it is not used any more.
func (e *entry) done() {
	if e.sent != nil {
		close(e.sent)
		e.sent = nil
	}
	e.unsent()
}

// want returns what the request takes.
func (e *entry) want() Want {
	return Want{Size: int(e.Length), Most: int(e.Most), Unpack: e.Unpack}
}

// answer makes a copy the answer, or a failure if its length is not what the client expects.
func (e *entry) answer(c Copy) {
	e.copy = c
	switch n := len(c.Data); {
	case c.Kind == 0 && n != int(e.Length):
		e.code, e.text = wire.CodeLength, fmt.Sprintf("%d bytes, not %d", n, e.Length)
	case c.Kind != 0 && n > int(e.Most):
		e.code, e.text = wire.CodeLength, fmt.Sprintf("a form of %d bytes, not %d", n, e.Most)
	default:
		return
	}
	e.copy.Data = nil
}

// fail makes err the answer.
func (e *entry) fail(err error) {
	e.text = err.Error()
	switch {
	case errors.Is(err, ErrNotHeld):
		e.code, e.text = wire.CodeNotHeld, ""
	case e.cancelled:
		e.code = wire.CodeCancelled
	default:
		e.code = wire.CodeFailed
	}
}
