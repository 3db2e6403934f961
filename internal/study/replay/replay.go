package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Run is a finished job, read from its report (docs/SEMANTICS.md): what was measured, and what the
// simulator needs to know of the machine and the job.
type Run struct {
	Dataset string
	Policy  string
	// Epochs holds the epochs that every rank finished.
	Epochs []RunEpoch
	// SourceMB was read from the source in these epochs, on all nodes.
	SourceMB float64
	// DirectMB is the part of it that was read although a cache holds the sample.
	DirectMB float64
	// Delivered has the MB that the ranks received in these epochs, by tier.
	Delivered map[string]float64
	// DeliveredIn has the same for each of Epochs.
	DeliveredIn []map[string]float64
	// BeforeTraining is how long filling the classes took before training began, in seconds; 0:
	// training did not wait for that.
	BeforeTraining float64
	// Free is set if ranks did not wait for each other after each step.
	Free bool

	report *report.ClusterReport
	stream *access.Stream
	step   float64 // seconds that a rank computes on a batch, in the epoch with the least
}

// RunEpoch is one measured epoch.
type RunEpoch struct {
	Epoch int
	// Seconds is the time of the slowest rank, from its request for the first batch to the end of
	// the computation on the last one.
	Seconds float64

	pause float64 // seconds before the ranks requested the first batch
	step  float64 // seconds that a rank computed on a batch
}

const mega = 1e6

// unmeasured is the rate in MB/s of what the run did not measure; too high to matter.
const unmeasured = 1e6

// expectedReport describes what Read accepts.
const expectedReport = "expected is the JSON of loader.report(), or of " +
	"loader.report(cluster=True) for a job on several nodes, or one of the `jobs` of " +
	"`hdmlp stats --json`"

// Read parses a job's report, of one node or of all, in JSON. It returns an error for a report
// that cannot be compared with a simulation: without a finished first epoch, without some of the
// job's ranks, or not over a whole dataset in an order drawn from a seed.
func Read(data []byte) (*Run, error) {
	c, err := readReport(data)
	if err != nil {
		return nil, err
	}
	if c.Samples < 1 || c.Bytes < 1 || c.GlobalBatch < 1 || c.WorldSize < 1 {
		return nil, errors.New("not a job's report: samples, bytes, global_batch_size or " +
			"world_size are missing; " + expectedReport)
	}
	if c.Subset || c.Mixed > 0 || c.Shuffle == string(access.Given) {
		return nil, errors.New("the job read a subset of the dataset or mixed several, or its " +
			"process supplied the orders; only jobs over one whole dataset, with orders drawn from " +
			"a seed, can be compared")
	}
	if err := complete(c); err != nil {
		return nil, err
	}
	if err := configured(c); err != nil {
		return nil, err
	}
	r := &Run{
		Dataset: c.Dataset, Policy: c.Policy, report: c, Delivered: map[string]float64{},
		BeforeTraining: c.BeforeTraining,
	}
	if r.stream, err = r.newStream(c.WorldSize, c.GlobalBatch); err != nil {
		return nil, fmt.Errorf("the report's stream: %w", err)
	}
	r.measureSteps()
	for e := c.First; r.finished(e); e++ {
		r.add(e)
	}
	if len(r.Epochs) == 0 || c.First != 0 {
		return nil, errors.New("the report has no epochs, starting with the first, that all ranks " +
			"finished; take the report at the end of a run that began with epoch 0")
	}
	return r, nil
}

// readReport parses a report of either form. That of one node becomes one over this node.
func readReport(data []byte) (*report.ClusterReport, error) {
	var keys map[string]json.RawMessage
	var wrong *json.UnmarshalTypeError
	switch err := json.Unmarshal(data, &keys); {
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("not a JSON object, but a JSON %s; %s", wrong.Value, expectedReport)
	case err != nil:
		return nil, fmt.Errorf("not a JSON object: %w; %s", err, expectedReport)
	}
	has := func(key string) bool { _, ok := keys[key]; return ok }
	if has("jobs") {
		return nil, errors.New("this is the output of `hdmlp stats --json`; " + expectedReport)
	}
	if has("total") {
		c := &report.ClusterReport{}
		if err := parse(data, c); err != nil {
			return nil, err
		}
		if !has("seed") {
			return nil, errors.New("this report over all nodes was saved by HDMLP 0.2 or earlier, " +
				"and lacks the figures of each epoch; run the job again with this version")
		}
		return c, possible(c)
	}
	p := &report.Report{}
	if err := parse(data, p); err != nil {
		return nil, err
	}
	if err := renamed(data, p); err != nil {
		return nil, err
	}
	if len(p.Tiers) == 0 {
		return nil, errors.New("not a job's report: tiers are missing; " + expectedReport)
	}
	if err := possible(p); err != nil {
		return nil, err
	}
	return p.Summary(), nil
}

