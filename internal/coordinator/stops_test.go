package coordinator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lockstep"
	"github.com/hdmlp/hdmlp/internal/networktest"
)

// TestStopBeforeLeavingIsTold: a rank that begins again stops a second time, and its node leaves,
// while the other node has not answered yet that it knows of the first stop. It is told of the
// second one too.
func TestStopBeforeLeavingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, told := networktest.New(), make(chan error, 2)
		nodes, _ := formedOver(t, network, 2, func(o *Options) {
			if o.Node == 1 {
				o.Stops = lockstep.New(1, "host", func(err error) { told <- err })
			}
		})
		network.Set(at(1), at(0), networktest.Link{Delay: time.Second})
		for i := range 2 {
			run := nodes[0].o.Stops.Begin(0, 0, func() {}, func(int) {})
			_ = run.End(errors.New("a fault"), false)
			if i == 0 {
				synctest.Wait() // the first stop is being told
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
