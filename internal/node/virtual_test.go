package node

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/report"
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

// TestNodesReadWithTheSameStreams checks that all nodes of a job read the source with as many
// streams as node 0 finds to be best, when it does, although their reads are faster.
func TestNodesReadWithTheSameStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newVirtualNodes(t, 3, false)
		for n, w := range c.worlds {
			takes := 50 * time.Millisecond
			if n > 0 {
				takes = 30 * time.Millisecond
			}
			w.read = func(context.Context, int) error {
				<-time.After(takes)
				return nil
			}
		}
		const epochs = 400
		ranks := c.open(set("policy", "staging"), func(m *request.Open) {
			m.Stream.Epochs = epochs
		})
		together(ranks, func(r *Rank) { // in one go, so that reads always wait
			consume(t, r, at{0, 0}, at{epochs, 0})
		})
		want := ranks[0].Report().Streams
		for n, r := range ranks {
			got := r.Report().Streams
			if len(got) < 2 || !slices.EqualFunc(got, want, func(x, y report.Change) bool {
				return x.To == y.To && math.Abs(x.Seconds-y.Seconds) < 0.05
			}) {
				t.Errorf("node %d read with streams of %v, node 0 of %v", n, got, want)
			}
		}
		closeAll(ranks)
		c.close()
	})
}
