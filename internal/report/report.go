package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// Report describes a job on one node: what its ranks there waited for, where every byte came from,
// and how close it came to the lower bound (plan.Bound). Complete computes its sums.
type Report struct {
	Settings
	Sentence string `json:"sentence"` // summary of the numbers
	// Assembling is true while the job is being opened (its dataset is scanned or its caches are
	// opened); there are no numbers yet.
	Assembling bool `json:"assembling,omitempty"`
	// Planning is true while the cache plan is being made; batches are already delivered.
	Planning bool    `json:"planning,omitempty"`
	Stall    float64 `json:"stall_seconds"` // of next(), summed over ranks and epochs
	// Utilisation is the share of the time from the request for an epoch's first batch to the
	// delivery of its last in which next() was not blocked, over all ranks.
	Utilisation float64 `json:"utilisation"`
	// Source is what was read from the source for this job, including fills of classes.
	Source Amount `json:"source"`
	// BeforeTraining is how long filling the classes took before training began, on all nodes, in
	// seconds; 0: the policy does not fill them then.
	BeforeTraining float64 `json:"before_training_s,omitempty"`
	// Reordered is what a policy's own order does; nil: the ranks read the order that was asked for.
	Reordered *Reordered `json:"order,omitempty"`
	Bounds
	BoundInput
	Epochs []Epoch      `json:"epochs"`
	Ranks  []RankReport `json:"ranks"`
	Resources
	Faults []Fault `json:"faults"`
	// Preprocessing is the cost of transforming the samples; nil if they are delivered unchanged.
	Preprocessing *Preprocessing `json:"preprocessing,omitempty"`
	Waiting       *Waiting       `json:"waiting,omitempty"`
	// Requests are what the dataset's store was asked for; nil: the dataset is in files.
	Requests *Requests `json:"requests,omitempty"`
	// Peers are the other nodes as this one sees them; empty in a job of one node.
	Peers []Peer `json:"peers,omitempty"`
	// Series is how the job went over its steps; nil: no rank has taken a batch.
	Series *Series `json:"series,omitempty"`
	Plans
	Diagnosis
	// Mixed is of how many datasets the job takes samples by weights; 0: there is one.
	Mixed int `json:"mixed,omitempty"`

	run *remedy.Run // what Limit is computed from
}

// Settings say which job a Report is of, what it reads and how.
type Settings struct {
	Job       string `json:"job"`
	Dataset   string `json:"dataset"`
	Samples   int    `json:"samples"`
	Bytes     int64  `json:"bytes"`
	Subset    bool   `json:"subset,omitempty"` // the job uses a part of the dataset
	Positions int    `json:"positions"`        // samples of an epoch, before it is padded or cut
	// bytes of the samples that the job reads; if epochs are given, that its first epoch reads
	Needed      int64  `json:"needed_bytes"`
	Policy      string `json:"policy"`
	Node        int    `json:"node"` // this node's number, of Nodes
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
	Prefetch    int    `json:"prefetch_batches"` // most batches of a rank staged and not yet taken
	First       int    `json:"first_epoch"`      // the epoch that the job began with
}

// Reordered describes an order of the policy's own.
type Reordered struct {
	// Batches is set if all global batches keep their samples, which other ranks read.
	Batches bool `json:"keeps_global_batches"`
	// Seen is the share of the dataset that an epoch reads, on average over the first ones, and
	// Distance how far the order is from a full shuffle: 0 is one, 1 an order that never changes
	// (package distance). Both are 0 until they are computed.
	Seen     float64 `json:"share_of_dataset_seen"`
	Distance float64 `json:"distance_from_full_shuffle"`
	// Configured are the capacities from which the order is made, by node and class, in bytes; -1:
	// none is configured.
	Configured [][]int64 `json:"configured_capacities"`
}

// Requests are what a store was asked for since the dataset was opened, by all jobs of the node.
type Requests struct {
	RequestCounts
	// Indexing is what it took to find the samples, in the node's daemon: when their index was made,
	// or, if that was elsewhere or earlier, when the dataset was opened.
	Indexing *Indexing `json:"indexing,omitempty"`
}

// Indexing is what it took to find the samples of a dataset.
type Indexing struct {
	From     string        `json:"from"` // where they were found, as source.Indexing has it
	Objects  int           `json:"objects"`
	Resumed  int           `json:"resumed"` // objects known from an interrupted attempt
	Seconds  float64       `json:"seconds"`
	Requests RequestCounts `json:"requests"`
}

