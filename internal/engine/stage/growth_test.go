package stage

import (
	"testing"
	"time"
)

// TestGrowth follows a buffer of batches whose turnovers are given by how long the process waits in
// each: when it grows, while processors are busy and while they are not.
func TestGrowth(t *testing.T) {
	type turnover struct {
		batches int
		waits   time.Duration
		grows   bool
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		busy bool
		is   []turnover
	}{
		{"not busy: once per turnover, whatever it gains", false, []turnover{
			{4, 400 * ms, true}, {6, 600 * ms, true}, {9, 1800 * ms, true}, {13, 13 * ms, true},
		}},
		{"a gain each time", true, []turnover{
			{4, 400 * ms, true}, {6, 400 * ms, true}, {9, 400 * ms, true},
		}},
		{"a gain that the third turnover shows", true, []turnover{
			{4, 400 * ms, true},
			{6, 1000 * ms, false},
			{6, 600 * ms, false},
			{6, 400 * ms, true},
			{9, 400 * ms, true},
		}},
		{"in vain: after pauses of 2 and 4 s", true, []turnover{
			{4, 400 * ms, true},
			{6, 600 * ms, false},
			{6, 600 * ms, false},
			{6, 550 * ms, false},
			{6, 1500 * ms, false},
			{6, 500 * ms, true},
			{9, 900 * ms, false},
			{9, 900 * ms, false},
			{9, 900 * ms, false},
			{9, 3900 * ms, false},
			{9, 100 * ms, true},
		}},
		{"a gain ends the pauses", true, []turnover{
			{4, 400 * ms, true},
			{6, 600 * ms, false},
			{6, 600 * ms, false},
			{6, 600 * ms, false},
			{6, 2000 * ms, true},
			{9, 300 * ms, true},
			{13, 1300 * ms, false},
			{13, 1300 * ms, false},
			{13, 1300 * ms, false},
			{13, 2000 * ms, true},
		}},
		{"the process did not wait: what it waits for now is no slower", true, []turnover{
			{4, 400 * ms, true}, {6, 0, true},
		}},
	} {
		var g growth
		var waited time.Duration
		now, taken := time.Now(), 0
		if g.due(now, c.busy) {
			t.Errorf("%s: before a turnover", c.name)
		}
		for n, is := range c.is {
			g.full(waited, taken, taken+is.batches)
			g.full(waited+is.waits, taken+1, taken+2*is.batches) // the same turnover
			g.took(now, waited+is.waits, taken+is.batches-1)
			now = now.Add(is.waits)
			waited += is.waits
			taken += is.batches
			g.took(now, waited, taken)
			if got := g.due(now, c.busy); got != is.grows {
				t.Errorf("%s, turnover %d: due is %v", c.name, n, got)
			}
			if is.grows {
				if g.grew(); g.due(now, c.busy) {
					t.Errorf("%s, turnover %d: twice", c.name, n)
				}
			}
		}
	}
}

// TestGrowthOfAnotherRun checks that batches of another Run count anew, and that a pause goes on.
func TestGrowthOfAnotherRun(t *testing.T) {
	var g growth
	now := time.Now()
	for range 1 + gainTries {
		g.full(0, 0, 8)
		g.took(now, time.Second, 8)
		if g.rests.IsZero() && g.before == 0 {
			g.grew()
		}
	}
	turned := g.turned
	g.full(0, 8, 16)
	g.restart()
	if g.took(now, time.Second, 16); g.turned != turned {
		t.Error("a turnover of the Run before ended in the next one")
	}
	g.full(0, 0, 2)
	if g.took(now, time.Second, 2); !g.due(now, false) || g.due(now, true) {
		t.Errorf("%+v: due", g)
	}
	if !g.due(now.Add(growthInterval), true) {
		t.Error("not after the pause")
	}
}

// TestJudgementOutlastsARun checks that a growth is judged by turnovers of later Runs as well.
func TestJudgementOutlastsARun(t *testing.T) {
	var g growth
	now := time.Now()
	g.full(0, 0, 8)
	g.took(now, time.Second, 8)
	g.grew()
	for range gainTries {
		if g.due(now, true) {
			t.Fatal("due before the growth was judged")
		}
		g.restart()
		g.full(0, 0, 8)
		g.took(now, time.Second, 8)
	}
	if g.due(now, true) || !g.due(now.Add(growthInterval), true) {
		t.Errorf("%+v: no pause after a growth in vain", g)
	}
}
