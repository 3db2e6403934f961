package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

const (
	// maxFaults is how many unreadable samples a node reports to the others.
	maxFaults = 16
	// maxEpochs is how many epochs a node reports to the others.
	maxEpochs = 64
)

// RankTally is a rank's part of a NodeReport.
type RankTally struct {
	Rank int  `json:"rank"`
	Open bool `json:"open"`
	Position
	Tally
	Staging Staging `json:"staging"`
	Group   *Group  `json:"group,omitempty"` // as in RankReport
}

// NodeReport is a node's part of a ClusterReport: its Report, with the epochs summed.
type NodeReport struct {
	Node    int    `json:"node"`
	Host    string `json:"host"`    // host name
	Address string `json:"address"` // as the other nodes see it; empty in a job of one node
	// Responding is true if the node answered this request. Otherwise Why is the reason, and all
	// numbers are Age seconds old; if Age is negative the node has never answered, and there are
	// none.
	Responding bool    `json:"responding"`
	Why        string  `json:"why,omitempty"`
	Age        float64 `json:"age_seconds"`
	// Assembling is true while the job is being opened on the node; there are no numbers yet.
	Assembling bool   `json:"assembling,omitempty"`
	Sentence   string `json:"sentence,omitempty"`
	Planning   bool   `json:"planning,omitempty"` // as in Report
	Tally
	Utilisation float64     `json:"utilisation"`
	Bound       int64       `json:"bound_bytes"`                  // this node's share
	TimeBound   float64     `json:"time_bound_seconds,omitempty"` // of the job, as in Report
	TimeShare   float64     `json:"share_of_time_bound,omitempty"`
	Classes     []Class     `json:"classes"`
	Staging     Staging     `json:"staging"` // of all its ranks
	Ranks       []RankTally `json:"ranks"`
	// Unreadable counts the samples that could not be read or transformed; Faults are the first of
	// them.
	Unreadable int      `json:"unreadable"`
	Faults     []Fault  `json:"faults"`
	Waiting    *Waiting `json:"waiting,omitempty"`
	// Requests are as in Report.
	Requests *Requests `json:"requests,omitempty"`
	// Bypassed are the nodes that are alive but bypassed.
	Bypassed []Peer  `json:"bypassed,omitempty"`
	Series   *Series `json:"series,omitempty"` // as in Report
	Prediction
}

// Prediction is what predictions need of a node.
type Prediction struct {
	Run *remedy.Run `json:"model,omitempty"`
	// What predictions of the run need besides, as in Report; the first maxEpochs epochs.
	Epochs        []Epoch        `json:"epochs"`
	Threads       int            `json:"source_threads"`
	Streams       []Change       `json:"source_streams,omitempty"`
	Buffers       []Change       `json:"staging_bytes,omitempty"`
	Prefetch      int            `json:"prefetch_batches"`
	Tiers         []model.Speed  `json:"tiers"`
	Preprocessing *Preprocessing `json:"preprocessing,omitempty"`
}

