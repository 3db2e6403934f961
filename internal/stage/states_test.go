package stage

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/invariants"
)

// TestBatchesGoOnlyWhereTheyMay: of all pairs of states only those that are written at batch follow each other, and with invariants any
// other panics.
func TestBatchesGoOnlyWhereTheyMay(t *testing.T) {
	may := map[[2]batchState]bool{
		{planned, fetching}: true, {fetching, staged}: true, {fetching, parked}: true, {parked, fetching}: true,
		{staged, sent}: true, {staged, discarded}: true, {parked, discarded}: true,
	}
	for from := planned; from <= discarded; from++ {
		for to := planned; to <= discarded; to++ {
			if to.follows(from) != may[[2]batchState{from, to}] {
				t.Errorf("%v after %v: %v", to, from, to.follows(from))
			}
			if !invariants.Enabled {
				continue
			}
			func() {
				defer func() {
					if panics := recover() != nil; panics == may[[2]batchState{from, to}] {
						t.Errorf("%v after %v panics: %v", to, from, panics)
					}
				}()
				(&batch{state: from}).to(to)
			}()
		}
	}
}