// RequestCounts count requests by their kinds.
type RequestCounts struct {
	Gets   int64 `json:"gets"`   // for bytes, with those that follow
	Again  int64 `json:"again"`  // of these, after a failure for the moment
	Hedges int64 `json:"hedges"` // of these, beside one that was slow
	Won    int64 `json:"won"`    // hedges whose answer came first
	Heads  int64 `json:"heads"`  // for what an object is
	Lists  int64 `json:"lists"`  // listings, each of any number of pages
	Bytes  int64 `json:"bytes"`  // of answers, with those of hedges
	Gaps   int64 `json:"gaps"`   // bytes of these between what one request brings
}

// Bounds compare a job with the best that is possible.
type Bounds struct {
	// Bound is S + (E-1) max(0, S-D) for the epochs begun, where S is Needed, and BoundShare is
	// Source divided by it: 1 is the best possible with these caches, and below 1 they were warm, an
	// epoch is not over, or samples were held elsewhere from one epoch to the next (plan.Bound).
	// In an epoch that began while memory was short, D is what the caches could hold then.
	Bound      int64   `json:"bound_bytes"`
	BoundShare float64 `json:"bound_share"`
	// TimeBound is the least runtime of the epochs begun on this environment, under any policy, and
	// TimeShare is their runtime divided by it: 1 is the best possible, and below 1 the caches were
	// warm. The pauses between epochs count as computation. Both are 0 if CompareTime was not called.
	TimeBound float64 `json:"time_bound_seconds,omitempty"`
	TimeShare float64 `json:"share_of_time_bound,omitempty"`
}

// BoundInput is what Bounds are computed from besides.
type BoundInput struct {
	// Ran is how long the epochs begun took with their pauses, in seconds, from when reads for the
	// job began; 0: the sum of both, which is longer if ranks were in several epochs at a time.
	Ran float64 `json:"-"`
	// Demands are those of the epochs begun, if epochs are given or of a mix; Bound is then
	// plan.BoundOf.
	Demands []plan.Demand `json:"-"`
	// Lacked is, by epoch, what Class.Lacks was over all classes when the epoch began.
	Lacked map[int]int64 `json:"-"`
}

// Resources are what a node reads with: memory, disks and streams, and how fast they were.
type Resources struct {
	Classes []Class `json:"classes"`
	// Streams are the changes of Threads, and Buffers those of the bytes of all staging buffers,
	// oldest first; nil: Threads is fixed, or they are not known.
	Streams []Change      `json:"source_streams,omitempty"`
	Buffers []Change      `json:"staging_bytes,omitempty"`
	Tiers   []model.Speed `json:"tiers"`
}

// Plans are what the nodes planned with, and which plans they considered.
type Plans struct {
	// Known is what is known of the node: the performance model's numbers, with their origins.
	Known *model.Node `json:"environment,omitempty"`
	// Agreed is what all nodes planned with at first; nil: without an environment.
	Agreed *model.Node `json:"planned_with,omitempty"`
}

// Diagnosis is what limits epochs after the first one, and what would lift it.
type Diagnosis struct {
	// Limit is what limits epochs, and Remedies are the smallest changes that would lift it, the
	// cheapest first; nil if Diagnose was not called.
	Limit    *remedy.Now     `json:"limit,omitempty"`
	Remedies []remedy.Remedy `json:"remedies,omitempty"`
}

// Epoch describes one epoch over all ranks of the node.
type Epoch struct {
	EpochTally
	StallSeconds float64 `json:"stall_seconds"` // over all causes
	// Lacked is what the node's classes could not hold of their capacity when the epoch began,
	// because memory was short, in bytes.
	Lacked int64 `json:"lacked_bytes,omitempty"`
	// Pause is how long the ranks did other things than this epoch before it: from the end of the
	// one before, or from when reads for the job began, to the request for its first batch.
	Pause float64 `json:"pause_seconds,omitempty"`
	// Audit is how long a rank waited for its audit, at most, after the last one had its last batch.
	Audit float64 `json:"audit_seconds,omitempty"`
	// Step is how long a rank works on a batch, of the rank with the least. Ranks that wait for
	// each other in each step seem to work while another one waits for data.
	Step float64 `json:"step_seconds,omitempty"`
	// Ahead is how many batches of a rank might be staged, at its end; of the first 64 epochs. 0: not
	// known.
	Ahead int `json:"prefetch_batches,omitempty"`
	// Tiers are the reads while ranks were in the epoch, those ahead for the next one included; of
	// the first 64 epochs.
	Tiers []model.Speed `json:"tiers,omitempty"`
	// Transformed is what was transformed while ranks were in the epoch, for the next one included;
	// of the first 64 epochs. nil: nothing.
	Transformed *Transformed `json:"transformed,omitempty"`
}

