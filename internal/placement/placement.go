// Package placement decides where samples are cached: a policy turns the access
// stream, the sizes of the samples, the capacities and the performance model into
// a plan, which says for every node and storage class which samples it holds and
// in which order it is filled (thesis 3.2.2).
//
// INVARIANT: a class of a plan never takes more bytes than its capacity, and a node holds a
// sample in at most one class. A plan is a pure function of the Input, so
// all nodes that compute it agree. What a class holds already stays, as classes only
// grow, and takes its room.
//
// Pure: no I/O, no goroutine that outlives a call. Policies hold no state and are safe for concurrent use. The package
// runs no plan: that is what prefetch and simulate do. Its memory is
// proportional to the samples plus the copies planned, never to nodes times samples.
package placement

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// Input is all that a policy may look at.
type Input struct {
	Stream *access.Stream         // who reads what, when
	Epochs int                    // the horizon, where the stream has no end; otherwise ignored. It ends before an epoch that is not given
	From   int                    // the first epoch still to come; default 0
	Nodes  []Node                 // every rank of the stream on exactly one of them
	Size   func(id int) int64     // bytes of a sample, above 0; cheap
	Env    *perfmodel.Environment // nil: the node's own classes beat peers, peers beat the source
	// Context ends the planning early, at the next epoch that is gone over; nil: never. Its error is then Plan's.
	Context context.Context
}

// ended tells that nobody waits for the plan any more.
func (in *Input) ended() error {
	if in.Context == nil {
		return nil
	}
	return in.Context.Err()
}

// Node is a node as a policy sees it.
type Node struct {
	Ranks    []int     // the ranks that run on it
	Capacity []int64   // bytes of the storage classes 1..J, fastest first
	Held     [][]int32 // what each of these classes holds already; may be shorter than Capacity
	// Kept is what the node has besides, in classes that keep a copy of all that is read, whatever the plan gives them. It takes
	// no room of theirs here. To bring it into another class, or to another node, takes no read from the source.
	Kept []int32
}

// Plan says who caches what. It must not be changed once made.
type Plan struct {
	Policy   string     // the name of the policy that made it
	Prefetch bool       // the staging buffer is filled ahead of time; false for naive alone
	Remote   bool       // nodes may read from each other's classes
	Owner    []int32    // per sample the node that answers for it, -1: nobody. nil: nobody for any
	Nodes    []NodePlan // as Input.Nodes

	// Of what follows, the engine runs ReadOnce and OnRead; its classes always come before the source.

	// ReadOnce: who needs a sample that its owner has not got yet asks the owner, who reads it at once, keeps it
	// and answers: nobody else reads it from the source.
	ReadOnce bool
	// OnRead: classes keep what the node reads for its own training, and nothing is read ahead to fill them.
	OnRead bool
	// Preload: classes are filled before training starts.
	Preload bool
	// CacheFirst: what lies in a class is not read from the source, even where that is faster.
	CacheFirst bool
	// Demand: what lies in no class is read when training asks for it, not ahead of time.
	Demand bool
	// Reorder, if not nil, returns the order of an epoch, in place of the stream's. The batches have
	// the sizes that the stream gives them. What it returns is safe for concurrent use.
	Reorder func(epoch int) Batches
}

// Batches is the order of an epoch, node by node.
type Batches interface {
	// Batch appends to dst the samples of the node's batch at the step.
	Batch(dst []int32, node, step int) []int32
}

// Unsupported is the error of a policy that cannot run what it is asked for.
type Unsupported struct {
	Policy string
	Reason string
}

func (e *Unsupported) Error() string { return e.Policy + ": " + e.Reason }

// NodePlan is one node's part of a plan.
type NodePlan struct {
	// Classes has, for each storage class 1..J, the samples that it holds, in the order
	// in which it is filled; what is held already comes first.
	Classes [][]int32
}

// OwnerOf returns the node that answers for the sample, -1 if nobody does.
func (p *Plan) OwnerOf(id int) int {
	if p.Owner == nil {
		return -1
	}
	return int(p.Owner[id])
}

// Policy makes plans.
type Policy interface {
	// Name is what flags, configuration and reports call it.
	Name() string
	// Plan computes the plan. It fails only for an invalid input, or with the Context's error.
	Plan(in Input) (*Plan, error)
}

// Policies returns every policy, the default first.
func Policies() []Policy {
	return []Policy{Cooperative{}, Frequency{}, Partitioned{}, MinIO{}, Staging{}, Naive{}}
}

// SimulatorPolicies returns the policies that only the simulator runs. A stream of theirs has one rank per node.
func SimulatorPolicies() []Policy {
	return []Policy{
		Perfect{}, DeepIO{}, DeepIO{Opportunistic: true}, LBANN{}, LBANN{Preloading: true}, Sharded{}, Locality{},
	}
}

// ByName returns the policy of that name, of those that the engine runs; the error lists those there are.
func ByName(name string) (Policy, error) {
	var known []string
	for _, p := range Policies() {
		if p.Name() == name {
			return p, nil
		}
		known = append(known, p.Name())
	}
	for _, p := range SimulatorPolicies() {
		if p.Name() == name {
			return nil, fmt.Errorf("policy %q runs in the simulator only; allowed: %s", name, strings.Join(known, ", "))
		}
	}
	return nil, fmt.Errorf("policy %q is unknown; allowed: %s", name, strings.Join(known, ", "))
}

