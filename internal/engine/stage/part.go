package stage

import (
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Part is the samples of a batch from one on, until before another.
type Part struct {
	*Batch
	From, To int
}

// Concat returns the batch of a step that consists of parts of others, which were staged for this
// job and others. It has no slots and no extra segments. What was read for another batch counts for
// the one with its last sample, so that an epoch's sums are right whatever its batches' sizes are.
func Concat(epoch, step int, parts []Part) *Batch {
	b := &Batch{Epoch: epoch, Step: step, made: parts[len(parts)-1].made}
	b.made.planned = parts[0].made.planned
	b.made.reads = make([]report.Amount, len(b.made.reads))
	for _, p := range parts {
		b.Labels = append(b.Labels, p.Labels[p.From:p.To]...)
		b.IDs = append(b.IDs, p.IDs[p.From:p.To]...)
		b.Occurrences = append(b.Occurrences, p.Occurrences[p.From:p.To]...)
		if p.To == len(p.IDs) {
			for tier, amount := range p.made.reads {
				b.made.reads[tier].Add(amount)
			}
		}
	}
	for o := range parts[0].Outputs() {
		for _, p := range parts {
			from, to := o*len(p.IDs)+p.From, o*len(p.IDs)+p.To
			b.Offsets = append(b.Offsets, p.Offsets[from:to]...)
			b.Lengths = append(b.Lengths, p.Lengths[from:to]...)
			b.Segments = append(b.Segments, p.Segments[from:to]...)
		}
	}
	for _, k := range b.IDs {
		b.Audit += access.Mix(epoch, int(k))
	}
	b.made.epoch = epoch
	b.made.step = step
	b.made.samples = int64(len(b.IDs))
	return b
}
