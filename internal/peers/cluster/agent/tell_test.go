package agent

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// TestTellReachesAllNodes: many at a time, and a node without Hear refuses.
func TestTellReachesAllNodes(t *testing.T) {
	var mu sync.Mutex
	got := make([]map[string]int, 4)
	clusters, errs := newLab(t, 4).form(t.Context(), upTo(4), func(o *cluster.Options) {
		if o.Node == 3 {
			return
		}
		got[o.Node] = map[string]int{}
		o.Hear = func(what []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			got[o.Node][string(what)]++
			return true
		}
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for n, c := range clusters {
		for i := range 10 {
			all.Go(func() {
				heard := c.Tell(t.Context(), fmt.Append(nil, n, i))
				if want := []bool{true, true, true, n == 3}; !slices.Equal(heard, want) {
					t.Errorf("node %d is heard by %v, want %v", n, heard, want)
				}
			})
		}
	}
	all.Wait()
	for n := range 3 {
		for from := range 4 {
			for i := range 10 {
				if times := got[n][fmt.Sprint(from, i)]; (times == 1) != (n != from) {
					t.Errorf("node %d hears news %d of node %d %d times", n, i, from, times)
				}
			}
		}
	}
	for n, heard := range clusters[0].Tell(t.Context(), make([]byte, cluster.MaxPayload+1)) {
		if heard {
			t.Errorf("node %d hears news that is too long", n)
		}
	}
}
