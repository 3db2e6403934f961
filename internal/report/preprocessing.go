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
}

// Total returns the cost of all transforms.
func (p *Preprocessing) Total() *Transformed {
	all := &Transformed{Samples: p.Samples}
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
}

// Since returns what was transformed after an earlier time; nil: nothing.
func (t *Transformed) Since(before *Transformed) *Transformed {
	if t == nil || before == nil || t.Samples <= before.Samples {
		return nil
	}
	return &Transformed{t.Samples - before.Samples, max(t.Seconds-before.Seconds, 0)}
}
