package node

import (
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/request"
)

// TestCacheOfAJobThatIsLeft checks that a job has a cache by its own settings if all ranks of the
// job before it have begun to leave, although what was begun for them has not ended, and has the
// cache of that job if one of them stays.
func TestCacheOfAJobThatIsLeft(t *testing.T) {
	for leave := range 3 {
		synctest.Test(t, func(t *testing.T) {
			var w world
			n := w.node()
			before := []*Rank{open(t, n, message(0, 2)), open(t, n, message(1, 2))}
			for _, r := range before[:leave] {
				r.Leave()
				r.Leave() // which has no effect
			}
			next := make(chan *Rank, 1)
			go func() {
				defer close(next)
				r, err := n.Open(t.Context(), message(0, 1, set("memory", "20000B"),
					func(m *request.Open) { m.Job = "next" }), nil, func(request.Step) {})
				if err != nil {
					t.Error(err)
				}
				next <- r
			}()
			synctest.Wait()
			if got := len(next) > 0; got != (leave < 2) {
				t.Errorf("%d of 2 ranks are leaving; the next job is open: %t", leave, got)
			}
			closeAll(before)
			r := <-next
			want := int64(total)
			if leave == 2 {
				want = 20000
			}
			if got := r.Report().Classes[0].Capacity; got != want {
				t.Errorf("%d of 2 ranks were leaving, and the cache has %d bytes, want %d", leave,
					got, want)
			}
			r.Close()
			w.close(t, n)
		})
	}
}
