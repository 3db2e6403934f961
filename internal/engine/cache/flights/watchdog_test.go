package flights

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestReadsAreNotLateBecauseTheProcessWasStopped checks that reads in progress while the process
// was stopped have the whole timeout afterwards. That the watchdog does not run stands for that.
func TestReadsAreNotLateBecauseTheProcessWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var stopped, resumed time.Time
		late := make(chan time.Time)
		w := Watch(time.Minute, func(before time.Time) {
			switch {
			case resumed.IsZero():
				stopped = before
				<-time.After(time.Hour)
				resumed = time.Now()
			case before.After(resumed):
				select {
				case late <- time.Now():
				default:
				}
			case before.Sub(stopped) > 6*time.Second: // not for a tick from before the stop
				t.Errorf("reads are late %v after the process continued", time.Since(resumed))
			}
		})
		if d := (<-late).Sub(begun); d < time.Hour+time.Minute || d > time.Hour+2*time.Minute {
			t.Errorf("reads since the process continued are late after %v", d)
		}
		w.End()
	})
}
