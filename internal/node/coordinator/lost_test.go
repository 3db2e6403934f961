package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/node/lockstep"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

// TestNode0DiesDuringAuditAndGather checks that both end for the other nodes, and say why.
func TestNode0DiesDuringAuditAndGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // until a probe in progress has ended
		network := networktest.New()
		var zero *networktest.Host
		c := formed(t, 3, on(network), func(o *Options) {
			if o.Node == 0 {
				zero = o.Network.(*networktest.Host)
			}
			o.Local.(*local).parts = func(ctx context.Context, _ int) ([]audit.Part, error) {
				<-ctx.Done() // its ranks do not come to the end
				return nil, ctx.Err()
			}
		})
		type result struct {
			parts []audit.Part
			why   string
			err   error
		}
		audited, gathered := make(chan result, 1), make(chan error, 1)
		go func() {
			parts, why, err := c[1].Audit(t.Context(), 0, parts(2, 3))
			audited <- result{parts, why, err}
		}()
		go func() {
			_, err := c[2].Gather(t.Context(), "what", nil)
			gathered <- err
		}()
		synctest.Wait()
		began := time.Now()
		network.Kill(zero)
		if err := <-gathered; err == nil {
			t.Error("node 2 gathers without node 0")
		}
		const why = "node 0 is gone; node 2 cannot be asked, because node 0 is gone"
		if r := <-audited; r.err != nil || r.why != why || len(r.parts) != 4 {
			t.Errorf("node 1 has the parts %v of the other nodes, for %q; %v", r.parts, r.why, r.err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it takes %v", took)
		}
	})
}

// TestStopIsToldAgain checks that a node whose connection breaks while a stop is sent to it
// receives it once it has connected again.
func TestStopIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // until a probe in progress has ended
		const zero, two = "10.0.0.1", "10.0.0.3"
		network, told := networktest.New(), make(chan error, 1)
		c := formed(t, 3, on(network), func(o *Options) {
			if o.Node == 2 {
				o.Stops = lockstep.New(2, "host", func(err error) { told <- err })
			}
		})
		network.Set(zero, two, networktest.Link{Cut: true})
		run := c[1].o.Stops.Begin(2, 0, func() {}, func(int) {})
		_ = run.End(errors.New("a fault"), false)
		time.Sleep(time.Second) // node 0 has sent it
		network.Reset(zero, two)
		network.Set(zero, two, networktest.Link{})
		synctest.Wait()
		select {
		case <-told:
			t.Fatal("node 2 was told on a connection that broke")
		default:
		}
		<-told
	})
}
