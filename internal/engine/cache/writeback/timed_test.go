package writeback

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWritesAreNotLongBecauseTheProcessWasStopped checks that writes count from the end of a stop,
// in which timers do not end, and otherwise from their beginning.
func TestWritesAreNotLongBecauseTheProcessWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w timed
		begun := time.Now()
		end := w.begin(begun)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if present, _ := w.longest(time.Now()); present != 10*time.Second {
			t.Errorf("%v, while the process runs", present)
		}
		later := time.Now().Add(time.Hour) // no timer has ended since
		if present, ever := w.longest(later); present != 0 || ever != 0 {
			t.Errorf("%v and %v, when the process was stopped", present, ever)
		}
		if present, _ := w.longest(later.Add(time.Second / 2)); present != time.Second/2 {
			t.Errorf("%v, half a second after a stop", present)
		}
		end(later.Add(time.Second / 2))
		if present, ever := w.longest(later); present != 0 || ever != time.Second/2 {
			t.Errorf("%v and %v, when the write has ended", present, ever)
		}
		time.Sleep(2 * checkInterval)
		synctest.Wait()
		if w.timer != nil {
			t.Error("the timer runs while nothing is written")
		}
	})
}
