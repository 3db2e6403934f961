package scenario

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/simulate"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Run is a finished job on one node, read from its report (docs/SEMANTICS.md): what was measured,
// and what the simulator needs to know of the machine and the job.
type Run struct {
	Dataset string
	Policy  string
	// Epochs holds the epochs that every rank finished.
	Epochs []RunEpoch
	// SourceMB was read from the source in these epochs, and ConsumedMB delivered to the ranks.
	SourceMB, ConsumedMB float64

	report stats.Report
}

// RunEpoch is one measured epoch.
type RunEpoch struct {
	Epoch   int
	Seconds float64 // mean over the ranks, including the last batch's computation
}

const mega = 1e6

// unmeasured is the rate in MB/s of what the run did not measure; too high to matter.
const unmeasured = 1e6

// expectedReport says what ReadRun accepts.
const expectedReport = "expected is the JSON of loader.report(), without cluster=True, or one of " +
	"the `jobs` of `hdmlp stats --json`"

// ReadRun parses a job's report, in JSON. It returns an error for a report that cannot be compared
// with a simulation: without a finished first epoch, of several nodes, or not over a whole dataset
// in an order drawn from a seed.
func ReadRun(data []byte) (*Run, error) {
	r := &Run{}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w; %s", err, expectedReport)
	}
	has := func(key string) bool { _, ok := keys[key]; return ok }
	switch {
	case has("total"): // stats.ClusterReport
		return nil, errors.New("this is the report of a job over all its nodes, which lacks the " +
			"figures of each epoch; " + expectedReport)
	case has("jobs"):
		return nil, errors.New("this is the output of `hdmlp stats --json`; " + expectedReport)
	}
	if err := json.Unmarshal(data, &r.report); err != nil {
		return nil, fmt.Errorf("not a job's report: %w; %s", err, expectedReport)
	}
	p := &r.report
	if err := renamed(data, p); err != nil {
		return nil, fmt.Errorf("not a job's report: %w; %s", err, expectedReport)
	}
	if p.Samples < 1 || p.Bytes < 1 || p.GlobalBatch < 1 || p.WorldSize < 1 || len(p.Tiers) == 0 {
		return nil, errors.New("not a job's report: samples, bytes, global_batch_size, " +
			"world_size or tiers are missing; " + expectedReport)
	}
	if p.Subset || p.Shuffle == string(access.Given) {
		return nil, errors.New("the job read a subset of the dataset, or its process supplied the " +
			"orders; only jobs over whole datasets, with orders drawn from a seed, " +
			"can be compared")
	}
	if len(p.Ranks) != p.WorldSize {
		return nil, fmt.Errorf("the report has %d of %d ranks; only jobs on one node can "+
			"be compared", len(p.Ranks), p.WorldSize)
	}
	r.Dataset, r.Policy = p.Dataset, p.Policy
	stream, err := r.stream()
	if err != nil {
		return nil, fmt.Errorf("the report's stream: %w", err)
	}
	for _, e := range p.Epochs {
		epoch, consumed, ok := r.epoch(e.Epoch, stream.Steps())
		if !ok {
			continue
		}
		r.Epochs = append(r.Epochs, epoch)
		r.SourceMB += float64(e.Source.Bytes) / mega
		r.ConsumedMB += consumed
	}
	if len(r.Epochs) == 0 || r.Epochs[0].Epoch != 0 ||
		r.Epochs[len(r.Epochs)-1].Epoch != len(r.Epochs)-1 {
		return nil, errors.New("the report has no epochs, starting with the first, that all ranks " +
			"finished; take the report at the end of a run")
	}
	return r, nil
}

// renamed reads the fields that have other names in a report of version 0.2 or earlier
// (docs/COMPATIBILITY.md).
func renamed(data []byte, p *stats.Report) error {
	if len(p.Tiers) > 0 {
		return nil
	}
	var old struct {
		Places []struct {
			stats.Speed
			Place string `json:"place"`
		} `json:"places"`
		Classes []struct {
			Room int64 `json:"room"`
		} `json:"classes"`
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return err
	}
	for _, s := range old.Places {
		s.Speed.Tier = s.Place
		p.Tiers = append(p.Tiers, s.Speed)
	}
	for j, c := range old.Classes {
		p.Classes[j].Capacity = c.Room
	}
	return nil
}

func (r *Run) stream() (*access.Stream, error) {
	p := &r.report
	return access.New(access.Spec{
		Samples: p.Samples, Seed: p.Seed, WorldSize: p.WorldSize, GlobalBatch: p.GlobalBatch,
		DropLast: p.DropLast,
		Shuffle:  access.Shuffle(p.Shuffle), Scheme: access.Scheme(p.Scheme),
		Tail: access.Tail(p.Tail),
	})
}

