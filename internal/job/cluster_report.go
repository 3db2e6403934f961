package job

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/peer"
	"github.com/hdmlp/hdmlp/internal/prefetch"
)

// Tally counts what training loops were given, where it came from, and what they waited for.
type Tally struct {
	Batches int64                      `json:"batches"`
	Samples int64                      `json:"samples"`
	Seconds float64                    `json:"seconds"` // of epochs, as EpochReport.Seconds, summed over epochs and ranks
	Stall   map[string]float64         `json:"stall"`   // seconds of next(), by cause
	Reads   map[string]prefetch.Amount `json:"reads"`   // consumed samples by the place they were read from
	Source  prefetch.Amount            `json:"source"`  // what left the source; of nodes, filling of classes and reads for others included
}

// StallSeconds is the stall over all causes.
func (t *Tally) StallSeconds() (sum float64) {
	for _, s := range t.Stall {
		sum += s
	}
	return sum
}

// Utilisation is the share of Seconds in which next() was not blocked; 0 if there are none.
func (t *Tally) Utilisation() float64 {
	if t.Seconds <= 0 {
		return 0
	}
	return max(0, 1-t.StallSeconds()/t.Seconds)
}

func (t *Tally) add(o *Tally) {
	if t.Stall == nil {
		t.Stall, t.Reads = map[string]float64{}, map[string]prefetch.Amount{}
	}
	t.Batches += o.Batches
	t.Samples += o.Samples
	t.Seconds += o.Seconds
	for cause, s := range o.Stall {
		t.Stall[cause] += s
	}
	for place, a := range o.Reads {
		sum := t.Reads[place]
		t.Reads[place] = prefetch.Amount{Samples: sum.Samples + a.Samples, Bytes: sum.Bytes + a.Bytes}
	}
	t.Source = prefetch.Amount{Samples: t.Source.Samples + o.Source.Samples, Bytes: t.Source.Bytes + o.Source.Bytes}
}

// RankTally is a rank's part.
type RankTally struct {
	Rank int  `json:"rank"`
	Open bool `json:"open"`
	Position
	Tally
	Staging StagingReport `json:"staging"`
}

// NodeReport is a node's part in a job: its Report, with the epochs added up.
type NodeReport struct {
	Node    int    `json:"node"`
	Host    string `json:"host"`    // its name
	Address string `json:"address"` // as the other nodes see it; empty in a job of one node
	// Answering: the node answered now. Otherwise Why says what is known of that, and all numbers are
	// Age seconds old; a negative Age: there are none, it has not answered before.
	Answering bool    `json:"answering"`
	Why       string  `json:"why,omitempty"`
	Age       float64 `json:"age_seconds"`
	// Assembling: the job is not open on the node yet, and there are no numbers.
	Assembling bool   `json:"assembling,omitempty"`
	Sentence   string `json:"sentence,omitempty"`
	Planning   bool   `json:"planning,omitempty"` // as in Report
	Tally
	Utilisation float64       `json:"utilisation"`
	Bound       int64         `json:"bound_bytes"` // this node's share of it
	Classes     []ClassReport `json:"classes"`
	Staging     StagingReport `json:"staging"` // of all its ranks
	Ranks       []RankTally   `json:"ranks"`
	// Unreadable counts the samples that could not be read or transformed; Faults are the first of them.
	Unreadable int              `json:"unreadable"`
	Faults     []prefetch.Fault `json:"faults"`
	Waiting    *Waiting         `json:"waiting,omitempty"`
	// PassedBy are the nodes that are there, and are not asked for samples.
	PassedBy []peer.State `json:"passed_by,omitempty"`
}

// ClusterReport is a job over all its nodes, as the daemon of one of them hears it.
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
	Node        int    `json:"node"`           // which was asked
	Sentence    string `json:"sentence"`
	// Total adds the nodes up; those that do not answer count as they were last heard.
	Total       Tally         `json:"total"`
	Utilisation float64       `json:"utilisation"`
	Bound       int64         `json:"bound_bytes"` // of all nodes, as in Report
	BoundShare  float64       `json:"bound_share"`
	Classes     []ClassReport `json:"classes"` // by name
	Staging     StagingReport `json:"staging"`
	Unreadable  int           `json:"unreadable"` // summed over nodes
	Nodes       []NodeReport  `json:"nodes"`
}

const (
	// askTime is how long the other nodes have to answer.
	askTime = 2 * time.Second
	// faultsTold is how many unreadable samples a node names to the others.
	faultsTold = 16
	// askReport is the question that is answered by a NodeReport in JSON.
	askReport = "report"
)

