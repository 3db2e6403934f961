package replay

import (
	"cmp"
	"math"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/report"
)

// measureSteps sets the time that a rank computes on a batch, which includes the Python package's
// processing, and whether ranks wait for each other.
//
// Ranks that wait for each other after each step, as in synchronous training, take the same time
// for the run, and seem to compute while another one waits for data. Those that do not compute for
// the same time, and take different times for the run if they wait for data differently; if they do
// not, it does not matter. In both cases a step is the least that any rank took in any epoch.
//
// The pauses before later epochs belong to the time for the run: a rank that has its last batch of
// an epoch early, with which its seconds end, waits for the others in the pause.
func (r *Run) measureSteps() {
	least, most := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{} // of runs, and of computation
	r.step = math.Inf(1)
	for _, n := range r.report.Nodes {
		pauses := 0.0
		for _, e := range n.Epochs[min(1, len(n.Epochs)):] {
			pauses += e.Pause
		}
		for _, rank := range n.Ranks {
			work := max(rank.Seconds-rank.StallSeconds()+rank.Stall[report.Python], 0)
			for i, v := range [2]float64{rank.Seconds + pauses, work} {
				least[i], most[i] = min(least[i], v), max(most[i], v)
			}
		}
		for _, e := range n.Epochs {
			if e.Step > 0 {
				r.step = min(r.step, e.Step)
			}
		}
	}
	if math.IsInf(r.step, 1) { // of an earlier version
		r.step = r.stepOfNodes()
	}
	// A rank may begin later than others, which differs little, and only once. Ranks that wait for
	// each other end at most about a step apart, after which it is chance what differs more.
	apart := most[0] - least[0]
	r.Free = apart > r.step && 2*(most[1]-least[1]) < apart
}

// stepIn returns the time of a step in an epoch, which other processes make longer in some epochs
// than in others. It is what is left of the epoch besides all that any rank waited for data: at
// least that, if ranks waited at different times and for each other. Of ranks that do not wait for
// each other it is the least that any of them took.
func (r *Run) stepIn(number int) float64 {
	seconds := math.Inf(1)
	stall := 0.0
	least := math.Inf(1)
	for i := range r.report.Nodes {
		e := epoch(&r.report.Nodes[i], number)
		seconds = min(seconds, e.Seconds)
		stall += e.EpochTally.StallSeconds() - e.Stall[report.Python]
		if e.Step > 0 {
			least = min(least, e.Step)
		}
	}
	if r.Free && !math.IsInf(least, 1) {
		return least
	}
	if steps := r.stream.Steps() - 1; steps > 0 { // the last one is after the epoch's seconds
		return max((seconds-stall)/float64(steps), r.step)
	}
	return r.step
}

// stepOfNodes is the time of a step by what the nodes' reports have in all versions: that of the
// node with the least, over all its epochs.
func (r *Run) stepOfNodes() float64 {
	least := 0.0
	for i, n := range r.report.Nodes {
		batches := n.Batches - int64(len(n.Ranks)*len(n.Epochs))
		step := max(n.Seconds-n.StallSeconds()+n.Stall[report.Python], 0) /
			float64(max(batches, 1))
		if i == 0 || step < least {
			least = step
		}
	}
	return least
}

// work returns how many times as long as the steps of the epochs each rank computed on a batch, of
// ranks that do not wait for each other; nil: all ranks take the same time. A step of an epoch is
// that of the rank that was the fastest in it, so that ranks of the same speed take longer as well.
func (r *Run) work(of *report.NodeReport) (times []float64) {
	mean := 0.0
	for _, e := range r.Epochs {
		mean += e.step / float64(len(r.Epochs))
	}
	if !r.Free || mean == 0 {
		return nil
	}
	for _, rank := range of.Ranks {
		computed := max(rank.Seconds-rank.StallSeconds()+rank.Stall[report.Python], 0)
		batches := rank.Batches - int64(len(of.Epochs)) // the last one is after its epoch
		if batches < 1 {                                // of an earlier version
			return nil
		}
		times = append(times, computed/float64(batches)/mean)
	}
	return times
}

// node returns a node of the run, with what was measured of it (thesis 3.1.1).
func (r *Run) node(i int) Node {
	of := &r.report.Nodes[i]
	node := Node{}
	for _, rank := range of.Ranks {
		node.Ranks = append(node.Ranks, rank.Rank)
	}
	node.Work = r.work(of)
	mean := r.meanSize()
	if p := of.Preprocessing; p != nil && p.Samples > 0 {
		node.Threads = changes(p.Changes, float64(max(p.Threads, 1)), 1)
		node.Result = float64(p.Result) / mega
	}
	for _, class := range of.Classes {
		c := Class{
			Name: class.Name, Memory: class.Name == memoryClass, Rate: r.readClass(class.Name).mbps,
		}
		if !c.Memory {
			c.Write, c.KeepAll = r.writeClass(i, class.Name).mbps, r.keepsAll(class)
		}
		node.Classes = append(node.Classes, c)
	}
	node.InForce = r.inForce(of)
	ranks := float64(max(len(of.Ranks), 1))
	batch := mean * float64(r.report.GlobalBatch) / float64(r.report.WorldSize)
	node.Streams = changes(of.Streams, float64(max(of.Threads, 1)), 1)
	node.Staging = changes(of.Buffers, max(float64(of.Staging.Size)/mega/ranks, batch), ranks*mega)
	return node
}

