package routing

// Choose returns the tier to read a sample from, by when it would be here if it were read from each
// of them now, including what is queued there: an index of arrivals, in seconds from now, of which
// there is at least one. They are ordered by what their reads cost others, least first: own
// classes, another node, the source. due is when the sample is needed, in seconds from now.
//
// Of the tiers that deliver in time, it takes the one that costs others least. If none delivers in
// time, it takes the fastest. So copies spare the source as long as they keep up; if they do not,
// tiers work in parallel, each with as many reads as make all of them equally late.
func Choose(due float64, arrivals []float64) int {
	best := 0
	for i := range arrivals {
		if max(arrivals[i], due) < max(arrivals[best], due) {
			best = i
		}
	}
	return best
}