// Summary is the report with its epochs added up, as a ClusterReport of this node alone.
func (r *Report) Summary() *ClusterReport {
	c := &ClusterReport{
		Job: r.Job, Dataset: r.Dataset, Samples: r.Samples, Bytes: r.Bytes, Policy: r.Policy, WorldSize: r.WorldSize,
		GlobalBatch: r.GlobalBatch, Planned: r.Planned, Steps: r.Steps, Node: r.Node, Nodes: []NodeReport{r.node()},
	}
	c.sum(1)
	c.Sentence = r.Sentence
	return c
}

// node is this node's part.
func (r *Report) node() NodeReport {
	n := NodeReport{
		Node: r.Node, Answering: true, Assembling: r.Assembling, Planning: r.Planning, Utilisation: r.Utilisation, Bound: r.Bound, Classes: r.Classes,
		Unreadable: len(r.Faults), Faults: r.Faults[:min(len(r.Faults), faultsTold)], Waiting: r.Waiting,
	}
	n.Host, _ = os.Hostname() // empty: it has none
	if r.Assembling {
		n.Sentence = r.Sentence
	}
	for _, rank := range r.Ranks {
		t := RankTally{Rank: rank.Rank, Open: rank.Open, Position: rank.Position, Staging: rank.Staging}
		for _, e := range rank.Epochs {
			t.add(&Tally{Batches: e.Batches, Samples: e.Samples, Seconds: e.Seconds, Stall: e.Stall, Reads: e.Reads, Source: e.Source})
		}
		n.add(&t.Tally)
		n.Staging.add(rank.Staging)
		n.Ranks = append(n.Ranks, t)
	}
	for _, p := range r.Peers {
		if p.Alive && !p.Asked {
			n.PassedBy = append(n.PassedBy, p)
		}
	}
	n.Source = r.Source // with what no rank asked for
	return n
}

func (s *StagingReport) add(o StagingReport) {
	s.Size += o.Size
	s.Used += o.Used
	s.Extra += o.Extra
}

// sum adds the nodes up, of so many that there are.
func (c *ClusterReport) sum(nodes int) {
	heard := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Age < 0 || n.Assembling {
			continue
		}
		heard++
		c.Total.add(&n.Tally)
		c.Bound += n.Bound
		c.Staging.add(n.Staging)
		c.Unreadable += n.Unreadable
		for _, class := range n.Classes {
			at := slices.IndexFunc(c.Classes, func(o ClassReport) bool { return o.Name == class.Name })
			if at < 0 {
				c.Classes, at = append(c.Classes, ClassReport{Name: class.Name}), len(c.Classes)
			}
			c.Classes[at].Room += class.Room
			c.Classes[at].Used += class.Used
		}
	}
	c.Bound = c.Bound / int64(max(heard, 1)) * int64(nodes) // nodes that were never heard have a share as well
	c.BoundShare = float64(c.Total.Source.Bytes) / float64(max(c.Bound, 1))
	c.Utilisation = c.Total.Utilisation()
}

// sentence says what the numbers mean.
func (c *ClusterReport) sentence() string {
	var b strings.Builder
	var silent, assembling, planning []string
	ranks := 0
	for _, n := range c.Nodes {
		ranks += len(n.Ranks)
		switch {
		case !n.Answering:
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
		stall := c.Total.StallSeconds()
		fmt.Fprintf(&b, "%s on %s took %s and waited %.3f s each for data", plural(ranks, "rank"), plural(len(c.Nodes), "node"),
			plural(int(c.Total.Batches), "batch"), stall/float64(max(ranks, 1)))
		if worst, most := worst(c.Total.Stall); most > 0.05*stall && stall > 0.001 {
			fmt.Fprintf(&b, "; %.0f %% of the time was for %s", 100*most/stall, causeText(worst))
		}
		fmt.Fprintf(&b, ". %s left the source, %.2f times the least that these caches allow (%s).",
			size.Format(c.Total.Source.Bytes), c.BoundShare, size.Format(c.Bound))
	}
	if c.Unreadable > 0 {
		fmt.Fprintf(&b, " %s could not be read or transformed.", plural(c.Unreadable, "sample"))
	}
	if len(planning) > 0 {
		b.WriteString(" Who caches what is still being planned on node " + strings.Join(planning, ", ") + ".")
	}
	for _, text := range slices.Concat(assembling, silent) {
		b.WriteString(" " + strings.TrimSuffix(text, ".") + ".")
	}
	return b.String()
}

// ClusterReport asks the job's other nodes, and adds up what they say. Whoever does not answer within 2 s is reported as
// last heard.
func (r *Rank) ClusterReport(ctx context.Context) *ClusterReport { return r.job.clusterReport(ctx) }

// ClusterReports are those of the jobs whose name is, or if there is none, whose names contain the given one, by name; see
// Rank.ClusterReport. Empty: all jobs.
func (n *Node) ClusterReports(ctx context.Context, name string) ([]*ClusterReport, error) {
	jobs := n.open()
	var names []string
	for _, j := range jobs {
		names = append(names, j.message.Job)
	}
	if i := slices.Index(names, name); i >= 0 {
		jobs = jobs[i : i+1]
	} else {
		jobs = slices.DeleteFunc(jobs, func(j *Job) bool { return !strings.Contains(j.message.Job, name) })
	}
	if len(jobs) == 0 && name != "" {
		running := "none is running"
		if len(names) > 0 {
			running = "running are " + strings.Join(names, ", ")
		}
		return nil, badInput("no job of this daemon is named %q, or has that in its name: %s", name, running)
	}
	out := make([]*ClusterReport, len(jobs))
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { out[i] = j.clusterReport(ctx) })
	}
	all.Wait()
	return slices.DeleteFunc(out, func(c *ClusterReport) bool { return c == nil }), nil
}

