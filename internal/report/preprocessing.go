package report

// Preprocessing is the cost of transforming samples.
type Preprocessing struct {
	Samples int64 `json:"samples"`
	// Threads is the most samples that are transformed in parallel now, but for trials of other
	// numbers, and Changes are its changes, with trials, oldest first; nil: it is fixed, or they are
	// not known.
	Threads int      `json:"threads"`
	Changes []Change `json:"thread_changes,omitempty"`
	// Most is the number of processors available to the daemon, which is as many as transform_threads
	// may be, if it was given; 0: the number is tuned.
	Most int `json:"most_threads,omitempty"`
	// Result is the expected size of a result in bytes.
	Result     int64       `json:"result_bytes,omitempty"`
	Transforms []Transform `json:"transforms"`
	OfForms
}

// Total returns the cost of all transforms.
func (p *Preprocessing) Total() *Transformed {
	all := &Transformed{Samples: p.Samples, OfForms: p.OfForms}
	for _, t := range p.Transforms {
		all.Seconds += t.Seconds
	}
	return all
}

// Transform is the cost of one transform.
type Transform struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"` // summed over threads
}

// Transformed is a number of samples that were transformed, and the seconds that took, summed over
// threads.
type Transformed struct {
	Samples int64   `json:"samples"`
	Seconds float64 `json:"seconds"`
	OfForms
}

// OfForms is the part that was made of forms (Forms) instead of samples as read: of samples with
// several fields that are transformed, those whose first one was a form.
type OfForms struct {
	FormSamples int64   `json:"form_samples,omitempty"`
	FormSeconds float64 `json:"form_seconds,omitempty"`
}

// Since returns what was transformed after an earlier time; nil: nothing.
func (t *Transformed) Since(before *Transformed) *Transformed {
	if t == nil || before == nil || t.Samples <= before.Samples {
		return nil
	}
	return &Transformed{
		Samples: t.Samples - before.Samples, Seconds: max(t.Seconds-before.Seconds, 0),
		OfForms: OfForms{
			FormSamples: max(t.FormSamples-before.FormSamples, 0),
			FormSeconds: max(t.FormSeconds-before.FormSeconds, 0),
		},
	}
}