// ClusterReport describes a job over all its nodes, as seen by the daemon of one of them.
type ClusterReport struct {
	Job         string `json:"job"`
	Dataset     string `json:"dataset"`
	Samples     int    `json:"samples"`
	Bytes       int64  `json:"bytes"`
	Policy      string `json:"policy"`
	WorldSize   int    `json:"world_size"`
	GlobalBatch int    `json:"global_batch_size"`
	Planned     int    `json:"planned_epochs"` // 0: no end
	Steps       int    `json:"steps"`          // of an epoch
	Seed        uint64 `json:"seed"`
	First       int    `json:"first_epoch"`
	DropLast    bool   `json:"drop_last"`
	Shuffle     string `json:"shuffle"`
	Scheme      string `json:"scheme"`
	Tail        string `json:"tail"`
	Subset      bool   `json:"subset,omitempty"`
	Node        int    `json:"node"` // the node that made the report
	Sentence    string `json:"sentence"`
	// Total sums the nodes; one that does not answer counts with its last numbers.
	Total       Tally   `json:"total"`
	Utilisation float64 `json:"utilisation"`
	// BeforeTraining and Reordered are as in Report.
	BeforeTraining float64    `json:"before_training_s,omitempty"`
	Reordered      *Reordered `json:"order,omitempty"`
	// Bounds has the Bound of all nodes. TimeBound is the largest of the nodes' bounds, and
	// TimeShare that node's.
	Bounds
	Classes    []Class `json:"classes"` // by name
	Staging    Staging `json:"staging"`
	Unreadable int     `json:"unreadable"` // summed over nodes
	// Known is what is known of the nodes, merged (model.Merge); Agreed as in Report.
	Known  *model.Node `json:"environment,omitempty"`
	Agreed *model.Node `json:"planned_with,omitempty"`
	// Series is how the job went over its steps, on all nodes.
	Series    *Series      `json:"series,omitempty"`
	Nodes     []NodeReport `json:"nodes"`
	Diagnosis              // by what all nodes know
	Mixed     int          `json:"mixed,omitempty"` // as in Report
}

// Summary returns the report with its epochs summed, as a ClusterReport of this node alone. The
// node's Host and Address are empty.
func (r *Report) Summary() *ClusterReport {
	c := &ClusterReport{
		Job: r.Job, Dataset: r.Dataset, Samples: r.Samples, Bytes: r.Bytes, Policy: r.Policy,
		BeforeTraining: r.BeforeTraining, Reordered: r.Reordered,
		WorldSize:   r.WorldSize,
		GlobalBatch: r.GlobalBatch, Planned: r.Planned, Steps: r.Steps, Seed: r.Seed,
		First: r.First, DropLast: r.DropLast, Shuffle: r.Shuffle, Scheme: r.Scheme, Tail: r.Tail,
		Subset: r.Subset, Mixed: r.Mixed, Node: r.Node,
		Nodes: []NodeReport{r.node()}, Diagnosis: r.Diagnosis, Known: r.Known, Agreed: r.Agreed,
	}
	c.sum()
	c.Sentence = r.Sentence
	return c
}

// node returns this node's part.
func (r *Report) node() NodeReport {
	n := NodeReport{
		Node: r.Node, Responding: true, Assembling: r.Assembling, Planning: r.Planning,
		Utilisation: r.Utilisation, Bound: r.Bound, Classes: r.Classes,
		TimeBound: r.TimeBound, TimeShare: r.TimeShare,
		Unreadable: len(r.Faults), Faults: r.Faults[:min(len(r.Faults), maxFaults)],
		Waiting: r.Waiting, Requests: r.Requests, Series: r.Series,
		Prediction: Prediction{
			Run: r.run, Epochs: r.Epochs[:min(len(r.Epochs), maxEpochs)],
			Threads: r.Threads, Prefetch: r.Prefetch, Streams: r.Streams, Buffers: r.Buffers,
			Tiers: r.Tiers, Preprocessing: r.Preprocessing,
		},
	}
	if r.Assembling {
		n.Sentence = r.Sentence
	}
	for _, rank := range r.Ranks {
		t := RankTally{
			Rank:     rank.Rank,
			Open:     rank.Open,
			Position: rank.Position,
			Staging:  rank.Staging,
			Group:    rank.Group,
		}
		for _, e := range rank.Epochs {
			t.Add(&e.Tally)
		}
		n.Add(&t.Tally)
		n.Staging.add(rank.Staging)
		n.Ranks = append(n.Ranks, t)
	}
	for _, p := range r.Peers {
		if p.Alive && p.Bypassed {
			n.Bypassed = append(n.Bypassed, p)
		}
	}
	n.Source = r.Source // including what no rank requested
	return n
}