// epoch aggregates what the ranks measured in an epoch; ok is false if a rank did not finish it. A
// rank's time runs from requesting the first batch to yielding the last, so the computation of one
// step is added.
func (r *Run) epoch(number, steps int) (e RunEpoch, consumedMB float64, ok bool) {
	e.Epoch = number
	finished := 0
	for _, rank := range r.report.Ranks {
		for _, own := range rank.Epochs {
			if own.Epoch != number || own.Batches != int64(steps) {
				continue
			}
			finished++
			e.Seconds += (own.Seconds + step(&own.Tally)) / float64(len(r.report.Ranks))
			for _, a := range own.Reads {
				consumedMB += float64(a.Bytes) / mega
			}
		}
	}
	return e, consumedMB, finished == len(r.report.Ranks)
}

// step returns the time of one step's computation, in seconds. It includes the Python package's
// processing of a batch, which the model does not have.
func step(t *stats.Tally) float64 {
	return max(t.Seconds-t.StallSeconds()+t.Stall[stats.Python], 0) / float64(max(t.Batches-1, 1))
}

// Fits reports whether a dataset has as many samples and bytes as that of the run.
func (r *Run) Fits(samples int, bytes int64) bool {
	return samples == r.report.Samples && bytes == r.report.Bytes
}

// Job returns the run as a job to simulate: one node with all ranks and the measured rates. sizes
// returns a sample's bytes by ID; if it is nil, all samples have the mean size.
func (r *Run) Job(sizes func(id int) int64) (*simulate.Job, error) {
	p := &r.report
	stream, err := r.stream()
	if err != nil {
		return nil, err
	}
	job := &simulate.Job{
		Env:   r.environment(),
		Nodes: 1, Epochs: len(r.Epochs), GlobalBatch: p.GlobalBatch, DropLast: p.DropLast,
		Scheme: access.Uniform, Seed: p.Seed, Sizes: make([]float64, p.Samples),
	}
	for id := range job.Sizes {
		job.Sizes[id] = float64(p.Bytes) / float64(p.Samples) / mega
		if sizes != nil {
			job.Sizes[id] = float64(sizes(id)) / mega
		}
	}
	if p.Tail == string(access.Pad) && p.Samples%p.WorldSize != 0 || p.Tail == string(access.Drop) {
		return job, nil // an epoch is not a permutation, so any order will do
	}
	for e := range r.Epochs {
		view, order := stream.Epoch(e), make([]int32, 0, p.Samples)
		for t := range stream.Steps() {
			order = view.Global(order, t)
		}
		if len(order) != p.Samples {
			job.Order = nil
			break
		}
		job.Order = append(job.Order, order)
	}
	return job, nil
}

// environment returns the machine with the rates that the run measured (thesis 3.1.1).
func (r *Run) environment() perfmodel.Environment {
	p := &r.report
	var compute, consumed float64
	for _, rank := range p.Ranks {
		for _, e := range rank.Epochs {
			if e.Epoch < len(r.Epochs) {
				compute += float64(e.Batches) * step(&e.Tally) / float64(len(p.Ranks))
				for _, a := range e.Reads {
					consumed += float64(a.Bytes) / mega
				}
			}
		}
	}
	rate := func(tier string) float64 {
		for _, m := range p.Tiers {
			if m.Tier == tier && m.Busy > 0 && m.Bytes > 0 {
				return float64(m.Bytes) / mega / m.Busy
			}
		}
		return unmeasured
	}
	env := perfmodel.Environment{
		Compute: unmeasured, Preprocess: unmeasured, PeerBandwidth: unmeasured,
		SourceBandwidth: rate("source"), SourceThroughput: perfmodel.Constant(rate("source")),
	}
	if compute > 0 {
		env.Compute = consumed / compute
	}
	var staging float64
	for _, rank := range p.Ranks {
		staging += float64(rank.Staging.Size) / mega
	}
	threads := max(p.Threads, 1)
	env.Classes = append(env.Classes, perfmodel.Class{
		Capacity: staging, Threads: threads, Read: perfmodel.Constant(unmeasured),
		Write: perfmodel.Constant(unmeasured),
	})
	for _, c := range p.Classes {
		env.Classes = append(env.Classes, perfmodel.Class{
			Capacity: float64(c.Capacity) / mega, Threads: max(threads*3/4, 1),
			Read: perfmodel.Constant(rate(c.Name)), Write: perfmodel.Constant(unmeasured),
		})
	}
	return env
}