// keepsAll reports whether a class keeps all that is read: it has capacity for it, and outlasts
// jobs.
func (r *Run) keepsAll(class report.Class) bool {
	return class.Name != memoryClass && class.Capacity >= r.report.Bytes
}

func named(name string) func(report.Class) bool {
	return func(c report.Class) bool { return c.Name == name }
}

// written returns at which rate a class was written to, in MB/s, while samples waited for that:
// until the end of the last epoch in which some were delivered from memory meanwhile. 0: none were,
// so that it does not matter. It serves for reports of earlier versions, without Class.Written.
func (r *Run) written(of *report.NodeReport, class report.Class) float64 {
	seconds, last := 0.0, 0.0
	for _, e := range of.Epochs {
		seconds += e.Pause + e.Seconds
		if e.Reads[report.Writeback].Bytes > 0 {
			last = seconds
		}
	}
	if last == 0 {
		return 0
	}
	return float64(max(class.Used-class.Held.Bytes, 0)) / mega / last
}

// changes returns what was reported divided by a unit; if nothing was, because it does not change
// or the report is of an earlier version, that it is fixed.
func changes(reported []report.Change, fixed, unit float64) (all []Change) {
	for _, c := range reported {
		all = append(all, Change{At: c.Seconds, To: float64(c.To) / unit})
	}
	if all == nil {
		all = []Change{{To: fixed}}
	}
	return all
}

// inForce returns the limits of each epoch; an earlier version's report has those at its end.
func (r *Run) inForce(of *report.NodeReport) (all []InForce) {
	const unlimited = 1 << 20
	for _, ran := range r.Epochs {
		f := InForce{Ahead: cmp.Or(of.Prefetch, unlimited), Pause: ran.pause}
		e := epoch(of, ran.Epoch)
		if e != nil {
			f.Ahead = cmp.Or(e.Ahead, f.Ahead)
		}
		f.Transform, f.Form, f.Forms = r.transform(of, e)
		for _, class := range of.Classes {
			f.Read = append(f.Read, r.readIn(class.Name, ran.Epoch))
		}
		all = append(all, f)
	}
	return all
}

// transform returns the seconds that a thread transformed for per MB in an epoch, of samples as
// read and of forms, or, if it was hardly anything or is not known, over the whole run: other
// processes, and first uses of memory, delay some epochs more than others. share is that of forms.
func (r *Run) transform(of *report.NodeReport, e *report.Epoch) (asRead, form, share float64) {
	p := of.Preprocessing
	if p == nil || p.Samples == 0 {
		return 0, 0, 0
	}
	did := p.Total()
	if e != nil && e.Transformed != nil &&
		10*e.Transformed.Samples*int64(len(of.Epochs)) >= p.Samples {
		did = e.Transformed
	}
	f := r.formed(of, e, did)
	return f.asRead / r.meanSize(), f.form / r.meanSize(), f.share
}

// begin sets when nodes begin to read. Ranks that wait for each other begin the second epoch at the
// same time, so that when each node began the first one follows from how long that and the pause
// after it have taken; of others it is not known, and they are taken to request their first batches
// at the same time. The last batch of an epoch, with which its seconds end, some ranks have earlier
// than others.
func (r *Run) begin(nodes []Node) {
	first := r.Epochs[0].Epoch
	latest, took := 0.0, make([]float64, len(nodes))
	for i := range nodes {
		e := epoch(&r.report.Nodes[i], first)
		took[i] = e.Pause
		// A pause includes filling the classes, if that is before training.
		nodes[i].InForce[0].Pause = max(e.Pause-r.BeforeTraining, 0)
		if !r.Free {
			took[i] += e.Seconds
			if next := epoch(&r.report.Nodes[i], first+1); next != nil {
				took[i] += next.Pause
			}
		}
		latest = max(latest, took[i])
	}
	for i := range nodes {
		nodes[i].Start = latest - took[i]
	}
}

// fastest returns what a tier delivered to a node in the epoch in which that was most, in MB/s
// while reads were in progress: in the first epoch a class is written to as well.
func (r *Run) fastest(tier string) float64 {
	var all, most float64 // MB of the run, and the rate
	speeds := make(map[int]model.Speed)
	for _, n := range r.report.Nodes {
		for _, e := range n.Epochs {
			for _, m := range e.Tiers {
				if m.Tier == tier {
					sum := speeds[e.Epoch]
					sum.Bytes += m.Bytes
					sum.Busy += m.Busy
					speeds[e.Epoch] = sum
					all += float64(m.Bytes)
				}
			}
		}
	}
	for _, s := range speeds {
		if float64(s.Bytes) > all/float64(2*len(speeds)) && s.Busy > 0 {
			most = max(most, float64(s.Bytes)/mega/s.Busy)
		}
	}
	if most == 0 { // of an earlier version
		return r.rate(tier, false)
	}
	return most
}

// rate returns what a tier delivered in MB/s while reads from it were in progress: to a node, or,
// if it is shared, to all nodes together.
func (r *Run) rate(tier string, shared bool) float64 {
	var all model.Speed
	for _, n := range r.report.Nodes {
		for _, m := range n.Tiers {
			if m.Tier != tier {
				continue
			}
			all.Bytes += m.Bytes
			if shared {
				all.Busy = max(all.Busy, m.Busy)
			} else {
				all.Busy += m.Busy
			}
		}
	}
	if all.Bytes <= 0 || all.Busy <= 0 {
		return unmeasured
	}
	return float64(all.Bytes) / mega / all.Busy
}
