package cluster

import (
	"fmt"
	"slices"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// examine compares a node's registration with that of node 0 and of the nodes that have joined. It
// returns the first difference as an error.
func (h *hub) examine(p *participant) error {
	theirs, own := p.reg, h.own
	n := p.node()
	if theirs.GetJob() != own.GetJob() {
		return &JobError{Node: n, Address: p.seen, Theirs: theirs.GetJob(), Node0s: own.GetJob()}
	}
	if h.whole && theirs.GetInstance() != h.members[n].GetInstance() &&
		(h.phase == running || theirs.GetFormed()) {
		return &LateError{n, p.seen}
	}
	if theirs.GetFailure() != nil {
		return decodeFailure(theirs.GetFailure())
	}
	if len(theirs.GetPayload()) > MaxPayload {
		return &LimitError{
			fmt.Sprintf("payload of node %d (%s)", n, p.seen),
			int64(len(theirs.GetPayload())), MaxPayload,
		}
	}
	differs := func(key, a, b string) error {
		remedy := ""
		if h.remedy != nil {
			remedy = h.remedy(key)
		}
		return &DifferenceError{n, p.seen, key, a, b, remedy}
	}
	if a, b := theirs.GetNodes(), own.GetNodes(); a != b {
		return differs("nodes", fmt.Sprint(a), fmt.Sprint(b))
	}
	if n >= h.nodes() {
		return &OptionError{
			"node", fmt.Sprint(n),
			fmt.Sprintf("must be in [0, nodes), where nodes is %d; sent by %s", h.nodes(), p.seen),
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
			return &RankError{int(r), int(own.GetWorldSize()), []int{n}}
		}
		for other := range h.nodes() { // in order, so that the reported pair is deterministic
			if q := h.participants[other]; other != n && q != nil &&
				slices.Contains(q.reg.GetRanks(), r) {
				return &RankError{
					int(r), int(own.GetWorldSize()),
					[]int{min(n, other), max(n, other)},
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
		if _, _, err := splitAddress(address); err != nil {
			return &OptionError{
				"address", address,
				fmt.Sprintf("%v; sent by node %d (%s)", err, n, p.seen),
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
func (h *hub) covered() error {
	has := make(map[uint32]bool)
	total := int64(0)
	for _, p := range h.participants {
		total += int64(len(p.reg.GetPayload()))
		for _, r := range p.reg.GetRanks() {
			has[r] = true
		}
	}
	if total > MaxTotal {
		return &LimitError{"payloads of all nodes together", total, MaxTotal}
	}
	if len(has) == int(h.own.GetWorldSize()) {
		return nil
	}
	e := &CoverageError{WorldSize: int(h.own.GetWorldSize())}
	for r := range h.own.GetWorldSize() {
		if !has[r] && len(e.Missing) < 1000 {
			e.Missing = append(e.Missing, int(r))
		}
	}
	return e
}
