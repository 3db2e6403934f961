package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// unsupported returns why the policy cannot run the job, or "" if it can.
func (r *thesisRun) unsupported() string {
	if r.rules.Class >= len(r.env.Classes) {
		return fmt.Sprintf("it caches in storage class %d; the environment has no class above %d",
			r.rules.Class, len(r.env.Classes)-1)
	}
	if r.rules.Refuses != nil {
		return r.rules.Refuses(&r.machine)
	}
	return ""
}

// setUp fills caches, rewrites traces and runs the first fill of all nodes' staging prefetchers, at
// time 0 regardless of the stall before training (3.14). reason is why the policy cannot run the
// job, or "".
func (r *thesisRun) setUp(ctx context.Context) (reason string, err error) {
	for i := range r.nodes {
		n := &r.nodes[i]
		if r.rules.Staging {
			n.avail = make([]float64, len(n.reads))
			n.place = make([]uint8, len(n.reads))
			n.charged = make([]uint64, (len(r.job.Sizes)+63)/64)
		}
	}
	for i := range r.nodes {
		if n := &r.nodes[i]; r.rules.Drop {
			n.lastUse = r.lastUses(n.reads)
		}
	}
	if r.rules.Staged {
		r.stageAll()
	}
	if r.rules.Loads != nil {
		for load := range r.rules.Loads(&r.machine) {
			r.load(ctx, load)
			if err := ctx.Err(); err != nil {
				return "", err
			}
		}
	}
	if r.rules.Redraw != nil {
		if reason := r.redraw(rand.New(rand.NewPCG(r.job.Seed, drawOfRewrite))); reason != "" {
			return reason, nil
		}
	}
	r.index()
	for i := range r.nodes {
		if r.rules.LogStarts {
			for _, h := range r.nodes[i].held {
				r.logFill(i, h.start)
			}
		}
		if r.rules.Staging {
			r.fill(ctx, i, 0)
		}
	}
	return "", ctx.Err()
}

// stageAll places every sample in the staging buffer from the start.
func (r *thesisRun) stageAll() {
	for i := range r.nodes {
		n := &r.nodes[i]
		n.next = len(n.reads)
		n.avail = make([]float64, len(n.reads))
		n.place = make([]uint8, len(n.reads))
		for f := range n.place {
			n.place[f] = thesisLocal
		}
	}
}

// load simulates one of the policy's loads into a class. Reads before training delay it by the time
// of the last node's loader, as in the original (3.12). The ends of reads from the source are
// logged in P_i, or their starts if the policy requires it.
func (r *thesisRun) load(ctx context.Context, load simulated.Load) {
	n := &r.nodes[load.Node]
	if load.Later > 0 {
		for _, k := range load.Samples {
			n.gaps = append(n.gaps, thesisGap{int32(load.Later), k, n.loaders[load.Class]})
		}
		return
	}
	begin := 0.0
	if load.Remote {
		begin = r.initStall
	}
	l := r.loader(load.Node, load.Class, begin)
	n.loaders[load.Class] = l
	for x, k := range load.Samples {
		if load.Remote {
			l.loadRemote(k)
		} else if _, end := l.load(k, load.Before); !r.rules.LogStarts {
			r.logFill(load.Node, end)
		}
		if x&0xfffff == 0 && ctx.Err() != nil {
			return
		}
	}
	if load.Before {
		r.initStall = l.end()
	}
}

// ownRanges returns, for every node, the range [from, to) of files that it has loaded from the
// source before training. If a range is empty, reason is why the policy cannot draw from it.
func (r *thesisRun) ownRanges() (ranges []simulated.Range, reason string) {
	for i := range r.nodes {
		from, to := 0, 0
		for _, h := range r.nodes[i].held {
			if h.source {
				if to == 0 {
					from = int(h.file)
				}
				to = int(h.file) + 1
			}
		}
		if to == 0 {
			return nil, fmt.Sprintf("node %d has no sample of its own: of %d samples on %d nodes "+
				"none fits its class %d", i, len(r.job.Sizes), len(r.nodes), r.rules.Class)
		}
		ranges = append(ranges, simulated.Range{From: from, To: to})
	}
	return ranges, ""
}

// redraw replaces every read by one that the policy draws. reason is why it cannot, or "".
func (r *thesisRun) redraw(rng *rand.Rand) (reason string) {
	own, reason := r.ownRanges()
	if reason != "" {
		return reason
	}
	for i := range r.nodes {
		for f := range r.nodes[i].reads {
			r.nodes[i].reads[f] = r.rules.Redraw(rng, own, i)
		}
	}
	return ""
}

// fillGaps runs what the node loads into its classes at the request of position f, at the given
// time.
//
// With rules.Drop, threads begin where they ended before, which may be before that time, and each
// pass with a class's first thread, as in the original. Without, passes end before that matters.
func (r *thesisRun) fillGaps(i, f int, time float64) {
	n := &r.nodes[i]
	var last *thesisLoader
	for len(n.gaps) > 0 && int(n.gaps[0].pass) == f+1 {
		k, l := n.gaps[0].file, n.gaps[0].loader
		n.gaps = n.gaps[1:]
		switch {
		case !r.rules.Drop:
			l.clock[l.turn] = max(l.clock[l.turn], time)
		case l != last:
			l.turn = 0
		}
		last = l
		begin, end := l.take(r.job.Sizes[k], r.fetchSource(r.job.Sizes[k], len(r.nodes)))
		r.logFill(i, begin)
		ownCopy(r.copies.of(k), i).avail = end
		n.held = append(n.held,
			thesisHeld{file: k, class: int32(l.class), source: true, start: begin, avail: end})
	}
}

// lastUses returns the positions at which the node reads a sample for the last time, as a bit set.
func (r *thesisRun) lastUses(reads []int32) []uint64 {
	set := make([]uint64, (len(reads)+63)/64)
	seen := make([]uint64, (len(r.job.Sizes)+63)/64)
	for f := len(reads) - 1; f >= 0; f-- {
		k := reads[f]
		if bit := uint64(1) << (k & 63); seen[k>>6]&bit == 0 {
			seen[k>>6] |= bit
			set[f>>6] |= 1 << (f & 63)
		}
	}
	return set
}

// drop drops the node's copy of what it reads at position f, if that is for the last time.
func (r *thesisRun) drop(i, f int) {
	n := &r.nodes[i]
	if n.lastUse[f>>6]&(1<<(f&63)) == 0 {
		return
	}
	if own := ownCopy(r.copies.of(n.reads[f]), i); own != nil {
		own.avail = inf
	}
}