// Over returns the report of the same job over nodes, which must be all of its nodes.
func (c *ClusterReport) Over(nodes []NodeReport) *ClusterReport {
	all := *c
	all.Nodes = nodes
	all.Total = Tally{}
	all.Bounds = Bounds{}
	all.Staging = Staging{}
	all.Unreadable = 0
	all.Classes = nil
	all.sum()
	all.diagnose()
	all.Sentence = all.sentence()
	return &all
}

func (s *Staging) add(o Staging) {
	s.Size += o.Size
	s.Used += o.Used
	s.Extra += o.Extra
}

// sum sums the nodes.
func (c *ClusterReport) sum() {
	heard := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Age < 0 || n.Assembling {
			continue
		}
		heard++
		c.Total.Add(&n.Tally)
		c.Bound += n.Bound
		c.Staging.add(n.Staging)
		c.Unreadable += n.Unreadable
		if n.TimeBound > c.TimeBound {
			c.TimeBound, c.TimeShare = n.TimeBound, n.TimeShare
		}
		for _, class := range n.Classes {
			at := slices.IndexFunc(c.Classes, func(o Class) bool { return o.Name == class.Name })
			if at < 0 {
				c.Classes, at = append(c.Classes, Class{Name: class.Name}), len(c.Classes)
			}
			c.Classes[at].add(class)
		}
	}
	series := make([]*Series, len(c.Nodes))
	for i := range c.Nodes {
		series[i] = c.Nodes[i].Series
	}
	c.Series = over(series)
	// nodes that never answered have a share as well
	c.Bound = c.Bound / int64(max(heard, 1)) * int64(len(c.Nodes))
	c.BoundShare = float64(c.Total.Source.Bytes) / float64(max(c.Bound, 1))
	c.Utilisation = c.Total.Utilisation()
}

// known returns what is known on the first node whose bound is TimeBound; nil: it is not reported.
func (c *ClusterReport) known() *model.Node {
	for i := range c.Nodes {
		if run := c.Nodes[i].Run; run != nil && c.Nodes[i].TimeBound == c.TimeBound {
			return &run.Known
		}
	}
	return nil
}

// sentence summarises the numbers.
func (c *ClusterReport) sentence() string {
	var b strings.Builder
	var silent, assembling, planning []string
	ranks := 0
	var at []Position
	for _, n := range c.Nodes {
		ranks += len(n.Ranks)
		for _, rank := range n.Ranks {
			at = append(at, rank.Position)
		}
		switch {
		case !n.Responding:
			silent = append(silent, fmt.Sprintf("Node %d does not answer: %s", n.Node, n.Why))
		case n.Assembling:
			assembling = append(assembling, fmt.Sprintf("Node %d: %s", n.Node, n.Sentence))
		case n.Planning:
			planning = append(planning, strconv.Itoa(n.Node))
		}
	}
	if c.Total.Batches == 0 {
		b.WriteString("No batch has been read yet.")
	} else {
		where := here
		if len(c.Nodes) > 1 {
			where = "these nodes"
		}
		fmt.Fprintf(&b, "%s on %s took %s and waited %.3f s each for data", plural(ranks, "rank"),
			plural(len(c.Nodes), "node"),
			plural(int(c.Total.Batches), "batch"), c.Total.StallSeconds()/float64(max(ranks, 1)))
		b.WriteString(blame(c.Total.Stall) + "." + c.fromSource(at) +
			directly(c.Total.Direct.Bytes, c.Total.Source.Bytes) +
			c.Bounds.ofTime(c.Classes, c.known(), where) +
			c.Diagnosis.sentence())
	}
	b.WriteString(unreadable(c.Unreadable) + gaveBack(c.Classes) +
		notResponding(c.Classes))
	if len(planning) > 0 {
		nodes := "node "
		if len(planning) > 1 {
			nodes = "nodes "
		}
		b.WriteString(" The cache plan is still being made on " + nodes +
			strings.Join(planning, ", ") + ".")
	}
	for _, text := range slices.Concat(assembling, silent) {
		b.WriteString(" " + strings.TrimSuffix(text, ".") + ".")
	}
	return b.String()
}
