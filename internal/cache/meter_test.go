package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTierIsBusyWhileAnyReadIsInProgress checks that a tier is busy while any read of it is in
// progress, and that Seconds is the sum over all reads.
func TestTierIsBusyWhileAnyReadIsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		first := m.begin()
		<-time.After(2 * time.Second)
		second := m.begin()
		<-time.After(2 * time.Second)
		m.end(first, 10, nil)
		if s := m.speed(); s.Busy != 4 || s.Seconds != 4 {
			t.Errorf("with a read in progress: %+v", s)
		}
		<-time.After(time.Second)
		m.end(second, 10, nil)
		<-time.After(time.Hour)
		if s := m.speed(); s.Busy != 5 || s.Seconds != 7 || s.Samples != 2 || s.Bytes != 20 {
			t.Errorf("after two reads: %+v, want 5 s busy and 7 s in all", s)
		}
	})
}

// TestSourceLatencyIsAMovingAverage checks that the latency is a moving average over successful
// reads that starts with the first one.
func TestSourceLatencyIsAMovingAverage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lasts time.Duration
		fails := errors.New("no")
		o := plain(4)
		o.hook = func(context.Context, int) error {
			if <-time.After(lasts); lasts == time.Hour {
				return fails
			}
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		if got := g.cache.SourceLatency(); got != 0 {
			t.Errorf("before the first read %v", got)
		}
		for id, c := range []struct{ lasts, want time.Duration }{
			{3 * time.Second, 3 * time.Second},
			{19 * time.Second, 4 * time.Second},
			{time.Hour, 4 * time.Second},
		} {
			lasts = c.lasts
			if _, _, err := g.fetched(t, &Request{}, id); err != nil && !errors.Is(err, fails) {
				t.Error(err)
			}
			if got := g.cache.SourceLatency(); got != c.want {
				t.Errorf("after a read of %v: %v, want %v", c.lasts, got, c.want)
			}
		}
	})
}
