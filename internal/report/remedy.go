package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Diagnose sets Limit and Remedies from what is known of the node, and updates Sentence. It is
// called after Complete and CompareTime. caches reports whether the plan keeps samples in the
// classes, or would if there were any, and entries whether a file's entries say which classes there
// are. A report without batches, or without Known, remains as it is.
func (r *Report) Diagnose(caches, entries bool) {
	run := r.asRun(caches)
	if run == nil || run.Validate() != nil {
		return
	}
	run.Entries = entries
	now, remedies := remedy.Diagnose(run)
	r.run = run
	r.Limit = &now
	r.Remedies = remedies
	r.Sentence = r.sentence()
}

// asRun returns what predictions need of the job; nil if there is too little.
func (r *Report) asRun(caches bool) *remedy.Run {
	if r.Known == nil || r.Samples == 0 || r.begun() == 0 {
		return nil
	}
	nodes := max(r.Nodes, 1)
	run := &remedy.Run{
		Known: *r.Known, Nodes: nodes, Data: cmp.Or(r.Needed, r.Bytes), Caches: caches,
		Sample: float64(r.Bytes) / float64(r.Samples), Whole: r.Scheme == whole,
		Once: r.Planned == 1, Capacity: []int64{},
	}
	positions := cmp.Or(r.Positions, r.Samples)
	if r.Subset && r.Needed > 0 {
		run.Sample = float64(r.Needed) / float64(positions)
	}
	if taken := r.Steps * r.GlobalBatch; taken > 0 {
		positions = min(positions, taken)
	}
	run.Epoch = int64(float64(positions) * run.Sample)
	if !run.Whole {
		run.Epoch /= int64(nodes)
	}
	if nodes > 1 && !run.Whole && caches && r.Shuffle != string(access.Given) &&
		(r.Reordered == nil || r.Reordered.Batches) {
		run.Batch = float64(r.GlobalBatch) / float64(nodes)
		run.Dealt = r.Reordered != nil
	}
	r.measured(run)
	for _, known := range r.Known.Classes {
		var capacity int64
		at := slices.IndexFunc(r.Classes, func(c Class) bool { return c.Name == known.Name })
		if at >= 0 {
			c := &r.Classes[at]
			if capacity = c.Capacity; !caches {
				capacity = c.Used // which does not change
			}
		}
		run.Capacity = append(run.Capacity, capacity)
	}
	if p := r.Preprocessing; p != nil && p.Samples > 0 {
		run.Transformers, run.Processors = p.Threads, p.Most
	}
	return run
}

// measured sets what the epochs have shown of which the node has delivered all batches.
func (r *Report) measured(run *remedy.Run) {
	ranks := int64(max(len(r.Ranks), 1))
	later, busy := 0.0, map[string][]work{}
	least := r.shortest(ranks)
	for i := range r.Epochs {
		e := &r.Epochs[i]
		if e.Batches == 0 || e.Batches < int64(r.Steps)*ranks || e.Seconds <= least ||
			e.StallSeconds > 2*float64(ranks)*e.Seconds {
			continue
		}
		first := e.Epoch == r.Epochs[0].Epoch
		if !first {
			later++
			run.Measured += (e.Seconds - run.Measured) / later
			run.Python += (e.Stall[Python]/float64(ranks) - run.Python) / later
			run.Stall += (e.StallSeconds - run.Stall) / later
		}
		for _, d := range did(e, ranks) {
			at := slices.IndexFunc(run.Did, func(o remedy.Did) bool {
				return o.Resource == d.Resource
			})
			if d.Saturated && !first { // the latest epochs say it best
				all := append(busy[d.Resource], work{d.MBps * e.Seconds, e.Seconds})
				busy[d.Resource] = all[max(len(all)-latest, 0):]
				d.MBps = rate(busy[d.Resource])
			}
			switch {
			case at < 0:
				run.Did = append(run.Did, d)
			case d.Saturated:
				run.Did[at] = d
			case d.MBps > run.Did[at].MBps:
				run.Did[at].MBps = d.MBps
			}
		}
	}
}

