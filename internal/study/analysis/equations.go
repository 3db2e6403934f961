package analysis

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// Part is a share of an epoch's samples, and the rate of the tier that they are read from.
type Part struct {
	Tier  string  // as remedy.Busy names resources
	Share float64 // all parts add up to 1
	Rate  float64 // samples/s
}

// Cached returns the parts of an epoch of which a cache of rate c holds the share x, and a source
// of rate s has the rest.
func Cached(x, c, s float64) []Part {
	x = min(max(x, 0), 1)
	return []Part{{"memory", x, c}, {remedy.Source, 1 - x, s}}
}

// Fetch returns F, the rate at which samples are read from several tiers, one after the other
// (equations 3 and 4 of CoorDL):
//
//	T_f = D x / C + D (1-x) / S        F = D / T_f
//
// Reads from other nodes, which are not in the equations, overlap with those: they wait for another
// link, and other processors.
func Fetch(parts []Part) float64 {
	own, others := times(parts)
	return 1 / max(own, others)
}

// times returns how long a sample takes that a node reads from its own tiers and the source, and
// from other nodes.
func times(parts []Part) (own, others float64) {
	for _, p := range parts {
		switch {
		case p.Share <= 0:
		case p.Tier == remedy.Network:
			others += p.Share / p.Rate
		default:
			own += p.Share / p.Rate
		}
	}
	return own, others
}

// slowest returns the tier that takes the largest part of the time to fetch.
func slowest(parts []Part) (tier string) {
	if own, others := times(parts); others > own {
		return remedy.Network
	}
	most := 0.0
	for _, p := range parts {
		if p.Tier != remedy.Network && p.Share > 0 && p.Share/p.Rate > most {
			tier, most = p.Tier, p.Share/p.Rate
		}
	}
	return tier
}

// Rates are the three rates that decide how fast a job is, in samples/s of a node. One that limits
// nothing is infinite.
type Rates struct {
	Fetch       float64 // F
	Preparation float64 // P
	Training    float64 // G
	// Reading is what reads of the source take of those that prepare, in seconds per sample. CoorDL
	// measures P with all samples in memory, and takes reads to need no processor; but a read through
	// FUSE may need as much of one as preparing the sample.
	Reading float64
	// Serial means that nothing overlaps: the process that trains fetches and prepares itself, as
	// torch's loader without workers does.
	Serial bool
}

// Speed returns how fast the job is: min(F, P, G), where P lacks what reads take.
func (r Rates) Speed() float64 {
	if r.Serial {
		return 1 / (1/r.Fetch + 1/r.Preparation + 1/r.Training)
	}
	return min(r.Fetch, r.prepared(), r.Training)
}

// prepared returns how fast samples are prepared by processors that read as well.
func (r Rates) prepared() float64 { return 1 / (1/r.Preparation + r.Reading) }

// Limit returns which of the rates is the least: remedy.Compute, remedy.Preprocessing, or
// remedy.Source for F. Of equal rates it is the first of these.
func (r Rates) Limit() string {
	switch min(r.Fetch, r.prepared(), r.Training) {
	case r.Training:
		return remedy.Compute
	case r.prepared():
		return remedy.Preprocessing
	}
	return remedy.Source
}

// ready returns the speed with all samples in memory: min(P, G).
func (r Rates) ready() float64 {
	r.Fetch, r.Reading = math.Inf(1), 0
	return r.Speed()
}

// NeededCache returns x*, the least share of the dataset that a cache of rate c must hold for a
// source of rate s not to limit any more a job of rate goal = min(P, G):
//
//	x* = (1/s - 1/goal) / (1/s - 1/c)
//
// ok is false if no cache is enough, because the cache itself is slower than goal.
func NeededCache(c, s, goal float64) (x float64, ok bool) {
	switch {
	case s >= goal:
		return 0, true
	case c < goal:
		return 1, false
	}
	return (1/s - 1/goal) / (1/s - 1/c), true
}

// NeededCores returns n*, the least number of cores that prepare as fast as goal = min(F, G) if
// each prepares one samples/s: ceil(goal/one).
func NeededCores(one, goal float64) int {
	return int(min(math.Ceil(goal/one-rounding), math.MaxInt32))
}

// rounding is the error of floating-point arithmetic that does not take another core.
const rounding = 1e-9

// Stall is how an epoch's time divides, by the differences of CoorDL 3.2: training alone, what it
// takes longer with samples that are in memory and must be prepared, and what it takes longer still
// as it is. In seconds.
type Stall struct {
	Training    float64 `json:"training_s"`
	Preparation float64 `json:"preparation_stall_s"`
	Fetch       float64 `json:"fetch_stall_s"`
}

// StallOf returns how the time of this many samples of a node divides, by the rates.
func (r Rates) StallOf(samples float64) Stall { return r.observed(samples, r.Speed()) }

// observed is StallOf with a speed that was measured. A part is at least 0.
func (r Rates) observed(samples, speed float64) Stall {
	one := samples / r.Training
	two := samples / r.ready()
	three := samples / speed
	two = max(min(two, three), one)
	return Stall{one, two - one, max(three-two, 0)}
}

// Epoch returns the sum.
func (s Stall) Epoch() float64 { return s.Training + s.Preparation + s.Fetch }

// Share returns the stall as a share of the epoch's time.
func (s Stall) Share() float64 { return (s.Preparation + s.Fetch) / s.Epoch() }

// Per returns the stall divided by n, such as the iterations of an epoch.
func (s Stall) Per(n float64) Stall { return Stall{s.Training / n, s.Preparation / n, s.Fetch / n} }
