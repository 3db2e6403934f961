package routing

import "time"

const (
	// slowFactor is how many times as long as the source is expected to take a read of another tier
	// may take, before it is given up and the source is read: enough for the noise of both, and for
	// an owner that has to read the sample itself.
	slowFactor = 8
	// MinTimeout is the least time that it may take, whatever the source takes: pauses of processes
	// and disks are as long without a fault.
	MinTimeout = 100 * time.Millisecond
	// MaxTimeout is the longest time that a request to another node may take.
	MaxTimeout = 10 * time.Second
	// timeoutShare is the part, 1 in so many, of the time that a read may take in all which another
	// tier may take of it: one that does not answer must leave time to read the source.
	timeoutShare = 4
	// lastResortShare is the part, 1 in so many, that a class may take after the source has failed:
	// no longer than the watchdog leaves the flight.
	lastResortShare = 20

	// ExpectedLimit is how long a read may take at most by what was predicted of it or by when the
	// sample is needed, and how long a node has for its first answer.
	ExpectedLimit = time.Second
	// predictedFactor is how many times as long as predicted a read may take, up to ExpectedLimit.
	predictedFactor = 4
	// longestSource limits what a read from the source is expected to take.
	longestSource = time.Hour
)

// SourceTakes returns how long a read from the source is expected to take, by the arrival that its
// meter predicts, in seconds.
func SourceTakes(arrival float64) time.Duration {
	return time.Duration(min(arrival, longestSource.Seconds()) * float64(time.Second))
}

// ClassLimit returns for how long a class is waited for that is predicted to take so many seconds
// for the sample, if the source takes source for it, and a read may take timeout in all; 0: there
// is no limit. A disk with a long queue is no disk that hangs: what is predicted counts, as of
// requests to other nodes.
func ClassLimit(predicted float64, source, timeout time.Duration) time.Duration {
	limit := max(slowFactor*source, Expected(predicted))
	if timeout > 0 {
		limit = min(limit, timeout/timeoutShare)
	}
	return max(limit, MinTimeout)
}

// Expected returns how long a read may take at least that is predicted to take so many seconds:
// some times as long, up to ExpectedLimit.
func Expected(predicted float64) time.Duration {
	seconds := min(predictedFactor*predicted, ExpectedLimit.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// LastResort returns for how long a class is waited for if the source has failed.
func LastResort(timeout time.Duration) time.Duration {
	return max(timeout/lastResortShare, MinTimeout)
}

// Limit returns how long a request to another node may take that may take least in any case, if the
// source takes so long, and a read may take timeout in all; 0: there is no limit.
func Limit(source, least, timeout time.Duration) time.Duration {
	most := MaxTimeout
	if timeout > 0 {
		most = min(most, timeout/timeoutShare)
	}
	return min(max(slowFactor*source, MinTimeout, least), most)
}
