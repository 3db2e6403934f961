package hub

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// examine compares a node's registration with that of node 0 and of the nodes that have joined. It
// returns the first difference as an error.
func (h *Hub) examine(p *participant) error {
	theirs, own := p.reg, h.own
	n := p.node()
	if theirs.GetJob() != own.GetJob() {
		return &cluster.JobError{
			Node: n, Address: p.seen, Theirs: theirs.GetJob(), Node0s: own.GetJob(),
		}
	}
	if h.o.Whole && theirs.GetInstance() != h.members[n].GetInstance() &&
		(h.phase == running || theirs.GetFormed()) {
		return &cluster.LateError{Node: n, Address: p.seen}
	}
	if theirs.GetFailure() != nil {
		return session.DecodeFailure(theirs.GetFailure())
	}
	if len(theirs.GetPayload()) > cluster.MaxPayload {
		return &cluster.LimitError{
			What: fmt.Sprintf("payload of node %d (%s)", n, p.seen),
			Size: int64(len(theirs.GetPayload())), Limit: cluster.MaxPayload,
		}
	}
	differs := func(key, a, b string) error {
		remedy := ""
		if h.o.Remedy != nil {
			remedy = h.o.Remedy(key)
		}
		return &cluster.DifferenceError{
			Node:    n,
			Address: p.seen,
			Key:     key,
			Theirs:  a,
			Node0s:  b,
			Remedy:  remedy,
		}
	}
	if a, b := theirs.GetNodes(), own.GetNodes(); a != b {
		return differs("nodes", fmt.Sprint(a), fmt.Sprint(b))
	}
	if n >= h.nodes() {
		return &cluster.OptionError{
			Option: "node", Value: fmt.Sprint(n),
			Why: fmt.Sprintf("must be in [0, nodes), where nodes is %d; sent by %s", h.nodes(), p.seen),
		}
	}
	if a, b := theirs.GetWorldSize(), own.GetWorldSize(); a != b {
		return differs("world_size", fmt.Sprint(a), fmt.Sprint(b))
	}
	if key, a, b, ok := difference(theirs.GetFacts(), own.GetFacts()); !ok {
		return differs(key, a, b)
	}
	for _, r := range theirs.GetRanks() {
		if r >= own.GetWorldSize() {
			return &cluster.RankError{
				Rank:      int(r),
				WorldSize: int(own.GetWorldSize()),
				Nodes:     []int{n},
			}
		}
		for other := range h.nodes() { // in order, so that the reported pair is deterministic
			if q := h.participants[other]; other != n && q != nil &&
				slices.Contains(q.reg.GetRanks(), r) {
				return &cluster.RankError{
					Rank: int(r), WorldSize: int(own.GetWorldSize()),
					Nodes: []int{min(n, other), max(n, other)},
				}
			}
		}
	}
	if was := h.members[n]; h.phase == running && was != nil &&
		!slices.Equal(was.GetRanks(), theirs.GetRanks()) {
		return differs("ranks", fmt.Sprint(theirs.GetRanks()),
			fmt.Sprint(was.GetRanks())+" when the job began, and so")
	}
	for _, address := range []string{theirs.GetExchange(), theirs.GetGossip()} {
		if _, _, err := cluster.SplitAddress(address); err != nil {
			return &cluster.OptionError{
				Option: "address", Value: address,
				Why: fmt.Sprintf("%v; sent by node %d (%s)", err, n, p.seen),
			}
		}
	}
	return nil
}

// difference returns the first fact that is not the same in both.
func difference(theirs, own []*pb.Fact) (key, a, b string, ok bool) {
	values := make(map[string]string, len(own))
	for _, f := range own {
		values[f.GetKey()] = f.GetValue()
	}
	const none = "missing"
	for _, f := range theirs {
		v, there := values[f.GetKey()]
		if !there {
			return f.GetKey(), f.GetValue(), none, false
		}
		if v != f.GetValue() {
			return f.GetKey(), f.GetValue(), v, false
		}
		delete(values, f.GetKey())
	}
	for _, f := range own {
		if v, left := values[f.GetKey()]; left {
			return f.GetKey(), none, v, false
		}
	}
	return "", "", "", true
}

// covered returns an error unless the ranks of all nodes cover the world size and their payloads
// are within MaxTotal.
func (h *Hub) covered() error {
	has := make(map[uint32]bool)
	total := int64(0)
	for _, p := range h.participants {
		total += int64(len(p.reg.GetPayload()))
		for _, r := range p.reg.GetRanks() {
			has[r] = true
		}
	}
	if total > cluster.MaxTotal {
		return &cluster.LimitError{
			What:  "payloads of all nodes together",
			Size:  total,
			Limit: cluster.MaxTotal,
		}
	}
	if len(has) == int(h.own.GetWorldSize()) {
		return nil
	}
	e := &cluster.CoverageError{WorldSize: int(h.own.GetWorldSize())}
	for r := range h.own.GetWorldSize() {
		if !has[r] && len(e.Missing) < 1000 {
			e.Missing = append(e.Missing, int(r))
		}
	}
	return e
}
