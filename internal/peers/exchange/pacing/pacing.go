// Package pacing keeps the queue short that a connection makes in the network. Samples that wait
// in the buffer of a link delay all else that passes it, above all a job's own all-reduce: by 50 to
// 100 ms a message on a slow link whose buffer is full, which no congestion control that looks for
// loss avoids.
//
// The kernel reports how much longer a round trip takes than the shortest one, which is about what
// waits in the buffers of the path. If that is too long, the connection sends less than the path
// has delivered lately until it is not; then a little more each time. So it gives way to other
// traffic, as LEDBAT does (RFC 6817), but keeps a share of the path. A path that is never full, or
// whose buffers are short, is used without a limit.
package pacing

import "time"

const (
	// target is by how much a round trip may take longer than the shortest one. Processors that are
	// all busy add up to 10 ms, even to fast links.
	target = 10 * time.Millisecond
	// every is how often the limit may change; it does not before a round trip has seen the last
	// change.
	every = 10 * time.Millisecond
	// While round trips take too long, and no less than before, the limit becomes so much less than
	// what the path delivers that the half of target is reached in about drain, but no less than
	// half. While they do not, it becomes higher by rise of the highest throughput: alike for all
	// connections of a path, so that their shares become equal (Chiu and Jain, 1989).
	drain = 100 * time.Millisecond
	half  = 0.5
	rise  = 1.0 / 32
	// least is the share of the highest throughput that the connection keeps, whatever else passes.
	least = 1.0 / 8
	// unbound is how many times the highest throughput a limit is that limits nothing any more.
	unbound = 4
	// forget is the weight that the highest throughput loses with each change.
	forget = 1.0 / 256
)

// Path is what the kernel has measured of a connection so far.
type Path struct {
	RTT, Shortest time.Duration // smoothed round-trip time, and the shortest one
	Acked         int64         // bytes that have arrived
	Unacked       int           // segments that have not
}

// Pace finds how fast a connection may send. The zero value has no limit yet. It is not safe for
// concurrent use.
type Pace struct {
	at    time.Time // of path
	path  Path
	most  float64 // bytes/s: the highest throughput, lately
	limit float64 // bytes/s; 0: none
	full  bool    // round trips took too long when path was measured
}

// Due reports whether the limit may change now.
func (p *Pace) Due(now time.Time) bool { return now.Sub(p.at) >= max(every, p.path.RTT) }

// Observe takes account of the path, and returns how fast the connection may send, in bytes per
// second; 0: without a limit.
func (p *Pace) Observe(now time.Time, path Path) float64 {
	before, began := p.path, p.at
	p.at, p.path = now, path
	rate := float64(path.Acked-before.Acked) / now.Sub(began).Seconds()
	// If all has arrived, nothing was sent for a while, and round trips are those of before.
	if began.IsZero() || rate <= 0 || path.Shortest <= 0 || path.Unacked == 0 {
		p.full = false
		return p.limit
	}
	p.most = max(rate, p.most*(1-forget))
	waits, again := path.RTT-path.Shortest, p.full
	switch p.full = waits > target; {
	case p.full && p.limit == 0 && !again: // processors that were busy for a moment may be why
	case p.full && path.RTT < before.RTT: // less already
	case p.full:
		if p.limit == 0 || rate < p.limit {
			p.limit = rate
		}
		p.limit *= 1 - min(half, (waits-target/2).Seconds()/drain.Seconds())
		p.limit = max(p.limit, least*p.most)
	case p.limit > 0:
		if p.limit += rise * p.most; p.limit > unbound*p.most {
			p.limit = 0
		}
	}
	return p.limit
}

// Burst returns how many bytes may be sent before the limit is looked at again, at most so many.
func (p *Pace) Burst(most int) int {
	if p.limit == 0 {
		return most
	}
	return max(1, min(most, int(p.limit*every.Seconds())))
}
