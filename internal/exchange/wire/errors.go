package wire

import "errors"

// Kinds of failure: what a FAILURE says, and what becomes of a connection. Package exchange says
// what a caller does about each.
var (
	ErrUnavailable = errors.New("peer unavailable")
	ErrNotHeld     = errors.New("sample not held by peer")
	ErrFailed      = errors.New("peer could not read sample")
	ErrCorrupt     = errors.New("peer sent something else")
	ErrRefused     = errors.New("peer refused")
	ErrClosed      = errors.New("exchange closed")
)
