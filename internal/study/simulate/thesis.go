package simulate

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/distance"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// RunThesis simulates the job under the named policy exactly as the original simulator of the
// thesis does, including its departures from the text (docs/SIMULATOR.md, The two profiles). It
// exists to reproduce tables 5.1 to 5.6.
//
// A policy that cannot run the job, or that the original does not implement, is not an error: the
// Result has the Reason. RunThesis returns an error for an invalid job, an unknown policy or a ctx
// that is done, which it checks between batches.
//
// The order of the samples is that of RunModel: package access draws it from Job.Seed, unless
// Job.Order gives it. Policies that rewrite the traces draw from a PCG with the same seed, so the
// Result is a pure function of the arguments. Memory: 13 bytes per sample access, 8 per read of a
// prefetcher from the source, about 50 per copy in a storage class, and 20 per sample.
func RunThesis(ctx context.Context, job *Job, policy string) (*Result, error) {
	p, err := policies.ForSimulator(policy)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	return RunOriginal(ctx, job, p)
}

// RunOriginal is like RunThesis for a policy value, which need not be in a table.
func RunOriginal(ctx context.Context, job *Job, p plan.Policy) (*Result, error) {
	policy := p.Name()
	original, ok := p.(simulated.Original)
	if !ok {
		return &Result{
			Reason: fmt.Sprintf("the original simulator does not implement %s; use profile %q", policy,
				Model),
		}, nil
	}
	if err := job.Env.Validate(); err != nil {
		return nil, err
	}
	stream, err := streamOf(job, 0)
	if err != nil {
		return nil, err
	}
	if job.Jobs > 1 || job.Env.Processors.Cores > 0 || job.Env.SourceWork > 0 {
		return nil, fmt.Errorf("simulate: profile %q has neither several jobs nor cores, nor what "+
			"reads take of them (source_work); use %q", Thesis, Model)
	}
	r := newThesisRun(job, stream, original.Original())
	if reason := r.unsupported(); reason != "" {
		return &Result{Reason: reason}, nil
	}
	if err := r.deal(ctx); err != nil {
		return nil, fmt.Errorf("simulate %s: %w", policy, err)
	}
	if reason, err := r.setUp(ctx); err != nil {
		return nil, fmt.Errorf("simulate %s: %w", policy, err)
	} else if reason != "" {
		return &Result{Reason: reason}, nil
	}
	res := &Result{Supported: true, BeforeTraining: r.initStall}
	if err := r.execute(ctx, res); err != nil {
		return nil, fmt.Errorf("simulate %s: %w", policy, err)
	}
	r.tell(res)
	return res, nil
}

// newThesisRun returns a run with its tables of rates.
func newThesisRun(job *Job, stream *access.Stream, rules simulated.Rules) *thesisRun {
	r := &thesisRun{
		job: job, env: &job.Env, stream: stream, rules: rules,
		nodes:      make([]thesisNode, job.Nodes),
		sourceRate: make([]float64, job.Nodes+1),
		newest:     make([]float64, job.Nodes),
		latest:     make([]float64, job.Nodes),
		reads:      make([]Amount, thesisLocal+len(job.Env.Classes)),
	}
	for g := range r.sourceRate {
		r.sourceRate[g] = job.Env.SourceRate(g)
		r.bestSource = max(r.bestSource, r.sourceRate[g])
	}
	for j := range job.Env.Classes {
		c := &job.Env.Classes[j]
		rate := c.Read.At(float64(c.Threads))
		r.localRate = append(r.localRate, rate)
		r.remoteRate = append(r.remoteRate, min(job.Env.PeerBandwidth, rate))
	}
	r.writeRate = min(job.Env.Preprocess, r.localRate[0]/float64(job.Env.Classes[0].Threads))
	for i := range r.nodes {
		r.newest[i], r.latest[i] = -inf, -inf
		r.nodes[i].newestUse, r.nodes[i].newestFill = -inf, -inf
		r.nodes[i].clock = make([]float64, job.Env.Classes[0].Threads)
		r.nodes[i].loaders = make([]*thesisLoader, len(job.Env.Classes))
	}
	for _, s := range job.Sizes {
		r.dataset += s
	}
	r.machine = simulated.Machine{
		Sizes: job.Sizes, Dataset: r.dataset, Reads: make([][]int32, job.Nodes),
		PerEpoch: make([]int, job.Nodes),
	}
	for j := range job.Env.Classes {
		r.machine.Capacity = append(r.machine.Capacity, job.Env.Classes[j].Capacity)
	}
	return r
}

