package flights

import (
	"sync"
	"time"
)

// Watchdog has flights given up that take too long: it calls a function regularly, from a goroutine
// of its own.
type Watchdog struct {
	stop chan struct{} // nil: it never calls
	done sync.WaitGroup
}

// Watch starts a Watchdog, which calls giveUp with the time before which a flight must have begun
// to have taken longer than the timeout; 0: none ever does.
func Watch(timeout time.Duration, giveUp func(before time.Time)) *Watchdog {
	w := &Watchdog{}
	if timeout <= 0 {
		return w
	}
	w.stop = make(chan struct{})
	w.done.Go(func() { w.run(timeout, giveUp) })
	return w
}

func (w *Watchdog) run(timeout time.Duration, giveUp func(before time.Time)) {
	period := max(timeout/20, time.Millisecond)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	last, resumed := time.Now(), time.Time{}
	for {
		select {
		case <-w.stop:
			return
		case now := <-ticker.C:
			// If the process itself was stopped, as by SIGSTOP, a control group's freezer or a virtual
			// machine that is paused, the source is not at fault: reads that were in progress then have
			// the whole time from its end.
			if now.Sub(last) > 4*period {
				resumed = now
			}
			last = now
			// A tenth more than the timeout: the retrying source makes its last attempt when the
			// timeout ends.
			if before := now.Add(-timeout - timeout/10); before.After(resumed) {
				giveUp(before)
			}
		}
	}
}

// End ends it, and returns once it calls no more.
func (w *Watchdog) End() {
	if w.stop != nil {
		close(w.stop)
		w.done.Wait()
	}
}
