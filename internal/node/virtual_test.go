package node

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/networktest"
	"github.com/hdmlp/hdmlp/internal/request"
)

// TestJobOverNodesInVirtualTime runs whole nodes with a network in memory in virtual time: they
// form a job, deliver the stream, read each sample once, and read around a node that is cut off.
func TestJobOverNodesInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		began, network := time.Now(), networktest.New()
		c := newNodes(t, n, false)
		for i, node := range c.list {
			node.options.Network = network.Host(fmt.Sprintf("10.0.0.%d", i+1))
		}
		ranks, errs := make([]*Rank, n), make([]error, n)
		var all sync.WaitGroup
		for i, node := range c.list {
			all.Go(func() {
				m := message(i, n, set("memory", "40000B"))
				m.Cluster = &request.Cluster{
					Nodes:          n,
					Node:           i,
					LocalWorldSize: 1,
					Address:        "10.0.0.1:6000",
					Secret:         "0123456789abcdef0123456789abcdef",
				}
				ranks[i], errs[i] = node.Open(t.Context(), m, nil, func(request.Step) {})
			})
		}
		all.Wait()
		if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
			t.Fatalf("node %d: %v", i, errs[i])
		}
		c.epochs(ranks, 0, 2)
		if total, most := c.read(); total != samples || most != 1 {
			t.Errorf("%d reads of %d samples, at most %d of one", total, samples, most)
		}
		network.Cut("10.0.0.3")
		c.epochs(ranks[:2], 2, 3)
		network.Join("10.0.0.3")
		closeAll(ranks)
		c.close()
		// Let a probe of the failure detection that is in progress end inside the bubble.
		time.Sleep(time.Minute)
		if took := time.Since(began); took > 10*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}
