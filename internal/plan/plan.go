// Package plan decides where samples are cached: a policy turns the access stream, the sizes
// of the samples, the capacities and the performance model into a plan, which states for every node
// and storage class which samples it holds and in which order it is filled (thesis 3.2.2).
//
// INVARIANT: a class of a plan never takes more bytes than its capacity, and a node holds a sample
// in at most one class. A plan is a pure function of the Input, so all nodes that compute it agree.
// Samples that a class already holds stay, because classes only grow, and count against its
// capacity.
//
// This package defines the input and output of policies. The policies, each a file and a line in a
// table, are in package policies; builder has the algorithms for filling caches that they share;
// simulated has what a policy may define for the simulator; policytest is the conformance suite.
//
// Pure: no I/O, no goroutine that outlives a call. Policies hold no state and are safe for
// concurrent use. Nothing here executes a plan: stage and simulate do. Memory is proportional to
// the samples plus the copies planned, never to nodes times samples.
package plan

import (
	"context"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Input is everything that a policy may use.
type Input struct {
	Stream *access.Stream // which rank reads which samples, and when
	// the horizon if the stream has no end; otherwise ignored. It ends before the first epoch that
	// is not given
	Epochs int
	From   int                // the first epoch to plan for; default 0
	Nodes  []Node             // every rank of the stream on exactly one of them
	Size   func(id int) int64 // bytes of a sample, above 0; must be cheap
	// nil: own classes are faster than peers, and peers than the source
	Env *model.Environment
	// Context cancels planning, which checks it once per epoch, and its error is then Plan's. nil:
	// planning is not cancelled.
	Context context.Context
}

// Given reports whether the stream's epochs are given: they may have any samples, and future epochs
// are unknown.
func (in *Input) Given() bool { return in.Stream.Spec().Shuffle == access.Given }

// Varies reports whether epochs differ in the samples that they have: they are given, or take from
// several datasets.
func (in *Input) Varies() bool { return in.Stream.Varies() }

// Ended returns the Context's error, or nil if planning should continue.
func (in *Input) Ended() error {
	if in.Context == nil {
		return nil
	}
	return in.Context.Err()
}

// Node is a policy's view of a node.
type Node struct {
	Ranks    []int     // the ranks that run on it
	Capacity []int64   // bytes of the storage classes 1..J, fastest first
	Held     [][]int32 // what each of these classes already holds; may be shorter than Capacity
	// Kept is what the node holds besides, in classes that keep a copy of everything that is read,
	// whatever the plan. It does not count against their capacity here. Moving it to another class
	// or node takes no read from the source.
	Kept []int32
	// Known is what is known on the node of its tiers; nil: nothing. Nodes agree on Env by it
	// (Input.Agree). Policies do not read it.
	Known *model.Node
}

// Plan states which node caches which samples. It must not be modified.
type Plan struct {
	Policy   string     // the name of the policy that made it
	Prefetch bool       // the staging buffer is filled ahead of time; false only for naive
	Remote   bool       // nodes may read from each other's classes
	Owner    []int32    // per sample its owner, or -1; nil: no sample has one
	Nodes    []NodePlan // as Input.Nodes

	// ReadOnce means that only a sample's owner reads it from the source: a node that needs a
	// sample requests it from the owner, which, if it does not hold it yet, reads, keeps and
	// returns it.
	ReadOnce bool
	// OnRead means that classes keep what the node reads for its own training, and that nothing is
	// read ahead to fill them.
	OnRead bool
	// Preload means that all nodes have filled their classes before training begins.
	Preload bool
	// CacheFirst means that what a class has is not read from the source, even if that were faster.
	CacheFirst bool
	// Demand means that samples without an owner are read when training requests them, not ahead of
	// time.
	Demand bool
	// Window limits what a rank reads ahead; nil: its staging buffer does.
	Window *Window
}

// Window is how far torch's DataLoader reads ahead: each of its workers reads a batch at a time,
// one sample after the other, and Prefetch batches of each are being read, or wait to be taken.
type Window struct {
	Workers  int // at least 1
	Prefetch int // batches of each worker; at least 1
}

// Batches returns how many batches are read or wait, at most.
func (w Window) Batches() int { return w.Workers * w.Prefetch }

// Unsupported is the error of a policy that cannot plan for the input.
type Unsupported struct {
	Policy string
	Reason string
}

func (e *Unsupported) Error() string { return e.Policy + ": " + e.Reason }

// NodePlan is one node's part of a plan.
type NodePlan struct {
	// Classes has, for each storage class 1..J, its samples in the order in which it is filled;
	// samples that it already holds come first.
	Classes [][]int32
}

// OwnerOf returns the owner of the sample, or -1 if it has none.
func (p *Plan) OwnerOf(id int) int {
	if p.Owner == nil {
		return -1
	}
	return int(p.Owner[id])
}

// maxNodes is the most nodes that the tables of reads can number.
const maxNodes = 1<<16 - 1

// Check validates the input. It returns the horizon [in.From, to) and the node of every rank.
func (in *Input) Check() (to int, nodeOf []int32, err error) {
	if in.Stream == nil || in.Size == nil {
		return 0, nil, errors.New("plan: Stream and Size must be given")
	}
	spec := in.Stream.Spec()
	if to = spec.Epochs; to == 0 {
		to = in.Epochs
	}
	if in.From >= 0 && to > in.From && !in.Stream.Given(in.From) {
		return 0, nil, fmt.Errorf("plan: epoch %d to plan for was not given", in.From)
	}
	for e := in.From + 1; in.Given() && e < to; e++ {
		if !in.Stream.Given(e) {
			to = e
		}
	}
	if in.From < 0 || to <= in.From {
		return 0, nil, fmt.Errorf("plan: epochs [%d, %d) to plan for; there must be at "+
			"least one: the stream's Epochs is %d, the horizon's %d", in.From, to, spec.Epochs,
			in.Epochs)
	}
	if len(in.Nodes) == 0 || len(in.Nodes) > maxNodes {
		return 0, nil, fmt.Errorf("plan: %d nodes; allowed: 1 to %d", len(in.Nodes), maxNodes)
	}
	nodeOf = make([]int32, spec.WorldSize)
	for r := range nodeOf {
		nodeOf[r] = -1
	}
	for n, node := range in.Nodes {
		for _, r := range node.Ranks {
			if r < 0 || r >= spec.WorldSize {
				return 0, nil, fmt.Errorf("plan: node %d has rank %d; allowed: 0 to %d", n, r,
					spec.WorldSize-1)
			}
			if nodeOf[r] >= 0 {
				return 0, nil, fmt.Errorf("plan: rank %d is on nodes %d and %d; it "+
					"must be on one", r, nodeOf[r], n)
			}
			nodeOf[r] = int32(n)
		}
		if len(node.Held) > len(node.Capacity) {
			return 0, nil, fmt.Errorf("plan: node %d holds samples in %d classes and has %d",
				n, len(node.Held), len(node.Capacity))
		}
		for j, c := range node.Capacity {
			if c < 0 {
				return 0, nil, fmt.Errorf("plan: class %d of node %d has a capacity of %d "+
					"bytes; it must be 0 or more", j+1, n, c)
			}
		}
		for j, held := range node.Held {
			for _, k := range held {
				if k < 0 || int(k) >= spec.Samples {
					return 0, nil, fmt.Errorf("plan: class %d of node %d holds sample %d; "+
						"allowed: 0 to %d", j+1, n, k, spec.Samples-1)
				}
			}
		}
		for _, k := range node.Kept {
			if k < 0 || int(k) >= spec.Samples {
				return 0, nil, fmt.Errorf("plan: node %d keeps sample %d; allowed: 0 to %d", n,
					k, spec.Samples-1)
			}
		}
	}
	for r, n := range nodeOf {
		if n < 0 {
			return 0, nil, fmt.Errorf("plan: rank %d is on no node", r)
		}
	}
	for k := range spec.Samples {
		if s := in.Size(k); s <= 0 {
			return 0, nil,
				fmt.Errorf("plan: sample %d has %d bytes; it must have at least 1", k, s)
		}
	}
	if in.Env != nil {
		if err := in.Env.Validate(); err != nil {
			return 0, nil, fmt.Errorf("plan: %w", err)
		}
	}
	return to, nodeOf, nil
}
