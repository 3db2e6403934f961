// Package pressure has the cache in memory give way to the training processes: it watches how much
// memory is left, and has the cache give some back before the kernel kills a process.
//
// A Controller decides, without a clock or goroutine. A Monitor measures, and does what it decides:
// it owns one goroutine, which ends with Close. The package is independent of segments and
// datasets, and does not measure memory itself (package host).
package pressure

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Cache is what gives way. Its methods must be safe for concurrent use, and must not block.
type Cache interface {
	// Taken returns the memory that the cache has allocated, in bytes.
	Taken() int64
	// Leaving returns how much of that was given back since a time, and is not free yet.
	Leaving(since time.Time) int64
	// Delay returns how long it takes until what is given back is free.
	Delay() time.Duration
	// Allow sets how many bytes the cache may allocate until the next call.
	Allow(bytes int64)
	// SetHorizon sets for how long ahead of its use a sample may be promised to a process.
	SetHorizon(d time.Duration)
	// GiveBack gives back at least so many bytes, if there are as many, and returns how many.
	GiveBack(bytes int64, why string) (begun int64)
}

// Options configure a Monitor.
type Options struct {
	Cache Cache
	// Measure sets At, Limit, Free, What and Stalled of a Reading. It is called by one goroutine.
	Measure func() (Reading, error)
	Log     *slog.Logger
}

// Monitor watches the memory until it is closed.
type Monitor struct {
	o    Options
	stop chan struct{}
	done sync.WaitGroup
}

// Start measures once, and starts to watch.
func Start(o Options) *Monitor {
	m := &Monitor{o: o, stop: make(chan struct{})}
	var e episode
	next := e.turn(&m.o)
	m.done.Go(func() {
		for {
			select {
			case <-time.After(next):
				next = e.turn(&m.o)
			case <-m.stop:
				return
			}
		}
	})
	return m
}

// Close ends the Monitor. What the cache may allocate is not limited any more.
func (m *Monitor) Close() {
	close(m.stop)
	m.done.Wait()
}

// episode is what a Monitor has done since memory became short.
type episode struct {
	controller Controller
	began      time.Time
	returned   int64
	failed     bool // the last measurement
}

// turn measures, does what the controller decides, and returns when to do so again.
func (e *episode) turn(o *Options) time.Duration {
	r, err := o.Measure()
	if err != nil {
		if !e.failed {
			o.Log.Warn("cannot measure the available memory; the cache gives none back meanwhile",
				"error", err)
		}
		e.failed = true
		return maxPoll
	}
	e.failed = false
	r.Taken, r.Delay = o.Cache.Taken(), o.Cache.Delay()
	r.Leaving = o.Cache.Leaving(r.At.Add(-min(2*r.Delay+time.Second, maxLeaving)))
	a := e.controller.Step(r)
	o.Cache.SetHorizon(a.Horizon)
	o.Cache.Allow(a.Allow)
	if a.Begins {
		e.began, e.returned = r.At, 0
		o.Log.Warn("memory is short: the cache gives some back, and reads more from the source",
			"why", a.Why, "cached", human.Format(r.Taken))
	}
	if a.GiveBack > 0 {
		e.returned += o.Cache.GiveBack(a.GiveBack, a.Why)
	}
	if a.Ends {
		o.Log.Info("memory is no longer short: the cache grows again", "gave_back",
			human.Format(e.returned), "seconds", int(r.At.Sub(e.began).Seconds()))
	}
	return a.Next
}
