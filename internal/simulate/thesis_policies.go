package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// thesisRules is what makes a policy (simulator-semantics section 1, policies).
type thesisRules struct {
	staging bool // there is a staging prefetcher
	remote  bool // it reads copies of other nodes
	source  bool // it reads from the source
	class   int  // the one storage class that the policy needs; 0: none
	// logStarts says that the caches are filled during training, and P_i has the starts of the reads.
	logStarts bool
	// setUp fills the caches; nil: there are none. It ends early when ctx does.
	setUp func(r *thesisRun, ctx context.Context)
	// rewrite changes the traces, once the caches are filled, or says why it can not; nil: they stay.
	rewrite func(r *thesisRun, rng *rand.Rand) (reason string)
	// fits says why the policy can not run the job; nil: it can run every job.
	fits func(r *thesisRun) string
}

// thesisRulesOf returns a policy's rules, or why the original has none.
func thesisRulesOf(policy string) (rules thesisRules, missing string, err error) {
	switch policy {
	case "perfect":
		return thesisRules{setUp: (*thesisRun).stageAll}, "", nil
	case "naive":
		return thesisRules{}, "", nil
	case "staging":
		return thesisRules{staging: true, source: true}, "", nil
	case "deepio_ordered":
		return thesisRules{staging: true, remote: true, class: 1, setUp: (*thesisRun).preloadDeepIO}, "", nil
	case "deepio_opportunistic":
		return thesisRules{
			staging: true, remote: true, class: 1, setUp: (*thesisRun).preloadDeepIO,
			rewrite: (*thesisRun).rewriteOpportunistic,
		}, "", nil
	case "sharded":
		return thesisRules{
			staging: true, class: 2, setUp: (*thesisRun).preloadSharded,
			rewrite: (*thesisRun).rewriteSharded,
		}, "", nil
	case "lbann_preloading":
		return thesisRules{
			staging: true, remote: true, class: 1, fits: (*thesisRun).memoryHolds,
			setUp: (*thesisRun).preloadLBANN,
		}, "", nil
	case "lbann_dynamic":
		return thesisRules{
			staging: true, remote: true, class: 1, fits: (*thesisRun).memoryHolds,
			setUp: (*thesisRun).fillLBANN,
		}, "", nil
	case "locality":
		return thesisRules{staging: true, remote: true, source: true, class: 2, setUp: (*thesisRun).preloadLocality}, "", nil
	case "frequency":
		return thesisRules{staging: true, source: true, logStarts: true, setUp: (*thesisRun).fillFrequency}, "", nil
	case "cooperative", "minio", "partitioned":
		return rules, fmt.Sprintf("%s is not in the original simulator; profile %q has it", policy, Model), nil
	}
	return rules, "", fmt.Errorf("simulate: policy %q is unknown", policy)
}

// unsupported says why the policy can not run the job; "": it can.
func (r *thesisRun) unsupported() string {
	if r.rules.class >= len(r.env.Classes) {
		return fmt.Sprintf("it caches in storage class %d; the environment has no class above %d", r.rules.class, len(r.env.Classes)-1)
	}
	if r.rules.fits != nil {
		return r.rules.fits(r)
	}
	return ""
}

// memoryHolds: LBANN's store wants the dataset in the memory of all nodes together.
func (r *thesisRun) memoryHolds() string {
	if all := float64(len(r.nodes)) * r.env.Classes[1].Capacity; r.dataset > all {
		return fmt.Sprintf("the dataset has %.0f MB; class 1 of all nodes together holds %.0f MB", r.dataset, all)
	}
	return ""
}

// bucket is node i's share [from, to) of the files.
func (r *thesisRun) bucket(i int) (from, to int) {
	each := len(r.job.Sizes) / len(r.nodes)
	return i * each, (i + 1) * each
}

// setUp fills caches, rewrites traces and lets the staging prefetchers of all nodes make their first
// fill, at time 0 whatever the stall before training is (3.14). It returns why the policy can not run the job.
func (r *thesisRun) setUp(ctx context.Context) (reason string, err error) {
	for i := range r.nodes {
		n := &r.nodes[i]
		if r.rules.staging {
			n.avail = make([]float64, len(n.reads))
			n.place = make([]uint8, len(n.reads))
			n.charged = make([]uint64, (len(r.job.Sizes)+63)/64)
		}
	}
	if r.rules.setUp != nil {
		r.rules.setUp(r, ctx)
		if err := ctx.Err(); err != nil {
			return "", err
		}
	}
	if r.rules.rewrite != nil {
		if reason := r.rules.rewrite(r, rand.New(rand.NewPCG(r.job.Seed, drawOfRewrite))); reason != "" {
			return reason, nil
		}
	}
	r.index()
	for i := range r.nodes {
		if r.rules.logStarts {
			for _, h := range r.nodes[i].held {
				r.logFill(i, h.start)
			}
		}
		if r.rules.staging {
			r.fill(ctx, i, 0)
		}
	}
	return "", ctx.Err()
}

