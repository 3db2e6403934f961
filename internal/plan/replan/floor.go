package replan

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// noPlanTakesLess reports whether an epoch takes at least so many seconds with any plan. What is
// quick to find out comes first.
func (q *Question) noPlanTakesLess(now measured, seconds float64) (bool, error) {
	if q.floor(now, 1) >= seconds {
		return true, nil
	}
	own, err := ownable(&q.Input, q.end())
	return err == nil && q.floor(now, own) >= seconds, err
}

// floor returns the least that an epoch can take with any plan: as if what nodes read in an epoch
// were just what they hold, to their capacities, but no more than this share of it in their own
// classes. Epochs take as long as on the slowest node, and so at least as long as on a mean one.
func (q *Question) floor(now measured, own float64) float64 {
	nodes := float64(len(q.Input.Nodes))
	hits := model.Hits{}
	left := own * now.reads
	for j := range len(q.Input.Env.Classes) - 1 {
		mine := 0.0
		for _, n := range q.Input.Nodes {
			if j < len(n.Capacity) {
				mine += float64(n.Capacity[j]) / 1e6 / nodes
			}
		}
		all := mine
		if q.Input.Stream.Spec().Scheme == access.Whole { // a class serves every node what it holds
			all *= nodes
		}
		mine = min(mine, left)
		left -= mine
		hits.Own = append(hits.Own, mine)
		hits.All = append(hits.All, min(all, now.reads))
		hits.Cached += all
	}
	hits.Cached = min(hits.Cached, now.reads)
	return q.epoch(now.reads, slices.Max(q.Transformers), &hits)
}

// counted is for how many pairs of a sample and a node reads are counted: the share of reads that
// these tell of is within a per cent or two of that of all pairs.
const counted = 1 << 22

// ownable returns the largest share of what nodes read in epochs [in.From, to), in bytes, that they
// can hold themselves: as if all capacities were one, and held what single nodes read most often.
// In a random order, that is hardly more than what all nodes hold of the dataset, over their
// number, but for the last epochs.
func ownable(in *plan.Input, to int) (float64, error) {
	nodes, samples := len(in.Nodes), in.Stream.Spec().Samples
	kept := slices.ContainsFunc(in.Nodes, func(n plan.Node) bool { return len(n.Kept) > 0 })
	if nodes == 1 || kept || in.Stream.Spec().Scheme == access.Whole {
		return 1, nil // what is kept takes no capacity
	}
	_, nodeOf, err := in.Check()
	if err != nil {
		return 0, err
	}
	every := (samples*nodes + counted - 1) / counted // samples of which one counts
	reads := make([]uint16, (samples+every-1)/every*nodes)
	var view *access.Epoch
	epochs := looked(in, in.From, to) // fewer of them let nodes hold more, on average
	for i := range epochs {
		if err := in.Ended(); err != nil {
			return 0, err
		}
		view = in.Stream.EpochInto(view, in.From+i*(to-in.From)/epochs)
		for rank, k := range view.Reads() {
			if int(k)%every == 0 {
				if n := &reads[int(k)/every*nodes+int(nodeOf[rank])]; *n < mostReads {
					*n++
				}
			}
		}
	}
	var mb [mostReads + 1]float64 // of the pairs with so many reads
	for i, n := range reads {
		mb[n] += float64(in.Size(i/nodes*every)) / 1e6
	}
	room := 0.0
	for _, n := range in.Nodes {
		for _, bytes := range n.Capacity {
			room += float64(bytes) / 1e6 / float64(every)
		}
	}
	own, all := 0.0, 0.0
	for n := mostReads; n > 0; n-- {
		held := min(mb[n], room)
		room -= held
		own += held * float64(n)
		all += mb[n] * float64(n)
	}
	if all == 0 {
		return 1, nil
	}
	return own / all, nil
}

// mostReads is up to how many reads of a pair count.
const mostReads = 1<<16 - 1
