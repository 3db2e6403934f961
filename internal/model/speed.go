package model

// Speed is the cost of reads from one tier, over all jobs on the dataset, including copies out of
// storage classes.
type Speed struct {
	Tier    string  `json:"tier"`
	Samples int64   `json:"samples"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"` // summed over parallel reads
	// Busy is the time in which at least one read was in progress, in seconds: Bytes/Busy is the
	// aggregate throughput, t(1) or r_j(p) of the performance model.
	Busy float64 `json:"busy_seconds"`
	// Peak is the highest throughput that was seen, in MB/s: of 32 reads or more while the tier is
	// busy, without what another node waited for its source; 0: there were fewer.
	Peak float64 `json:"peak_mbps"`
	// Known is what the model predicts reads by.
	Known
}

// Since returns the reads since an earlier report of the same tier.
func (s Speed) Since(before *Speed) Speed {
	s.Samples -= before.Samples
	s.Bytes -= before.Bytes
	s.Seconds -= before.Seconds
	s.Busy -= before.Busy
	return s
}
