// Package reorder has the orders that policies make of a job's epochs: samples dealt to the nodes
// that own them, samples of which nodes train on their own, and a shuffle buffer over files.
//
// INVARIANT: an order is a pure function of the stream's Spec and of what is nominal: which rank is
// on which node, the sizes of samples, and the configured capacities. It never depends on what
// caches happen to hold, so that a job reads the same after restarts, failures and on every node.
//
// Pure: no I/O, and no goroutine that outlives a call. Orders are safe for concurrent use.
package reorder

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// random is SplitMix64.
type random uint64

// seeded returns a generator for each sequence of numbers.
func seeded(of ...uint64) random {
	var r random
	for _, v := range of {
		r = random(r.next() ^ v)
	}
	return r
}

// next returns the next 64 bits.
func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number in [0, n). It favours none by more than n in 2^64.
func (r *random) below(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

// placesOf returns which positions of global batches each node reads.
func placesOf(in *plan.Input) access.Places {
	return in.Stream.Places(NodeOf(in), len(in.Nodes))
}

// NodeOf returns the node of each rank.
func NodeOf(in *plan.Input) []int32 {
	nodes := make([]int32, in.Stream.Spec().WorldSize)
	for n, node := range in.Nodes {
		for _, r := range node.Ranks {
			nodes[r] = int32(n)
		}
	}
	return nodes
}

// named returns the name of an order of a policy that depends on these lists, and on the node of
// each rank.
func named(policy string, in *plan.Input, lists ...[]int32) string {
	h := fnv.New64a()
	var word [4]byte
	for _, list := range append(lists, NodeOf(in)) {
		for _, v := range append([]int32{int32(len(list))}, list...) {
			binary.LittleEndian.PutUint32(word[:], uint32(v))
			_, _ = h.Write(word[:]) // never fails
		}
	}
	return fmt.Sprintf("%s on %d nodes (%016x)", policy, len(in.Nodes), h.Sum64())
}

// Shuffled returns the order of nodes that each train on samples of their own, held[n] on node n,
// or, if held has one list, that all train on these together. In each epoch a list is read in a new
// random order; if it is shorter than what the epoch reads, it is read again in another order, each
// time completely.
func Shuffled(in *plan.Input, policy string, held [][]int32) access.Order {
	places, streams := placesOf(in), make([]*access.Stream, len(held))
	for n, list := range held {
		seed := access.Mix(n, int(in.Stream.Spec().Seed&0xffffffff)) ^ in.Stream.Spec().Seed
		s, err := access.New(access.Spec{
			Samples: len(list), Seed: seed, WorldSize: 1, GlobalBatch: len(list),
			Shuffle: access.Feistel,
		})
		if err != nil {
			panic("reorder: " + err.Error()) // callers have at least one sample in each list
		}
		streams[n] = s
	}
	name := named(policy, in, held...)
	return access.Order{Name: name, Draw: func(of *access.Epoch) []int32 {
		ids := make([]int32, in.Stream.Delivered())
		if len(held) == 1 {
			passes(ids, held[0], streams[0], of.Number())
			return ids
		}
		for n, list := range held {
			own := make([]int32, places.Before(n, places.Steps()))
			passes(own, list, streams[n], of.Number())
			scatter(ids, own, &places, n)
		}
		return ids
	}}
}

// passes fills dst with passes over a list, each in an order of its own.
func passes(dst, list []int32, stream *access.Stream, epoch int) {
	times := max(1, (len(dst)+len(list)-1)/len(list))
	for pass := 0; len(dst) > 0; pass++ {
		order := stream.Epoch(epoch*times + pass)
		n := min(len(dst), len(list))
		for p := range n {
			dst[p] = list[order.At(0, p)]
		}
		dst = dst[n:]
	}
}

// scatter puts what a node reads in an epoch at the node's positions of it.
func scatter(ids, own []int32, places *access.Places, node int) {
	for step := range places.Steps() {
		base, at := places.Base(step), places.At(step)[node]
		for i, p := range at {
			ids[base+int(p)] = own[i]
		}
		own = own[len(at):]
	}
}

// gather is the inverse of scatter: it returns what a node reads in an epoch, in its order.
func gather(ids []int32, places *access.Places, node int) []int32 {
	own := make([]int32, 0, places.Before(node, places.Steps()))
	for step := range places.Steps() {
		base := places.Base(step)
		for _, p := range places.At(step)[node] {
			own = append(own, ids[base+int(p)])
		}
	}
	return own
}

// Sorted returns the order by which each node reads what it reads in an epoch in the order of the
// samples' IDs.
func Sorted(in *plan.Input, policy string) access.Order {
	places := placesOf(in)
	return access.Order{Name: named(policy, in), Draw: func(of *access.Epoch) []int32 {
		ids := of.Samples()
		for n := range in.Nodes {
			own := gather(ids, &places, n)
			slices.Sort(own)
			scatter(ids, own, &places, n)
		}
		return ids
	}}
}
