package measure

import (
	"encoding/json"
	"math"
	"slices"
)

// Confidence is the level of intervals: 95 %.
const Confidence = 0.95

// Estimate is the median of several measurements with its nonparametric confidence interval, whose
// ends are measurements too (thesis 5.1).
type Estimate struct {
	Median    float64
	Low, High float64
	// Certain reports that the interval has the level Confidence; otherwise there are too few
	// measurements for one, and Low and High are the least and the largest.
	Certain bool
}

// EstimateOf returns the median of the values and its interval. There must be a value.
func EstimateOf(values []float64) Estimate {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	n := len(sorted)
	e := Estimate{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2}
	j, k, ok := Ranks(n)
	e.Low = sorted[j-1]
	e.High = sorted[k-1]
	e.Certain = ok
	return e
}

// Ranks returns the ranks j and k, counted from 1, of the order statistics between which the median
// lies with the probability Confidence: the largest j, and k = n+1-j, with
//
//	B(k-1) - B(j-1) >= Confidence
//
// where B is the distribution function of the binomial distribution of n trials with the
// probability 1/2 (thesis equation 5.1). For n = 10 they are 2 and 9. Below n = 6 there are none:
// ok is false, and j and k are 1 and n.
func Ranks(n int) (j, k int, ok bool) {
	j = 1
	within := func(j int) bool { return binomial(n, n-j)-binomial(n, j-1) >= Confidence }
	if !within(1) {
		return 1, n, false
	}
	for within(j+1) && j+1 <= n-j {
		j++
	}
	return j, n + 1 - j, true
}

// binomial returns the probability of at most x successes in n trials with probability 1/2.
func binomial(n, x int) float64 {
	sum := 0.0
	all, _ := math.Lgamma(float64(n + 1))
	for i := 0; i <= x; i++ {
		some, _ := math.Lgamma(float64(i + 1))
		rest, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(all - some - rest - float64(n)*math.Ln2)
	}
	return sum
}

// MarshalJSON implements json.Marshaler.
func (e Estimate) MarshalJSON() ([]byte, error) {
	level := 0.0
	if e.Certain {
		level = Confidence
	}
	return json.Marshal(struct {
		Median   float64    `json:"median"`
		Interval [2]float64 `json:"interval"`
		Level    float64    `json:"confidence"` // 0: the least and the largest measurement
	}{e.Median, [2]float64{e.Low, e.High}, level})
}
