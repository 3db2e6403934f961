package meter

import (
	"math"
	"testing"
	"time"
)

// TestPaceLeavesWaitingOut checks that the time for which the process waits does not count as work
// on batches, and that what is due is counted from the batch that it works on.
func TestPaceLeavesWaitingOut(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time {
		return start.Add(time.Duration(seconds * float64(time.Second)))
	}
	var p Pace
	p.Block(at(0))
	p.Resume(at(10))
	p.Took(at(10), 1, 0)
	for i := range 10 { // 2 s of work, 3 s of waiting
		begun := 10 + 5*float64(i)
		p.Block(at(begun + 2))
		p.Resume(at(begun + 5))
		p.Took(at(begun+5), 1, 0)
	}
	now := 60.0
	for _, c := range []struct {
		after float64 // the last batch was taken
		ahead int
		want  float64
	}{
		{0, 0, 2},
		{0, 3, 8},
		{1, 3, 7},
		{100, 3, 0},
	} {
		if due := p.Due(at(now+c.after), c.ahead); due != c.want {
			t.Errorf("%v s after a batch, with %d in front: due in %v s, want %v", c.after, c.ahead,
				due, c.want)
		}
	}
	p.Block(at(now + 2))
	if due := p.Due(at(now+50), 0); due != 0 {
		t.Errorf("the process waits for it: due in %v s, want at once", due)
	}
	if due := p.Due(at(now+50), 2); due != 4 {
		t.Errorf("while the process waits, with 2 in front: due in %v s, want 4", due)
	}
}

// TestPaceOfAProcessThatHasJustBegun: the first batch is needed at once, and others as late as what
// is known of the process allows.
func TestPaceOfAProcessThatHasJustBegun(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time {
		return start.Add(time.Duration(seconds * float64(time.Second)))
	}
	var p Pace
	check := func(now float64, ahead int, want float64) {
		t.Helper()
		if due := p.Due(at(now), ahead); due != want {
			t.Errorf("after %v s, with %d in front: due in %v s, want %v", now, ahead, due, want)
		}
	}
	check(0, 0, 0)
	check(0, 2, 2)
	p.Block(at(0))
	check(3, 0, 0)
	check(3, 1, 1)
	p.Resume(at(4))
	p.Took(at(4), 1, 0)
	check(4, 0, 1)
	check(4, 3, 4)
	check(6, 0, 0) // worked for 2 s
	check(6, 3, 6)
	p.Block(at(6))
	check(60, 0, 0)
	check(60, 3, 6)
	p.Resume(at(60))
	p.Took(at(60), 1, 0)
	check(60, 0, 2)
}

// TestPaceCountsBatchesTakenTogether checks that one acknowledgement may stand for several batches.
func TestPaceCountsBatchesTakenTogether(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	p.Took(start, 1, 0)
	p.Took(start.Add(8*time.Second), 4, 0)
	if due := p.Due(start.Add(8*time.Second), 1); due != 4 {
		t.Errorf("due in %v s, want 4", due)
	}
}

// TestPaceWithoutALongFirstBatch checks that the batches that took longest do not count, and that
// what was waited for before a batch was taken is not left out twice.
func TestPaceWithoutALongFirstBatch(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time {
		return start.Add(time.Duration(seconds * float64(time.Second)))
	}
	var p Pace
	p.Took(at(0), 1, 0)
	p.Took(at(60), 1, 0)
	if p.perBatch != 60 {
		t.Errorf("after a batch of 60 s: %v s", p.perBatch)
	}
	p.Took(at(68), 1, 0)
	if p.perBatch != 8 {
		t.Errorf("after batches of 60 and 8 s: %v s, want 8", p.perBatch)
	}
	p.Block(at(69))
	p.Took(at(75), 1, 0) // another batch, which was there: 1 s of work
	if p.perBatch != 4.5 {
		t.Errorf("after a batch of 1 s: %v s, want 4.5", p.perBatch)
	}
	p.Resume(at(77))
	p.Took(at(85), 1, 0) // 2 s of waiting, 8 of work
	if want := 17.0 / 3; p.perBatch != want {
		t.Errorf("after another of 8 s: %v s, want %v", p.perBatch, want)
	}
	if due := p.Due(at(85), -1); due != 0 {
		t.Errorf("a batch that was taken is due in %v s", due)
	}
}