// open lists the jobs, by name.
func (n *Node) open() []*Job {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]*Job, 0, len(n.jobs))
	for _, j := range n.jobs {
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *Job) int { return cmp.Compare(a.message.Job, b.message.Job) })
	return out
}

// now reports the job as it is, be it open or not yet; nil: it could not be opened.
func (j *Job) now() *Report {
	select {
	case <-j.ready:
		if j.err != nil {
			return nil
		}
		return j.report()
	default:
		return j.assembling()
	}
}

// clusterReport is nil if the job could not be opened.
func (j *Job) clusterReport(ctx context.Context) *ClusterReport {
	own := j.now()
	if own == nil {
		return nil
	}
	c := own.Summary()
	if own.Assembling || j.others == nil {
		return c
	}
	nodes := j.others.ask(ctx)
	mine := c.Nodes[0]
	mine.Address = nodes[mine.Node].Address
	nodes[mine.Node] = mine
	all := *c
	all.Total, all.Bound, all.Staging, all.Unreadable, all.Classes, all.Nodes = Tally{}, 0, StagingReport{}, 0, nil, nodes
	all.sum(len(nodes))
	all.Sentence = all.sentence()
	return &all
}

// answer answers another node's question.
func (j *Job) answer(ctx context.Context, what string) []byte {
	if text, ok := strings.CutPrefix(what, askAudit); ok {
		return j.answerAudit(ctx, text)
	}
	r := j.now()
	if what != askReport || r == nil {
		return nil
	}
	return marshal(r.node())
}

// marshal encodes what always can be.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// heard is what a node said of itself, and when.
type heard struct {
	report NodeReport
	at     time.Time
}

// ask asks the other nodes for their parts.
func (o *others) ask(ctx context.Context) []NodeReport {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := o.cluster.Ask(ctx, askReport)
	now := time.Now()
	out := make([]NodeReport, len(answers))
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, member := range o.cluster.Members() {
		r := &out[n]
		if n != o.me {
			*r = o.part(n, answers[n], now)
		}
		r.Node = n
		r.Address, _, _ = net.SplitHostPort(member.Exchange)
		if r.Ranks == nil {
			for _, rank := range member.Ranks {
				r.Ranks = append(r.Ranks, RankTally{Rank: rank})
			}
		}
	}
	return out
}

// part is a node's answer, or else what it said last. o.mu is held.
func (o *others) part(n int, answer []byte, now time.Time) NodeReport {
	var r NodeReport
	var err error
	if answer != nil {
		if err = json.Unmarshal(answer, &r); err == nil {
			r.Answering, r.Age = true, 0
			o.last[n] = heard{r, now}
			return r
		}
	}
	last, known := o.last[n]
	r = last.report
	r.Answering, r.Age = false, -1
	if known {
		r.Age = now.Sub(last.at).Seconds()
	}
	switch {
	case err != nil:
		r.Why = fmt.Sprintf("it says what is no report: %v", err)
	case !o.cluster.Alive(n):
		r.Why = "it is gone"
	case n != 0 && o.me != 0 && !o.cluster.Alive(0):
		r.Why = "node 0, by way of which nodes ask each other, is gone"
	default:
		r.Why = fmt.Sprintf("nothing was heard within %v", askTime)
	}
	return r
}
