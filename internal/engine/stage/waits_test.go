package stage

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
)

// TestWaitInProgressCounts checks that the tallies have the wait that goes on, with its cause, in
// the epoch of the batch that is waited for, and no more when it has ended.
func TestWaitInProgressCounts(t *testing.T) {
	for name, sample := range map[string]int{"first batch": 0, "later batch": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				o := plain(8, 2)
				o.hook = cachetest.Hanging(gate, sample)
				g := newRig(t, o)
				r := g.ranks[0]
				ended := make(chan error, 1)
				go func() {
					_, err := g.run(r, step{0, 0}, 0, 0)
					ended <- err
				}()
				synctest.Wait()
				r.stager.Wait()
				<-time.After(10 * time.Second)
				all := r.stager.Epochs()
				if len(all) == 0 || math.Abs(all[0].Stall["source"]-10) > 0.1 ||
					math.Abs(all[0].Seconds-10) > 0.1 || all[0].Utilisation() > 0.01 {
					t.Errorf("while it waits: %+v", all)
				}
				close(gate)
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				for _, e := range r.stager.Epochs() {
					if e.StallSeconds() > 0 { // the rig reports no stalls
						t.Errorf("after it: %+v", e)
					}
				}
				g.close()
			})
		})
	}
}
