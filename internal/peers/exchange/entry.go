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
	data      []byte             // the answer: a sample with its digest,
	sum       uint32
	code      wire.Code // or a failure with a text
	text      string
	sent      chan struct{} // closed when data was written; may be nil
	hold      Hold          // of data; may be nil
}

// unsent releases data that will not be sent. Lenders that wait for sent learn of the connection's
// end instead.
func (e *entry) unsent() {
	if e.hold != nil {
		e.hold.Release()
		e.hold = nil
	}
}

// done notifies the lender of data that it is not used any more.
func (e *entry) done() {
	if e.sent != nil {
		close(e.sent)
	}
	if e.hold != nil {
		e.hold.Release()
	}
	e.sent, e.hold = nil, nil
}

// answer makes data the answer, or a failure if its length is not what the client expects.
func (e *entry) answer(data []byte, sum uint32) {
	if len(data) != int(e.Length) {
		e.code, e.text = wire.CodeLength, fmt.Sprintf("%d bytes, not %d", len(data), e.Length)
		return
	}
	e.data, e.sum = data, sum
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