// stageAll is perfect: every sample lies in the staging buffer from the start.
func (r *thesisRun) stageAll(context.Context) {
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

// preloadDeepIO loads every node's bucket into memory, of the last node up to the last file, if a node's
// share of the bytes fits there; otherwise a node begins where the one before it stopped, and
// loads until its memory is full.
func (r *thesisRun) preloadDeepIO(ctx context.Context) {
	n := len(r.nodes)
	if r.dataset/float64(n) > r.env.Classes[1].Capacity {
		next := 0
		for i := range r.nodes {
			next, _ = r.preload(ctx, i, 1, next, len(r.job.Sizes), true)
		}
		return
	}
	for i := range r.nodes {
		from, to := r.bucket(i)
		if i == n-1 {
			to = len(r.job.Sizes)
		}
		r.preload(ctx, i, 1, from, to, false)
	}
}

// preloadLBANN loads every node's bucket into memory.
func (r *thesisRun) preloadLBANN(ctx context.Context) {
	for i := range r.nodes {
		from, to := r.bucket(i)
		r.preload(ctx, i, 1, from, to, false)
	}
}

// fillLBANN has every node read its first floor(F/N) samples, or those of its first epoch if they are fewer, in their
// order, into memory, during training.
func (r *thesisRun) fillLBANN(ctx context.Context) {
	for i := range r.nodes {
		n := &r.nodes[i]
		l := r.loader(i, 1, 0)
		for _, k := range n.reads[:min(n.perEpoch, len(r.job.Sizes)/len(r.nodes))] {
			_, end := l.load(k, false)
			r.logFill(i, end)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// preloadLocality loads every node's bucket into class 2 while it fits.
func (r *thesisRun) preloadLocality(ctx context.Context) {
	for i := range r.nodes {
		from, to := r.bucket(i)
		r.preload(ctx, i, 2, from, to, true)
	}
}

// preloadSharded loads every node's bucket into class 2 while it fits, and then, from
// other nodes, the files below its bucket (3.13) while they fit.
func (r *thesisRun) preloadSharded(ctx context.Context) {
	for i := range r.nodes {
		from, to := r.bucket(i)
		_, own := r.preload(ctx, i, 2, from, to, true)
		more := r.loader(i, 2, r.initStall)
		more.used = own.used
		for k := range from {
			if !more.fits(int32(k)) {
				break
			}
			more.loadRemote(int32(k))
		}
		r.initStall = more.end()
		if ctx.Err() != nil {
			return
		}
	}
}

// ownRanges returns, for every node, the range [from, to) of files that it has loaded from the source before
// training, and why the node can not draw from it: an empty range has no file.
func (r *thesisRun) ownRanges() (ranges [][2]int, reason string) {
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
			return nil, fmt.Sprintf("node %d has no sample of its own: of %d samples on %d nodes none fits its class %d", i, len(r.job.Sizes), len(r.nodes), r.rules.class)
		}
		ranges = append(ranges, [2]int{from, to})
	}
	return ranges, ""
}

// drawFrom draws a file of a range, but never its last one (3.15), unless it is the only one.
func drawFrom(rng *rand.Rand, files [2]int) int32 {
	return int32(files[0] + rng.IntN(max(1, files[1]-1-files[0])))
}

// rewriteSharded replaces every read by one of a file of the node's own range, drawn with replacement (3.15).
func (r *thesisRun) rewriteSharded(rng *rand.Rand) string {
	ranges, reason := r.ownRanges()
	if reason != "" {
		return reason
	}
	for i := range r.nodes {
		for f := range r.nodes[i].reads {
			r.nodes[i].reads[f] = drawFrom(rng, ranges[i])
		}
	}
	return ""
}

// rewriteOpportunistic replaces every read by one of the node's own range, with probability 1/(N-1), or
// else of the range of the node before it; node 0 always reads its own (3.15).
func (r *thesisRun) rewriteOpportunistic(rng *rand.Rand) string {
	ranges, reason := r.ownRanges()
	if reason != "" {
		return reason
	}
	for i := range r.nodes {
		for f := range r.nodes[i].reads {
			from := i
			if i > 0 && rng.IntN(len(r.nodes)-1) != 0 {
				from = i - 1
			}
			r.nodes[i].reads[f] = drawFrom(rng, ranges[from])
		}
	}
	return ""
}