// TestPaceOfRanksThatWaitForEachOther has a rank that is the last one in every fourth step, and
// waits for others in the rest, which looks like work.
func TestPaceOfRanksThatWaitForEachOther(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	if _, ok := p.Least(1); ok {
		t.Error("a pace is known before a batch was taken")
	}
	p.Took(now, 1, 0)
	for i := range 400 {
		worked := 5 * time.Second
		if i%4 == 0 {
			worked = time.Second
		}
		now = now.Add(worked)
		p.Took(now, 1, 0)
	}
	for share, want := range map[float64]float64{0: 1, 0.01: 1, 0.25: 1, 1: 4} {
		if got, ok := p.Least(share); !ok || got != want {
			t.Errorf("the mean of %v of the times is %v s, want %v", share, got, want)
		}
	}
}

// TestPaceLeavesPausesOut: a process that evaluates its model between epochs does not work longer
// on batches.
func TestPaceLeavesPausesOut(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	p.Took(now, 1, 0)
	for i := range 20 {
		now = now.Add(2 * time.Second)
		if i == 10 {
			now = now.Add(time.Minute)
		}
		p.Took(now, 1, 0)
	}
	if p.perBatch != 2 {
		t.Errorf("%v s per batch, want 2", p.perBatch)
	}
}

// TestPaceOfBatchesThatAreReportedTogether has 14 batches of 1 s reported together, and each 15th
// alone, right after them: what counts is the mean over batches, not over reports.
func TestPaceOfBatchesThatAreReportedTogether(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	p.Took(now, 1, 0)
	for range 10 {
		now = now.Add(14 * time.Second)
		p.Took(now, 14, 0)
		now = now.Add(time.Second / 4)
		p.Took(now, 1, 0)
	}
	for share, want := range map[float64]float64{1: 14.25 / 15, 0.5: (10*0.25 + 65) / 75} {
		if got, _ := p.Least(share); math.Abs(got-want) > 1e-9 {
			t.Errorf("the mean of %v of the times is %v s, want %v", share, got, want)
		}
	}
}

// TestPaceOfAProcessWhileThisOneWasStopped: for 30 s, in which the process took the 4 batches that
// it had, with one report each, and waited; the reports are read together when that is over.
func TestPaceOfAProcessWhileThisOneWasStopped(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	steps := func(n int) {
		for range n {
			now = now.Add(100 * time.Millisecond)
			p.Took(now, 1, 0)
		}
	}
	p.Took(now, 1, 0)
	steps(20)
	now = now.Add(30 * time.Second)
	for range 4 {
		p.Took(now, 1, 0)
		now = now.Add(20 * time.Microsecond)
	}
	if p.perBatch > 0.8 {
		t.Errorf("%v s per batch, more than 8 times the real time", p.perBatch)
	}
	steps(20)
	if got, _ := p.Least(0.9); math.Abs(got-0.1) > 0.01 {
		t.Errorf("the mean of the least times is %v s, want 0.1", got)
	}
	if math.Abs(p.perBatch-0.1) > 0.01 {
		t.Errorf("%v s per batch after 20 of them, want 0.1", p.perBatch)
	}
}

// TestPaceOfAProcessThatTakesPairs: the mean of long and short times is found, or less.
func TestPaceOfAProcessThatTakesPairs(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	p.Took(now, 1, 0)
	for i := range 60 {
		took := 5 * time.Millisecond
		if i%2 > 0 {
			took = time.Second
		}
		now = now.Add(took)
		p.Took(now, 1, 0)
	}
	if p.perBatch < 0.37 || p.perBatch > 0.5 {
		t.Errorf("%v s per batch, want about 0.5", p.perBatch)
	}
}

