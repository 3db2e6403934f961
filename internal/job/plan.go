package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

const (
	// openEnd is the planning horizon of a stream without an end, in epochs.
	openEnd = 100
	// planAtOnce is how long planning may keep a job from being open; a plan that takes longer is made while batches flow.
	planAtOnce = 50 * time.Millisecond
	// patience is how long planning waits for the first batches, which are wanted more urgently.
	patience = 5 * time.Second
	// margin is how many times the estimate planning may take before ranks have to wait for it.
	margin = 8
)

// makePlan asks the policy for the job's plan, or lets a planner ask it while batches flow.
func (j *Job) makePlan(ctx context.Context) error {
	policy, err := j.node.policy(j.cfg.Policy)
	if err != nil {
		return badInput("%v", err)
	}
	in, err := j.planInput(ctx)
	if err != nil {
		return err
	}
	if err := j.node.checkPlan(placement.Memory(in)); err != nil {
		return err
	}
	starter, ok := policy.(placement.Starter)
	if ok && planTime(in) > j.node.planAtOnce {
		j.planner = newPlanner(j, starter, in)
		return nil
	}
	in.Context = ctx
	plan, err := policy.Plan(in)
	if err != nil {
		return err
	}
	j.follow(plan)
	return nil
}

// planInput is what the policy looks at: the nodes with their classes, and what these hold.
func (j *Job) planInput(ctx context.Context) (placement.Input, error) {
	index := j.dataset.Index()
	node := placement.Node{}
	for r := range j.message.WorldSize {
		node.Ranks = append(node.Ranks, r)
	}
	for _, c := range j.dataset.shared.used() {
		held := c.store.Held()
		if _, inPlace := c.store.(storageclass.InPlace); !inPlace && c.room >= index.Bytes() {
			node.Kept = append(node.Kept, held...) // it keeps everything: faster classes may have copies
			held = nil
		}
		node.Capacity = append(node.Capacity, c.room)
		node.Held = append(node.Held, held)
	}
	in := placement.Input{
		Stream: j.stream, Epochs: openEnd, Nodes: []placement.Node{node},
		// An empty file takes no room, and no policy divides by it.
		Size: func(id int) int64 { return max(index.Size(id), 1) },
	}
	if j.others != nil {
		var err error
		if in.Nodes, err = j.others.placementNodes(ctx, node); err != nil {
			return in, err
		}
	}
	j.room = 0
	for _, n := range in.Nodes {
		for _, room := range n.Capacity {
			j.room += room
		}
	}
	return in, nil
}

// planTime estimates how long one core takes to make the plan.
func planTime(in placement.Input) time.Duration {
	const perSample, perRead = 300, 30 // ns
	epochs := cmp.Or(in.Stream.Spec().Epochs, in.Epochs)
	if len(in.Nodes) == 1 {
		epochs = 1
	}
	samples := float64(in.Stream.Spec().Samples)
	return time.Duration(samples * (perSample + perRead*float64(epochs)))
}

// me is this node's number.
func (j *Job) me() int {
	if j.others == nil {
		return 0
	}
	return j.others.me
}

// ours is this node's part of a plan: per class, the samples that it is to hold.
func (j *Job) ours(p *placement.Plan) [][]int32 { return p.Nodes[j.me()].Classes }

// adopt lets the plan say what is kept, and who is asked for what.
func (j *Job) adopt(p *placement.Plan) {
	if o := j.others; o != nil {
		o.roster.follow(p, o.rooms, j.dataset.Index().Size, func(now *placement.Plan) {
			j.use.Keep(j.ours(now))
			if now.Remote {
				o.peers.SetOwner(now.OwnerOf)
			}
		})
	} else {
		j.use.Keep(j.ours(p))
	}
	j.plan.Store(p)
}

// follow does what the plan says from now on, for good.
func (j *Job) follow(p *placement.Plan) {
	j.adopt(p)
	if !p.OnRead {
		j.use.Fill(j.ours(p), j.readAhead)
	}
}

// readAhead charges what was read from the source for no batch of this node: to fill classes, or for other nodes.
func (j *Job) readAhead(bytes int64) { j.fillRead.Source(int(j.epochNow.Load()), bytes) }

// prefetches tells whether the staging buffers are filled ahead of time.
func (j *Job) prefetches() bool {
	plan := j.plan.Load()
	return plan == nil || plan.Prefetch // no policy that does not has a planner
}

// caches tells whether some node keeps anything for the job, or will.
func (j *Job) caches() bool {
	plan := j.plan.Load()
	return plan == nil || j.planning() || slices.ContainsFunc(plan.Nodes, func(n placement.NodePlan) bool {
		return slices.ContainsFunc(n.Classes, func(ids []int32) bool { return len(ids) > 0 })
	})
}

// planning tells whether the plan is still being made.
func (j *Job) planning() bool {
	if j.planner == nil {
		return false
	}
	select {
	case <-j.planner.done:
		return false
	default:
		return true
	}
}

