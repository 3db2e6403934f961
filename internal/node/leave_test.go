package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/request"
)

// TestCacheOfAJobThatIsLeft checks that a job has a cache by its own settings if a rank of the job
// before it has begun to leave, or has left, and the others follow, although what was begun for
// them has not ended; and the cache of that job if all stay, another rank comes, or it does not
// end.
func TestCacheOfAJobThatIsLeft(t *testing.T) {
	const ends, noticed = time.Second, 300 * time.Millisecond
	for name, c := range map[string]struct {
		before func(t *testing.T, n *Node, ranks []*Rank)
		stays  bool // ranks[1] is not closed
		waits  time.Duration
		own    bool
	}{
		"nothing": {func(*testing.T, *Node, []*Rank) {}, false, noticed, false},
		"both leave": {func(_ *testing.T, _ *Node, ranks []*Rank) {
			ranks[0].Leave()
			ranks[0].Leave() // which has no effect
			ranks[1].Leave()
		}, false, ends, true},
		"one leaves": {func(_ *testing.T, _ *Node, ranks []*Rank) {
			ranks[0].Leave()
		}, false, ends, true},
		"one has left": {func(_ *testing.T, _ *Node, ranks []*Rank) {
			ranks[0].Close()
		}, false, ends, true},
		"one has left, the other stays": {func(_ *testing.T, _ *Node, ranks []*Rank) {
			ranks[0].Close()
		}, true, 5 * time.Second, false},
		"one has left, and comes again": {func(t *testing.T, n *Node, ranks []*Rank) {
			ranks[0].Close()
			ranks[0] = open(t, n, message(0, 2))
		}, false, noticed, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				n := w.node()
				before := []*Rank{open(t, n, message(0, 2)), open(t, n, message(1, 2))}
				c.before(t, n, before)
				all := before
				if c.stays {
					all = before[:1]
				}
				ended := make(chan struct{})
				time.AfterFunc(ends, func() {
					defer close(ended)
					closeAll(all)
				})
				begun := time.Now()
				r := open(t, n, message(0, 1, set("memory", "20000B"),
					func(m *request.Open) { m.Job = "next" }))
				if took := time.Since(begun); took != c.waits {
					t.Errorf("opened after %v, want %v", took, c.waits)
				}
				want := int64(total)
				if c.own {
					want = 20000
				}
				if got := r.Report().Classes[0].Capacity; got != want {
					t.Errorf("the cache has %d bytes, want %d", got, want)
				}
				<-ended
				closeAll(before)
				r.Close()
				w.close(t, n)
			})
		})
	}
}

// TestAJobThatFollowsIsAdmittedWhenTheOneBeforeHasEnded checks that what a job takes is what fits
// beside nothing, if it waits for the end of the one before it.
func TestAJobThatFollowsIsAdmittedWhenTheOneBeforeHasEnded(t *testing.T) {
	var alone int64
	for _, follows := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := world{available: func() (int64, error) { return 100_000, nil }}
			n := w.node()
			ended := make(chan struct{})
			if follows {
				before := open(t, n, message(0, 1, set("memory", "1000B")))
				before.Leave()
				time.AfterFunc(time.Second, func() {
					defer close(ended)
					before.Close()
				})
			} else {
				close(ended)
			}
			r := open(t, n, message(0, 1, set("memory", nil),
				func(m *request.Open) { m.Job = "next" }))
			got := r.Report().Classes[0].Capacity
			if !follows {
				alone = got
			}
			if got != alone || got <= 1000 || got >= total {
				t.Errorf("the cache has %d bytes, and alone %d", got, alone)
			}
			<-ended
			r.Close()
			w.close(t, n)
		})
	}
}
