package routing

// soonerFactor is how many times as soon a tier must be predicted to deliver a sample that is late
// in any case: estimates follow a tier that has become 1.6 times as slow (model.Fit), so that what
// is less may be noise.
const soonerFactor = 2

// Choose returns the tier to read a sample from, by when it would be here if it were read from each
// of them now, including what is queued there: an index of arrivals, in seconds from now, of which
// there is at least one. They are ordered by what their reads cost others, least first: own
// classes, another node, the source. due is when the sample is needed, in seconds from now.
//
// Of the tiers that deliver in time, it takes the one that costs others least. If none delivers in
// time, one that costs more is taken only if it is sooner by soonerFactor. So copies spare the
// source as long as they keep up; if they do not, tiers work in parallel. But where what limits
// tiers is not theirs, such as busy processors, all of them are late by about as much, and none is
// read besides another one.
func Choose(due float64, arrivals []float64) int {
	best := 0
	for i, arrival := range arrivals {
		late := arrivals[best] > due
		if late && (arrival <= due || soonerFactor*arrival < arrivals[best]) {
			best = i
		}
	}
	return best
}