// checkPlan refuses a plan that the memory has no room for.
func (n *Node) checkPlan(bytes int64) error {
	return n.checkRoom(bytes, "plan of who caches what", "make memory or epochs smaller, or take policy minio")
}

// planner makes a job's plan while batches flow already (placement.Starter).
//
// Where the first rank of a node begins to read, begin lets the node follow the policy's First for an epoch from there: the node
// reads itself what its ranks need, and keeps it. No node has to ask another for that. Once every rank of the node has a
// batch, or patience is over, run tells the other nodes where this one began and how far it will have come at
// the most when the plan is there: its lead. From all leads each node knows what each will have kept (placement.Resume), and
// plans with it, so nothing that was read in the leads is read again. When all nodes have their plans all follow them: if some
// did so sooner they would ask others for samples that these do not know they are to keep.
//
// A lead ends early enough to leave most of the plan its freedom, and late enough that the plan should be there by then. Where it is
// not, because ranks come through the stream faster than could be told from their first batches, they wait for it at the end of the
// lead (may): nothing is read that the plan does not count with, but under frequency, which keeps nothing before.
type planner struct {
	job    *Job
	policy placement.Starter
	in     placement.Input

	once  sync.Once // begin sets what follows
	lead  placement.Lead
	began time.Time
	err   error
	begun chan struct{} // closed when it has

	mu      sync.Mutex    // guards what follows
	fed     map[int]bool  // ranks of the node that have a batch
	flowing chan struct{} // closed when all have
	reached int           // behind the last step that may be staged so far; steps count through all epochs here
	end     int           // of the lead

	cancel context.CancelFunc
	done   chan struct{} // closed when run has ended
}

// newPlanner starts a planner; close ends it.
func newPlanner(j *Job, policy placement.Starter, in placement.Input) *planner {
	ctx, cancel := context.WithCancel(context.Background())
	in.Context = ctx
	p := &planner{
		job: j, policy: policy, in: in,
		begun: make(chan struct{}), fed: map[int]bool{}, flowing: make(chan struct{}), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(p.done)
		if err := p.run(ctx); err != nil && ctx.Err() == nil {
			j.fail(fmt.Errorf("plan who caches what: %w", err))
		}
	}()
	return p
}

func (p *planner) close() {
	p.cancel()
	<-p.done
}

// begin makes the node read from a step on as long as there is no plan; only the first call counts.
func (p *planner) begin(epoch, step int) error {
	p.once.Do(func() {
		defer close(p.begun)
		p.began = time.Now()
		p.lead = placement.Lead{Epoch: epoch, Step: step, Steps: p.in.Stream.Steps()}
		var first *placement.Plan
		if first, p.err = p.policy.First(p.from(epoch), p.lead); p.err == nil {
			p.job.adopt(first)
			p.extend(p.lead)
		}
	})
	return p.err
}

// from is the planner's input with its horizon counted from an epoch, where the stream has no end.
func (p *planner) from(epoch int) placement.Input {
	in := p.in
	in.Epochs += epoch
	return in
}

// feeds notes that a rank has got a batch.
func (p *planner) feeds(rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := len(p.in.Nodes[p.job.me()].Ranks); len(p.fed) < want {
		if p.fed[rank] = true; len(p.fed) == want {
			close(p.flowing)
		}
	}
}

