package coordinator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
)

// TestStopBeforeLeavingIsTold: a rank that begins again stops a second time, and its node leaves,
// while the other node has not acknowledged the first stop yet. It receives the second one too.
func TestStopBeforeLeavingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // until a probe in progress has ended
		network, told := networktest.New(), make(chan error, 2)
		nodes := formed(t, 2, on(network), func(o *Options) {
			if o.Node == 1 {
				o.Stops = lockstep.New(1, "host", func(err error) { told <- err })
			}
		})
		network.Set("10.0.0.2", "10.0.0.1", networktest.Link{Delay: time.Second})
		for i := range 2 {
			run := nodes[0].o.Stops.Begin(0, 0, func() {}, func(int) {})
			_ = run.End(errors.New("a fault"), false)
			if i == 0 {
				synctest.Wait() // the first stop is being sent
				nodes[0].o.Stops.Raised(0)
			}
		}
		nodes[0].Close()
		for range 2 {
			select {
			case <-told:
			case <-time.After(time.Minute):
				t.Fatal("the other node does not know of the second stop")
			}
		}
	})
}

// TestNodeThatWasNotReachedIsToldOfStops: a node whose connection to node 0 was broken when another
// one stopped learns of it when it is connected again.
func TestNodeThatWasNotReachedIsToldOfStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until a probe in progress has ended
		network, told := networktest.New(), make(chan error, 2)
		nodes := formed(t, 3, on(network), func(o *Options) {
			if o.Node == 2 {
				o.Stops = lockstep.New(2, "host", func(err error) { told <- err })
			}
		})
		network.Cut("10.0.0.3")
		network.Reset("10.0.0.1", "10.0.0.3")
		synctest.Wait()
		run := nodes[0].o.Stops.Begin(0, 0, func() {}, func(int) {})
		_ = run.End(errors.New("a fault"), false)
		<-time.After(time.Second)
		if !nodes[0].Alive(2) {
			t.Fatal("a node that was not there for a second counts as gone")
		}
		network.Join("10.0.0.3")
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Error("the node does not know of the stop")
		}
	})
}
