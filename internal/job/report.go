package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/peer"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/preprocess"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// Report is a job's ledger: what its ranks waited for, where every byte came
// from, and how close it came to the lower bound (DESIGN 6 and 7).
type Report struct {
	Job         string `json:"job"`
	Dataset     string `json:"dataset"`
	Samples     int    `json:"samples"`
	Bytes       int64  `json:"bytes"`
	Policy      string `json:"policy"`
	Node        int    `json:"node"` // this one, of Nodes
	Nodes       int    `json:"nodes"`
	WorldSize   int    `json:"world_size"`
	GlobalBatch int    `json:"global_batch_size"`
	Seed        uint64 `json:"seed"`
	Planned     int    `json:"planned_epochs"` // 0: no end
	Steps       int    `json:"steps"`          // of an epoch
	DropLast    bool   `json:"drop_last"`
	Shuffle     string `json:"shuffle"`
	Scheme      string `json:"scheme"`
	Tail        string `json:"tail"`
	Threads     int    `json:"source_threads"`
	Sentence    string `json:"sentence"`
	// Assembling: the job is not open yet, because its dataset is scanned or its
	// caches are opened; there are no numbers.
	Assembling bool `json:"assembling,omitempty"`
	// Planning: batches flow, and the plan of who caches what is still being made.
	Planning bool    `json:"planning,omitempty"`
	Stall    float64 `json:"stall_seconds"` // of next(), summed over ranks and epochs
	// Utilisation is the share of the time, from asking for an epoch's first batch
	// to yielding its last, in which next() was not blocked; over all ranks.
	Utilisation float64 `json:"utilisation"`
	// Source is what left the source for this job, filling of classes included.
	Source prefetch.Amount `json:"source"`
	// Bound is S + (E-1) max(0, S-D) for the epochs begun, and BoundShare how much
	// of it Source is: 1 is the best that these caches allow, below 1 they were warm.
	Bound      int64            `json:"bound_bytes"`
	BoundShare float64          `json:"bound_share"`
	Epochs     []EpochSummary   `json:"epochs"`
	Ranks      []RankReport     `json:"ranks"`
	Classes    []ClassReport    `json:"classes"`
	Places     []prefetch.Speed `json:"places"`
	Faults     []prefetch.Fault `json:"faults"`
	// Preprocessing is what transforming the samples has taken; nil: they are delivered as they are.
	Preprocessing *preprocess.Report `json:"preprocessing,omitempty"`
	Waiting       *Waiting           `json:"waiting,omitempty"`
	// Peers are the other nodes, as this one sees them; empty in a job of one node.
	Peers []peer.State `json:"peers,omitempty"`
}

// EpochSummary is one epoch over all ranks.
type EpochSummary struct {
	prefetch.EpochReport
	StallSeconds float64 `json:"stall_seconds"`
}

// RankReport is one rank's part.
type RankReport struct {
	Rank int  `json:"rank"`
	Open bool `json:"open"`
	Position
	Epochs  []prefetch.EpochReport `json:"epochs"`
	Staging StagingReport          `json:"staging"`
}

// Position is the batch that a rank takes next.
type Position struct {
	Epoch int `json:"epoch"`
	Step  int `json:"step"`
}

// StagingReport is a rank's staging buffer, in bytes.
type StagingReport struct {
	Size  int64 `json:"size"`
	Used  int64 `json:"used"`
	Extra int64 `json:"extra"` // beside the ring, because the process keeps many batches
}

// ClassReport is one storage class, in bytes.
type ClassReport struct {
	Name string `json:"name"`
	Room int64  `json:"room"`
	Used int64  `json:"used"`
}

// Waiting is the read that has been under way longest.
type Waiting struct {
	Sample  int     `json:"sample"`
	Path    string  `json:"path"`
	Seconds float64 `json:"seconds"`
}

// Report reports the job's ledger.
func (r *Rank) Report() *Report { return r.job.report() }

