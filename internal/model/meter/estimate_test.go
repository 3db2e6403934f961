package meter

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
)

// TestPeak checks that the peak is the highest throughput of many reads, whatever follows.
func TestPeak(t *testing.T) {
	var m Meter
	now := 0.0
	read := func(rounds int, took float64) { // 2 reads at a time
		for range rounds {
			first, second := m.Begin(after(now), 1e6), m.Begin(after(now), 1e6)
			now += took
			m.End(after(now), first, nil)
			m.End(after(now), second, nil)
		}
	}
	peak := func(what string, want float64) {
		t.Helper()
		if got := m.Speed(after(now)).Peak; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v MB/s, want %v", what, got, want)
		}
	}
	read(windowReads/2-1, 0.1)
	peak("after too few reads", 0)
	read(1, 0.1)
	peak("after 2 MB each 0.1 s", 20)
	read(windowReads/2, 0.2)
	peak("after slower reads", 20)
	read(windowReads/2, 0.05)
	peak("after faster ones", 40)
}

// TestEstimatesFollowReads checks that reads replace guesses, that what a read had in front of it,
// reads and writes, is not counted as its own, and neither is what it waited for elsewhere.
func TestEstimatesFollowReads(t *testing.T) {
	var m Meter
	m.Know(model.GuessedClass)
	for i := range 400 {
		now, front := after(10*float64(i)), i%4
		m.Occupy(front * 1e6)
		r := m.Begin(now, 1e6)
		r.Waited = 5 * time.Second
		m.End(now.Add(time.Duration(5100+20*front)*time.Millisecond), r, nil)
		m.Occupy(-front * 1e6)
	}
	k := m.Known()
	if k.Origin != model.Measured {
		t.Errorf("the estimate is %v", k.Origin)
	}
	if q := k.Coefficients.Queued; math.Abs(q-0.02) > 0.002 {
		t.Errorf("a MB in front delays a read by %v s, want about 0.02", q)
	}
	if got := m.Arrival(after(4000), 1e6); math.Abs(got-0.1) > 0.01 {
		t.Errorf("an idle tier delivers in %v s, want about 0.1", got)
	}
}

// TestOldReadsAreForgotten checks that reads of an hour ago do not count.
func TestOldReadsAreForgotten(t *testing.T) {
	var m Meter
	for i := range 5 {
		m.End(after(float64(i)+1), m.Begin(after(float64(i)), 1e6), nil)
	}
	m.End(after(3602), m.Begin(after(3600), 1e6), nil)
	if got := m.Arrival(after(3602), 1e6); math.Abs(got-2) > 0.01 {
		t.Errorf("after a read of 2 s an hour after others of 1 s: in %v s, want 2", got)
	}
}

// TestReadsThatEndedAreNotInProgress checks that neither their bytes nor their ages count any more.
func TestReadsThatEndedAreNotInProgress(t *testing.T) {
	var m Meter
	m.Know(model.Known{Coefficients: model.Coefficients{Latency: 1, Queued: 0.5}})
	early := m.Begin(after(0), 2e6)
	m.Begin(after(6), 4e6)
	m.GiveUp(after(8), early)
	m.Know(model.Known{Coefficients: model.Coefficients{Latency: 1, Queued: 0.5}})
	if got := m.Arrival(after(8), 0); got != 3 {
		t.Errorf("with 4 MB in front: in %v s, want 3", got)
	}
	if got := m.Arrival(after(26), 0); got != 20 {
		t.Errorf("when the read in progress has taken 20 s: in %v s, want 20", got)
	}
	late := m.Begin(after(26), 0)
	m.End(after(26), late, errGivenUp)
	if got := m.Arrival(after(36), 0); got != 30 {
		t.Errorf("when it has taken 30 s, after another one ended: in %v s, want 30", got)
	}
	if idle := m.Idle(after(26)); idle != 0 {
		t.Errorf("idle for %v while a read is in progress", idle)
	}
}

// TestIdleIsCountedFromSuccess checks that a tier is idle from its last read, and not while it is
// read.
func TestIdleIsCountedFromSuccess(t *testing.T) {
	var m Meter
	m.End(after(1), m.Begin(after(0), 1), nil)
	if idle := m.Idle(after(4)); idle != 3*time.Second {
		t.Errorf("idle for %v, want 3 s", idle)
	}
	m.Begin(after(4), 1)
	if idle := m.Idle(after(9)); idle != 0 {
		t.Errorf("idle for %v while a read is in progress", idle)
	}
}

// TestConcurrentUse has the race detector check that each method takes the lock.
func TestConcurrentUse(t *testing.T) {
	var m Meter
	r := m.Begin(after(0), 1e6)
	for name, call := range map[string]func(){
		"Begin":   func() { m.Begin(after(0), 1e6) },
		"End":     func() { m.End(after(1), r, nil) },
		"GiveUp":  func() { m.GiveUp(after(1), r) },
		"Occupy":  func() { m.Occupy(1) },
		"Arrival": func() { m.Arrival(after(1), 1) },
		"Answer":  func() { m.Answer(after(1), 1, 0) },
		"Know":    func() { m.Know(model.GuessedClass) },
		"Known":   func() { m.Known() },
		"Idle":    func() { m.Idle(after(1)) },
		"Speed":   func() { m.Speed(after(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				var both sync.WaitGroup // nothing else orders the two
				both.Go(call)
				both.Go(func() { m.End(after(1), m.Begin(after(0), 1e6), nil) })
				both.Wait()
			}
		})
	}
}
