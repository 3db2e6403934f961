package routing

import "time"

// Circuit is what the answers of another node say of it: how long requests take, what it had to
// read from the source for them, and whether it is asked. It is a circuit breaker: open, which
// means that the node is bypassed, until a time, after which a request probes the node. The zero
// value is that of a node which was not asked yet. Times are those of the caller's clock.
type Circuit struct {
	answered bool          // a request, since the node was last back
	latency  time.Duration // moving average of answered requests
	last     time.Time     // when it last sent a sample
	cold     float64       // share of the latest answers that it had to read from the source
	waited   float64       // seconds that it waited for that, averaged over all of these answers
	explored time.Time     // when a request was last made only to renew the estimate
	again    bool          // that has shown the node to be faster than estimated: make another one
	choices  int64         // reads for which the node could have been asked
	trials   int64         // requests that were made only to renew the estimate, for nothing
	silent   time.Time     // no request was answered since; zero: none is unanswered

	open     time.Time     // the circuit is open until then
	pause    time.Duration // for how long it was opened last
	reported bool          // that it is bypassed, and not yet that it answers again
}

// Waited returns the mean of how long the node waited for its source for a request, in seconds. The
// node's meter predicts without that (meter.Meter.Answer).
func (c *Circuit) Waited() float64 { return c.waited }

const (
	// answerWeight is the weight of the latest answer in the moving averages.
	answerWeight = 16
	// relayCold is the share of the latest answers that a node had to read from the source from which
	// on it probably has to read the next one.
	relayCold = 0.5

	// MinSilence is the least time without an answer after which a node is silent; MaxTimeout is the
	// largest one.
	MinSilence = 2 * time.Second
	// MinPause and MaxPause are for how long a node is bypassed: twice as long after each failure, so
	// that one which is gone costs little, and one that comes back is asked within half a minute.
	MinPause = 500 * time.Millisecond
	MaxPause = 30 * time.Second
)

// Latency returns the moving average of how long answered requests took; 0: none was answered.
func (c *Circuit) Latency() time.Duration { return c.latency }

// Open reports whether the node is bypassed.
func (c *Circuit) Open(now time.Time) bool { return now.Before(c.open) }

// Relays reports whether the node has had to read most samples lately, or has not answered yet.
func (c *Circuit) Relays() bool { return !c.answered || c.cold > relayCold }

// Consider records that a way is chosen for a sample that the node owns. It reports whether the
// node may be stale whenever it was last asked (Stale).
func (c *Circuit) Consider() (again bool) {
	c.choices++
	return c.again
}

// Stale reports whether the node, which is predicted to take so many seconds and was not asked for
// idle, should be asked to renew its estimate although the source, which is predicted to take
// source seconds, is chosen: once in an interval, and for no more than one in trialShare of all
// reads; and again at once if that has shown it to be faster, because one answer moves an estimate
// little.
func (c *Circuit) Stale(now time.Time, idle time.Duration, predicted, source float64) bool {
	interval := TrialInterval(predicted, source)
	waits := idle < interval || now.Sub(c.explored) < interval
	return (c.again || !waits) && c.trials*trialShare <= c.choices
}

// Asked is how long a request to another node may take.
type Asked struct {
	// Least is how long it may take however fast the source is, Most how long however slow it is.
	Least, Most time.Duration

	trial     bool    // to renew the estimate: the source would have been chosen
	predicted float64 // seconds
}

// Limit returns how long the request may take if the source takes so long, and a read may take
// timeout in all; 0: there is no limit.
func (a Asked) Limit(source, timeout time.Duration) time.Duration {
	return min(Limit(source, a.Least, timeout), a.Most)
}

// Ask records that a request begins. wait is until the sample is needed; 0: that is not known. The
// request may take as long as leaves time for the source, which is predicted to take source; if
// that is little, some times as long as predicted. Both are limited by ExpectedLimit, which a node
// has for its first answer. If the source would have been chosen, it may take no longer than leaves
// time for it, or, if there is none, than the source.
func (c *Circuit) Ask(now time.Time, wait time.Duration, predicted float64,
	source time.Duration,
) Asked {
	a := Asked{Least: ExpectedLimit, Most: MaxTimeout, predicted: predicted}
	spare := wait - source
	if wait != 0 && Choose(wait.Seconds(), []float64{predicted, source.Seconds()}) > 0 {
		a.trial = true
		a.Most = max(spare, source)
		c.explored, c.again = now, false
		c.trials++
		return a
	}
	if c.silent.IsZero() {
		c.silent = now
	}
	switch {
	case spare >= MinTimeout:
		a.Least = min(spare, ExpectedLimit)
	case c.answered:
		a.Least = min(max(wait, Expected(predicted)), ExpectedLimit)
	}
	return a
}

// Silent reports whether the node counts as silent, of which a request was not answered in time: it
// must have answered no request for longer than the source takes. The result is for how long it has
// been silent; 0: since before the request that it is counted from, as it was found silent before.
// A request that was made only to renew the estimate does not count: the node is known to be slow.
func (c *Circuit) Silent(now time.Time, a Asked, source time.Duration) (since time.Duration,
	silent bool,
) {
	if c.silent.IsZero() || a.trial { // another request was answered since
		return 0, false
	}
	bound := min(max(slowFactor*max(c.latency, source), MinSilence), MaxTimeout)
	if since = now.Sub(c.silent); since >= bound {
		return since, true
	}
	return 0, c.reported
}

// Answered records that a request was answered in took, of which the node waited for its source for
// waited; 0: it had the sample. It reports whether that ends a bypass that was reported.
func (c *Circuit) Answered(now time.Time, a Asked, took, waited time.Duration) (again bool) {
	if a.trial && soonerFactor*(took-waited).Seconds() < a.predicted {
		c.again = true
		c.trials--
	}
	if !c.answered {
		c.answered = true
		c.latency = took
	}
	c.last = now
	c.silent = time.Time{}
	c.latency += (took - c.latency) / answerWeight
	c.waited += (waited.Seconds() - c.waited) / answerWeight
	c.cold -= c.cold / answerWeight
	if waited > 0 {
		c.cold += 1.0 / answerWeight
	}
	c.pause = 0
	again = c.reported
	c.reported = false
	return again
}

// Failure is how a request failed. One that was only not answered in time has not.
type Failure int

// The failures.
const (
	Unavailable Failure = iota // the node does not answer, or is not reached
	Unserved                   // it answers that it cannot send the sample: the node works
	Wrong                      // it sends corrupt data, or refuses this node
)

// Failed records that a request failed. It reports whether the node is bypassed from now on, and
// was not before.
func (c *Circuit) Failed(now time.Time, how Failure) (bypassed bool) {
	c.silent = time.Time{}
	switch {
	case how == Unserved, c.Open(now): // the latter: other requests that were in flight
		return false
	case how == Wrong:
		c.pause = MaxPause
	default:
		c.pause = min(max(2*c.pause, MinPause), MaxPause)
	}
	c.open = now.Add(c.pause)
	bypassed = !c.reported
	c.reported = true
	return bypassed
}

// Back records that the node is alive again.
func (c *Circuit) Back() {
	c.answered = false
	c.latency = 0
	c.open = time.Time{}
	c.pause = 0
	c.reported = false
}
