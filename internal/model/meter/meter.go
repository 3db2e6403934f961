// Package meter measures the reads from a tier while they happen: how much was read, how long that
// took, and, by the performance model, when one more read would arrive.
package meter

import (
	"errors"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// Meter measures the reads from one tier. The zero value has measured nothing. Its methods are safe
// for concurrent use. The times that they take are those of the caller's clock.
type Meter struct {
	mu     sync.Mutex // guards the following
	total  model.Speed
	fit    model.Fit
	origin model.Origin // of fit
	zero   time.Time    // of the times that fit is given
	last   time.Time    // end of the last read that succeeded, or was given up
	// succeeded is the end of the last read that did.
	succeeded time.Time

	// Bytes are whole numbers, so that sums come back to exactly 0: of a rest of 1e-18 MB the fit
	// would conclude that an MB delays a read by years.
	underWay int
	since    time.Time     // when underWay became 1
	ahead    int64         // bytes that are being read
	besides  int64         // bytes that the tier is busy with otherwise (Occupy)
	begun    time.Duration // sum of the beginnings of reads in progress, counted from since

	current window
	waited  float64 // seconds that reads waited for something else
}

// window is a number of reads that ended one after the other.
type window struct {
	reads   int
	bytes   int64
	from    float64 // seconds for which the tier was busy when it began
	pending int64   // bytes that were being read then
	seconds float64 // that reads had taken by then, and
	waited  float64 // of these, waited for something else
}

const (
	windowReads = 32 // at least
	// windowPending is how many times the bytes that were being read when a window began it must
	// have at least: what was read of these before then is not of its time.
	windowPending = 4
)

// Read is a read in progress.
type Read struct {
	start time.Time
	size  int64 // bytes
	ahead int64 // bytes that were being read when it began
	// others are samples that it brings besides.
	others int64
	// Waited is for how long the read waited for something else than the tier, which its caller may
	// set before End: estimates do not count it.
	Waited time.Duration
}

// mb returns the MB of so many bytes.
func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// Begin records the beginning of a read.
func (m *Meter) Begin(now time.Time, bytes int) Read {
	r := Read{start: now, size: int64(bytes)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.underWay++; m.underWay == 1 {
		m.since = now
		m.begun = 0
		m.ahead = 0
	}
	r.ahead = m.ahead + m.besides
	m.ahead += r.size
	m.begun += now.Sub(m.since)
	return r
}

// Grow records that a read in progress brings other samples of so many bytes as well.
func (m *Meter) Grow(r *Read, others, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.others += others
	r.size += bytes
	m.ahead += bytes
}

// End records the end of a read, and whether it failed.
func (m *Meter) End(now time.Time, r Read, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead -= r.size
	m.begun -= r.start.Sub(m.since)
	if m.underWay--; m.underWay == 0 {
		m.total.Busy += now.Sub(m.since).Seconds()
	}
	took := now.Sub(r.start)
	m.total.Seconds += took.Seconds()
	if err != nil {
		return
	}
	m.window(now, r)
	m.total.Samples += 1 + r.others
	m.total.Bytes += r.size
	m.last, m.succeeded = now, now
	if m.origin != model.Given {
		m.observe(now, r)
	}
}

// GiveUp records that a read was given up, for having taken too long: what it has taken counts as
// if it had ended, unless that is less than it was predicted to take, which means nothing.
func (m *Meter) GiveUp(now time.Time, r Read) {
	m.End(now, r, errGivenUp)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = now
	predicted := m.fit.Predict(mb(r.size), mb(r.ahead))
	if m.origin != model.Given && (now.Sub(r.start)-r.Waited).Seconds() >= predicted {
		m.observe(now, r)
	}
}

var errGivenUp = errors.New("given up")

// observe has the estimates take account of a read that ended now. m.mu must be held.
func (m *Meter) observe(now time.Time, r Read) {
	if m.zero.IsZero() {
		m.zero = now
	}
	took := now.Sub(r.start) - r.Waited // below 0, if that is wrong: the fit ignores the read
	m.fit.Observe(now.Sub(m.zero).Seconds(), mb(r.size), mb(r.ahead), took.Seconds())
	m.origin = model.Measured
}

// window takes account of a read that ended now. m.mu must be held.
func (m *Meter) window(now time.Time, r Read) {
	busy := m.busy(now)
	m.waited += max(r.Waited.Seconds(), 0)
	end := window{from: busy, pending: m.ahead, seconds: m.total.Seconds, waited: m.waited}
	m.total.Peak = max(m.total.Peak, m.current.add(r.size, end))
}

// add counts a read. If the window is long enough with it, it ends, next begins, and add returns
// its throughput in MB/s; otherwise 0.
func (w *window) add(size int64, next window) (rate float64) {
	w.reads++
	w.bytes += size
	took := next.from - w.from
	if w.reads < windowReads || w.bytes < windowPending*w.pending {
		return 0
	}
	seconds, waited := next.seconds-w.seconds, next.waited-w.waited
	if took > 0 && waited < seconds { // as if the reads had taken only what was the tier's
		rate = mb(w.bytes) / took * seconds / (seconds - waited)
	}
	*w = next
	return rate
}

// busy returns for how many seconds reads were in progress. m.mu must be held.
func (m *Meter) busy(now time.Time) float64 {
	busy := m.total.Busy
	if m.underWay > 0 {
		busy += now.Sub(m.since).Seconds()
	}
	return busy
}

// Occupy records that the tier is busy with bytes that are written to it, which delay reads; a
// negative number, that these are written.
func (m *Meter) Occupy(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.besides += int64(bytes)
}

// Arrival predicts how long a read of this many bytes would take if it began now, in seconds. It is
// at least as long as the reads in progress have taken on average: a tier that stops responding is
// known to be slow before a read of it has ended.
func (m *Meter) Arrival(now time.Time, bytes int64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.predict(bytes), m.age(now))
}

// Predict is Arrival by the estimates alone, whatever the reads in progress have taken.
func (m *Meter) Predict(bytes int64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.predict(bytes)
}

// Answer is Arrival for a tier that may have to wait for another one, on average for so many
// seconds, which neither count nor are in the result. Of how long reads have been in progress, no
// more counts than for how long none succeeded: what the tier has, it delivers, and those that are
// left wait for the other one.
func (m *Meter) Answer(now time.Time, bytes int64, wait float64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.since
	if m.succeeded.After(from) {
		from = m.succeeded
	}
	return max(m.predict(bytes), min(m.age(now), now.Sub(from).Seconds())-wait)
}

// predict returns what the estimates say of a read that begins now, in seconds. m.mu must be held.
func (m *Meter) predict(bytes int64) float64 {
	return m.fit.Predict(mb(bytes), mb(m.ahead+m.besides))
}

// age returns how long the reads in progress have taken on average, in seconds; 0 if there is none,
// or if it is given how long reads take. m.mu must be held.
func (m *Meter) age(now time.Time) float64 {
	if m.underWay == 0 || m.origin == model.Given {
		return 0
	}
	return (now.Sub(m.since) - m.begun/time.Duration(m.underWay)).Seconds()
}

// Know makes the meter predict by what is known of the tier: if that was given, for good, otherwise
// until reads say otherwise.
func (m *Meter) Know(k model.Known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fit.Assume(k.Coefficients)
	m.origin = k.Origin
}

// Known returns what is known of the tier.
func (m *Meter) Known() model.Known {
	m.mu.Lock()
	defer m.mu.Unlock()
	return model.Known{Coefficients: m.fit.Coefficients(), Origin: m.origin}
}

// Settled returns what another job may begin with: what was measured of the tier, with no higher
// throughput than was seen. The estimates alone do not bound it: if reads did not delay each other,
// as in the page cache, they say that any number of reads would take no longer than one. ok is
// false until so many reads have ended that a throughput was seen, for what was given, and for a
// nil Meter.
func (m *Meter) Settled() (k model.Known, ok bool) {
	if m == nil {
		return k, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total.Peak == 0 || m.origin != model.Measured {
		return model.Known{}, false
	}
	c := m.fit.Coefficients()
	c.Queued = max(c.Queued, 1/m.total.Peak)
	return model.Known{Coefficients: c, Origin: m.origin}, true
}

// Idle returns how long ago the last read ended; 0 if there was none, or one is in progress.
func (m *Meter) Idle(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.idle(now)
}

// idle is Idle. m.mu must be held.
func (m *Meter) idle(now time.Time) time.Duration {
	if m.underWay > 0 || m.last.IsZero() {
		return 0
	}
	return now.Sub(m.last)
}

// Explore reports whether the tier should be read now to keep its estimates current, although
// another one was chosen: if nothing was read for as long as routing.CheckInterval returns for a
// read that is predicted to take arrival seconds; and at once if no read has measured it yet,
// because what an earlier job has stored may be wrong by any factor. It is false while a read is in
// progress, which will soon be a measurement.
func (m *Meter) Explore(now time.Time, arrival float64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stale(now, arrival)
}

// stale is Explore. m.mu must be held.
func (m *Meter) stale(now time.Time, arrival float64) bool {
	if m.underWay > 0 {
		return false
	}
	if m.origin != model.Given && m.origin != model.Measured {
		return true
	}
	return m.idle(now) >= routing.CheckInterval(arrival)
}

// Tier returns the tier as a choice between tiers for a read of this many bytes needs it: Arrival
// and Explore at once.
func (m *Meter) Tier(now time.Time, bytes int64) routing.Tier {
	m.mu.Lock()
	defer m.mu.Unlock()
	arrival := max(m.predict(bytes), m.age(now))
	return routing.Tier{Arrival: arrival, Stale: m.stale(now, arrival)}
}

// Speed returns what was read so far.
func (m *Meter) Speed(now time.Time) model.Speed {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.total
	s.Busy = m.busy(now)
	return s
}
