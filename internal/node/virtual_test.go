package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestJobOverNodesInVirtualTime runs whole nodes with a network in memory in virtual time: they
// form a job, deliver the stream, read each sample once, and read around a node that is cut off.
func TestJobOverNodesInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newVirtualNodes(t, 3, false)
		ranks := c.open(set("memory", "40000B"))
		c.epochs(ranks, 0, 2)
		if total, most := c.read(); total != samples || most != 1 {
			t.Errorf("%d reads of %d samples, at most %d of one", total, samples, most)
		}
		c.network.Cut("10.0.0.3")
		c.epochs(ranks[:2], 2, 3)
		c.network.Join("10.0.0.3")
		closeAll(ranks)
		c.close()
		if took := time.Since(began); took > 10*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}
