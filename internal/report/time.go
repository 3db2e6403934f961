package report

import (
	"cmp"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
)

// mega is the bytes of a MB.
const mega = 1e6

// whole is the scheme in which every rank reads every sample (access.Whole).
const whole = "whole"

// CompareTime compares the runtime of the epochs begun with the least that is possible on nodes
// with this environment, and updates Sentence. It is called after Complete. The capacities of
// staging buffers and classes are the report's, where it has as many classes as the environment,
// and so is the number of threads that transform.
// The runtime begins when reads for the job do. The pauses before epochs, in which caches and
// staging buffers are filled as well, are a part of it, and count as computation.
//
// Other nodes are taken to have consumed as much as this one. A nil or invalid environment, and a
// report without batches, leave both values 0. So does a run that was faster although its caches
// were empty at first and all of the environment was measured: then the machine was faster during
// the run than when it was measured last.
func (r *Report) CompareTime(env *model.Environment) {
	r.TimeBound, r.TimeShare = 0, 0
	if env == nil || env.Validate() != nil || r.begun() == 0 {
		return
	}
	machine := *env
	machine.Classes = slices.Clone(env.Classes)
	var staging int64
	for _, rank := range r.Ranks {
		staging += rank.Staging.Size
	}
	if staging > 0 {
		machine.Classes[0].Capacity = float64(staging) / mega
	}
	if len(r.Classes) == len(machine.Classes)-1 {
		for j, c := range r.Classes {
			machine.Classes[j+1].Capacity = float64(c.Capacity) / mega
		}
	}
	r.prepare(&machine)
	w, seconds := r.workload(machine.Compute)
	if r.Ran > 0 {
		seconds = r.Ran
	}
	bound := machine.TimeBound(w)
	if bound > 0 && (seconds >= bound*minTimeShare || warm(r.Classes) || givenOf(r.Known) != "") {
		r.TimeBound, r.TimeShare = bound, seconds/bound
	}
	r.Sentence = r.sentence()
}

// prepare sets how samples are transformed: by as many threads as there were at most, or not at
// all.
func (r *Report) prepare(machine *model.Environment) {
	threads := 1
	if p := r.Preprocessing; p == nil {
		machine.Preprocess = untransformed
	} else {
		threads = max(threads, p.Threads)
		for _, c := range p.Changes {
			threads = max(threads, int(c.To))
		}
	}
	machine.Classes[0].Threads = threads
}

// untransformed is the rate of samples that are delivered as they are, in MB/s: it limits nothing.
const untransformed = 1e6

// workload returns what the epochs begun needed of nodes that consume compute MB/s each, and the
// sum of their times and pauses. An epoch's time ends when its last batch is delivered, so that the
// computation of that batch does not count.
func (r *Report) workload(compute float64) (w *model.Workload, seconds float64) {
	nodes := max(r.Nodes, 1)
	w = &model.Workload{}
	if r.Scheme == whole {
		w.Readers = nodes
	}
	for _, e := range r.Epochs {
		if e.Batches == 0 {
			continue
		}
		at := len(w.Epochs)
		seconds += e.Pause + e.Seconds
		var consumed float64
		for _, a := range e.Reads {
			consumed += float64(a.Bytes) / mega
		}
		steps := float64(e.Batches) / float64(max(len(r.Ranks), 1))
		computed := consumed / compute * max(0, steps-1) / max(steps, 1)
		if r.Known == nil || r.Known.Compute.Origin != model.Given {
			if e.Step > 0 { // the ranks were faster in this epoch than they are by the environment
				computed = min(computed, e.Step*max(0, steps-1))
			}
		}
		d := model.Demand{Compute: e.Pause + computed}
		// Repeats within an epoch need not be fetched again.
		distinct := float64(cmp.Or(r.Needed, r.Bytes)) / mega
		if at < len(r.Demands) {
			distinct = float64(r.Demands[at].Bytes) / mega
		}
		share := min(consumed, distinct/float64(nodes))
		if w.Readers > 0 {
			share = min(consumed, distinct)
		}
		d.Nodes = slices.Repeat([]float64{share}, nodes)
		total := min(share*float64(nodes), distinct)
		if at < len(r.Demands) {
			d.New = min(total, float64(r.Demands[at].New)/mega)
		} else if at == 0 {
			d.New = total
		}
		w.Epochs = append(w.Epochs, d)
	}
	return w, seconds
}
