package catalog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestNothingIsFilledWhileADatasetIsOpened opens a dataset again while its cache is filled: what
// the opening reads must not queue behind that. One that takes longer than longestHold holds
// nothing any more.
func TestNothingIsFilledWhileADatasetIsOpened(t *testing.T) {
	const read = time.Millisecond
	for _, c := range []struct {
		takes time.Duration
		fills bool
	}{{longestHold / 2, false}, {2 * longestHold, true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(t)
			cfg := inMemory(total)
			d := s.open(t, cfg)
			begun := make(chan struct{}, samples)
			s.reading = func() { begun <- struct{}{}; time.Sleep(read) }
			u := join(t, d, cfg).Use(nil)
			plan := make([]int32, samples)
			for i := range plan {
				plan[i] = int32(i)
			}
			u.Keep([][]int32{plan})
			u.Fill([][]int32{plan}, func(int64) {})
			<-begun
			before, after := 0, 0
			s.opening = func(context.Context) error {
				time.Sleep(2 * read) // reads that have begun end
				before = len(begun)
				time.Sleep(c.takes)
				after = len(begun)
				return nil
			}
			s.open(t, cfg).Close()
			if before >= samples-1 || after > before != c.fills {
				t.Errorf("%v: %d reads, then %d", c.takes, before, after)
			}
			time.Sleep(samples * read)
			if len(begun) != samples-1 {
				t.Errorf("%v: %d reads in all", c.takes, len(begun)+1)
			}
			u.Close()
			d.LeaveCache()
			d.Close()
		})
	}
}
