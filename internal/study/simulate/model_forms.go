package simulate

import (
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
)

// Forms are copies of samples that take less time to be preprocessed than the samples (decisions 95
// and 100). The first storage class of a node keeps as many as it has capacity for beside all
// samples that the policy places there. Which samples these are is not simulated: of each that the
// class has such a part is a form, and what it takes to make it is not counted.
type Forms struct {
	Time float64 // of a sample, in parts of its time to be preprocessed; 0: there are no forms
	Size float64 // in parts of the sample's size; at least 1
	// Sent means that a node that reads a sample of another one is sent its form, if there is one,
	// unless it is to keep the sample (decision 99). Otherwise it is sent the sample.
	Sent bool
}

const (
	// FormSize is the size of forms of JPEGs, in parts of the file's: those of photographs take 1.05
	// to 1.2 (decision 95).
	FormSize = 1.12
	// MostSent is how large a form may be that is sent to another node, in parts of the sample.
	MostSent = 1.5
)

// valid returns an error for impossible forms.
func (f Forms) valid() error {
	if f == (Forms{}) || f.Time > 0 && f.Time <= 1 && f.Size >= 1 && !math.IsInf(f.Size, 1) {
		return nil
	}
	return fmt.Errorf("simulate: forms take %v of the time and %v times the size; it must be above "+
		"0 and at most 1 of the time, and at least 1 times the size", f.Time, f.Size)
}

// Part returns which part of so many MB in a class of this capacity are forms.
func (f Forms) Part(held, capacity float64) float64 {
	room := capacity - held
	switch {
	case f.Time == 0 || held == 0 || room < 0:
		return 0
	case room >= held*(f.Size-1):
		return 1
	}
	return room / (held * (f.Size - 1))
}

// parts returns, for each node, which part of the first storage class's samples are forms.
func (f Forms) parts(job *Job, p *plan.Plan) []float64 {
	parts := make([]float64, job.Nodes)
	for i := range min(job.Nodes, len(p.Nodes)) {
		if len(p.Nodes[i].Classes) == 0 || len(job.Env.Classes) == 1 {
			continue
		}
		held := 0.0
		for _, k := range p.Nodes[i].Classes[0] {
			held += job.Sizes[k]
		}
		parts[i] = f.Part(held, job.Env.Classes[1].Capacity)
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

// sentMB returns how many MB leave another node for a sample of so many of which this part is a
// form.
func (m *simulation) sentMB(size, form float64) float64 {
	return size * (1 + form*(m.job.Forms.Size-1))
}
