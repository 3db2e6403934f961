package stage

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/report"
)

// made returns a batch of epoch 0 as it is sent: 3 samples of 10 bytes.
func made(step int, planned, ready time.Time, change func(*delivery)) delivery {
	d := delivery{
		step:    step,
		planned: planned,
		ready:   ready,
		samples: 3,
		reads:   []report.Amount{{Samples: 3, Bytes: 30}},
	}
	change(&d)
	return d
}

// TestStallHasOneCause checks that a stall is charged to the one thing that delayed the batch.
func TestStallHasOneCause(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name   string
		change func(*delivery)
		took   time.Duration // from planning to completion
		// late is the time from completion to the process's request; negative: it asked before
		late time.Duration
		want string
	}{
		{"from the source", func(d *delivery) {
			d.fetched, d.last = true, cache.Source
		}, second, -second / 2, "source"},
		{"from a class", func(d *delivery) {
			d.fetched, d.last = true, cache.FirstClass+1
		}, second, -second / 2, "file"},
		{"in place", func(*delivery) {}, 0, -second / 2, causeHandover},
		{"no memory", func(d *delivery) {
			d.allocWait = 2 * second
			d.fetched = true
			d.last = cache.Source
		}, second, -second / 2, causeConsumer},
		{"little memory, slow source", func(d *delivery) {
			d.allocWait = second / 2
			d.fetched = true
			d.last = cache.Source
		}, second, -second / 2, "source"},
		{"ready before the request", func(d *delivery) {
			d.fetched, d.last = true, cache.Source
		}, second, second, causeHandover},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Ledger{
					tier: func(p cache.Tier) string {
						return []string{"source", "peer", "memory", "file"}[p]
					},
					tiers:  4,
					epochs: map[int]*epochAccount{},
				}
				const stall = second / 2
				now := time.Now()
				ready := now.Add(-stall - c.late)
				l.emitted(made(0, ready.Add(-c.took), ready, c.change))
				if !l.Yielded(0, 0, Stall{All: stall}) {
					t.Fatal("the batch is not known")
				}
				e := l.Epochs()[0]
				if len(e.Stall) != 1 || e.Stall[c.want] != stall.Seconds() {
					t.Errorf("stall %v, want all of it for %s", e.Stall, c.want)
				}
				if e.StallSeconds() != stall.Seconds() || e.Batches != 1 || e.Samples != 3 {
					t.Errorf("epoch %+v", e)
				}
			})
		})
	}
}

// TestPythonsShareOfAStallIsItsOwnCause checks that the time in which Python code made the batch is
// a cause of its own, and that the rest is charged as usual, even if the batch was ready before it
// was asked for.
func TestPythonsShareOfAStallIsItsOwnCause(t *testing.T) {
	for _, c := range []struct {
		name string
		late time.Duration
		want map[string]float64
	}{
		{"after the source", -time.Second, map[string]float64{"source": 1, "python": 3}},
		{
			"of a ready batch", time.Second,
			map[string]float64{causeHandover: 1, "python": 3},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Ledger{
					tier:   func(cache.Tier) string { return "source" },
					tiers:  1,
					epochs: map[int]*epochAccount{},
				}
				ready := time.Now().Add(-4*time.Second - c.late)
				l.emitted(made(0, ready.Add(-time.Second), ready, func(d *delivery) {
					d.fetched = true
				}))
				l.Yielded(0, 0, Stall{All: 4 * time.Second, Python: 3 * time.Second})
				if got := l.Epochs()[0].Stall; !maps.Equal(got, c.want) {
					t.Errorf("stall %v, want %v", got, c.want)
				}
			})
		})
	}
}

// TestBatchesCountOnce checks that only batches sent since the last restart count, and once.
func TestBatchesCountOnce(t *testing.T) {
	l := &Ledger{
		tier:   func(cache.Tier) string { return "source" },
		tiers:  1,
		epochs: map[int]*epochAccount{},
	}
	now := time.Now()
	send := func(step int) { l.emitted(made(step, now, now, func(*delivery) {})) }
	send(0)
	send(1)
	if !l.Yielded(0, 0, Stall{}) || l.Yielded(0, 0, Stall{}) {
		t.Error("a batch does not count exactly once")
	}
	l.Restart(0)
	if l.Yielded(0, 1, Stall{}) {
		t.Error("a batch sent before the restart counts")
	}
	if l.Yielded(7, 3, Stall{All: time.Hour}) {
		t.Error("a batch that was never sent counts")
	}
	send(0)
	send(1)
	send(2)
	if !l.Yielded(0, 2, Stall{}) {
		t.Error("the last of three batches does not count")
	}
	e := l.Epochs()[0]
	if e.Batches != 4 || e.Samples != 12 ||
		e.Reads["source"] != (report.Amount{Samples: 12, Bytes: 120}) {
		t.Errorf("epoch %+v, want 4 batches of 3 samples", e)
	}
}

