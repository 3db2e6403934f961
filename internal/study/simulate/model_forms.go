package simulate

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
)

// formParts returns, for each node, which part of the first storage class's samples are forms.
func formParts(job *Job, p *plan.Plan) []float64 {
	parts := make([]float64, job.Nodes)
	for i := range min(job.Nodes, len(p.Nodes)) {
		if len(p.Nodes[i].Classes) == 0 || len(job.Env.Classes) == 1 {
			continue
		}
		held := 0.0
		for _, k := range p.Nodes[i].Classes[0] {
			held += job.Sizes[k]
		}
		parts[i] = job.Forms.Part(held, job.Env.Classes[1].Capacity)
	}
	return parts
}

// formed returns the job with the time to preprocess forms for all samples, as if all were there as
// such from the start.
func (j *Job) formed() *Job {
	if j.Forms.Time == 0 {
		return j
	}
	with := *j
	e := &with.Env
	e.Preprocess /= j.Forms.Time
	e.Classes = slices.Clone(e.Classes)
	e.Classes[0].Write = slices.Clone(e.Classes[0].Write)
	for p := range e.Classes[0].Write {
		e.Classes[0].Write[p].MBps /= j.Forms.Time
	}
	return &with
}

// formOf returns which part of the copy is a form when a node needs it, which is to keep the sample
// itself or not.
func (m *simulation) formOf(cp *sampleCopy, node int, keeps bool) float64 {
	if cp.class != 1 || int(cp.node) != node && (keeps || !m.job.Forms.Sent) {
		return 0
	}
	return m.formed[cp.node]
}
