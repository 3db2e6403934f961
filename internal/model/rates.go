package model

import (
	"cmp"
	"math"
	"slices"
)

// Rate is a measured throughput: of streams that together read, or write, MBps of samples of Size
// MB.
type Rate struct {
	Size    float64
	Streams int
	MBps    float64
}

// FromRates returns the coefficients that describe throughputs of different numbers of streams, and
// maybe of different sizes, best for samples of size MB. There must be a rate.
//
//   - Latency and PerMB follow from those of one stream. If they are all of one size, from which no
//     latency can be derived, there is none.
//   - Queued follows from the highest throughput of many streams: 1/Queued is the most that the
//     tier delivers. If the throughput still grew with the most streams (grows), that is not known,
//     and Queued is what explains those that were measured best.
func FromRates(rates []Rate, size float64, grows bool) Coefficients {
	size = max(size, smallest)
	// Only the size that is nearest counts for streams: those of small samples are limited by the
	// number of requests.
	closest := slices.MinFunc(rates, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(math.Abs(math.Log(a.Size/size)), math.Abs(math.Log(b.Size/size))),
			cmp.Compare(a.Streams, b.Streams))
	})
	nearest := closest.Size
	c := oneStream(rates)
	// For that size, one stream is as fast as was measured, whatever the others' lines say.
	if took := closest.Size / closest.MBps; closest.Streams == 1 {
		by := took / max(c.Latency+closest.Size*c.PerMB, least)
		c.Latency, c.PerMB = c.Latency*by, c.PerMB*by
	}
	alone := c.Latency + size*c.PerMB
	var peak, sum, weight float64
	for _, r := range rates {
		if r.Size != nearest {
			continue
		}
		peak = max(peak, r.MBps)
		others := float64(r.Streams-1) * r.Size // MB ahead of a read
		took := float64(r.Streams) * r.Size / r.MBps
		sum += others * (took - c.Latency - r.Size*c.PerMB) / (took * took)
		weight += others * others / (took * took)
	}
	c.Queued = 1 / peak
	if grows && weight > 0 {
		c.Queued = max(sum/weight, 0)
	}
	c.Latency, c.PerMB = min(c.Latency, longestRead), min(c.PerMB, longestRead)
	// More streams are not slower than reads one after the other.
	c.Queued = min(c.Queued, alone/size, longestRead)
	return c
}

// oneStream returns Latency and PerMB by least squares of relative errors, both at least 0, from
// the rates with the fewest streams.
func oneStream(rates []Rate) Coefficients {
	fewest := slices.MinFunc(rates, func(a, b Rate) int { return cmp.Compare(a.Streams, b.Streams) })
	var n, ss, s2, st, t float64
	several := false
	for _, r := range rates {
		if r.Streams != fewest.Streams {
			continue
		}
		several = several || r.Size != fewest.Size
		took := float64(r.Streams) * r.Size / r.MBps
		w := 1 / (took * took)
		n += w
		ss += w * r.Size
		s2 += w * r.Size * r.Size
		st += w * r.Size * took
		t += w * took
	}
	perMB := Coefficients{PerMB: st / s2}
	if !several {
		return perMB
	}
	latency := Coefficients{Latency: t / n}
	both := n*s2 - ss*ss
	if both <= 0 {
		return perMB
	}
	c := Coefficients{Latency: (t*s2 - st*ss) / both, PerMB: (n*st - ss*t) / both}
	switch {
	case c.Latency < 0:
		return perMB
	case c.PerMB < 0:
		return latency
	}
	return c
}
