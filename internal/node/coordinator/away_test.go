package coordinator

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// vacates fails the test unless both functions of a Vacate are called.
func vacates(t *testing.T, c *Coordinator, samples ...int32) {
	t.Helper()
	calls := 0
	c.Vacate(0, 0, samples, func() { calls++ }, func() { calls++ })
	if calls != 2 || c.Delay() != 0 {
		t.Error("the coordinator keeps a segment")
	}
}

// TestOtherNodesLearnWhatWasGivenBack checks that the other nodes do not ask a node for samples
// that it gave back, until there is room again, and that invalid sets are ignored.
func TestOtherNodesLearnWhatWasGivenBack(t *testing.T) {
	all := formed(t, 3)
	for _, c := range all {
		c.SetOwner(func(int) int { return 1 })
	}
	asks := func(want bool, ids ...int) func() bool {
		return func() bool {
			return !slices.ContainsFunc([]*Coordinator{all[0], all[2]}, func(c *Coordinator) bool {
				return slices.ContainsFunc(ids, func(id int) bool {
					_, asked := c.Peers().Owner(id, 1000, 1)
					return asked != want
				})
			})
		}
	}
	testkit.Until(t, "node 1 is asked", asks(true, 0, 3, 39))
	vacates(t, all[1], 3, 39)
	testkit.Until(t, "it is not asked for two samples", asks(false, 3, 39))
	vacates(t, all[1], 0)
	testkit.Until(t, "it is not asked for three samples", asks(false, 0, 3, 39))
	if !asks(true, 1, 2, 38)() {
		t.Error("node 1 is not asked for samples that it holds")
	}
	_, version := all[1].away.get()
	vacates(t, all[1]) // a segment whose samples were dropped one by one
	if _, now := all[1].away.get(); now != version {
		t.Error("the other nodes are sent samples that were dropped")
	}
	all[1].Refill()
	testkit.Until(t, "it is asked again", asks(true, 0, 3, 39))
	all[1].Refill() // nothing has changed
	for _, text := range []string{
		"", "{", `{"node":9}`, `{"node":-1}`, `{"node":1,"from":3}`,
		`{"node":1,"version":9,"from":40,"bits":"AAAA"}`,
		`{"node":1,"version":9,"from":48}`,
		`{"node":1,"version":9,"from":9223372036854775800,"bits":"AQ=="}`,
	} {
		if all[0].hear([]byte(tellAway + " " + text)) {
			t.Errorf("%q was accepted", text)
		}
	}
	if !asks(true, 0, 3, 39)() {
		t.Error("an invalid set has an effect")
	}
	all[0].o.Index = index(t, 41, 0) // of which the set has 48 bits
	if !all[0].hear([]byte(tellAway + ` {"node":1,"version":9,"bits":"AAAAAAAA"}`)) {
		t.Error("a set that ends with the last sample's byte is refused")
	}
}

// TestOtherNodesLearnWhileMoreIsGivenBack checks that the other nodes do not learn only once a node
// pauses that gives back one segment after the other.
func TestOtherNodesLearnWhileMoreIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until a probe in progress has ended
		nodes := formed(t, 2, on(networktest.New()))
		nodes[0].SetOwner(func(int) int { return 1 })
		for i := range 20 {
			vacates(t, nodes[1], int32(i))
			<-time.After(awayPause / 2)
		}
		if _, asked := nodes[0].Peers().Owner(0, 1000, 1); asked {
			t.Error("node 1 is asked for a sample that it gave back a second ago")
		}
	})
}

// opening is a job of which a test learns when it was not open yet for a question.
type opening struct {
	*local
	asked chan struct{}
}

func (o opening) Ready(ctx context.Context) (bool, error) {
	open, err := o.local.Ready(ctx)
	if err != nil {
		select {
		case o.asked <- struct{}{}:
		default:
		}
	}
	return open, err
}

// TestNodeThatDidNotAnswerIsToldAgain: a node whose job is not open yet learns what others gave
// back once it is.
func TestNodeThatDidNotAnswerIsToldAgain(t *testing.T) {
	job := opening{newLocal(), make(chan struct{}, 1)}
	job.ready = make(chan struct{})
	all := formed(t, 2, func(o *Options) {
		if o.Node == 0 {
			o.Local = job
		}
	})
	all[0].SetOwner(func(int) int { return 1 })
	vacates(t, all[1], 3)
	<-job.asked
	close(job.ready)
	testkit.Until(t, "node 1 is not asked for the sample", func() bool {
		_, asked := all[0].Peers().Owner(3, 1000, 1)
		return !asked
	})
}

// TestNodeThatComesBackLearnsWhatWasGivenBack: a node that counted as gone when another one gave
// samples back learns of these when it is back.
func TestNodeThatComesBackLearnsWhatWasGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until a probe in progress has ended
		network := networktest.New()
		nodes := formed(t, 3, on(network))
		nodes[2].SetOwner(func(int) int { return 1 })
		network.Cut("10.0.0.3")
		<-time.After(time.Minute)
		if nodes[1].Alive(2) {
			t.Fatal("a node that was cut off is alive")
		}
		vacates(t, nodes[1], 3)
		network.Join("10.0.0.3")
		<-time.After(2 * time.Minute)
		_, there := nodes[2].Peers().Owner(4, 1000, 1)
		if _, asked := nodes[2].Peers().Owner(3, 1000, 1); !there || asked {
			t.Errorf("node 1 is asked for a sample that it gave back: %v, for others: %v", asked, there)
		}
	})
}
