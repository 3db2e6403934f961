package meter

import (
	"math/bits"
	"time"
)

// queue estimates how long reads wait for each other in a tier: by how much they take longer than
// the fastest ones of about their size, which found no queue. TCP Vegas estimates the queue of a
// link in this way (Brakmo and Peterson, 1995, section 3.2). It is the queue of all nodes that
// share the tier.
type queue struct {
	fastest [65]float64 // seconds, by the bits of the size; 0: not known
	excess  float64     // seconds that a read takes longer than the fastest ones; moving average
	mb      float64     // MB that are in progress with a read, its own included; moving average
}

const (
	// Weights of a read that is faster, or slower, than the fastest ones: a few of each hundred
	// suffice, and a tier that has become slower is known to be after a thousand.
	faster = 1.0 / 8
	slower = 1.0 / 1024
	// recently is the weight of a read in the moving averages.
	recently = 1.0 / 64
)

// observe takes account of a read.
func (q *queue) observe(r Read, took time.Duration) {
	if took <= 0 || r.size <= 0 {
		return
	}
	seconds, least := took.Seconds(), &q.fastest[bits.Len64(uint64(r.size))]
	switch by := seconds - *least; {
	case *least == 0:
		*least = seconds
	case by < 0:
		*least += faster * by
	default:
		*least += slower * by
	}
	q.excess += recently * (max(seconds-*least, 0) - q.excess)
	q.mb += recently * (mb(r.ahead+r.size) - q.mb)
}

// perMB returns by how many seconds an MB delays a read that comes after it.
func (q *queue) perMB() float64 {
	if q.mb <= 0 {
		return 0
	}
	return q.excess / q.mb
}
