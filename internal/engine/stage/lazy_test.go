package stage

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestLazyStagesOneBatchAfterAnEarlierWait has a process wait for another rank's error, instead of
// a batch, before it begins again, and then for the first batch: no other one is staged until it
// has taken that, and asks.
func TestLazyStagesOneBatchAfterAnEarlierWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8, 1)
		o.lazy = true
		g := newRig(t, o)
		s := g.ranks[0].stager
		ctx, cancel := context.WithCancel(t.Context())
		staged := 0
		ended := make(chan error, 1)
		s.Wait()
		go func() {
			ended <- s.Run(ctx, 0, 0, func(*Batch) error {
				staged++
				return nil
			})
		}()
		for taken := range 3 {
			synctest.Wait()
			s.Wait()
			synctest.Wait()
			if staged != taken+1 {
				t.Errorf("%d batches are staged when %d have been taken", staged, taken)
			}
			s.Taken(0, taken, Stall{})
		}
		cancel()
		<-ended
		g.close()
	})
}