// Change is a new value of what changes while a job runs, and from when on it was in force, in
// seconds since reads for the job began.
type Change struct {
	Seconds float64 `json:"seconds"`
	To      int64   `json:"to"`
}

// RankReport is one rank's part of a Report.
type RankReport struct {
	Rank int  `json:"rank"`
	Open bool `json:"open"`
	Position
	Epochs  []EpochTally `json:"epochs"`
	Staging Staging      `json:"staging"`
	Group   *Group       `json:"group,omitempty"` // nil: it is in none
}

// Position is the batch that a rank takes next.
type Position struct {
	Epoch int `json:"epoch"`
	Step  int `json:"step"`
}

// Staging is a rank's staging buffer, in bytes.
type Staging struct {
	Size  int64 `json:"size"`
	Used  int64 `json:"used"`
	Extra int64 `json:"extra"` // allocated outside the ring, because the process keeps many batches
}

// Class is one storage class, in bytes.
type Class struct {
	Name     string `json:"name"`
	Path     string `json:"path,omitempty"` // its directory; "": it is in memory
	Capacity int64  `json:"capacity"`
	Used     int64  `json:"used"`
	// Silent is for how long its directory has not responded to reads, in seconds: meanwhile
	// samples are read from the source.
	Silent float64 `json:"not_responding_seconds,omitempty"`
	// Hangs is how often it did not respond since it was opened; nil: it always did.
	Hangs *Hangs `json:"did_not_respond,omitempty"`
	// Writing is for how long a write to it has not returned, and LongestWrite how long the longest
	// took since it was opened, in seconds, if that is long: meanwhile it may keep nothing.
	Writing      float64 `json:"write_not_returned_seconds,omitempty"`
	LongestWrite float64 `json:"longest_write_seconds,omitempty"`
	// Stopped is why no more samples are written to it, such as an error of its disk; "": they are.
	Stopped string `json:"stopped,omitempty"`
	// Held is what it held of the dataset when the job began.
	Held Amount `json:"held_at_start"`
	// Written is what was written to it since it was opened for the dataset, by all jobs; nil: it is
	// in memory, or nothing was.
	Written *Written `json:"written,omitempty"`
	// Returned is what a class in memory gave back; nil: nothing, and it may grow.
	Returned *Returned `json:"given_back,omitempty"`
	// Forms is what it holds in other forms than as read; nil: nothing, and nothing was.
	Forms *Forms `json:"forms,omitempty"`
}

// Written is what was written to a class, and the time in which at least one write was in progress,
// in seconds.
type Written struct {
	Amount
	Busy float64 `json:"busy_seconds"`
}