// ForSimulator returns the policy of that name, of all there are.
func ForSimulator(name string) (Policy, error) {
	var known []string
	for _, p := range append(Policies(), SimulatorPolicies()...) {
		if p.Name() == name {
			return p, nil
		}
		known = append(known, p.Name())
	}
	return nil, fmt.Errorf("policy %q is unknown; allowed: %s", name, strings.Join(known, ", "))
}

// Bound returns the fewest bytes that a run of E epochs can read from the
// source, for a dataset of S bytes and caches of `cached` bytes over all nodes (N*D): every
// byte once, and in every later epoch what the caches can not hold, since where each sample is
// needed once per epoch a cache of x bytes serves at most x of an epoch's reads.
// It is S + (E-1)*max(0, S-N*D).
func Bound(dataset, cached int64, epochs int) int64 {
	if epochs <= 0 {
		return 0
	}
	return dataset + int64(epochs-1)*max(0, dataset-cached)
}

// Demand is what an epoch needs: the bytes of its samples, each once, and of those that no epoch before it needed.
type Demand struct{ Bytes, New int64 }

// BoundOf is Bound where epochs need different samples: an epoch reads from the source what was never read before, and at least
// what caches of `cached` bytes cannot hold of it.
func BoundOf(epochs []Demand, cached int64) (bound int64) {
	for _, e := range epochs {
		bound += max(e.New, e.Bytes-cached)
	}
	return bound
}

// maxNodes is what a node number in the tables of reads can count.
const maxNodes = 1<<16 - 1

// check returns the horizon [in.From, to) and the node of every rank.
func (in *Input) check() (to int, nodeOf []int32, err error) {
	if in.Stream == nil || in.Size == nil {
		return 0, nil, errors.New("placement: Stream and Size must be given")
	}
	spec := in.Stream.Spec()
	if to = spec.Epochs; to == 0 {
		to = in.Epochs
	}
	if in.From >= 0 && to > in.From && !in.Stream.Given(in.From) {
		return 0, nil, fmt.Errorf("placement: epoch %d to plan for was not given", in.From)
	}
	for e := in.From + 1; isGiven(in.Stream) && e < to; e++ {
		if !in.Stream.Given(e) {
			to = e
		}
	}
	if in.From < 0 || to <= in.From {
		return 0, nil, fmt.Errorf("placement: epochs [%d, %d) to plan for; there must be at least one: the stream's Epochs is %d, the horizon's %d", in.From, to, spec.Epochs, in.Epochs)
	}
	if len(in.Nodes) == 0 || len(in.Nodes) > maxNodes {
		return 0, nil, fmt.Errorf("placement: %d nodes; allowed: 1 to %d", len(in.Nodes), maxNodes)
	}
	nodeOf = make([]int32, spec.WorldSize)
	for r := range nodeOf {
		nodeOf[r] = -1
	}
	for n, node := range in.Nodes {
		for _, r := range node.Ranks {
			if r < 0 || r >= spec.WorldSize {
				return 0, nil, fmt.Errorf("placement: node %d has rank %d; allowed: 0 to %d", n, r, spec.WorldSize-1)
			}
			if nodeOf[r] >= 0 {
				return 0, nil, fmt.Errorf("placement: rank %d is on nodes %d and %d; it must be on one", r, nodeOf[r], n)
			}
			nodeOf[r] = int32(n)
		}
		if len(node.Held) > len(node.Capacity) {
			return 0, nil, fmt.Errorf("placement: node %d holds samples in %d classes and has %d", n, len(node.Held), len(node.Capacity))
		}
		for j, c := range node.Capacity {
			if c < 0 {
				return 0, nil, fmt.Errorf("placement: class %d of node %d has a capacity of %d bytes; it must be 0 or more", j+1, n, c)
			}
		}
		for j, held := range node.Held {
			for _, k := range held {
				if k < 0 || int(k) >= spec.Samples {
					return 0, nil, fmt.Errorf("placement: class %d of node %d holds sample %d; allowed: 0 to %d", j+1, n, k, spec.Samples-1)
				}
			}
		}
		for _, k := range node.Kept {
			if k < 0 || int(k) >= spec.Samples {
				return 0, nil, fmt.Errorf("placement: node %d keeps sample %d; allowed: 0 to %d", n, k, spec.Samples-1)
			}
		}
	}
	for r, n := range nodeOf {
		if n < 0 {
			return 0, nil, fmt.Errorf("placement: rank %d is on no node", r)
		}
	}
	for k := range spec.Samples {
		if s := in.Size(k); s <= 0 {
			return 0, nil, fmt.Errorf("placement: sample %d has %d bytes; it must have some", k, s)
		}
	}
	if in.Env != nil {
		if err := in.Env.Validate(); err != nil {
			return 0, nil, fmt.Errorf("placement: %w", err)
		}
	}
	return to, nodeOf, nil
}