// TestWaitingForOtherRanksIsNoWork: of ranks that wait for each other in each step, each seems to
// work until the last one has come. What is due is counted by the steps in which it was that one.
func TestWaitingForOtherRanksIsNoWork(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time {
		return start.Add(time.Duration(seconds * float64(time.Second)))
	}
	for ranks, want := range map[int]float64{0: 3.5, 1: 3.5, 4: 1, 1000: 1} {
		p, now := Pace{Ranks: ranks}, 0.0
		p.Took(at(now), 1, 0)
		for step := range 400 {
			worked := 1.0
			if step%4 != 3 {
				worked = 5 // of which 4 for another rank
			}
			now += worked
			p.Took(at(now), 1, 0)
		}
		if due := p.Due(at(now), 9) / 10; math.Abs(due/want-1) > 0.2 {
			t.Errorf("%d ranks: a batch is due after %v s each, want about %v", ranks, due, want)
		}
	}
	p := Pace{Ranks: 4}
	p.Took(at(0), 1, 0)
	if due := p.Due(at(0.5), 0); due != 0.5 {
		t.Errorf("in the first step, a batch is due in %v s", due)
	}
}

func TestLastShare(t *testing.T) {
	for ranks, want := range map[int]float64{
		0: aloneShare, 1: aloneShare, 2: 0.25, 4: 0.125, 64: 1.0 / 32,
	} {
		if got := LastShare(ranks); got != want {
			t.Errorf("%d ranks: %v, want %v", ranks, got, want)
		}
	}
}

// TestPaceWithoutWakingUp has a process that works for 10 ms, and on busy processors runs again
// only 8 ms after it was sent the batch that it was blocked for: it says so, and the time per batch
// is what it would be if batches were there.
func TestPaceWithoutWakingUp(t *testing.T) {
	const (
		work  = 10 * time.Millisecond
		wait  = 40 * time.Millisecond
		wakes = 8 * time.Millisecond
	)
	for _, said := range []bool{false, true} {
		var p Pace
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		p.Took(now, 1, 0)
		for range 20 {
			p.Block(now.Add(work))
			p.Resume(now.Add(work + wait))
			now = now.Add(work + wait + wakes)
			want := work + wakes
			stall := time.Duration(0)
			if said {
				stall, want = wait+wakes, work
			}
			p.Took(now, 1, stall)
			if got, _ := p.Least(1); math.Abs(got-want.Seconds()) > 1e-9 {
				t.Fatalf("said %v: %v s per batch, want %v", said, got, want)
			}
		}
	}
}

// TestPaceWork: of an epoch's steps, those that took long count, and pauses do not, of which there
// are an eighth at most.
func TestPaceWork(t *testing.T) {
	for name, c := range map[string]struct {
		ranks int
		steps []float64 // seconds
		want  float64
	}{
		"nothing":                {0, nil, 0},
		"one":                    {1, []float64{3}, 3},
		"one after a pause":      {0, []float64{60, 3}, 3},
		"some long ones":         {1, []float64{1, 1, 1, 3, 1, 1, 1, 3}, 1.5},
		"one pause":              {1, []float64{1, 1, 1, 3, 1, 1, 1, 30}, 9.0 / 7},
		"pauses are not a third": {1, []float64{1, 1, 10, 1, 1, 10, 1, 1, 10}, 16.0 / 7},
		"ranks that wait":        {2, []float64{1, 3, 5, 3}, 1},
	} {
		p := Pace{Ranks: c.ranks}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		p.Took(now, 1, 0)
		for _, s := range c.steps {
			now = now.Add(time.Duration(s * float64(time.Second)))
			p.Took(now, 1, 0)
		}
		if got, ok := p.Work(); math.Abs(got-c.want) > 1e-9 || ok != (len(c.steps) > 0) {
			t.Errorf("%s: %v %v, want %v", name, got, ok, c.want)
		}
	}
}