// TestEpochLastsFromRequestToYield checks that an epoch lasts from the request for its first batch
// until its last one was yielded.
func TestEpochLastsFromRequestToYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Ledger{
			tier:   func(cache.Tier) string { return "source" },
			tiers:  1,
			epochs: map[int]*epochAccount{},
		}
		for step, c := range []struct{ stall, computes time.Duration }{
			{3 * time.Second, 0},
			{time.Second, 4 * time.Second},
		} {
			<-time.After(c.computes + c.stall)
			l.emitted(made(step, time.Now(), time.Now(), func(*delivery) {}))
			l.Yielded(0, step, Stall{All: c.stall})
		}
		if e := l.Epochs()[0]; e.Seconds != 8 {
			t.Errorf("the epoch took %v s, want 8", e.Seconds)
		}
	})
}

// TestGoOnContinuesTheEpoch checks that a Run continues the epoch's audit only if it begins with
// the batch after the one yielded last. Otherwise the epoch is counted again. GoOn holds for one
// Run.
func TestGoOnContinuesTheEpoch(t *testing.T) {
	for _, c := range []struct {
		epoch, step int
		goesOn      bool
	}{
		{1, 3, true},
		{1, 4, false},
		{1, 2, false},
		{1, 0, false},
		{0, 3, false},
		{2, 3, false},
		{2, 0, false},
	} {
		l := &Ledger{
			tier:   func(cache.Tier) string { return "source" },
			tiers:  1,
			epochs: map[int]*epochAccount{},
		}
		if l.GoOn(c.epoch, c.step) {
			t.Errorf("%+v: GoOn holds before any batch", c)
		}
		for step := range 3 {
			l.emitted(made(step, time.Now(), time.Now(), func(d *delivery) { d.epoch = 1 }))
			l.Yielded(1, step, Stall{})
		}
		if got := l.GoOn(c.epoch, c.step); got != c.goesOn {
			t.Errorf("%+v: GoOn is %v", c, got)
		}
		for _, kept := range []bool{c.goesOn || c.epoch > 1, c.epoch > 1} {
			l.Restart(c.epoch)
			if n, _ := l.Delivered(1); n != map[bool]int64{true: 9, false: 0}[kept] {
				t.Errorf("%+v: %d samples count as delivered", c, n)
			}
		}
	}
}

// TestStallBelongsToTheAcknowledgedBatch checks that if one acknowledgement stands for several
// batches, the stall is charged to the last of them.
func TestStallBelongsToTheAcknowledgedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Ledger{
			tier:   func(p cache.Tier) string { return []string{"source", "peer"}[p] },
			tiers:  2,
			epochs: map[int]*epochAccount{},
		}
		begun := time.Now()
		<-time.After(time.Second)
		for step, tier := range []cache.Tier{cache.Source, cache.Peer} {
			l.emitted(made(step, begun, time.Now(), func(d *delivery) {
				d.fetched, d.last = true, tier
			}))
		}
		l.Yielded(0, 1, Stall{All: time.Second})
		if stall := l.Epochs()[0].Stall; stall["peer"] != 1 || stall["source"] != 0 {
			t.Errorf("stall %v, want 1 s for the peer", stall)
		}
	})
}

// TestAFullWindowIsTheGroupsCause: neither a member, which was given a batch that others hold up,
// nor the producer of the group keeps any.
func TestAFullWindowIsTheGroupsCause(t *testing.T) {
	ready := time.Now()
	held := made(0, ready.Add(-time.Second), ready, func(d *delivery) { d.allocWait = time.Hour })
	for name, emit := range map[string]func(l *Ledger){
		"member": func(l *Ledger) { l.Emitted(&Batch{made: held}) },
		"producer": func(l *Ledger) {
			l.ForGroup()
			l.emitted(held)
		},
	} {
		l := NewLedger(&cache.Cache{}, nil)
		emit(l)
		l.Yielded(0, 0, Stall{All: time.Second})
		if stall := l.Epochs()[0].Stall; stall[causeGroup] != 1 || len(stall) != 1 {
			t.Errorf("%s: stall %v, want 1 s for the group", name, stall)
		}
	}
}

// TestABatchThatWasNotSentIsCountedOnce: a job in a group stages a batch, is to have it from the
// group instead, and stages it again after all.
func TestABatchThatWasNotSentIsCountedOnce(t *testing.T) {
	for name, emit := range map[string]func(l *Ledger, d delivery){
		"staged again":   func(l *Ledger, d delivery) { l.emitted(d) },
		"from the group": func(l *Ledger, d delivery) { l.Emitted(&Batch{Step: d.step, made: d}) },
	} {
		l := &Ledger{
			tier: func(cache.Tier) string { return "source" }, tiers: 1,
			epochs: map[int]*epochAccount{},
		}
		now := time.Now()
		same := func(*delivery) {}
		l.emitted(made(0, now, now, same))
		l.emitted(made(1, now, now, same))
		emit(l, made(1, now, now, same))
		l.Yielded(0, 0, Stall{})
		l.Yielded(0, 1, Stall{})
		l.emitted(made(2, now, now, same))
		l.Yielded(0, 2, Stall{})
		if e := l.Epochs()[0]; e.Batches != 3 || e.Samples != 9 {
			t.Errorf("%s: %d batches with %d samples, want 3 with 9", name, e.Batches, e.Samples)
		}
	}
}
