// Package replan decides whether a running job is to follow another plan (dynamic migration, thesis
// chapter 7): the measurements, or the capacities, may have moved away from those that its plan was
// made with.
//
// The decision is a pure function of what all nodes report, so nodes with the same reports decide
// alike. It makes the new plan, predicts how long an epoch takes with it and with the plan in force
// (model.Environment.Epoch), and compares what that saves with what must be moved. Nothing here
// reads samples, or handles nodes that fail: package planner runs the rounds.
package replan

import (
	"cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

const (
	// minSaving is the share of an epoch's time that a new plan must save. Estimates of tiers differ
	// by a few per cent from one round to the next although nothing has changed.
	minSaving = 0.05
	// repayFactor is how many times the time that moving takes must be saved in the remaining epochs.
	// Moving competes with training for the same tiers, and the rates of both may be wrong by a
	// fourth (routing.Choose has the same margin): 1.25 of the one, 1/1.25 of the other, and
	// something for the epoch in which the move takes place.
	repayFactor = 2
	// trustFactor is by what factor the predicted time of an epoch may differ from the measured one
	// for the model to be trusted again after it was wrong: that of rates (routing.Choose).
	trustFactor = 1.25
)

// Reasons why a new plan is not adopted.
const (
	// Ended: the epoch from which the plan could be followed is after the job's last.
	Ended = "the job ends before it could be followed"
	// Unknown: plans would compare guesses.
	Unknown = "a tier is not measured yet"
	// Equal: it saves less than minSaving of an epoch.
	Equal = "it would be at most 5 % faster, which is within the error of predictions"
	// Costs: moving takes too long, whatever the plan if only repayFactor epochs remain.
	Costs = "it would not save twice the time that moving takes in the epochs that remain"
	// Wrong: the model has made a plan that is worse than the one before, and does not explain why.
	Wrong = "epochs became longer with a new plan, which the model does not explain"
)

// Question is what to decide on.
type Question struct {
	// Input is that of the new plan: From is the first epoch for which it can be followed, Env what
	// all nodes together know now, and Nodes have the capacities as they are now, and hold nothing.
	Input  plan.Input
	Policy plan.Policy
	// Plan is the plan in force; nil: nodes follow different plans, because one of them was cut off
	// when the others adopted one. The new plan is then adopted whatever it saves.
	Plan *plan.Plan
	// Transformers is, by node, how many threads transform samples; 0: samples are delivered
	// unchanged.
	Transformers []int
	// Settled is set if the plan in force was followed for a whole epoch after the one in which
	// caches were filled by it. Before then, links and disks were busy with what fills caches, and
	// few of their reads were like those of later epochs. What is measured of them may be wrong, and
	// a plan that moves samples because of that reads these from the source again.
	Settled bool
	// Took is how long an epoch took with the plan in force, in seconds; 0: not measured.
	Took float64
	// SparesReads is set if the plan in force was adopted for fewer reads of the source alone.
	SparesReads bool
	// Before is the plan before the one in force, and Failed one from which the job has returned
	// because epochs became longer with it. Zero: there is none.
	Before, Failed Tried

	mean float64   // size of a sample, MB
	fill candidate // what filled has made
}

// Tried is a plan that was followed, and how long an epoch took with it, in seconds; 0: not
// measured.
type Tried struct {
	Plan    *plan.Plan
	Seconds float64
}

// Decide returns the outcome, and the plan to follow from Input.From on; nil: the one in force. Its
// errors are those of Policy.Plan.
//
// There are two candidates: a plan that leaves what the plan in force has where it is, as far as it
// fits, and only fills free capacity, or gives samples other owners, if it could differ; and, if
// what is known is Settled, one from scratch. The one that saves more in the remaining epochs,
// after what moving takes, is compared with the plan in force: with what was measured of it, if
// that is less than what is predicted, because the model then sees limits that are not there.
//
// If epochs have become longer with the plan in force than they were with the one before, the model
// was wrong when it was made. If it still is, because it does not predict what is measured now, it
// is not asked for another plan. The job returns to the one before, if that repays the move by the
// times that were measured; and another one is made only if the model explains what failed.
func Decide(q Question) (out plan.Replanning, plan *plan.Plan, err error) {
	out.From, q.mean = q.Input.From, q.Input.MeanSize()
	left := float64(q.end() - q.Input.From)
	switch {
	case left <= 0:
		out.Why = Ended
		return out, nil, nil
	case q.Plan == nil:
		if plan, err = q.Policy.Plan(q.Input); err == nil {
			out.Adopted = true
		}
		return out, plan, err
	case q.Input.Env == nil:
		out.Why = Unknown
		return out, nil, nil
	}
	h, err := newHolding(&q.Input, q.Plan)
	if err != nil {
		return out, nil, err
	}
	switch {
	case left <= repayFactor && !q.worse() && q.Input.Stream.Spec().Scheme != access.Whole &&
		h.owned():
		// A move reads what it moves once, from where it is now. An epoch spares at most as much by it,
		// as it reads a sample once, on one node. Other owners are no move.
		out.Took, out.Why = q.Took, Costs
		return out, nil, nil
	case !q.Settled && h.complete():
		out.Why = Equal // there is no other plan
		return out, nil, nil
	}
	now, err := q.holds(h)
	if err != nil {
		return out, nil, err
	}
	out.Seconds = now.seconds
	out.Took = q.Took
	out.Before = q.Before.Seconds
	if q.worse() && (q.SparesReads || !explained(now.seconds, q.Took)) {
		return q.back(out, now)
	}
	if q.Failed.Plan != nil {
		failed, err := q.measure(q.Failed.Plan)
		if err != nil || !explained(failed.seconds, q.Failed.Seconds) {
			out.Why = Wrong
			return out, nil, err
		}
	}
	if out, plan, err = q.faster(out, now); err != nil || out.Why != Equal {
		return out, plan, err
	}
	return q.fewerSourceReads(out, now)
}

// faster decides whether to follow another plan because epochs would be shorter.
func (q *Question) faster(out plan.Replanning, now measured) (plan.Replanning,
	*plan.Plan, error,
) {
	left := float64(q.end() - q.Input.From)
	enough := minSaving * cmp.Or(out.Took, out.Seconds)
	spared, err := q.noPlanTakesLess(now, out.Takes()-enough)
	if err != nil || spared {
		out.Why = Equal // whatever the plan: spare making it
		return out, nil, err
	}
	best := candidate{plan: q.Plan, measured: now}
	try := func(c candidate, err error) error {
		if err == nil && (best.plan == q.Plan || left*(best.seconds-c.seconds) > c.move-best.move) {
			best = c
		}
		return err
	}
	if !now.holding.complete() { // else it is the plan in force
		err = try(q.filled(now))
	}
	if err == nil && q.Settled {
		err = try(q.make(q.Input, now))
	}
	if err != nil {
		return out, nil, err
	}
	out.New = best.seconds
	out.Bytes = best.bytes
	out.Move = best.move
	saved := out.Takes() - out.New
	switch {
	case best.plan == q.Plan, saved <= enough:
		out.Why = Equal
	case left*saved <= repayFactor*out.Move:
		out.Why = Costs
	default:
		out.Adopted = true
		return out, best.plan, nil
	}
	return out, nil, nil
}

// fewerSourceReads decides whether to fill free capacities although epochs take as long: less is
// read from the source then. The plan in force may have left them free because its classes are
// slower than the source; if it is the training that limits epochs, which was not known then,
// classes need not be faster. As no time is saved, it requires a measured time of epochs, and that
// epochs have not become longer with such a plan before.
func (q *Question) fewerSourceReads(out plan.Replanning, now measured) (plan.Replanning,
	*plan.Plan, error,
) {
	nodes := float64(len(q.Input.Nodes))
	enough := max(minSaving*now.source, minSaving*minSaving*now.reads) * nodes // MB
	if out.Took == 0 || q.Failed.Plan != nil || min(now.source*nodes, now.holding.free()) <= enough {
		return out, nil, nil
	}
	c, err := q.filled(now)
	if err != nil {
		return out, nil, err
	}
	spared := (now.source - c.source) * nodes
	left := float64(q.end() - q.Input.From)
	switch {
	case c.seconds > min(now.seconds, (1+minSaving)*out.Takes()), spared <= enough,
		left*spared <= repayFactor*float64(c.bytes)/1e6, left*c.seconds <= repayFactor*c.move:
		return out, nil, nil
	}
	out.Adopted = true
	out.Why = ""
	out.Spared = int64(spared * 1e6)
	out.New = c.seconds
	out.Bytes = c.bytes
	out.Move = c.move
	return out, c.plan, nil
}

// candidate is another plan, and what must be moved for it: bytes, and the seconds that takes.
type candidate struct {
	plan *plan.Plan
	measured
	bytes int64
	move  float64
}

// make makes a plan, and compares it with what the one in force brings.
func (q *Question) make(in plan.Input, now measured) (c candidate, err error) {
	if c.plan, err = q.Policy.Plan(in); err != nil {
		return c, err
	}
	if c.measured, err = q.measure(c.plan); err != nil {
		return c, err
	}
	c.bytes, c.move = c.holding.move(now.holding)
	return c, nil
}

// filled returns the plan that leaves everything where it is. It makes it once.
func (q *Question) filled(now measured) (candidate, error) {
	if q.fill.plan != nil {
		return q.fill, nil
	}
	var err error
	q.fill, err = q.make(q.filling(), now)
	return q.fill, err
}

// worse reports whether epochs have become longer with the plan in force, by more than noise.
func (q *Question) worse() bool {
	return q.Before.Seconds > 0 && q.Took > (1+minSaving)*q.Before.Seconds
}

// explained reports whether the model predicts what was measured of a plan.
func explained(predicted, took float64) bool {
	return predicted <= trustFactor*took && took <= trustFactor*predicted
}

// back decides by measured times alone whether to return to the plan before the one in force.
func (q *Question) back(out plan.Replanning, now measured) (plan.Replanning,
	*plan.Plan, error,
) {
	out.Why = Wrong
	if q.Before.Plan == nil {
		return out, nil, nil
	}
	before, err := newHolding(&q.Input, q.Before.Plan)
	if err != nil {
		return out, nil, err
	}
	out.New = q.Before.Seconds
	out.Bytes, out.Move = before.move(now.holding)
	if float64(q.end()-q.Input.From)*(q.Took-q.Before.Seconds) <= repayFactor*out.Move {
		return out, nil, nil
	}
	out.Adopted = true
	return out, q.Before.Plan, nil
}

// filling returns the input of a plan that leaves everything where it is.
func (q *Question) filling() plan.Input {
	in := q.Input
	in.Nodes = make([]plan.Node, len(q.Input.Nodes))
	for n := range in.Nodes {
		in.Nodes[n] = q.Input.Nodes[n]
		in.Nodes[n].Held = q.Plan.Nodes[n].Classes
	}
	return in
}

// end returns the epoch after the last one.
func (q *Question) end() int {
	return cmp.Or(q.Input.Stream.Spec().Epochs, q.Input.Epochs)
}

// measured is what a plan brings.
type measured struct {
	holding *holding
	reads   float64 // MB that a node reads in an epoch, in the mean
	source  float64 // what no node holds of it
	seconds float64 // of a mean epoch that remains
}

// measure predicts how long an epoch takes with a plan: as long as on the slowest node, because
// nodes train in step.
func (q *Question) measure(plan *plan.Plan) (m measured, err error) {
	h, err := newHolding(&q.Input, plan)
	if err != nil {
		return m, err
	}
	return q.holds(h)
}

// holds is measure of a plan by which nodes hold this.
func (q *Question) holds(h *holding) (measured, error) {
	m := measured{holding: h}
	all, err := h.served(q.Input.From, q.end())
	for n, s := range all {
		m.reads += s.reads / float64(len(all))
		m.source += max(s.reads-s.Cached, 0) / float64(len(all))
		m.seconds = max(m.seconds, q.epoch(s.reads, q.Transformers[n], &s.Hits))
	}
	return m, err
}

// epoch predicts how long a node takes for an epoch.
func (q *Question) epoch(reads float64, transformers int, hits *model.Hits) float64 {
	env := *q.Input.Env
	l := model.Later{
		Node: reads, Sample: q.mean, Nodes: len(q.Input.Nodes),
		Transformers: transformers, Hits: hits,
	}
	if l.Transformers == 0 { // what is known of transforms is from another job
		env.Preprocess, l.Transformers = untransformed, 1
	}
	return env.Epoch(&l).Seconds
}

// untransformed is the rate in MB/s of samples that are not transformed: too high to matter.
const untransformed = 1e6