// Reports lists the reports of all jobs, by name.
func (n *Node) Reports() []*Report {
	var out []*Report
	for _, j := range n.open() {
		if r := j.now(); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// assembling reports a job that is being put together.
func (j *Job) assembling() *Report {
	j.mu.Lock()
	ranks := j.refs
	j.mu.Unlock()
	found := ""
	if n := j.scanned.Load(); n > 0 {
		found = fmt.Sprintf(", %d files found so far", n)
	}
	me, nodes := place(&j.message)
	return &Report{
		Node: me, Nodes: nodes,
		Job: j.message.Job, Dataset: j.message.Dataset.Path, Policy: j.cfg.Policy,
		WorldSize: j.message.WorldSize, GlobalBatch: j.message.Stream.GlobalBatch,
		Assembling: true,
		Sentence: fmt.Sprintf("The job is being put together since %.1f s%s; %d of %d rank(s) wait for it.",
			time.Since(j.began).Seconds(), found, ranks, j.message.WorldSize),
	}
}

func (j *Job) report() *Report {
	index := j.dataset.Index()
	me, nodes := place(&j.message)
	r := &Report{
		Node: me, Nodes: nodes, Steps: j.stream.Steps(),
		Job: j.message.Job, Dataset: j.message.Dataset.Path, Samples: index.Len(), Bytes: index.Bytes(),
		Policy: j.cfg.Policy, WorldSize: j.message.WorldSize, GlobalBatch: j.message.Stream.GlobalBatch,
		Seed: *j.message.Stream.Seed, Planned: j.message.Stream.Epochs, DropLast: j.message.Stream.DropLast,
		Shuffle: j.message.Stream.Shuffle, Scheme: j.message.Stream.Scheme, Tail: j.message.Stream.Tail,
		Threads: j.cfg.SourceThreads, Planning: j.planning(), Places: j.cache.Speeds(), Faults: j.faults.List(),
	}
	var room int64
	s := j.dataset.shared
	s.mu.Lock()
	for _, c := range s.classes {
		total, used := c.store.Room()
		room += total
		r.Classes = append(r.Classes, ClassReport{c.name, total, used})
	}
	s.mu.Unlock()
	if !j.caches() {
		room = 0
	}
	if w, ok := j.cache.Waiting(); ok {
		r.Waiting = &Waiting{w.Sample, w.Path, time.Since(w.Since).Seconds()}
	}

	if j.preprocessor != nil {
		r.Preprocessing = j.preprocessor.Report()
	}
	j.mu.Lock()
	for rank, ledger := range j.ledgers {
		rr := RankReport{Rank: rank, Epochs: ledger.Epochs()}
		if epoch, step, ok := ledger.Last(); ok {
			rr.Position = Position{epoch, step + 1}
			if rr.Step == r.Steps {
				rr.Position = Position{epoch + 1, 0}
			}
		}
		if open := j.ranks[rank]; open != nil {
			rr.Open = true
			_, rr.Staging.Size = open.buffer.Ring()
			rr.Staging.Used, rr.Staging.Extra = open.buffer.Usage()
		}
		r.Ranks = append(r.Ranks, rr)
	}
	j.mu.Unlock()
	slices.SortFunc(r.Ranks, func(a, b RankReport) int { return cmp.Compare(a.Rank, b.Rank) })
	r.sum(j.fillRead.Epochs())
	r.Bound = placement.Bound(index.Bytes(), room, max(r.begun(), 1))
	if j.others != nil {
		r.Peers = j.others.peers.States()
		// This node's share of the bound of all.
		r.Bound = placement.Bound(index.Bytes(), j.room, max(r.begun(), 1)) / int64(j.others.nodes())
	}
	r.BoundShare = float64(r.Source.Bytes) / float64(max(r.Bound, 1))
	r.Sentence = r.sentence()
	return r
}

// sum adds the ranks' epochs, and what the filler read, up.
func (r *Report) sum(fill []prefetch.EpochReport) {
	byEpoch := map[int]*EpochSummary{}
	epoch := func(e int) *EpochSummary {
		s := byEpoch[e]
		if s == nil {
			s = &EpochSummary{EpochReport: prefetch.EpochReport{Epoch: e, Stall: map[string]float64{}, Reads: map[string]prefetch.Amount{}}}
			byEpoch[e] = s
		}
		return s
	}
	var seconds float64
	for _, rank := range r.Ranks {
		for _, e := range rank.Epochs {
			s := epoch(e.Epoch)
			s.Add(&e)
			s.StallSeconds += e.StallSeconds()
			r.Stall += e.StallSeconds()
			seconds += e.Seconds
		}
	}
	for _, e := range fill {
		epoch(e.Epoch).Add(&e)
	}
	for _, s := range byEpoch {
		r.Source.Samples += s.Source.Samples
		r.Source.Bytes += s.Source.Bytes
		r.Epochs = append(r.Epochs, *s)
	}
	slices.SortFunc(r.Epochs, func(a, b EpochSummary) int { return cmp.Compare(a.Epoch, b.Epoch) })
	if seconds > 0 {
		r.Utilisation = max(0, 1-r.Stall/seconds)
	}
}

// begun is the number of epochs of which a batch was yielded.
func (r *Report) begun() int {
	n := 0
	for _, e := range r.Epochs {
		if e.Batches > 0 {
			n++
		}
	}
	return n
}

// sentence says what the numbers mean.
func (r *Report) sentence() string {
	if r.begun() == 0 {
		return "No batch has been read yet."
	}
	causes := map[string]float64{}
	for _, e := range r.Epochs {
		for cause, s := range e.EpochReport.Stall {
			causes[cause] += s
		}
	}
	worst, most := worst(causes)
	var b strings.Builder
	ranks := max(len(r.Ranks), 1)
	who := "the process"
	if ranks > 1 {
		who = fmt.Sprintf("each of %d ranks", ranks)
	}
	fmt.Fprintf(&b, "In %s %s waited %.3f s for data", plural(r.begun(), "epoch"), who, r.Stall/float64(ranks))
	if first, later, busy := r.settled(); r.begun() > 1 {
		fmt.Fprintf(&b, ", %.3f s of it in the first epoch and %.3f s in each later one (utilisation there %.1f %%)", first/float64(ranks), later/float64(ranks), 100*busy)
	}
	if most > 0.05*r.Stall && r.Stall > 0.001 {
		fmt.Fprintf(&b, "; %.0f %% of the time was for %s", 100*most/r.Stall, causeText(worst))
	}
	fmt.Fprintf(&b, ". %s left the source, %.2f times the least that these caches allow (%s).",
		size.Format(r.Source.Bytes), r.BoundShare, size.Format(r.Bound))
	if r.Planning {
		b.WriteString(" Who caches what is still being planned.")
	}
	if n := len(r.Faults); n > 0 {
		fmt.Fprintf(&b, " %s could not be read or transformed.", plural(n, "sample"))
	}
	return b.String()
}

// settled returns the stall of the first epoch and the mean of the later ones, in
// seconds over all ranks, and the utilisation of the later ones.
func (r *Report) settled() (first, later, utilisation float64) {
	var seconds float64
	epochs := 0
	for i, e := range r.Epochs {
		if i == 0 {
			first = e.StallSeconds
			continue
		}
		later += e.StallSeconds
		for _, rank := range r.Ranks {
			for _, own := range rank.Epochs {
				if own.Epoch == e.Epoch {
					seconds += own.Seconds
				}
			}
		}
		epochs++
	}
	if seconds > 0 {
		utilisation = max(0, 1-later/seconds)
	}
	return first, later / float64(max(epochs, 1)), utilisation
}

// worst is the cause of most of a stall.
func worst(stall map[string]float64) (cause string, most float64) {
	for c, s := range stall {
		if s > most || (s == most && c < cause) {
			cause, most = c, s
		}
	}
	return cause, most
}

// place tells which node this is, and of how many.
func place(m *protocol.OpenMessage) (node, nodes int) {
	if m.Cluster == nil {
		return 0, 1
	}
	return m.Cluster.Node, m.Cluster.Nodes
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if strings.HasSuffix(word, "tch") {
		word += "e"
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func causeText(cause string) string {
	switch cause {
	case "source":
		return "the source"
	case "peer":
		return "other nodes"
	case "consumer":
		return "room in the staging buffer, because the process keeps its batches"
	case "handover":
		return "batches that were ready: the way to the process"
	}
	if name, ok := strings.CutPrefix(cause, "transform "); ok {
		return "the transform " + name
	}
	return "storage class " + cause
}

// Explanation says which samples a step has.
type Explanation struct {
	Epoch  int      `json:"epoch"`
	Step   int      `json:"step"`
	Rank   int      `json:"rank"`
	IDs    []int32  `json:"ids"`
	Labels []int    `json:"labels"`
	Paths  []string `json:"paths"` // below the dataset's root
}

// Explain says, from the seed alone, which samples a step had or will have.
// rank -1 is the caller's.
func (r *Rank) Explain(epoch, step, rank int) (*Explanation, error) {
	if rank < 0 {
		rank = r.rank
	}
	if rank >= r.job.message.WorldSize {
		return nil, badInput("rank %d is outside the world size %d", rank, r.job.message.WorldSize)
	}
	if epoch < 0 || step < 0 || step >= r.job.stream.Steps() {
		return nil, badInput("epoch %d, step %d: epochs count from 0, steps are 0 to %d", epoch, step, r.job.stream.Steps()-1)
	}
	if err := r.Check(epoch, step); err != nil {
		return nil, err
	}
	x := &Explanation{Epoch: epoch, Step: step, Rank: rank}
	x.IDs = r.job.epoch(epoch).Batch([]int32{}, rank, step)
	index := r.job.dataset.Index()
	for _, id := range x.IDs {
		x.Labels = append(x.Labels, index.Label(int(id)))
		x.Paths = append(x.Paths, index.Name(int(id)))
	}
	return x, nil
}

// Audit compares what the ranks were delivered in an epoch with what they should
// have been; see Job.Audit.
func (r *Rank) Audit(ctx context.Context, epoch int) (*Audit, error) {
	return r.job.Audit(ctx, epoch)
}
