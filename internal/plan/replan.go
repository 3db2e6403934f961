package plan

import (
	"encoding/binary"
	"hash/fnv"
)

// Report is a node's contribution to a round in which the nodes of a job decide whether to follow
// another plan.
type Report struct {
	// Node has what is known on the node of its tiers now, its capacities, and what it keeps besides
	// the plan; without what it holds by the plan.
	Node  Node
	Epoch int // the last epoch that a rank of the node has begun
	// Plan is the Fingerprint of the plan in force; 0: it is still being made.
	Plan uint64
	// Since is the epoch from which on that plan has been followed.
	Since int
	// Took is how long an epoch has taken on the node, in seconds, without pauses between epochs: the
	// median of those since the last round that were read by that plan from filled caches. 0: there
	// was none.
	Took float64
	// Transformers is how many threads of the node transform samples; 0: samples are delivered
	// unchanged.
	Transformers int
}

// Vote is a node's decision at the end of such a round.
type Vote struct {
	// Plan is the Fingerprint of the plan that the node would adopt; 0: it keeps the one in force.
	Plan uint64 `json:"plan"`
	Why  string `json:"why,omitempty"` // why it cannot adopt any; empty: it could
}

// Replanning is the outcome of such a round. Times are predictions of the performance model, with
// what was known on all nodes together, unless they are documented as measured.
type Replanning struct {
	Epoch int `json:"epoch"` // the last that any node had begun
	// Seconds is how long an epoch takes with the plan in force, and New how long with the new one;
	// 0: not predicted.
	Seconds float64 `json:"epoch_seconds"`
	New     float64 `json:"new_epoch_seconds"`
	// Took is how long an epoch took with the plan in force, in seconds, on the slowest node, and
	// Before how long one took with the plan before it; 0: not measured.
	Took   float64 `json:"measured_seconds,omitempty"`
	Before float64 `json:"measured_before_seconds,omitempty"`
	// Bytes must be moved for the new plan, on all nodes, which takes Move seconds at least.
	Bytes int64   `json:"move_bytes"`
	Move  float64 `json:"move_seconds"`
	// Spared is how many bytes all nodes read less from the source in an epoch with the new plan, if
	// it is adopted for that, because epochs take as long with both; otherwise 0.
	Spared int64 `json:"spared_source_bytes,omitempty"`
	// Adopted is set if the nodes follow the new plan, from the epoch From on.
	Adopted bool   `json:"adopted"`
	From    int    `json:"from_epoch"`
	Why     string `json:"why,omitempty"` // why it is not adopted; or why an earlier one is
}

// Takes returns how long an epoch takes with the plan in force: as predicted, or as measured if
// that is less, because the model then sees limits that are not there.
func (r *Replanning) Takes() float64 {
	if r.Took > 0 {
		return min(r.Took, r.Seconds)
	}
	return r.Seconds
}

// Fingerprint returns a hash of the plan's contents, above 0: nodes with equal fingerprints follow
// the same plan.
func (p *Plan) Fingerprint() uint64 {
	h := fnv.New64a()
	var b [4]byte
	add := func(ids []int32) {
		binary.LittleEndian.PutUint32(b[:], uint32(len(ids)))
		_, _ = h.Write(b[:]) // never fails
		for _, id := range ids {
			binary.LittleEndian.PutUint32(b[:], uint32(id))
			_, _ = h.Write(b[:])
		}
	}
	add(p.Owner)
	for _, n := range p.Nodes {
		for _, class := range n.Classes {
			add(class)
		}
	}
	var ways byte
	for i, is := range []bool{p.Remote, p.ReadOnce} {
		if is {
			ways |= 1 << i
		}
	}
	_, _ = h.Write([]byte{ways})
	return max(h.Sum64(), 1)
}
