package measure

import (
	"context"
	"errors"
	"math"
	"time"
)

// Rounds is how many rounds a throughput is the median of, if the time suffices.
const Rounds = 10

// Options configure a measurement. The zero value is one of one stream.
type Options struct {
	Size    float64       // mean size of an operation, MB; of the result, and for its estimates
	Streams int           // the largest number of streams; 0: 1
	Time    time.Duration // in all; must be above 0
	// Most is the largest number of operations of a round; 0: no limit.
	Most int
	// Fixed means that only Streams streams are measured, and not 1, 2, 4, ... up to there.
	Fixed bool
	// Progress, if not nil, is called before each number of streams.
	Progress func(streams int)
}

// Point is the throughput of a number of streams.
type Point struct {
	Streams int
	Rounds  []float64 // MB/s of each round, in order
	Rate    Estimate  // MB/s
}

// Curve is a throughput by the number of streams.
type Curve struct {
	Size   float64 // mean size of an operation, MB
	Points []Point
	// Grows means that the throughput still grew with the largest number of streams.
	Grows bool
	// Ended says why there are no more points, other than that the throughput has stopped growing;
	// nil if that is why.
	Ended error
}

// Best returns the point of the highest throughput. There must be a point.
func (c *Curve) Best() Point {
	best := c.Points[0]
	for _, p := range c.Points {
		if p.Rate.Median > best.Rate.Median {
			best = p
		}
	}
	return best
}

const (
	// growth is by how much the throughput of twice the streams must be higher to count.
	growth = 1.05
	// flat is how many numbers of streams in a row may bring no growth before it has ended.
	flat = 2
	// ahead is how many further numbers of streams the time is divided for.
	ahead = 4
	// shortest is the least time of a round that operations fill.
	shortest = 2 * time.Millisecond
)

// ErrTime reports that the time was over.
var ErrTime = errors.New("the time was over")

// Run measures a load: with 1, 2, 4, ... streams until the throughput has stopped growing, or
// Options.Streams, or the time, is reached. What was measured until an error is in the curve, which
// has the error. The error that Run returns is ctx's.
func Run(ctx context.Context, l Load, o Options) (Curve, error) {
	c := Curve{Size: o.Size}
	within, cancel := context.WithTimeoutCause(ctx, o.Time, ErrTime)
	defer cancel()
	end := time.Now().Add(o.Time)
	most := max(o.Streams, 1)
	p := 1
	if o.Fixed {
		p = most
	}
	best, still := 0.0, 0
	for {
		if o.Progress != nil {
			o.Progress(p)
		}
		left := levels(p, most)
		point, err := l.point(within, p, time.Until(end)/time.Duration(min(left, ahead)), o)
		if len(point.Rounds) > 0 {
			point.Rate = EstimateOf(point.Rounds)
			c.Points = append(c.Points, point)
			if point.Rate.Median > best*growth {
				best, still = point.Rate.Median, 0
			} else {
				still++
			}
		}
		switch {
		case ctx.Err() != nil:
			return c, context.Cause(ctx)
		case errors.Is(err, errTooFew) && len(c.Points) > 0:
			c.Grows = still == 0
			return c, nil
		case err != nil:
			if within.Err() != nil && !errors.Is(err, ErrHangs) {
				err = ErrTime
			}
			c.Ended, c.Grows = err, still == 0
			return c, nil
		case still >= flat || p >= most:
			c.Grows = still == 0 && !o.Fixed
			return c, nil
		}
		p = min(2*p, most)
	}
}

// levels returns how many numbers of streams there are from p to most.
func levels(p, most int) int {
	n := 1
	for ; p < most; p *= 2 {
		n++
	}
	return n
}

// point measures p streams in about that time. If it fails after some rounds, it returns them too.
func (l *Load) point(ctx context.Context, p int, about time.Duration, o Options) (Point, error) {
	at := Point{Streams: p}
	begun := time.Now()
	operations := func(n float64) int {
		each := int(max(1, math.Round(n/float64(p))))
		if o.Most > 0 {
			each = max(1, min(each, o.Most/p))
		}
		return each * p
	}
	// The first round is not counted: it fills the caches of names, and shows how fast the load is.
	first, err := l.run(ctx, p, operations(0))
	if err != nil {
		return at, err
	}
	took := time.Since(begun)
	window := max((about-took)/(Rounds+1), shortest)
	perOperation := max(first.elapsed, time.Microsecond) // of p streams
	n := operations(float64(p) * float64(window) / float64(perOperation))
	if n > 4*p { // the estimate of so short a round is crude
		again := operations(float64(n) / 8)
		if r, err := l.run(ctx, p, again); err != nil {
			return at, err
		} else if r.elapsed > 0 {
			n = operations(float64(again) * float64(window) / float64(r.elapsed))
		}
	}
	for len(at.Rounds) < Rounds {
		spent := time.Since(begun)
		if k := len(at.Rounds); k >= 1 && spent+spent/time.Duration(k+1) > about*5/4 {
			break // another round would take the time of other points
		}
		r, err := l.run(ctx, p, n)
		if err != nil {
			return at, err
		}
		if rate := r.rate(); rate > 0 {
			at.Rounds = append(at.Rounds, rate)
		} else if r.bytes == 0 {
			return at, errors.New("no bytes were moved")
		}
	}
	return at, nil
}
