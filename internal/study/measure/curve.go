package measure

import (
	"context"
	"encoding/json"
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
	Streams int       `json:"streams"`
	Rate    Estimate  `json:"mbps"`   // MB/s
	Rounds  []float64 `json:"rounds"` // MB/s of each round, in order
	// Work is what an operation took of the processors, seconds: the median of the rounds.
	Work  float64   `json:"processor_s"`
	works []float64 // of each round
	// lasting are the rates that short rounds show to be possible for longer, if Load.Bursts.
	lasting []float64
}

// estimate sets what follows from the rounds.
func (p *Point) estimate() {
	p.Rate, p.Work = EstimateOf(p.Rounds), EstimateOf(p.works).Median
	if len(p.lasting) > 0 {
		p.Rate.Low = min(p.Rate.Low, EstimateOf(p.lasting).Low)
	}
}

// Curve is a throughput by the number of streams.
type Curve struct {
	Size   float64 // mean size of an operation, MB
	Points []Point
	// Grows means that the throughput still grew with the largest number of streams.
	Grows bool
	// Ended is why there are no more points, other than that the throughput has stopped growing; nil
	// if that is why.
	Ended error
}

// MarshalJSON implements json.Marshaler.
func (c Curve) MarshalJSON() ([]byte, error) {
	ended := ""
	if c.Ended != nil {
		ended = c.Ended.Error()
	}
	return json.Marshal(struct {
		Size   float64 `json:"size_mb"`
		Points []Point `json:"points"`
		Grows  bool    `json:"grows"`
		Ended  string  `json:"ended,omitempty"`
	}{c.Size, c.Points, c.Grows, ended})
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
	// short is below what time of a round bursts of a source matter that bounds its mean throughput.
	short = 250 * time.Millisecond
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
		about := time.Until(end) * 9 / 10 / time.Duration(min(left, ahead))
		point, err := l.point(within, p, about, o)
		if len(point.Rounds) > 0 {
			point.estimate()
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
			c.Grows = still == 0 && most > 1 && !o.Fixed
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

// point measures p streams in about that time, preparations included. If it fails after some
// rounds, it returns them too.
func (l *Load) point(ctx context.Context, p int, about time.Duration, o Options) (Point, error) {
	at := Point{Streams: p}
	begun := time.Now()
	// operations returns how many take about that time if as many as `of` take `took`.
	operations := func(of int, took, within time.Duration) int {
		n := float64(of) * float64(within) / float64(max(took, time.Microsecond))
		each := int(min(max(1, math.Round(n/float64(p))), 1<<24))
		if o.Most > 0 {
			each = max(1, min(each, o.Most/p))
		}
		return each * p
	}
	ended := begun // of the round before
	timed := func(n int) (r round, took time.Duration, err error) {
		begun := time.Now()
		r, err = l.run(ctx, p, n)
		r.pause = time.Since(ended) - r.elapsed
		ended = time.Now()
		return r, time.Since(begun), err
	}
	// The first round is not counted: it fills the caches of names, and shows how fast the load is.
	n := p
	_, took, err := timed(n)
	if err != nil {
		return at, err
	}
	for left := Rounds; left > 0; left = Rounds - len(at.Rounds) {
		spent := time.Since(begun)
		window := max((about-spent)/time.Duration(left), shortest)
		next := operations(n, took, window)
		if len(at.Rounds) == 0 && next > 8*n { // the estimate of so short a round is crude
			n = operations(n, took, window/8)
			if _, took, err = timed(n); err != nil {
				return at, err
			}
			next = operations(n, took, window)
		}
		if k := len(at.Rounds); k > 0 && spent+took/time.Duration(max(n/p, 1)) > about*3/2 {
			break // another round would take the time of other points
		}
		var r round
		if r, took, err = timed(next); err != nil {
			return at, err
		}
		n = next
		if r.bytes > 0 { // else all samples of the round were left out: the next one has others
			at.Rounds = append(at.Rounds, r.rate())
			at.works = append(at.works, r.work)
			if l.Bursts && r.elapsed < short {
				at.lasting = append(at.lasting, r.lasting())
			}
		}
	}
	return at, nil
}