// renamed reads the fields that have other names in a report of version 0.2 or earlier
// (docs/COMPATIBILITY.md).
func renamed(data []byte, p *report.Report) error {
	if len(p.Tiers) > 0 {
		return nil
	}
	var old struct {
		Places []struct {
			model.Speed
			Place string `json:"place"`
		} `json:"places"`
		Classes []struct {
			Room int64 `json:"room"`
		} `json:"classes"`
	}
	if err := parse(data, &old); err != nil {
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

// complete checks that the report has every rank of the job.
func complete(c *report.ClusterReport) error {
	seen := make(map[int]bool)
	for _, n := range c.Nodes {
		if n.Age < 0 || n.Assembling {
			return fmt.Errorf("node %d did not answer when the report was made, and its figures "+
				"are missing: %s; take the report while all nodes have the job open", n.Node, n.Why)
		}
		for _, rank := range n.Ranks {
			if rank.Rank < 0 || rank.Rank >= c.WorldSize || seen[rank.Rank] {
				return fmt.Errorf("not a job's report: rank %d of %d, on node %d, is impossible or "+
					"on two nodes", rank.Rank, c.WorldSize, n.Node)
			}
			seen[rank.Rank] = true
		}
	}
	if len(seen) < c.WorldSize {
		return fmt.Errorf("the report has %d of %d ranks; of a job on several nodes, save "+
			"loader.report(cluster=True)", len(seen), c.WorldSize)
	}
	return nil
}

// configured checks that the report has the capacities from which the policy's order was made.
func configured(c *report.ClusterReport) error {
	if c.Reordered == nil {
		return nil
	}
	all := c.Reordered.Configured
	if len(all) != len(c.Nodes) {
		return fmt.Errorf("not a job's report: order.configured_capacities has %d nodes of %d",
			len(all), len(c.Nodes))
	}
	for n, capacities := range all {
		if len(capacities) != len(c.Nodes[n].Classes) {
			return fmt.Errorf("not a job's report: order.configured_capacities[%d] has %d storage "+
				"classes of %d", n, len(capacities), len(c.Nodes[n].Classes))
		}
		for j, capacity := range capacities {
			if capacity < -1 {
				return fmt.Errorf("not a job's report: order.configured_capacities[%d][%d] is %d; it "+
					"must be 0 or more, or -1", n, j, capacity)
			}
		}
	}
	return nil
}

func (r *Run) newStream(world, batch int) (*access.Stream, error) {
	c := r.report
	return access.New(access.Spec{
		Samples: c.Samples, Seed: c.Seed, Epochs: c.Planned, WorldSize: world, GlobalBatch: batch,
		DropLast: c.DropLast,
		Shuffle:  access.Shuffle(c.Shuffle), Scheme: access.Scheme(c.Scheme),
		Tail: access.Tail(c.Tail),
	})
}

// epoch returns a node's figures of an epoch; nil: it has none.
func epoch(n *report.NodeReport, number int) *report.Epoch {
	i := slices.IndexFunc(n.Epochs, func(e report.Epoch) bool { return e.Epoch == number })
	if i < 0 {
		return nil
	}
	return &n.Epochs[i]
}

// finished reports whether all ranks finished the epoch.
func (r *Run) finished(number int) bool {
	for i := range r.report.Nodes {
		n := &r.report.Nodes[i]
		e := epoch(n, number)
		if e == nil || e.Batches != int64(r.stream.Steps()*len(n.Ranks)) {
			return false
		}
	}
	return true
}

// LeftOut describes which epochs that the run began are not in Epochs, and how far each node was in
// the first of them; "" if there are none.
func (r *Run) LeftOut() string {
	next, last := r.Epochs[len(r.Epochs)-1].Epoch+1, -1
	var at []string
	for i := range r.report.Nodes {
		n := &r.report.Nodes[i]
		var batches int64
		if e := epoch(n, next); e != nil {
			batches = e.Batches
		}
		for _, e := range n.Epochs {
			last = max(last, e.Epoch)
		}
		at = append(at, fmt.Sprintf("node %d had %d of its %d batches", n.Node, batches,
			r.stream.Steps()*len(n.Ranks)))
	}
	if last < next {
		return ""
	}
	which := fmt.Sprintf("epoch %d is", next)
	if last > next {
		which = fmt.Sprintf("epochs %d to %d are", next, last)
	}
	return fmt.Sprintf("%s left out: when the report was taken, of epoch %d %s; take it when all "+
		"ranks have finished their last epoch", which, next, strings.Join(at, ", "))
}

// add adds a finished epoch.
func (r *Run) add(number int) {
	out := RunEpoch{Epoch: number, pause: math.Inf(1), step: r.stepIn(number)}
	delivered := map[string]float64{}
	for i := range r.report.Nodes {
		n := &r.report.Nodes[i]
		e := epoch(n, number)
		out.Seconds = max(out.Seconds, e.Seconds+out.step)
		// A pause includes the last step, and what the node waited for others in it.
		out.pause = min(out.pause, e.Pause)
		r.SourceMB += float64(e.Source.Bytes) / mega
		r.DirectMB += float64(e.Direct.Bytes) / mega
		for tier, a := range e.Reads {
			r.Delivered[tier] += float64(a.Bytes) / mega
			delivered[tier] += float64(a.Bytes) / mega
		}
	}
	if last := len(r.Epochs) - 1; last >= 0 {
		out.pause = max(out.pause-r.Epochs[last].step, 0)
	}
	r.Epochs = append(r.Epochs, out)
	r.DeliveredIn = append(r.DeliveredIn, delivered)
}

// Fits reports whether a dataset has as many samples and bytes as that of the run.
func (r *Run) Fits(samples int, bytes int64) bool {
	return samples == r.report.Samples && bytes == r.report.Bytes
}

// Tiers returns the names of the tiers that the ranks read from: the source, other nodes, and the
// storage classes, fastest first; and from memory in which samples waited to be written to one, if
// the run or its prediction, in MB by tier, has such.
func (r *Run) Tiers(predicted map[string]float64) []string {
	names := []string{"source"}
	if len(r.report.Nodes) > 1 {
		names = append(names, "peer")
	}
	for _, c := range r.report.Nodes[0].Classes {
		names = append(names, c.Name)
	}
	if max(r.Delivered[report.Writeback], predicted[report.Writeback]) > 0 {
		names = append(names, report.Writeback)
	}
	return names
}
