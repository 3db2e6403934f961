package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// ErrClosed is returned by an agent's methods after Close.
var ErrClosed = errors.New("the cluster is closed")

// OptionError reports an invalid option.
type OptionError struct{ Option, Value, Why string }

func (e *OptionError) Error() string { return fmt.Sprintf("%s=%q: %s", e.Option, e.Value, e.Why) }

// AddressError reports an address that a node could not listen on or reach.
type AddressError struct {
	Node   int    // the node that reports it
	Doing  string // "listen on", "reach" or "use"
	What   string // what is expected at the address
	Where  string
	Waited time.Duration
	Why    string

	cause error // only on the node itself
}

// Unwrap returns the cause, which only the node itself has.
func (e *AddressError) Unwrap() error { return e.cause }

func (e *AddressError) Error() string {
	waited := ""
	if e.Waited > 0 {
		waited = fmt.Sprintf(" within %v", e.Waited.Round(time.Millisecond))
	}
	return fmt.Sprintf("node %d could not %s %s (%s)%s: %s", e.Node, e.Doing, e.Where, e.What,
		waited, e.Why)
}

// MissingError reports that some nodes did not join in time.
type MissingError struct {
	Nodes   int
	Missing []int
	Present []string // "node 0 (host:port)", "node 1 (host)"
	Refused []string // connections that were refused, and why
	Waited  time.Duration
}

func (e *MissingError) Error() string {
	s := fmt.Sprintf("%s of %d did not join within %v; present: %s", Numbers("node", e.Missing),
		e.Nodes, e.Waited.Round(time.Millisecond), strings.Join(e.Present, ", "))
	if len(e.Refused) > 0 {
		s += "; refused: " + strings.Join(e.Refused, "; ")
	}
	return s + ". See the logs of the missing nodes; they must be able to reach node 0's port"
}

// Present describes a node that has joined. Node 0's port is the one that the others must reach;
// its host is unknown until another node has dialed it.
func Present(n int, address string) string {
	if n != 0 {
		address = hostOf(address)
	} else if port, ok := strings.CutPrefix(address, ":"); ok {
		address = "port " + port
	}
	return fmt.Sprintf("node %d (%s)", n, address)
}

// SecretError reports that the other side does not have this job's secret.
type SecretError struct {
	Node    int    // the node that reports it
	Address string // of the other side
	Claimed int    // the node that the other side claims to be, if Node is 0
	Running bool   // the job at Address is running; it may be another job than this node's
}

func (e *SecretError) Error() string {
	switch {
	case e.Running:
		return fmt.Sprintf("node %d does not have the secret of the job running at %s, where node "+
			"0 should be: two jobs use one port, a daemon of an earlier start is still running, "+
			"or the nodes have different secrets (HDMLP_SECRET, HDMLP_SECRET_FILE)",
			e.Node, e.Address)
	case e.Node == 0:
		return fmt.Sprintf("%s, which claims to be node %d, does not have this job's secret: set "+
			"the same HDMLP_SECRET or HDMLP_SECRET_FILE on all nodes", e.Address, e.Claimed)
	}
	return fmt.Sprintf("node %d and node 0 (%s) do not have the same secret: set the same "+
		"HDMLP_SECRET or HDMLP_SECRET_FILE on all nodes", e.Node, e.Address)
}

// TLSError reports that the TLS handshake failed, or that only one side uses TLS.
type TLSError struct {
	Node    int    // the node that reports it
	Address string // of the other side
	Why     string
}

func (e *TLSError) Error() string {
	if e.Node == 0 {
		return fmt.Sprintf("%s was refused during the TLS handshake: %s", e.Address, e.Why)
	}
	return fmt.Sprintf("TLS handshake of node %d with node 0 (%s) failed: %s", e.Node, e.Address,
		e.Why)
}

// VersionError reports that the other side speaks another version of the control protocol.
type VersionError struct {
	Node         int    // the node that reports it
	Address      string // of the other side
	Mine, Theirs uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s speaks version %d of the control protocol, node %d version %d: "+
		"install the same version of hdmlp on all nodes", e.Address, e.Theirs, e.Node, e.Mine)
}

// JobError reports a node that belongs to another job.
type JobError struct {
	Node           int
	Address        string
	Theirs, Node0s string
	Running        bool // node 0's job is running; it may be the previous one, about to end
}

