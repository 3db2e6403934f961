package survey

import (
	"context"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// mostForms is of how many samples forms are made, and leastRounds how often each is transformed as
// read and as a form, at least.
const mostForms, leastRounds = 32, 3

// both is a sample, as read and in its form; without one, the form is the sample.
type both struct {
	sample, form []byte
	kind         forms.Kind
}

// Forms measures what the forms of samples take (decisions 95 and 100), on one thread, in about
// this time. Samples without one count as they are. Its zero value means that there are none, or
// that they take no less time.
func (t *Transforms) Forms(ctx context.Context, limit time.Duration) model.Forms {
	if !t.program.TakesForm(0) {
		return model.Forms{}
	}
	end := time.Now().Add(limit)
	all, size := t.convert(ctx, end.Add(-limit/2))
	if size <= 1 {
		return model.Forms{}
	}
	var asRead, replaced time.Duration // of all samples, and of those with a form
	var ratios []float64               // of these
	for round := 0; round < leastRounds || time.Now().Before(end); round++ {
		for i, b := range all {
			if ctx.Err() != nil {
				return model.Forms{}
			}
			took, err := t.took(round*len(all)+i, b.sample, forms.AsRead)
			asRead += took
			if err == nil && b.kind != forms.AsRead {
				var form time.Duration
				form, err = t.took(round*len(all)+i, b.form, b.kind)
				replaced += took
				ratios = append(ratios, form.Seconds()/took.Seconds())
			}
			if err != nil {
				return model.Forms{}
			}
		}
	}
	slices.Sort(ratios) // the median is not that of a moment in which others had the processor
	f := model.Forms{
		Time: 1 - (1-ratios[len(ratios)/2])*replaced.Seconds()/asRead.Seconds(), Size: size,
	}
	if f.Time >= 1 {
		return model.Forms{}
	}
	f.Sent = f.Size <= model.MostSent
	return f
}

// took returns how long a sample, or its form, takes with the parameters of a draw. The form's
// digest is compared, as it is whenever the form is used.
func (t *Transforms) took(draw int, data []byte, kind forms.Kind) (time.Duration, error) {
	t.workers[0].Form(kind)
	defer t.workers[0].Form(forms.AsRead)
	begun := time.Now()
	if kind != forms.AsRead {
		if err := forms.Check(data); err != nil {
			return 0, err
		}
	}
	err := t.apply(0, draw, data)
	return max(time.Since(begun), 1), err
}

// convert returns samples with their forms, and how many times as large these are; 0: there is
// none. It makes no more after a time, but one.
func (t *Transforms) convert(ctx context.Context, until time.Time) (all []both, size float64) {
	var c forms.Converter
	defer c.Close()
	samples, kept := 0, 0 // bytes
	made := 0
	for i, sample := range t.samples[:min(len(t.samples), mostForms)] {
		if ctx.Err() != nil || i > 0 && time.Now().After(until) {
			break
		}
		b := both{sample: sample, form: sample}
		if size := c.Size(sample); size > 0 && size <= int64(model.MostForm*len(sample)) {
			form, err := c.Convert(nil, sample)
			info, unknown := forms.Read(form)
			if err == nil && unknown == nil {
				b.form, b.kind = form, info.Kind
				made++
			}
		}
		samples, kept = samples+len(sample), kept+len(b.form)
		all = append(all, b)
	}
	if made == 0 {
		return nil, 0
	}
	return all, float64(kept) / float64(samples)
}
