package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/distance"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// model is a run of the profile Model. Time is virtual. Events come from one queue for all nodes,
// ordered by time, then by rank (loop). What follows from an event without another one, such as
// when the samples in the staging buffer are consumed, is computed at once.
//
// Where the semantics differ from those of the profile Thesis:
//
//   - A node reads ahead as far as its staging buffer has capacity. Capacity is taken when a read
//     begins and returned when the sample is consumed. Reads occupy no thread: as in the engine,
//     they have streams of their own, as many as pay off, and a sample that is fetched then takes
//     one of p_0 threads for write_i(k) (processor). In the thesis (equations 3.3, 3.4) a thread
//     fetches and then writes, so that p_0 limits the reads as well. This holds for all policies,
//     because the engine runs all of them in this way.
//   - Each read goes to the tier that routing.Choose takes, as in the engine: by when training
//     needs the sample (equation 3.2), and when each tier that has it would deliver it, with what
//     is queued there. Policies with CacheFirst never read from the source what a class has. Reads
//     that depend on the source wait for one of a few streams, and choose again then.
//   - The p reads in progress from a class together get r_j(p) (equations 3.6, 3.7), which is
//     divided in the order in which they began. b_c is what a node sends, and what it receives.
//   - The source is a fluid, divided among the nodes that read; a node's reads follow one another
//     (source). Those that staging waits for precede those that fill classes. The latency of a
//     transfer delays the sample, and neither the source nor other reads.
//   - A read of the source takes time of a processor (SourceWork), which the thread that
//     preprocesses the sample lacks. Reads for classes, and for other nodes, take none: few happen
//     after the first epoch.
//   - p_j threads per class fill it from the source in the order of the plan, unless the plan fills
//     classes only by reads for training (OnRead). They skip samples that are being read already.
//     Staging waits for a read of the sample that is under way, and gets it from memory; a sample
//     that it reads from the source is kept if the plan places it on the node. Under a plan that
//     reads each sample once from the source (ReadOnce), it asks the sample's owner to read it,
//     unless a copy is there already.
//   - Writing to a class at w_j(p_j)/p_j takes time of the thread that fills it; copies kept by
//     staging are written in the background.
//   - All nodes start a batch together. Computation takes s/c per sample and overlaps with all
//     reads.
//   - Jobs of a node, each with a rank on every node and an order of its own, share its classes,
//     its links and the source. Threads and staging buffer are divided among them, as every loader
//     has its own. A sample that one of them brings to a class is there for all.
//
// Sizes are rounded to bytes for placement only.
type simulation struct {
	job     *Job
	plan    *plan.Plan
	how     simulated.Run
	sizes   []float64
	jobs    []training
	ranks   []rank // of the first job by node, then those of the next
	links   []link // per node
	copies  copies
	source  source
	clock   tournament // per rank: time of its next event
	reading []classReads
	rates   []rates // per class
	waiters []waiter
	spare   []int32     // unused waiters
	ready   []*training // those that wait for release
	measure *distance.Measure
	further [][]int32 // per node, what follows in space that dropped copies leave
	drops   *drops    // nil: the policy drops no copy

	classes       int       // J+1
	streams       int       // reads of a node that depend on the source
	steps, epochs int       // batches of an epoch, epochs
	full, last    []int     // samples of a batch per node, and of an epoch's last
	perMB         float64   // 1/c
	write         float64   // seconds per MB, write_i(k) of thesis 3.1.3
	perThread     float64   // 1/p_0, of a job's part of the threads
	slowdown      float64   // of a thread, if there are more jobs than threads
	saved         float64   // seconds per MB that a sample's form saves
	formed        []float64 // per node: the part of class 1 that are forms
	buffer        float64   // d_0, a job's part of it
	part          float64   // MB of the buffer that are refilled together
	peer          float64   // 1/b_c
	latency       float64
	work          float64 // of a thread for a read of the source

	now      float64
	training bool // false while classes are filled before training
	active   int  // fill threads at work
	left     int  // jobs that train
	over     bool

	local  []Amount // per class
	result Result
}

// parts is how many refills fill a staging buffer.
const parts = 64

// RunModel simulates the job under the named policy, with its options (policies.ForSimulator), in
// the profile Model. If the policy cannot run the job, Supported is false in the Result and Reason
// is why. It returns an error for an unknown policy, an invalid job or a ctx that is done.
func RunModel(ctx context.Context, job *Job, policy string) (*Result, error) {
	p, err := policies.ForSimulator(policy)
	if err != nil {
		return nil, err
	}
	return Run(ctx, job, p)
}