// shortest returns how many seconds an epoch takes at least that was measured: a tenth of the
// median of those after the first. After the daemon was stopped, as by SIGSTOP, it is notified at
// once of all batches that ranks took meanwhile, and whole epochs seem to have taken nothing, or
// far less than ranks waited in them.
func (r *Report) shortest(ranks int64) float64 {
	var all []float64
	for i := range r.Epochs {
		if e := &r.Epochs[i]; i > 0 && e.Batches > 0 && e.Batches >= int64(r.Steps)*ranks {
			all = append(all, e.Seconds)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2] / 10
}

// latest is of how many epochs the rate of a saturated resource is the mean. One epoch alone counts
// what was read ahead in the one before it, and not what it reads ahead for the next, so that
// predictions would jump at its end.
const latest = 4

// work is what a resource did in an epoch.
type work struct{ mb, seconds float64 }

func rate(all []work) float64 {
	var sum work
	for _, w := range all {
		sum.mb, sum.seconds = sum.mb+w.mb, sum.seconds+w.seconds
	}
	return sum.mb / sum.seconds
}

// did returns what resources did in an epoch. One of them was saturated if it caused most of the
// stall, and ranks stalled for a tenth of the time.
func did(e *Epoch, ranks int64) (all []remedy.Did) {
	var consumed int64
	cause, most := worst(e.Stall)
	saturated := most >= e.StallSeconds/2 && most >= minWaitShare*e.Seconds*float64(ranks)
	add := func(resource string, bytes int64, is bool) {
		if bytes > 0 {
			all = append(all, remedy.Did{
				Resource: resource, MBps: float64(bytes) / mega / e.Seconds,
				Saturated: is && saturated,
			})
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(e.Reads)) {
		consumed += e.Reads[tier].Bytes
		switch tier {
		case "source", Writeback:
		case "peer":
			add(remedy.Network, e.Reads[tier].Bytes, cause == tier)
		default:
			add(tier, e.Reads[tier].Bytes, cause == tier)
		}
	}
	add(remedy.Source, e.Source.Bytes, cause == "source")
	add(remedy.Preprocessing, consumed, strings.HasPrefix(cause, "transform "))
	add(remedy.Compute, consumed, false)
	return all
}

// minWaitShare is the share of the time that ranks must have waited for a resource to show that it
// was saturated.
const minWaitShare = 0.1

// diagnose sets Known, Limit and Remedies from what the nodes know.
func (c *ClusterReport) diagnose() {
	c.Limit, c.Remedies = nil, nil
	if run, ok := c.merged(); ok {
		now, remedies := remedy.Diagnose(&run)
		c.Limit = &now
		c.Remedies = remedies
		c.Known = &run.Known
	}
}

// merged returns the job as all nodes that have reported know it.
func (c *ClusterReport) merged() (remedy.Run, bool) {
	var runs []*remedy.Run
	for i := range c.Nodes {
		if run := c.Nodes[i].Run; run != nil {
			runs = append(runs, run)
		}
	}
	return remedy.Merge(runs)
}

// WhatIf answers what changes would bring; ok is false if nothing was measured yet.
func (c *ClusterReport) WhatIf(changes []remedy.Change) (answer remedy.Answer, ok bool) {
	run, ok := c.merged()
	if !ok {
		return remedy.Answer{Job: c.Job, Changes: changes}, false
	}
	answer = remedy.Ask(&run, changes)
	answer.Job = c.Job
	return answer, true
}

// sentence describes what limits the job, and the cheapest remedy; "" if that is not known.
func (d *Diagnosis) sentence() string {
	if d.Limit == nil {
		return ""
	}
	return " " + d.Limit.Sentence(d.Remedies)
}
