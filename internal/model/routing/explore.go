package routing

import "time"

const (
	// checkInterval is the least time for which a tier is not read before a read renews its
	// estimates: soon enough for an epoch of some seconds to profit by it.
	checkInterval = time.Second
	// checkFactor is how many times as long as a read of the tier that time is at least, so that
	// renewing the estimates of a slow tier takes at most a hundredth of the time.
	checkFactor = 100
	// checkShare is the share of all bytes that may be read from the source to renew its estimates,
	// which are the bytes that caches are to spare.
	checkShare = 1.0 / 1000
	// longestTrial is the longest time for which a node is not asked before a request renews its
	// estimate. One that does not answer in time is given up while there is time for the source, so
	// that it takes none of the job's: a link that has recovered is used after some seconds.
	longestTrial = 2 * time.Second
	// trialShare is the part, 1 in so many, of all reads that may be such requests in vain.
	trialShare = 100
)

// TrialInterval returns for how long a node must not have been asked before it is asked to renew
// its estimate, if it is predicted to take so many seconds, and the source so many.
func TrialInterval(predicted, source float64) time.Duration {
	return min(CheckInterval(min(predicted, source)), longestTrial)
}

// CheckInterval returns for how long a tier must not have been read before it is read to renew its
// estimates, if a read of it is predicted to take this many seconds.
func CheckInterval(arrival float64) time.Duration {
	return max(checkInterval, time.Duration(checkFactor*arrival*float64(time.Second)))
}

// MayExplore reports whether so many bytes may be read from the source only to renew its estimates,
// if a tier was chosen for reads of so many bytes in all, and these were read for that before.
func MayExplore(bytes, explored, all int64) bool {
	return float64(explored+bytes) <= checkShare*float64(all)
}

// explore changes a route to a tier whose estimates are stale, if there is one.
func (r *Read) explore(route *Route) {
	for i := range r.Held {
		if i != route.Tier && r.Classes[i].Stale {
			route.Tier = i
			return
		}
	}
	if route.Tier == Source && r.Held == 0 && r.Asks && r.Owner.Stale {
		route.Tier = Owner
		return
	}
	if route.Tier != Source && r.Source.Stale && r.Explores && !r.CacheFirst {
		route.Tier = Source
		route.Explores = true
	}
}