func (e *JobError) Error() string {
	return fmt.Sprintf("node %d (%s) belongs to job %q, node 0 to job %q: two jobs use one port, "+
		"or a daemon of an earlier start is still running; give each job its own port "+
		"(HDMLP_PORT), or wait for the earlier one to end",
		e.Node, hostOf(e.Address), e.Theirs, e.Node0s)
}

// DifferenceError reports a fact that is not the same on all nodes.
type DifferenceError struct {
	Node    int
	Address string
	Key     string
	Theirs  string // that node's value
	Node0s  string
	Remedy  string `json:",omitempty"` // what to do
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("%s is %s on node %d (%s), but %s on node 0: %s", e.Key,
		cmp.Or(e.Theirs, "not set"), e.Node, hostOf(e.Address), cmp.Or(e.Node0s, "not set"),
		cmp.Or(e.Remedy, "it must be the same on all nodes"))
}

// DuplicateError reports two nodes with one node number.
type DuplicateError struct {
	Node          int
	First, Second string // addresses
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("both %s and %s claim to be node %d: give every node its own number",
		e.First, e.Second, e.Node)
}

// RankError reports a rank that two nodes claim, or that is out of range.
type RankError struct {
	Rank, WorldSize int
	Nodes           []int
}

func (e *RankError) Error() string {
	if len(e.Nodes) == 1 {
		return fmt.Sprintf("node %d has rank %d, but world_size is %d", e.Nodes[0], e.Rank,
			e.WorldSize)
	}
	return fmt.Sprintf("%s both claim rank %d: give every rank to one node",
		Numbers("node", e.Nodes),
		e.Rank)
}

// CoverageError reports that all nodes have joined but some ranks have no node.
type CoverageError struct {
	WorldSize int
	Missing   []int
}

func (e *CoverageError) Error() string {
	return fmt.Sprintf("world_size is %d, but no node has %s", e.WorldSize,
		Numbers("rank", e.Missing))
}

// LimitError reports more bytes than are allowed.
type LimitError struct {
	What        string
	Size, Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s has %d bytes, the limit is %d", e.What, e.Size, e.Limit)
}

// GatherError reports that some nodes did not contribute to a gather because they are gone.
type GatherError struct {
	What    string
	Missing []int
	Why     string
}

func (e *GatherError) Error() string { return fmt.Sprintf("gather %q: %s", e.What, e.Reason()) }

// Reason returns the error without the name of the gather.
func (e *GatherError) Reason() string {
	missing := "some nodes"
	if len(e.Missing) > 0 {
		missing = Numbers("node", e.Missing)
	}
	return fmt.Sprintf("no data from %s: %s", missing, e.Why)
}

// LateError reports a daemon that came after the job had begun, where the job needs all nodes from
// its start.
type LateError struct {
	Node    int
	Address string
}

func (e *LateError) Error() string {
	return fmt.Sprintf("node %d (%s) came after the job had begun: if its first daemon died, the "+
		"job cannot continue; restart all ranks", e.Node, hostOf(e.Address))
}

// CanceledError reports that a node was stopped while the cluster was forming.
type CanceledError struct{ Node int }

func (e *CanceledError) Error() string {
	return fmt.Sprintf("node %d was stopped before all nodes had joined", e.Node)
}

// RemoteError is an error of another node that has no type of its own here.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return e.Text }

// hostOf returns the host of a node's address: the port from which it dialed means nothing to a
// user.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return address
	}
	return host
}

// Numbers formats node or rank numbers, as in "node 3", "nodes 1 and 2", "ranks 0, 1, 2 and 13
// more".
func Numbers(noun string, n []int) string {
	const most = 16
	if len(n) == 1 {
		return fmt.Sprintf("%s %d", noun, n[0])
	}
	words := make([]string, 0, most)
	for _, v := range n[:min(len(n), most)] {
		words = append(words, fmt.Sprint(v))
	}
	last := ""
	switch {
	case len(n) > most:
		last = fmt.Sprintf(" and %d more", len(n)-most)
	case len(n) > 1:
		last = " and " + words[len(words)-1]
		words = words[:len(words)-1]
	}
	return noun + "s " + strings.Join(words, ", ") + last
}
