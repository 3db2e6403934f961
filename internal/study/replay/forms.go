package replay

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/report"
)

// # Forms
//
// Nodes keep some samples in forms that take less time to be transformed (model.Forms). A report
// has how many of the samples that were transformed in each epoch were forms, and how long that
// took, so that an epoch has two rates, of samples as read and of forms, and the share of forms
// among what comes from memory and from other nodes. Which samples these are does not matter: each
// that comes from there takes the time of such a share.
//
// With other memory, the share of every epoch changes in proportion to how much of what the plan
// places in memory there is room to keep as forms. So converting takes as many epochs as in the
// run.

// forms returns how large forms are, and whether nodes send them; its zero value if the run had
// none. Time is not set: it differs between epochs.
func (r *Run) forms() (f model.Forms) {
	var bytes, asRead int64
	for i := range r.report.Nodes {
		for _, c := range r.report.Nodes[i].Classes {
			if c.Name == memoryClass && c.Forms != nil {
				bytes += c.Forms.Bytes
				asRead += c.Forms.AsRead
			}
		}
	}
	if asRead <= 0 || bytes <= 0 {
		return f
	}
	f.Size = max(float64(bytes)/float64(asRead), 1)
	f.Sent = f.Size <= model.MostSent
	return f
}

// formed is what is known of an epoch's forms, or of a run's.
type formed struct {
	asRead, form float64 // seconds of a sample
	share        float64 // of what comes from memory and other nodes
}

// formed returns what was transformed from forms in an epoch, of which `did` was transformed. Other
// processes delay all of an epoch alike, so that it takes in all what it took, at the run's ratio
// of the two rates.
func (r *Run) formed(of *report.NodeReport, e *report.Epoch, did *report.Transformed) formed {
	run := of.Preprocessing.Total()
	asRead, forms := run.Samples-run.FormSamples, did.FormSamples
	f := formed{asRead: did.Seconds / float64(did.Samples)}
	if e == nil || run.FormSamples == 0 || asRead <= 0 || run.FormSeconds >= run.Seconds {
		return f
	}
	slow := (run.Seconds - run.FormSeconds) / float64(asRead)
	fast := run.FormSeconds / float64(run.FormSamples)
	took := slow*float64(did.Samples-forms) + fast*float64(forms)
	if took <= 0 {
		return f
	}
	f.asRead, f.form = slow*did.Seconds/took, fast*did.Seconds/took
	from := e.Reads[memoryClass].Samples
	if r.forms().Sent {
		from += e.Reads[peerTier].Samples
	}
	f.share = min(float64(forms)/float64(max(from, 1)), 1)
	return f
}

// varyForms changes the shares of forms for nodes with other memory, or other nodes: by how much of
// what the plan places in memory may be forms, of which the run had at least as many as it kept.
// planned returns the plan of nodes.
func (r *Run) varyForms(job *Job, nodes []plan.Node,
	planned func([]plan.Node) (*plan.Plan, error),
) error {
	before := r.nodes()
	ran, err := planned(before)
	if err != nil {
		return err
	}
	was := max(r.formPart(job, ran, before), r.keptForms(ran))
	if was == 0 {
		return nil
	}
	times := r.formPart(job, job.Plan, nodes) / was
	for i := range job.Nodes {
		n := &job.Nodes[i]
		n.InForce = slices.Clone(n.InForce)
		for e := range n.InForce {
			n.InForce[e].Forms = min(n.InForce[e].Forms*times, 1)
		}
	}
	return nil
}

// leastEpochs is of how many epochs a job must be for nodes to make forms (node/catalog).
const leastEpochs = 6

// formDoubt returns what is missing in a prediction for memory in which forms would have room, of a
// run that kept none; "": nothing is.
func (r *Run) formDoubt(job *Job, v Variation) string {
	planned := r.report.Planned
	if job.Forms.Size > 0 || v.Memory <= 0 || len(job.Nodes[0].Threads) == 0 ||
		planned > 0 && planned < leastEpochs {
		return ""
	}
	for i := range job.Nodes {
		for j, class := range job.Nodes[i].Classes {
			held := 0.0
			for _, k := range job.Plan.Nodes[i].Classes[j] {
				held += float64(job.Sizes[k])
			}
			f := model.Forms{Size: model.FormSize}
			if class.Memory && roomFor(f, held, float64(v.Memory)) == 1 {
				return "The run kept no samples in other forms than as read: it does not say what " +
					"these would save. With so much memory there is room for some, if the samples are " +
					"JPEGs, PNGs or WebPs; the prediction is without. Run the job with more memory than " +
					"its samples take to measure that."
			}
		}
	}
	return ""
}

// formPart returns which part of what a plan places in the memory of nodes may be forms.
func (r *Run) formPart(job *Job, p *plan.Plan, nodes []plan.Node) float64 {
	formed, all := 0.0, 0.0
	for i := range nodes {
		for j, class := range r.classes(i, nodes) {
			if class.Name != memoryClass {
				continue
			}
			held := 0.0
			for _, k := range p.Nodes[i].Classes[j] {
				held += float64(job.Sizes[k])
			}
			all += held
			formed += held * roomFor(job.Forms, held, float64(nodes[i].Capacity[j]))
		}
	}
	return formed / max(all, 1)
}

// roomFor returns which part of so many bytes in memory of this capacity may be forms, as the cache
// makes them: while a segment is converted, its samples are there beside their forms, of which
// JPEGs' are expected to take 1.5 times as much; and pixels leave a segment free.
func roomFor(f model.Forms, held, capacity float64) float64 {
	const (
		segments = 16       // of a store, at least (store/memory)
		largest  = 64 << 20 // bytes of a segment
	)
	segment := min(capacity/segments, largest)
	if f.Size <= model.MostSent { // of the last segment the rest of these bytes is room
		segment *= model.MostSent - (f.Size - 1)
	}
	return f.Part(held, max(capacity-segment, held))
}

// keptForms returns which part of what the run's plan placed in memory were forms at the end.
func (r *Run) keptForms(ran *plan.Plan) float64 {
	kept, all := int64(0), 0
	for i := range r.report.Nodes {
		for j, class := range r.report.Nodes[i].Classes {
			if class.Name != memoryClass {
				continue
			}
			all += len(ran.Nodes[i].Classes[j])
			if class.Forms != nil {
				kept += class.Forms.Samples
			}
		}
	}
	return float64(kept) / float64(max(all, 1))
}

// form returns the share of forms in a sample that comes from a tier, which this node is to keep or
// not: then it gets it as read.
func (n *node) form(tier string, keeps bool) float64 {
	class := tier == memoryClass
	if !class && (tier != peerTier || keeps || !n.c.job.Forms.Sent) {
		return 0
	}
	return n.limits.Forms
}

// keeps reports whether a class of the node is to hold the sample, and does not yet.
func (n *node) keeps(k int32) bool {
	class, _, holds := n.class(k)
	return class != nil && !holds
}

// transformMB returns how many seconds a thread takes for each MB of a sample with such a share of
// forms.
func (f *InForce) transformMB(form float64) float64 {
	return f.Transform*(1-form) + f.Form*form
}