// deal gives every node its access string R_i.
func (r *thesisRun) deal(ctx context.Context) error {
	stream := r.stream
	for i := range r.nodes {
		n := &r.nodes[i]
		n.perEpoch = stream.RankSamples(i)
		n.reads = make([]int32, 0, n.perEpoch*r.job.Epochs)
	}
	for e := range r.job.Epochs {
		epoch := stream.Epoch(e)
		for i := range r.nodes {
			n := &r.nodes[i]
			for step := range stream.Steps() {
				before := len(n.reads)
				n.reads = epoch.Batch(n.reads, i, step)
				switch dealt := len(n.reads) - before; step {
				case 0:
					n.batch, n.lastBatch = dealt, dealt
				case stream.Steps() - 1:
					n.lastBatch = dealt
				}
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	for i := range r.nodes {
		r.machine.Reads[i], r.machine.PerEpoch[i] = r.nodes[i].reads, r.nodes[i].perEpoch
	}
	return nil
}

// execute runs all batches in order, and within a batch one node after the other, each from the
// barrier at which the batch begins to the node's own end. It is the same for all
// policies.
func (r *thesisRun) execute(ctx context.Context, res *Result) error {
	compute := r.env.Compute
	staging := r.rules.Staging
	steps := r.stream.Steps()
	g, computing := r.initStall, 0.0
	for range r.job.Epochs {
		epochFrom := g
		for step := range steps {
			if err := ctx.Err(); err != nil {
				return err
			}
			end, heaviest := g, 0.0
			for i := range r.nodes {
				n := &r.nodes[i]
				size := n.batchSize(step, steps)
				now := g
				first := n.at
				load := 0.0
				for f := first; f < first+size; f++ {
					s := r.job.Sizes[n.reads[f]]
					done := r.consume(i, f, s, now)
					now = done + s/compute
					load += s
					if !staging {
						continue
					}
					if r.rules.Drop {
						r.drop(i, f)
					}
					if len(n.gaps) > 0 {
						r.fillGaps(i, f, done)
					}
					if f == first {
						r.free(i, first)
						r.fill(ctx, i, done)
					}
				}
				n.at += size
				end, heaviest = max(end, now), max(heaviest, load)
			}
			computing += heaviest / compute
			if r.job.PerBatch {
				res.Batches = append(res.Batches, end-g)
			}
			g = end
		}
		res.Epochs = append(res.Epochs, g-epochFrom)
	}
	res.Runtime = g
	res.Stall = max(0, g-r.initStall-computing)
	return ctx.Err()
}

// tell fills in all of the Result but the times.
func (r *thesisRun) tell(res *Result) {
	res.Reads = Reads{
		Source: r.reads[thesisSource],
		Remote: r.reads[thesisRemote],
		Local:  map[string]Amount{},
	}
	for j := range r.env.Classes {
		if a := r.reads[thesisLocal+j]; j > 0 || a.Samples > 0 {
			res.Reads.Local[strconv.Itoa(j)] = a
		}
	}
	res.SourceTotal = r.sourceMB + r.filledBefore(res.Runtime)
	size, room := int64(0), int64(0)
	for _, s := range r.job.Sizes {
		size += int64(math.Ceil(s * 1e6))
	}
	for _, c := range r.env.Classes[1:] {
		room += int64(len(r.nodes)) * int64(min(c.Capacity, r.dataset)*1e6)
	}
	if bound := plan.Bound(size, room, r.job.Epochs); bound > 0 {
		res.ShareOfBound = res.SourceTotal * 1e6 / float64(bound)
	}
	res.SeenPerEpoch, res.Shuffle = r.measure()
}

// measure computes SeenPerEpoch and Shuffle from the traces, as RunModel does for its policies.
func (r *thesisRun) measure() (seen, shuffle float64) {
	var full, last []int
	for i := range r.nodes {
		full, last = append(full, r.nodes[i].batch), append(last, r.nodes[i].lastBatch)
	}
	of := distance.New
	if r.rules.Redraw != nil { // the policy rewrites the traces, so they are not the stream's
		of = distance.Others
	}
	measured, steps := of(r.stream, full, last, r.job.Epochs), r.stream.Steps()
	for i := range r.nodes {
		n := &r.nodes[i]
		at := 0
		for e := range measured.Epochs() {
			for step := range steps {
				size := n.batchSize(step, steps)
				measured.Add(e, step, i, n.reads[at:at+size])
				at += size
			}
		}
	}
	return measured.Result()
}
