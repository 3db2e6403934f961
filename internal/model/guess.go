package model

// Coefficients are those of a Fit: what a read takes besides its bytes, in seconds; the seconds per
// MB of one stream; and the seconds by which each MB that is being read delays another read.
type Coefficients struct {
	Latency float64 `json:"latency_s"`
	PerMB   float64 `json:"s_per_mb"`
	Queued  float64 `json:"s_per_mb_queued"`
}

// Origin is where a value of the model comes from.
type Origin string

const (
	Guessed  Origin = "guessed"  // nothing is known yet
	Probed   Origin = "probed"   // by hdmlp probe, or by an earlier run on this machine
	Measured Origin = "measured" // by the reads of this run
	Given    Origin = "given"    // by the user; measurements do not change it
)

// Known is what is known of a tier.
type Known struct {
	Coefficients
	Origin Origin `json:"origin"`
}

// IsKnown reports whether it is not a guess.
func (k Known) IsKnown() bool { return !k.Origin.guessed() }

// GivenRate is a tier that, according to the user, delivers this many MB/s to all streams together,
// after a latency in seconds.
func GivenRate(mbps, latency float64) Known {
	return Known{Coefficients{Latency: latency, PerMB: 1 / mbps, Queued: 1 / mbps}, Given}
}

// GivenCurve is a tier that, according to the user, has this throughput by the number of streams
// that read samples of size MB, after a latency in seconds.
func GivenCurve(curve Curve, latency, size float64) Known {
	c := FromCurve(curve, size)
	c.Latency = latency
	return Known{c, Given}
}

// What is assumed of tiers until a read of them has ended. The guesses are conservative: in doubt a
// tier whose reads cost others less is tried first.
var (
	GuessedMemory = Known{Coefficients{Latency: 1e-6, PerMB: 200e-6, Queued: 20e-6}, Guessed}
	GuessedClass  = Known{Coefficients{Latency: 100e-6, PerMB: 2e-3}, Guessed}
	GuessedPeer   = Known{Coefficients{Latency: 500e-6, PerMB: 2e-3}, Guessed}
	GuessedSource = Known{Coefficients{Latency: 2e-3, PerMB: 10e-3}, Guessed}
)

// KnownOr returns what is known by a name, or else a guess.
func KnownOr(known map[string]Known, name string, guess Known) Known {
	if k, ok := known[name]; ok {
		return k
	}
	return guess
}
