package node

import (
	"testing"
	"time"
)

// TestReportsSayHowEpochsRan checks that the pauses and times of epochs add up to the runtime since
// reads for the job began, what a step takes, and that staging buffers are reported as they are.
func TestReportsSayHowEpochsRan(t *testing.T) {
	var w world
	begun := time.Now()
	n := w.node()
	// One rank: epochs of several, which do not wait for each other, may overlap.
	ranks := []*Rank{open(t, n, message(0, 1, set("memory", "40000B")))}
	together(ranks, func(r *Rank) { consume(t, r, at{0, 0}, end) })
	r := ranks[0].Report()
	elapsed := time.Since(begun).Seconds()
	total := 0.0
	for _, e := range r.Epochs {
		total += e.Pause + e.Seconds
		if e.Step <= 0 || e.Step > e.Seconds || e.Ahead < 1 {
			t.Errorf("epoch %d: a step takes %v of %v s, and %d batches may be staged", e.Epoch,
				e.Step, e.Seconds, e.Ahead)
		}
	}
	if r.Epochs[0].Pause <= 0 || total > elapsed {
		t.Errorf("pauses and epochs take %v of %v s, %v before the first", total, elapsed,
			r.Epochs[0].Pause)
	}
	var size int64
	for _, rank := range r.Ranks {
		size += rank.Staging.Size
	}
	if len(r.Buffers) == 0 || r.Buffers[len(r.Buffers)-1].To != size {
		t.Errorf("the staging buffers have %d bytes, reported are %+v", size, r.Buffers)
	}
	for _, r := range ranks {
		r.Close()
	}
	w.close(t, n)
}
