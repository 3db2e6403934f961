package node

import (
	"strconv"
	"testing"
	"time"
)

// TestReportsSayHowEpochsRan checks the runtime since reads for the job began, which is that of the
// pauses and epochs if a single rank takes them, what a step takes, and that staging buffers are
// reported as they are.
func TestReportsSayHowEpochsRan(t *testing.T) {
	for _, size := range []int{1, 2} {
		t.Run(strconv.Itoa(size), func(t *testing.T) { testEpochsRan(t, size) })
	}
}

func testEpochsRan(t *testing.T, worldSize int) {
	var w world
	begun := time.Now()
	n := w.node()
	var ranks []*Rank
	for rank := range worldSize {
		ranks = append(ranks, open(t, n, message(rank, worldSize, set("memory", "40000B"))))
	}
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
	// Ranks do not wait for each other, so that they may be in several epochs at a time.
	if r.Epochs[0].Pause <= 0 || r.Ran > elapsed || r.Ran <= 0 || worldSize == 1 && total > elapsed {
		t.Errorf("pauses and epochs take %v, and the run %v of %v s, %v before the first", total,
			r.Ran, elapsed, r.Epochs[0].Pause)
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