// Run is like RunModel for a policy value, which need not be in a table.
func Run(ctx context.Context, job *Job, p plan.Policy) (*Result, error) {
	if err := job.Env.Validate(); err != nil {
		return nil, err
	}
	stream, err := streamOf(job, 0)
	if err != nil {
		return nil, err
	}
	in, err := plan.Ordered(p, input(job, stream))
	var planned *plan.Plan
	if err == nil {
		stream = in.Stream
		planned, err = p.Plan(in)
	}
	if no := (*plan.Unsupported)(nil); errors.As(err, &no) {
		return &Result{Reason: no.Reason}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	how, err := simulated.RunOf(p, in, planned)
	if err != nil {
		return nil, err
	}
	if how.Drop != nil && job.trainings() > 1 {
		return &Result{
			Reason: "it drops samples after the last read of one job, and several jobs read them",
		}, nil
	}
	m := newModel(job, stream, planned, how)
	if err := m.addJobs(p, stream); err != nil {
		return nil, err
	}
	if how.Drop != nil {
		m.drops = newDrops(ctx, m, m.further)
	}
	if how.Ideal {
		err = m.perfect(ctx)
	} else {
		err = m.run(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", p.Name(), err)
	}
	return m.finish(&in), nil
}

// streamOf returns the access stream of the node's k-th job, or an error if the job is invalid.
func streamOf(job *Job, k int) (*access.Stream, error) {
	if job.Epochs < 1 {
		return nil, fmt.Errorf("simulate: %d epochs; there must be at least one", job.Epochs)
	}
	if job.Jobs < 0 || job.Nodes*job.trainings() > maxRanks {
		return nil, fmt.Errorf("simulate: %d jobs on %d nodes; there may be from 1 job to %d of "+
			"all nodes together", job.Jobs, job.Nodes, maxRanks)
	}
	for k, s := range job.Sizes {
		if !(s >= 0) || math.IsInf(s, 1) {
			return nil,
				fmt.Errorf("simulate: sample %d has %v MB; it must be 0 or more and finite", k, s)
		}
	}
	if err := job.Forms.Validate(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	spec := access.Spec{
		Samples: len(job.Sizes), Seed: job.Seed + uint64(k), Epochs: job.Epochs, WorldSize: job.Nodes,
		GlobalBatch: job.GlobalBatch,
		DropLast:    job.DropLast, Scheme: job.Scheme, Tail: access.Keep,
	}
	switch {
	case job.Order != nil && job.Mixture != nil:
		return nil, errors.New("simulate: an order and a mixture; give one")
	case job.Order != nil:
		return access.NewListed(spec, job.Order)
	case job.Mixture != nil:
		spec.Mixture, spec.Shuffle = job.Mixture, access.Feistel
	}
	return access.New(spec)
}

// Input returns what a policy plans by in a simulation of the job.
func Input(job *Job) (plan.Input, error) {
	stream, err := streamOf(job, 0)
	if err != nil {
		return plan.Input{}, err
	}
	return input(job, stream), nil
}

// input returns the job as a policy sees it.
func input(job *Job, stream *access.Stream) plan.Input {
	var capacity []int64
	for _, c := range job.Env.Classes[1:] {
		capacity = append(capacity, int64(c.Capacity*1e6))
	}
	in := plan.Input{
		Stream: stream, Env: &job.Env, Nodes: make([]plan.Node, job.Nodes),
		Size: func(k int) int64 { return max(1, int64(math.Ceil(job.Sizes[k]*1e6))) },
	}
	for i := range in.Nodes {
		in.Nodes[i] = plan.Node{Ranks: []int{i}, Capacity: capacity}
	}
	return in
}

// demands returns what each of the first epochs needs.
func demands(in *plan.Input, epochs int) []plan.Demand {
	list := make([]plan.Demand, epochs)
	last := make([]int, in.Stream.Spec().Samples) // one after the last epoch that had the sample
	var epoch *access.Epoch
	for e := range list {
		epoch = in.Stream.EpochInto(epoch, e)
		for step := range in.Stream.Steps() {
			for _, k := range epoch.Global(nil, step) {
				size := in.Size(int(k))
				if last[k] == 0 {
					list[e].New += size
				}
				if last[k] != e+1 {
					list[e].Bytes += size
				}
				last[k] = e + 1
			}
		}
	}
	return list
}

func newModel(job *Job, stream *access.Stream, plan *plan.Plan, how simulated.Run) *simulation {
	env := &job.Env
	jobs := job.trainings()
	var further [][]int32
	for i := 0; i < job.Nodes && how.Drop != nil; i++ {
		further = append(further, how.Drop(i))
	}
	share := float64(env.Classes[0].Threads) / float64(jobs) // of the threads
	buffer := env.Classes[0].Capacity / float64(jobs)
	m := &simulation{
		job: job, plan: plan, how: how, sizes: job.Sizes, left: jobs,
		jobs: make([]training, jobs), ranks: make([]rank, jobs*job.Nodes),
		links: make([]link, job.Nodes), copies: newCopies(plan, len(job.Sizes), further),
		source: newSource(env, job.Nodes), clock: newTournament(jobs * job.Nodes),
		classes: len(env.Classes), steps: stream.Steps(), epochs: job.Epochs,
		perMB: 1 / env.Compute, write: env.Write(1),
		perThread: 1 / share, slowdown: max(1, 1/share),
		buffer: buffer, part: buffer / parts,
		peer: 1 / env.PeerBandwidth, latency: env.SourceLatency,
		work: env.SourceThreadWork(), streams: sourceStreams,
		local: make([]Amount, len(env.Classes)),
	}
	for _, c := range env.Classes {
		m.rates = append(m.rates, newRates(c.Read))
	}
	m.reading = make([]classReads, job.Nodes*m.classes)
	m.saved, m.formed = m.write*(1-job.Forms.Time), formParts(job, plan)
	first := stream.Epoch(0)
	for i := range job.Nodes {
		m.full = append(m.full, len(first.Batch(nil, i, 0)))
		m.last = append(m.last, len(first.Batch(nil, i, m.steps-1)))
	}
	m.measure = distance.New(stream, m.full, m.last, m.epochs)
	if w := plan.Window; w != nil {
		m.streams = w.Workers
	}
	m.further = further
	m.result = Result{Supported: true}
	return m
}

// addJobs adds the jobs with their ranks. What the policy places is the first job's plan; others
// that it puts into another order are each put into one of their own.
func (m *simulation) addJobs(p plan.Policy, stream *access.Stream) error {
	nodes := m.job.Nodes
	for j := range m.jobs {
		t := &m.jobs[j]
		t.first = j == 0
		t.base = j * nodes
		t.ranks = m.ranks[j*nodes : (j+1)*nodes]
		t.stream = stream
		if j > 0 {
			own, err := streamOf(m.job, j)
			if err != nil {
				return err
			}
			in, err := plan.Ordered(p, input(m.job, own))
			if err != nil {
				return err
			}
			t.stream = in.Stream
		}
		for i := range t.ranks {
			n := &t.ranks[i]
			n.job = t
			n.on = i
			n.start = inf
			n.copies = make([]float64, copyStreams(m.job.Env.Classes[0].Threads))
			switch {
			case m.how.Cache == nil || m.classes == 1:
			case j > 0:
				n.cache, n.cached = m.ranks[i].cache, m.ranks[i].cached
			default:
				n.cache, n.cached = m.how.Cache(i), m.copies.keep(i)
			}
		}
	}
	return nil
}

// run simulates the plan.
func (m *simulation) run(ctx context.Context) error {
	m.startFilling()
	if m.plan.Preload && m.active > 0 {
		if err := m.loop(ctx, &m.training); err != nil {
			return err
		}
	} else {
		m.begin()
	}
	return m.loop(ctx, &m.over)
}

// finish fills in the result's totals and returns it.
func (m *simulation) finish(in *plan.Input) *Result {
	m.times()
	r := &m.result
	r.Reads.Local = map[string]Amount{}
	for j, a := range m.local {
		if j > 0 || a.Samples > 0 {
			r.Reads.Local[strconv.Itoa(j)] = a
		}
	}
	var size, room int64
	for k := range m.sizes {
		size += in.Size(k)
	}
	for _, n := range in.Nodes {
		for _, c := range n.Capacity {
			room += c
		}
	}
	bound := plan.Bound(size, room, m.epochs)
	if m.job.Mixture != nil {
		bound = plan.BoundOf(demands(in, m.epochs), func(int) int64 { return room })
	}
	r.ShareOfBound = r.SourceTotal * 1e6 / float64(bound)
	r.SeenPerEpoch, r.Shuffle = m.measure.Result()
	return r
}
