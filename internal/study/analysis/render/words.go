// Package render presents what an analysis found: as text for a terminal, and as a page with the
// paper's figures 2, 4 and 16 for the job. It computes nothing.
package render

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

// rate formats samples/s with three digits or more.
func rate(v float64) string {
	switch {
	case v == 0 || math.IsInf(v, 0):
		return "unlimited"
	case v < 100:
		return fmt.Sprintf("%.3g", v)
	}
	return human.Group(v, 0)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return human.Number(float64(n)) + " " + what + "s"
}

// what names a resource at the beginning of a sentence.
func what(resource string) string {
	switch resource {
	case remedy.Compute:
		return "Training"
	case remedy.Preprocessing:
		return "Preparing samples"
	}
	name := remedy.Name(resource)
	return "Reading from " + strings.TrimPrefix(name, "storage class ")
}

// short names a resource in a table.
func short(resource string) string {
	switch resource {
	case remedy.Compute:
		return "training"
	case remedy.Preprocessing:
		return "preparation"
	}
	return resource
}

// title describes what was analysed.
func title(m *analysis.Measured) string {
	if len(m.Command) == 0 {
		return "What the job waits for"
	}
	return "What " + human.Text(strings.Join(m.Command, " ")) + " waits for"
}

// loader describes the loader in use.
func loader(m *analysis.Measured) string {
	l := &m.Loader
	text := "hdmlp"
	if l.Name == analysis.Torch {
		text = "torch's DataLoader"
	}
	worker := "worker"
	if l.Name == analysis.HDMLP {
		worker = "thread"
	}
	if l.Workers == 0 {
		return text + ", without workers"
	}
	return text + ", " + plural(l.Workers, worker) + " on each node"
}

// summary describes in sentences what limits the job, what to do, and how certain that is.
func summary(r *analysis.Report) (sentences []string) {
	if r.Missing != nil {
		sentences = []string{"Not enough was measured to say what limits the job: " +
			strings.Join(r.Missing, " and ") + " could not be measured."}
		return append(sentences, compared(r.Measured)...)
	}
	asked := func() {
		if o := r.WhatIf; o != nil {
			sentences = append(sentences, capital(o.Text)+"? "+outcome(o))
		}
	}
	if r.Refuted() {
		sentences = append([]string{refuted(r)}, waited(r.Measured)...)
		sentences = append(sentences, "Measure again on an idle machine, or for longer (--time).")
		asked()
		return sentences
	}
	n := &r.Now
	limits := fmt.Sprintf("%s limits this job: %s samples/s on each node", what(n.Limit),
		rate(n.Samples))
	if nodes := r.Measured.Nodes; nodes > 1 {
		limits += fmt.Sprintf(" and %s on all %d", rate(n.Samples*float64(nodes)), nodes)
	}
	if n.Limit == remedy.Compute && !slow(n) {
		limits += ". Faster loading would not make it faster."
	} else {
		limits += fmt.Sprintf(", %s of the %s that training could take. A later epoch of %s has %s "+
			"of stall: %s for preparing samples and %s for reading them.",
			human.Percent(n.Samples/n.Train), rate(n.Train), human.Clock(n.Epoch),
			human.Clock(r.Stall.Preparation+r.Stall.Fetch), human.Clock(r.Stall.Preparation),
			human.Clock(r.Stall.Fetch))
	}
	sentences = append(sentences, limits, advice(r), sure(r))
	asked()
	return sentences
}

// refuted explains why nothing is concluded.
func refuted(r *analysis.Report) string {
	than := "slower"
	if r.Differs > 0 {
		than = "faster"
	}
	by := human.Percent(max(r.Differs, -r.Differs))
	of := ""
	if r.Measured.First {
		of = ", and with empty caches"
	}
	return fmt.Sprintf("No conclusion: the job as it is takes %s samples/s on each node, which is "+
		"%s %s than by the rates of its parts (%s for a later epoch%s). They were measured one after "+
		"the other, and do not hold together.", rate(r.Measured.AsIs.Median), by, than,
		rate(r.Now.Samples), of)
}

// compared describes how fast the job as it is takes samples, beside training alone: that needs no
// other rate. It returns nothing if one of both was not measured.
func compared(m *analysis.Measured) []string {
	if m.AsIs == nil || m.Training == nil {
		return nil
	}
	is, trains := rate(m.AsIs.Median), rate(m.Training.Median)
	if m.AsIs.High >= m.Training.Low {
		return []string{fmt.Sprintf("But it takes %s samples/s, and training alone %s: faster "+
			"loading would not make it faster.", is, trains)}
	}
	return []string{fmt.Sprintf("It takes %s samples/s, and training alone %s: in %s of the time it "+
		"waits for its data.", is, trains, human.Percent(1-m.AsIs.Median/m.Training.Median))}
}

// waited describes how long the job as it is waits for its data, as its iterations say: that needs
// no rate that they refute. It returns nothing if none was counted.
func waited(m *analysis.Measured) []string {
	all := m.Waited + m.Computed
	if all <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("Its iterations waited for their data in %s of their time.",
		human.Percent(m.Waited/all))}
}

// slow reports whether the job is slower than its training, although that is the least rate:
// without workers nothing overlaps.
func slow(n *analysis.Speed) bool { return n.Samples < 0.99*n.Train }

// advice describes what to do first.
func advice(r *analysis.Report) string {
	first := r.First()
	switch {
	case first != nil:
		return "First: " + first.Text + ". " + outcome(first)
	case r.Now.Limit == remedy.Compute && !slow(&r.Now):
		return "Nothing has to be done."
	}
	return "No change of one thing alone would lift that."
}

// outcome describes what a change brings.
func outcome(o *analysis.Option) string {
	text := fmt.Sprintf("An epoch would take %s, %s times as fast, and %s would limit.",
		human.Clock(cmp.Or(o.Simulated, o.Epoch)), human.Ratio(o.Times), remedy.Name(o.Limit))
	if len(o.Guessed) > 0 {
		text += " Not measured, so that this rests on a guess: " + strings.Join(o.Guessed, ", ") + "."
	}
	if o.Forms {
		text += " That is once all have become forms, after about five epochs."
	}
	if o.Few {
		text += " This rests on rates that were measured too rarely (*)."
	}
	return text
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// sure describes how certain the limit is.
func sure(r *analysis.Report) string {
	n, m := &r.Now, r.Measured
	var b strings.Builder
	if n.Certain {
		b.WriteString("That is certain: the 95 % intervals of what limits and of the next rate do " +
			"not overlap.")
	} else {
		switch {
		case m.Contradicts(n.Low, n.High):
			b.WriteString("That is not certain: the job as it is was measured to be faster or slower " +
				"than that; measure for longer, or on an idle machine.")
		case m.TooFew():
			b.WriteString("That is not certain: some rates were measured too rarely (*); measure for " +
				"longer.")
		default:
			b.WriteString("That is not certain: the intervals of what limits and of the next rate " +
				"overlap, so that it may be either.")
		}
	}
	fmt.Fprintf(&b, " By the intervals the job is from %s to %s samples/s fast", rate(n.Low),
		rate(n.High))
	if m.AsIs != nil {
		fmt.Fprintf(&b, "; measured were %s", rate(m.AsIs.Median))
	}
	b.WriteString(".")
	return b.String()
}
