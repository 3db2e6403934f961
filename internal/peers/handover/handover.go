// Package handover passes what node 0 of a job has made, such as the index of a dataset, to the
// job's other nodes. It needs no cluster: a dataset is opened before the job begins, and maybe on a
// part of the nodes.
//
// Node 0 runs a Server, to which it gives what it makes (Offer). Another node asks for it by name
// (Receive): it gets how far node 0 is, waits, and receives the bytes in parts of at most
// cluster.MaxAnswer, each when it asks for it. Questions and answers are messages of the control
// protocol (package session), so that both sides prove that they have the secret, and all is
// sealed.
//
// INVARIANTS. Whatever node 0 does, Receive and the reader that it returns end: with the bytes, or
// with an error after which the node makes the thing itself. Parts are slices of what was offered,
// so that a node which does not read its answers takes no memory. The package does not look at what
// it passes: the receiver has to check it as untrusted input.
//
// Server is safe for concurrent use, a Content is for one goroutine. Their goroutines end with
// Close.
package handover

import (
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// Name is a name of what is passed: a hash of all that it depends on.
type Name [16]byte

// Options are what both sides are given.
type Options struct {
	// Launch is what the nodes have in common that open the same datasets, at most 256 bytes.
	Launch      string
	Node, Nodes int
	Address     string // host:port at which node 0 listens, and the others reach it
	Secret      auth.Secret
	TLS         *tls.Config     // nil: no TLS, messages are sealed nevertheless
	Network     cluster.Network // nil: the system's
	Log         *slog.Logger
}

const maxLaunch = 256

// Check returns an error for options that no nodes have.
func (o *Options) Check() error {
	switch {
	case len(o.Secret) < auth.MinSecret:
		return fmt.Errorf("the job's secret has %d bytes; at least %d are needed", len(o.Secret),
			auth.MinSecret)
	case len(o.Launch) > maxLaunch:
		return fmt.Errorf("the launch's name has %d bytes; at most %d are allowed", len(o.Launch),
			maxLaunch)
	case o.Nodes < 1 || o.Nodes > cluster.MaxNodes || o.Node < 0 || o.Node >= o.Nodes:
		return fmt.Errorf("invalid node %d of %d: nodes count from 0, and there may be at most %d",
			o.Node, o.Nodes, cluster.MaxNodes)
	}
	return nil
}

// Stages of what is passed.
const (
	absent = "absent" // node 0 has not begun to make it
	making = "making"
	ready  = "ready"
	failed = "failed" // node 0 could not make it
)

// state is the answer to the question how far node 0 is, as JSON.
type state struct {
	Stage string `json:"stage"`
	// Done of Of parts of the work are done.
	Done int `json:"done"`
	Of   int `json:"of"`
	// Size is the number of bytes, and Copy the number of these bytes among all that node 0 has
	// offered, once they are ready.
	Size int64  `json:"size"`
	Copy uint64 `json:"copy"`
	Why  string `json:"why"` // for people; if it failed
}

// mostWhy bounds the text of a reason, in bytes, and mostState an encoded state.
const (
	mostWhy   = 4 << 10
	mostState = 8*mostWhy + 1<<10
)

// decodeState decodes a state, and checks it.
func decodeState(text []byte) (s state, err error) {
	if len(text) > mostState {
		return s, fmt.Errorf("a state of %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, err
	}
	known := s.Stage == absent || s.Stage == making || s.Stage == ready || s.Stage == failed
	if !known || s.Done < 0 || s.Of < 0 || s.Done > s.Of || s.Size < 0 || len(s.Why) > mostWhy {
		return s, fmt.Errorf("the invalid state %.100q", text)
	}
	return s, nil
}

// question is a question to node 0: how far it is with what has this name or, if at is not
// negative, for the part of that copy which begins with that byte.
type question struct {
	name Name
	copy uint64
	at   int64
}

var errQuestion = errors.New("not a question about what is passed")

func (q question) String() string {
	if q.at < 0 {
		return fmt.Sprintf("state %x", q.name)
	}
	return fmt.Sprintf("part %x %d %d", q.name, q.copy, q.at)
}

// parseQuestion is the inverse of String.
func parseQuestion(text string) (q question, err error) {
	words := strings.Split(text, " ")
	q.at = -1
	if len(words) < 2 || len(words[1]) != hex.EncodedLen(len(q.name)) {
		return q, errQuestion
	}
	if _, err := hex.Decode(q.name[:], []byte(words[1])); err != nil {
		return q, errQuestion
	}
	switch {
	case words[0] == "state" && len(words) == 2:
		return q, nil
	case words[0] != "part" || len(words) != 4:
		return q, errQuestion
	}
	if q.copy, err = strconv.ParseUint(words[2], 10, 64); err != nil {
		return q, errQuestion
	}
	if q.at, err = strconv.ParseInt(words[3], 10, 64); err != nil || q.at < 0 {
		return q, errQuestion
	}
	return q, nil
}
