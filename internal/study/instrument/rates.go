package instrument

import (
	"cmp"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// span is a time in which samples were delivered.
type span struct {
	seconds float64
	samples int
}

// blocks is how many blocks a rate is the median of, at most.
const blocks = 20

// rates returns the samples/s of blocks of spans. Workers deliver in turns, often several batches
// at once, so that single spans say nothing: a block is of a multiple of so many spans, or all
// spans are one block if they are fewer.
func rates(spans []span, turn int) []float64 {
	n := len(spans)
	if n == 0 {
		return nil
	}
	size := max((n+blocks-1)/blocks, 1)
	if turn > 1 {
		size = min((size+turn-1)/turn*turn, n)
	}
	var all []float64
	for ; len(spans) >= size; spans = spans[size:] {
		var sum span
		for _, s := range spans[:size] {
			sum.seconds += s.seconds
			sum.samples += s.samples
		}
		if sum.seconds > 0 && sum.samples > 0 {
			all = append(all, float64(sum.samples)/sum.seconds)
		}
	}
	return all
}

// together returns the rate of ranks together, each with the rates of its blocks in order; nil if a
// rank has none. It is the median of blocks. If they are too few for an interval it is that of all
// of them, their harmonic mean: on a busy machine single ones may be far too high, whose batches
// were queued before they were taken.
func together(ranks [][]float64) *analysis.Rate {
	if len(ranks) == 0 {
		return nil
	}
	n := len(slices.MinFunc(ranks, func(a, b []float64) int { return cmp.Compare(len(a), len(b)) }))
	if n == 0 {
		return nil
	}
	sums := make([]float64, n)
	for _, all := range ranks {
		for i := range sums {
			sums[i] += all[i*len(all)/n]
		}
	}
	e := measure.EstimateOf(sums)
	if !e.Certain {
		seconds := 0.0
		for _, rate := range sums {
			seconds += 1 / rate
		}
		e.Median = float64(n) / seconds
	}
	return rateOf(e, 1)
}

// rateOf returns an estimate in samples/s of which there are so many in one of its units.
func rateOf(e measure.Estimate, samples float64) *analysis.Rate {
	return &analysis.Rate{
		Median: e.Median * samples, Low: e.Low * samples, High: e.High * samples, Few: !e.Certain,
	}
}

// Points returns the rates of streams in samples/s, from curves in MB/s of classes of samples by
// size, of which there are equally many. A number of streams that a curve lacks is left out.
func Points(curves []measure.Curve) []analysis.Point {
	if len(curves) == 0 {
		return nil
	}
	var points []analysis.Point
	for _, p := range curves[0].Points {
		var seconds [3]float64 // for a sample of each class: by the median, the low and high rate
		few, all := false, true
		for _, c := range curves {
			i := slices.IndexFunc(c.Points, func(q measure.Point) bool { return q.Streams == p.Streams })
			if i < 0 {
				all = false
				break
			}
			e := c.Points[i].Rate
			few = few || !e.Certain
			for k, rate := range [3]float64{e.Median, e.Low, e.High} {
				seconds[k] += c.Size / rate
			}
		}
		n := float64(len(curves))
		if !all || !(seconds[0] > 0 && seconds[1] > 0 && seconds[2] > 0) ||
			math.IsInf(seconds[1], 0) {
			continue
		}
		points = append(points, analysis.Point{N: p.Streams, Rate: analysis.Rate{
			Median: n / seconds[0], Low: n / seconds[1], High: n / seconds[2], Few: few,
		}})
	}
	return points
}

// PointOf returns a rate in samples/s from one in MB/s, of samples of mb MB.
func PointOf(n int, e measure.Estimate, mb float64) analysis.Point {
	return analysis.Point{N: n, Rate: *rateOf(e, 1/mb)}
}

// Best returns the highest rate of points; nil if there are none.
func Best(points []analysis.Point) *analysis.Rate {
	if len(points) == 0 {
		return nil
	}
	best := slices.MaxFunc(points, func(a, b analysis.Point) int {
		return cmp.Compare(a.Median, b.Median)
	})
	return &best.Rate
}
