// Package exchange carries samples between the daemons of one job: own frames
// over persistent TCP connections. docs/FORMATS.md describes them byte by byte.
//
// A node runs one Server, which serves what its Holder holds, and one Client per
// peer. Connections go one way: requests from the client, samples from the
// server. Before anything else is said, both prove that they know the job's
// secret (handshake.go).
//
// Invariants:
//
//   - Every Fetch ends: with the sample in dst, its length and checksum
//     checked, or with an error whose kind says what to do, within the context's
//     time and within the options' bound.
//   - dst belongs to Fetch until Fetch returns, and never longer, whatever is
//     on its way for it (package link).
//   - Nothing that a peer sends makes the other take memory: lengths, counts
//     and tags are checked against limits that stand before the first frame.
//   - Every request has exactly one answer, and its tag is taken until that
//     comes.
//
// Client and Server may be used from any number of goroutines. They own the
// goroutines that they start, and Close waits for all of them.
//
// The package knows neither datasets nor plans, does not choose who is asked,
// and never asks anybody else: a caller whose peer fails reads elsewhere.
package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/exchange/wire"
	"github.com/hdmlp/hdmlp/internal/identity"
)

// Kinds of failure, by what a caller does about them. All errors of Fetch and
// Connect are one of these.
var (
	// ErrUnavailable: the peer cannot be reached, or was too slow. Read the
	// sample elsewhere; ask this peer again later.
	ErrUnavailable = wire.ErrUnavailable
	// ErrNotHeld: the peer does not have the sample and will not read it. Read it elsewhere, and do
	// not ask this peer for this sample again.
	ErrNotHeld = wire.ErrNotHeld
	// ErrFailed: the peer is well, but could not read the sample. Read it elsewhere.
	ErrFailed = wire.ErrFailed
	// ErrCorrupt: what came was not the sample: another length or checksum, or no
	// frame at all. Read it elsewhere, and report the peer.
	ErrCorrupt = wire.ErrCorrupt
	// ErrRefused: peer and caller are not of one job; a *HandshakeError says in
	// what they differ. Nothing gets better by itself.
	ErrRefused = wire.ErrRefused
	// ErrClosed: the Client was closed.
	ErrClosed = wire.ErrClosed
)

// FetchError is why a sample did not come.
type FetchError struct {
	Peer int   // the node that was asked
	ID   int32 // the sample
	Kind error // one of the kinds above, or the context's error
	Err  error // what happened; may be nil
}

func (e *FetchError) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("sample %d from node %d: %v", e.ID, e.Peer, e.Kind)
	case errors.Is(e.Err, e.Kind): // which it says itself
		return fmt.Sprintf("sample %d from node %d: %v", e.ID, e.Peer, e.Err)
	}
	return fmt.Sprintf("sample %d from node %d: %v: %v", e.ID, e.Peer, e.Kind, e.Err)
}

// Unwrap gives the kind and what happened.
func (e *FetchError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Holder is what a node serves from. A sample's digest (package digest) is taken when its bytes
// were read from the source: the Server computes none, and so whoever receives bytes that have
// rotted since finds out. Methods are called from many goroutines.
type Holder interface {
	// Held gives the sample where it lies, if it lies in memory and can be had
	// without waiting, and its digest. The bytes must stay as they are until the Server is
	// closed. It must return at once; false sends the request to Sample.
	Held(id int32) (data []byte, digest uint32, held bool)
	// Sample calls send once with the sample's bytes, which must stay as they
	// are until send returns: when they were written, or the peer is gone, and their digest. It
	// may take as long as a read from the source does, and ends early when ctx
	// does: the peer no longer wants the sample. An error that is
	// ErrNotHeld tells the peer so; any other says that the sample could not be
	// read, and its text is sent along.
	Sample(ctx context.Context, id int32, send func(data []byte, digest uint32) error) error
}

// Identity says which node of which job somebody is.
type Identity struct {
	Job    string // at most 256 bytes
	Node   int    // in [0, Nodes)
	Nodes  int    // at most 2^20
	Secret identity.Secret
	TLS    *tls.Config // nil: plain TCP. Samples are then readable on the network
}

const (
	maxJob   = 256
	maxNodes = 1 << 20
)

func (id Identity) check() error {
	switch {
	case len(id.Secret) < identity.MinSecret:
		return fmt.Errorf("%w: the job's secret has %d bytes, %d are needed", ErrRefused,
			len(id.Secret), identity.MinSecret)
	case len(id.Job) > maxJob:
		return fmt.Errorf("%w: the job's name has %d bytes, %d are allowed", ErrRefused,
			len(id.Job), maxJob)
	case id.Nodes < 1 || id.Nodes > maxNodes || id.Node < 0 || id.Node >= id.Nodes:
		return fmt.Errorf("%w: node %d of %d: nodes count from 0, and there may be %d of them",
			ErrRefused, id.Node, id.Nodes, maxNodes)
	}
	return nil
}
