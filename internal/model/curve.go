package model

import (
	"fmt"
	"math"
	"sort"
)

// Point is a measured throughput: the total of Clients threads or nodes.
type Point struct {
	Clients int     `json:"clients"` // threads, or nodes; at least 1
	MBps    float64 `json:"mbps"`    // MB/s
}

// Curve is a throughput as a function of the number of clients: measured points in ascending order
// of Clients.
type Curve []Point

// Constant is the curve of a throughput that does not depend on the number of clients.
func Constant(mbps float64) Curve { return Curve{{1, mbps}} }

// NewCurve returns the curve through measurements in any order.
func NewCurve(measured map[int]float64) Curve {
	c := make(Curve, 0, len(measured))
	for n, v := range measured {
		c = append(c, Point{n, v})
	}
	sort.Slice(c, func(a, b int) bool { return c[a].Clients < c[b].Clients })
	return c
}

// At returns the throughput of x clients in MB/s: interpolated linearly between the neighbouring
// points (thesis equation 4.1), and constant outside the measured range. The curve must have a
// point.
func (c Curve) At(x float64) float64 {
	i := sort.Search(len(c), func(i int) bool { return float64(c[i].Clients) >= x })
	if i == 0 {
		return c[0].MBps
	}
	if i == len(c) {
		return c[len(c)-1].MBps
	}
	lo, hi := c[i-1], c[i]
	at := (x - float64(lo.Clients)) / float64(hi.Clients-lo.Clients)
	return lo.MBps + at*(hi.MBps-lo.MBps)
}

// Best returns the highest throughput of any number of clients.
func (c Curve) Best() float64 {
	all := 0.0
	for _, p := range c {
		all = max(all, p.MBps)
	}
	return all
}

// mostFall is the largest share by which a throughput may be lower than that of fewer clients: the
// error of measurements.
const mostFall = 0.05

// Falls returns the first point whose throughput is lower than that of fewer clients by more than
// the error of measurements. No tier is like that: the additional clients could wait.
func (c Curve) Falls() (at Point, falls bool) {
	most := 0.0
	for _, p := range c {
		if p.MBps < most*(1-mostFall) {
			return p, true
		}
		most = max(most, p.MBps)
	}
	return Point{}, false
}

// validate checks that points ascend and are positive.
func (c Curve) validate(key string) error {
	if len(c) == 0 {
		return fmt.Errorf("%s has no points; give the throughput for at least one "+
			"number of clients", key)
	}
	last := 0
	for _, p := range c {
		if p.Clients <= last {
			return fmt.Errorf("%s has a point for %d clients after %d; they must ascend from 1",
				key, p.Clients, last)
		}
		if !(p.MBps > 0) || math.IsInf(p.MBps, 1) {
			return fmt.Errorf("%s is %v MB/s for %d clients; it must be above 0 and finite", key,
				p.MBps, p.Clients)
		}
		last = p.Clients
	}
	return nil
}
