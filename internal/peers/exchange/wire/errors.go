package wire

import "errors"

// Kinds of failure: the code of a FAILURE frame, or the fate of the connection. Package exchange
// documents what a caller should do about each.
var (
	ErrUnavailable = errors.New("peer unavailable")
	ErrNotHeld     = errors.New("sample not held by peer")
	ErrFailed      = errors.New("peer could not read sample")
	ErrCorrupt     = errors.New("corrupt answer from peer")
	ErrRefused     = errors.New("handshake refused")
	ErrClosed      = errors.New("exchange closed")
)