// Fault is one sample that could not be read or transformed.
type Fault struct {
	Sample int    `json:"sample"`
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`  // how often it was requested
	Policy string `json:"policy"` // what was done instead: on_error
}

// Peer is the state of another node, as seen by this node.
type Peer struct {
	Node  int  `json:"node"`
	Alive bool `json:"alive"`
	// Bypassed: no samples are requested from it, because it is gone or its circuit is open.
	Bypassed bool   `json:"bypassed"`
	Latency  int64  `json:"latency_ns"`
	Failed   int64  `json:"failed"` // requests whose sample was then read from the source
	Reason   string `json:"reason"` // of the last failure
}

// Waiting is the read that has been in progress longest.
type Waiting struct {
	Sample  int     `json:"sample"`
	Path    string  `json:"path"`
	Seconds float64 `json:"seconds"`
}

// Complete sums the ranks' epochs and beside, what was read for none of their batches, compares the
// sums with the lower bound, and sets Sentence. capacity is the capacity of the storage classes of
// all nodes together, in bytes.
func (r *Report) Complete(beside []EpochTally, capacity int64) {
	r.sum(beside)
	r.Bound = r.bound(capacity)
	r.BoundShare = float64(r.Source.Bytes) / float64(max(r.Bound, 1))
	r.Sentence = r.sentence()
}

// bound returns this node's share of the fewest bytes that all nodes can read from the source. It
// has what this node's own classes lacked, and assumes that those of the other nodes lacked as
// much, so that the sum of all nodes' shares is right.
func (r *Report) bound(capacity int64) int64 {
	nodes, demands := int64(max(r.Nodes, 1)), r.Demands
	if len(demands) == 0 {
		needed := cmp.Or(r.Needed, r.Bytes)
		demands = slices.Repeat([]plan.Demand{{Bytes: needed}}, max(r.begun(), 1))
		demands[0].New = needed
	}
	var begun []int // the epochs of demands
	for _, e := range r.Epochs {
		if e.Batches > 0 {
			begun = append(begun, e.Epoch)
		}
	}
	return plan.BoundOf(demands, func(at int) int64 {
		if at >= len(begun) {
			return capacity
		}
		return max(capacity-nodes*r.Lacked[begun[at]], 0)
	}) / nodes
}

// sum sums the ranks' epochs and what was read besides.
func (r *Report) sum(beside []EpochTally) {
	byEpoch := map[int]*Epoch{}
	add := func(e *EpochTally) {
		s := byEpoch[e.Epoch]
		if s == nil {
			s = &Epoch{EpochTally: EpochTally{Epoch: e.Epoch}, Lacked: r.Lacked[e.Epoch]}
			byEpoch[e.Epoch] = s
		}
		s.Add(e)
		s.StallSeconds += e.StallSeconds()
		if step := e.step(); step > 0 && (s.Step == 0 || step < s.Step) {
			s.Step = step
		}
		r.Source.Add(e.Source)
	}
	var all Tally
	for _, rank := range r.Ranks {
		for _, e := range rank.Epochs {
			add(&e)
			all.Add(&e.Tally)
		}
	}
	for _, e := range beside {
		add(&e)
	}
	for _, s := range byEpoch {
		r.Epochs = append(r.Epochs, *s)
	}
	slices.SortFunc(r.Epochs, func(a, b Epoch) int { return cmp.Compare(a.Epoch, b.Epoch) })
	r.Stall, r.Utilisation = all.StallSeconds(), all.Utilisation()
}

// begun returns the number of epochs of which a batch was delivered.
func (r *Report) begun() int {
	n := 0
	for _, e := range r.Epochs {
		if e.Batches > 0 {
			n++
		}
	}
	return n
}

// sentence summarises the numbers.
func (r *Report) sentence() string {
	if r.begun() == 0 {
		text := "No batch has been read yet"
		if r.Stall >= 0.1 {
			text += fmt.Sprintf("; the wait for the first one has taken %.1f s so far",
				r.Stall/float64(max(len(r.Ranks), 1)))
		}
		return text + "." + shared(r.Ranks) + notResponding(r.Classes)
	}
	var all Tally
	for _, e := range r.Epochs {
		all.Add(&e.Tally)
	}
	var b strings.Builder
	ranks := max(len(r.Ranks), 1)
	who := "the process"
	if ranks > 1 {
		who = fmt.Sprintf("each of %d ranks", ranks)
	}
	fmt.Fprintf(&b, "In %s %s waited %.3f s for data", plural(r.begun(), "epoch"), who,
		r.Stall/float64(ranks))
	// Without either, only the first batch of a later epoch was taken.
	if first, later, busy := r.settled(); busy > 0 || later > 0 {
		fmt.Fprintf(&b, ", %.3f s of it in the first epoch and %.3f s in each later one "+
			"(utilisation there %.1f %%)", first/float64(ranks), later/float64(ranks), 100*busy)
	}
	b.WriteString(blame(all.Stall) + "." + r.fromSource() +
		directly(all.Direct.Bytes, r.Source.Bytes) +
		r.Bounds.ofTime(r.Classes, r.Known, here) +
		r.Diagnosis.sentence())
	b.WriteString(shared(r.Ranks))
	if r.Planning {
		b.WriteString(" The cache plan is still being made.")
	}
	b.WriteString(unreadable(len(r.Faults)) + gaveBack(r.Classes) + notResponding(r.Classes))
	return b.String()
}

// settled returns the stall of the first epoch and the mean of the later ones, in
// seconds over all ranks, and the utilisation of the later ones.
func (r *Report) settled() (first, later, utilisation float64) {
	var rest Tally
	for _, rank := range r.Ranks {
		for _, e := range rank.Epochs {
			if e.Epoch == r.Epochs[0].Epoch {
				first += e.StallSeconds()
			} else {
				rest.Add(&e.Tally)
			}
		}
	}
	return first, rest.StallSeconds() / float64(max(len(r.Epochs)-1, 1)), rest.Utilisation()
}
