// Package exchange transfers samples between the daemons of one job, in frames of its own over
// persistent TCP connections. docs/FORMATS.md describes them byte by byte.
//
// A node runs one Server, which serves what its Holder holds, and one Client per peer. A connection
// goes one way: requests from the client, samples from the server. Before anything else is
// exchanged, both sides prove that they have the job's secret (handshake.go).
//
// Invariants:
//
//   - Every Fetch ends within the context's time and within the options' bound: with the sample, or
//     a form of it, in dst, its length and checksum verified, or with an error whose kind
//     determines what to do.
//   - dst belongs to Fetch until Fetch returns, and no longer, even if an answer is still being
//     received (package link).
//   - No input from a peer makes the other side allocate memory: lengths, counts and tags are
//     checked against limits that are fixed before the first frame.
//   - Every request has exactly one answer, and its tag is in use until the answer arrives.
//
// Client and Server are safe for concurrent use. They own the goroutines that they start, and Close
// waits for all of them.
//
// The package has no notion of datasets or plans, does not choose the peer, and never tries another
// one: a caller whose peer fails reads the sample elsewhere. A form is the bytes of a sample in
// another encoding: to the package a small number, its kind, which it passes on, with bytes and a
// digest.
package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// Kinds of failure, by what a caller should do. Every error of Fetch and Connect is one of these,
// or the context's.
var (
	// ErrUnavailable: the peer cannot be reached, or was too slow. Read the sample elsewhere; ask
	// this peer again later.
	ErrUnavailable = wire.ErrUnavailable
	// ErrNotHeld: the peer does not have the sample and will not read it. Read it elsewhere, and do
	// not ask this peer for this sample again.
	ErrNotHeld = wire.ErrNotHeld
	// ErrFailed: the peer works, but could not read the sample. Read it elsewhere.
	ErrFailed = wire.ErrFailed
	// ErrCorrupt: the answer was not the sample: it has another length or checksum, or is not a
	// valid frame. Read the sample elsewhere, and report the peer.
	ErrCorrupt = wire.ErrCorrupt
	// ErrRefused: the two sides do not belong to one job; a *HandshakeError names the difference.
	// Retrying does not help.
	ErrRefused = wire.ErrRefused
	// ErrClosed: the Client was closed.
	ErrClosed = wire.ErrClosed
)

// Want is what a request takes.
type Want = routing.Want

// Answer describes what was fetched; its Node is not set.
type Answer = routing.Answer

// FetchError reports why a sample could not be fetched.
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
	case errors.Is(e.Err, e.Kind): // Err's text includes the kind's
		return fmt.Sprintf("sample %d from node %d: %v", e.ID, e.Peer, e.Err)
	}
	return fmt.Sprintf("sample %d from node %d: %v: %v", e.ID, e.Peer, e.Kind, e.Err)
}

// Unwrap returns the kind and the cause.
func (e *FetchError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Copy is a sample, or a form of it, as a Holder has it. The digest (package digest) of a sample is
// taken when its bytes are read from the source, and that of a form when it is made. The Server
// computes none, so a receiver detects bytes that were damaged since.
type Copy struct {
	Data   []byte
	Kind   uint8 // the form that Data is in; 0: as read
	Digest uint32
	Hold   Hold // keeps Data as it is; nil: it stays so as long as its user says
}

// Holder provides the samples that a Server serves, and forms of these where the request takes
// them. Methods are called concurrently.
type Holder interface {
	// Held returns a copy of the sample that lies in memory and is available without waiting. It must
	// return at once; if held is false the request goes to Sample. The bytes must not change until
	// Hold, unless that is nil, is released: when they were sent, or will not be.
	Held(id int32, w Want) (c Copy, held bool)
	// Sample calls send once with a copy of the sample, and whether it had to wait for a read from
	// the source. The bytes must not change until send returns, which it does when they were written
	// or the peer is gone. Sample may take as long as a read from the source, and must return early
	// if ctx is canceled: the peer no longer needs the sample. If the error is ErrNotHeld, the peer
	// is sent that code; any other means that the sample could not be read, and its text is sent
	// along.
	Sample(ctx context.Context, id int32, w Want, send func(c Copy, read bool) error) error
}

// Hold keeps the bytes of a sample as they are until it is released. Package store has the
// same type.
type Hold = interface{ Release() }

// Identity identifies a node of a job.
type Identity struct {
	Job    string // at most 256 bytes
	Node   int    // in [0, Nodes)
	Nodes  int    // at most 2^20
	Secret auth.Secret
	TLS    *tls.Config // nil: plain TCP, on which samples can be read in transit
}

const (
	maxJob   = 256
	maxNodes = 1 << 20
)

func (id Identity) check() error {
	switch {
	case len(id.Secret) < auth.MinSecret:
		return fmt.Errorf("%w: the job's secret has %d bytes; at least %d are needed", ErrRefused,
			len(id.Secret), auth.MinSecret)
	case len(id.Job) > maxJob:
		return fmt.Errorf("%w: the job's name has %d bytes; at most %d are allowed", ErrRefused,
			len(id.Job), maxJob)
	case id.Nodes < 1 || id.Nodes > maxNodes || id.Node < 0 || id.Node >= id.Nodes:
		return fmt.Errorf("%w: invalid node %d of %d: nodes count from 0, and there may "+
			"be at most %d",
			ErrRefused, id.Node, id.Nodes, maxNodes)
	}
	return nil
}
