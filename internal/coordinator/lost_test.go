package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/audit"
	"github.com/hdmlp/hdmlp/internal/lockstep"
	"github.com/hdmlp/hdmlp/internal/networktest"
)

func at(node int) string { return fmt.Sprintf("10.0.0.%d", node+1) }

// formedOver is formed over a network in memory, in a synctest bubble.
func formedOver(t *testing.T, network *networktest.Network, nodes int,
	change func(*Options),
) (c []*Coordinator, hosts []*networktest.Host) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) }) // until a probe in progress has ended
	hosts = make([]*networktest.Host, nodes)
	return formed(t, nodes, func(o *Options) {
		hosts[o.Node] = network.Host(at(o.Node))
		o.Network, o.Address = hosts[o.Node], at(0)+":6000"
		change(o)
	}), hosts
}

// TestNode0DiesDuringAuditAndGather checks that both end for the other nodes, and say why.
func TestNode0DiesDuringAuditAndGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := networktest.New()
		c, hosts := formedOver(t, network, 3, func(o *Options) {
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
		network.Kill(hosts[0])
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

// TestStopIsToldAgain checks that a node whose connection breaks while it is told of a stop is told
// once it has connected again.
func TestStopIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, told := networktest.New(), make(chan error, 1)
		c, _ := formedOver(t, network, 3, func(o *Options) {
			if o.Node == 2 {
				o.Stops = lockstep.New(2, "host", func(err error) { told <- err })
			}
		})
		network.Set(at(0), at(2), networktest.Link{Cut: true})
		run := c[1].o.Stops.Begin(2, 0, func() {}, func(int) {})
		_ = run.End(errors.New("a fault"), false)
		time.Sleep(time.Second) // node 0 has sent it
		network.Reset(at(0), at(2))
		network.Set(at(0), at(2), networktest.Link{})
		synctest.Wait()
		select {
		case <-told:
			t.Fatal("node 2 was told on a connection that broke")
		default:
		}
		<-told
	})
}
