package model

import "math"

// Fit estimates how long reads from a tier take, from the reads themselves:
//
//	t(s, a) = Latency + s*PerMB + a*Queued
//
// for a sample of s MB while reads of a MB are in progress there. Latency and PerMB describe one
// stream, and Queued the effect of more: with p streams of s MB the tier delivers
// p*s / t(s, (p-1)*s), which is r_j(p) of the thesis (3.1.1), and at most 1/Queued.
//
// It is a least-squares fit with coefficients of at least 0. Old reads are forgotten: by newer
// ones, so that about the last `memory` count, and by time. One read alone cannot move it far,
// whatever it took: that counts as at most `clip` times what was predicted, and at least that
// fraction of it. So a read that hung, or during which the machine was suspended, is one outlier
// among many. But if reads differ from what was predicted for some time, by a factor, the tier has
// become slower or faster by that factor, and the reads before then count little.
//
// The zero value has observed no read. A Fit is not safe for concurrent use.
type Fit struct {
	x    [3]float64    // Latency, PerMB, Queued: seconds, and seconds per MB
	a    [3][3]float64 // exponentially weighted normal equations a*x = b, of relative errors
	b    [3]float64
	n    float64 // reads that count
	last float64 // time of the last read, seconds
	// Of the logarithms of time taken / time predicted: the moving averages over the last reads and
	// over all that count, and the number of reads since the first one was reset.
	fast, slow, since float64
}

const (
	memory  = 128  // reads after which an earlier one counts 1/e
	seconds = 60   // after which an earlier read counts 1/e
	least   = 1e-6 // seconds that a read takes
	clip    = 8    // most times that a read may differ from what was predicted
	learnt  = 8    // reads before that limit holds
	sweeps  = 2    // of the solver per read; it starts from the last solution

	recent  = 6        // reads over which `fast` is averaged
	changed = 0.5      // difference of fast and slow at which the tier has changed
	soonest = 3        // reads after which that may be the case
	stale   = 1.0 / 16 // how much the reads before then count
)

// Assume makes the fit predict by these coefficients until reads say otherwise.
func (f *Fit) Assume(c Coefficients) {
	*f = Fit{x: [3]float64{c.Latency, c.PerMB, c.Queued}, last: f.last}
}

// Coefficients returns the estimate.
func (f *Fit) Coefficients() Coefficients { return Coefficients{f.x[0], f.x[1], f.x[2]} }

// Measured returns how many reads count, at most about `memory`; 0: none was observed.
func (f *Fit) Measured() float64 { return f.n }

// Predict returns how long a read of size MB takes if reads of ahead MB are in progress, in
// seconds.
func (f *Fit) Predict(size, ahead float64) float64 {
	return max(f.x[0]+size*f.x[1]+ahead*f.x[2], least)
}

// Observe takes account of a read of size MB that took this many seconds and ended at time now, in
// seconds of a clock that never goes back; when it began, reads of ahead MB were in progress.
func (f *Fit) Observe(now, size, ahead, took float64) {
	if !(took >= 0) || !(size >= 0) || !(ahead >= 0) || math.IsInf(took+size+ahead, 0) {
		return
	}
	took = max(took, least)
	expected, keep := f.Predict(size, ahead), 0.0
	scale := took
	if f.n > 0 {
		keep = (1 - 1.0/memory) * math.Exp(-max(now-f.last, 0)/seconds)
	}
	if f.n >= learnt {
		took = min(max(took, expected/clip), expected*clip)
		scale = expected
		if by := f.shift(math.Log(took / expected)); by != 0 {
			keep, scale = keep*stale, took
			f.rescale(math.Exp(by))
		}
	}
	f.last = max(f.last, now)
	f.n = f.n*keep + 1
	weight := 1 / (scale * scale)
	row := [3]float64{1, size, ahead}
	for i := range f.a {
		for j := range f.a[i] {
			f.a[i][j] = f.a[i][j]*keep + weight*row[i]*row[j]
		}
		f.b[i] = f.b[i]*keep + weight*row[i]*took
	}
	f.solve()
}

// shift takes account of the logarithm of time taken / time predicted. It returns by how much reads
// have become slower or faster; 0 if that is within the noise.
func (f *Fit) shift(ratio float64) float64 {
	f.since++
	f.fast += (ratio - f.fast) / recent
	f.slow += (ratio - f.slow) / memory
	// fast began at 0, so that it has only come a part of the way
	by := f.fast/(1-math.Pow(1-1.0/recent, f.since)) - f.slow
	if f.since < soonest || math.Abs(by) < changed {
		return 0
	}
	f.fast, f.since = 0, 0
	return by
}

// rescale makes the fit predict times that are longer by a factor, as if all reads had taken so.
func (f *Fit) rescale(factor float64) {
	for i := range f.x {
		f.x[i] *= factor
		f.b[i] *= factor
	}
}

// solve improves the coefficients by projected Gauss-Seidel sweeps. In directions that the reads
// tell nothing about, such as latency against size if all samples are of one size, the solution
// remains where it was. A sweep begins with Queued: if as many reads were in progress all the time,
// that their number makes them slow is the assumption which is corrected if it is wrong, because
// fewer reads at a time are then tried; latency would make the tier look slow for good.
func (f *Fit) solve() {
	for range sweeps {
		for i := len(f.x) - 1; i >= 0; i-- {
			if f.a[i][i] <= 0 {
				continue
			}
			rest := f.b[i]
			for j := range f.x {
				if j != i {
					rest -= f.a[i][j] * f.x[j]
				}
			}
			f.x[i] = max(rest/f.a[i][i], 0)
		}
	}
	f.bound()
}

// bound limits Queued if most reads had the tier for themselves: they tell nothing of it, or
// little, and it may be what was assumed of another machine. No more streams have a lower
// throughput than one, so that a read delays others by no more than it takes alone.
func (f *Fit) bound() {
	if of, size := f.a[0][0], f.a[0][1]; size > 0 && f.a[2][2] < f.a[1][1] {
		f.x[2] = min(f.x[2], f.x[0]*of/size+f.x[1])
	}
}