// may lets a batch be staged, if it is in the lead or there is a plan; else it waits for that.
func (p *planner) may(ctx context.Context, epoch, step int) error {
	at := epoch*p.in.Stream.Steps() + step
	p.mu.Lock()
	free := at < p.end
	if free {
		p.reached = max(p.reached, at+1)
	}
	p.mu.Unlock()
	if free {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run makes the plan, and follows it.
func (p *planner) run(ctx context.Context) error {
	j := p.job
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.flowing:
	case <-timeout.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.begin(0, 0); err != nil {
		return err
	}
	lead := p.settle()
	leads := []placement.Lead{lead}
	last := lead.Epoch
	if j.others != nil {
		var err error
		if leads, err = j.others.leads(ctx, lead, p.in.Stream.Steps()); err != nil {
			return err
		}
		for _, l := range leads {
			last, lead.Steps = max(last, l.Epoch), max(lead.Steps, l.Steps)
		}
		for n := range leads { // so that it is one plan that they follow
			leads[n].Steps = lead.Steps
		}
		p.extend(lead)
	}
	in, err := placement.Resume(p.policy, p.from(last), leads)
	if err != nil {
		return err
	}
	first := *j.plan.Load()
	first.Nodes = make([]placement.NodePlan, len(in.Nodes))
	for n := range in.Nodes {
		first.Nodes[n].Classes = in.Nodes[n].Held // and no more
	}
	j.adopt(&first)
	plan, err := p.policy.Plan(in)
	if err != nil {
		return err
	}
	if j.others != nil {
		between := *plan // kept as the plan has it, and asked for as before
		between.Owner = first.Owner
		j.adopt(&between)
		if err := j.others.planned(ctx); err != nil {
			return err
		}
	}
	j.follow(plan)
	j.log.Debug("planned", "policy", plan.Policy, "lead", lead.Steps, "seconds", time.Since(p.began).Seconds())
	return nil
}

// settle says where the lead ends: behind what has been staged, what may be staged ahead of that, and what is read in margin
// times the estimated time at the rate until now; but not after an epoch, in which everything was needed once.
func (p *planner) settle() placement.Lead {
	j, lead := p.job, p.lead
	staged := 0
	j.mu.Lock()
	for _, r := range j.ranks {
		staged = max(staged, r.stager.Staged())
	}
	j.mu.Unlock()
	rate := float64(staged) / time.Since(p.began).Seconds()
	ahead := j.cfg.PrefetchBatches + int(math.Ceil(min(margin*rate*planTime(p.in).Seconds(), float64(lead.Steps))))
	p.mu.Lock()
	defer p.mu.Unlock()
	begin := lead.Epoch*p.in.Stream.Steps() + lead.Step
	if staged > 0 && len(p.in.Nodes) > 1 { // otherwise nothing is known of the rate, or it makes no difference
		lead.Steps = min(lead.Steps, max(p.reached-begin, 0)+ahead)
	}
	p.end = p.endOf(lead)
	return lead
}

// extend lets the lead end later.
func (p *planner) extend(lead placement.Lead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = max(p.end, p.endOf(lead))
}

// endOf returns the step before which ranks may read by the lead: none has to wait if it is a whole epoch. Who keeps what is
// settled then, but for what that epoch drops.
func (p *planner) endOf(lead placement.Lead) int {
	steps := p.in.Stream.Steps()
	if lead.Step == 0 && lead.Steps == steps {
		return math.MaxInt
	}
	return lead.Epoch*steps + lead.Step + lead.Steps
}

// fail ends the job with an error, on all its ranks here.
func (j *Job) fail(err error) {
	j.log.Error("the job fails", "error", err)
	j.end(limit(err))
}

// failure is why the job failed; nil: it has not.
func (j *Job) failure() error {
	if err := context.Cause(j.life); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// adviseRoom tells when the caches hold only a part of the dataset, because every
// epoch then reads the rest again.
func (j *Job) adviseRoom() {
	room, total := j.room, j.dataset.Index().Bytes()
	if room < total && slices.Contains([]string{"cooperative", "frequency", "partitioned", "minio"}, j.cfg.Policy) {
		j.warnings = append(j.warnings, fmt.Sprintf("the caches have room for %s of the dataset's %s; the rest is read from the source in every epoch: raise memory, or give cache_dir on a fast local disk",
			size.Format(room), size.Format(total)))
	}
}

// assembleCache joins the dataset's cache, or makes it, and plans what the job has it keep.
func (j *Job) assembleCache(ctx context.Context) error {
	made, err := j.joinCache()
	if err != nil {
		return err
	}
	j.fillRead = prefetch.NewLedger(j.cache, nil)
	var peers prefetch.Peers
	if j.others != nil {
		peers = j.others.peers
	}
	j.use = j.cache.Use(peers)
	if err := j.makePlan(ctx); err != nil {
		return err
	}
	if j.others != nil { // now, so that who has a plan sooner and asks for a sample waits until it is known who keeps it
		j.others.serve(j.cache)
	}
	if made {
		j.adviseRoom()
	} else {
		j.warnings = append(j.warnings, "another job has the dataset open: its storage classes and their sizes are used")
	}
	return nil
}

// joinCache joins the dataset's cache, or makes it. What belongs to the job alone, its plan and its other nodes, is in its
// Use of the cache: so jobs may come and go in any order.
func (j *Job) joinCache() (made bool, err error) {
	s := j.dataset.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if made = s.cache == nil; made {
		index := j.dataset.Index()
		if err := j.openStores(storageclass.Dataset{Fingerprint: index.Fingerprint(), Samples: index.Len(), Size: index.Size}); err != nil {
			return false, err
		}
		o := prefetch.CacheOptions{Index: index, Source: s.source, Threads: j.cfg.SourceThreads, Timeout: j.cfg.SourceTimeout}
		for _, c := range s.classes {
			_, inPlace := c.store.(storageclass.InPlace)
			o.Classes = append(o.Classes, prefetch.Class{Name: c.name, Store: c.store, KeepAll: !inPlace && c.room >= index.Bytes()})
		}
		s.cache = prefetch.NewCache(o)
		s.cached.Store(true)
	}
	s.cacheRefs++
	j.cache = s.cache
	return made, nil
}

// used are the storage classes of the dataset's cache.
func (s *sharedDataset) used() []usedClass {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.classes)
}
