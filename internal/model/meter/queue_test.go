package meter

import (
	"errors"
	"math"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
)

// steady has so many reads of 1 MB in progress all the time, each of which takes this many seconds
// unless it is one in 20 that finds no queue and takes a hundredth.
func steady(m *Meter, streams int, seconds float64) {
	var reads []Read
	for i := range 2000 {
		at := seconds / float64(streams) * float64(i)
		if len(reads) == streams {
			r := reads[0]
			r.start = after(at - seconds)
			if i%20 == 0 {
				r.start = after(at - seconds/100)
			}
			m.End(after(at), r, nil)
			reads = reads[1:]
		}
		reads = append(reads, m.Begin(after(at), 1e6))
	}
}

// TestDelayByAlwaysAsManyReads: on a tier of 10 MB/s that 10 reads share all the time, one more of
// an MB delays each of them by a tenth of a second, or nearly, although their number never changes.
func TestDelayByAlwaysAsManyReads(t *testing.T) {
	var m Meter
	m.Know(model.Known{Coefficients: model.Coefficients{Latency: 1}})
	steady(&m, 10, 1)
	if got := m.Delay(1e6); got < 0.75 || got > 1 {
		t.Errorf("an MB delays the 10 reads in progress by %v s, want 1", got)
	}
	m = Meter{}
	m.Know(model.Known{
		Coefficients: model.Coefficients{Latency: 1},
		Origin:       model.Given,
	})
	steady(&m, 10, 1)
	if got := m.Delay(1e6); got != 0 {
		t.Errorf("it was given that none delays another one, but: %v s", got)
	}
}

// TestDelayIsBoundedByTheThroughput: of a tier that gives 100 MB/s, an MB takes 10 ms from others,
// however long some reads take for another reason.
func TestDelayIsBoundedByTheThroughput(t *testing.T) {
	var m Meter
	m.Know(model.Known{Coefficients: model.Coefficients{Latency: 0.1}})
	steady(&m, 10, 0.1)
	const end = 20.0
	for i := range 20 {
		r := m.Begin(after(end), 1e6)
		m.End(after(end+float64(i)/10), r, nil)
	}
	if got := m.Delay(1e6); got <= 0.05 || got > 0.11 {
		t.Errorf("an MB delays the 10 reads in progress by %v s, want 0.1", got)
	}
}

// TestReadsThatTakeAsLongAloneDoNotWait: a tier may be slow and have no queue.
func TestReadsThatTakeAsLongAloneDoNotWait(t *testing.T) {
	var q queue
	if got := q.perMB(); got != 0 {
		t.Errorf("before any read: %v", got)
	}
	for range 1000 {
		q.observe(Read{size: 1e6, ahead: 99e6}, 1e9)
		q.observe(Read{size: 1e3, ahead: 99e6}, 1e7) // as fast for its size
		q.observe(Read{size: 0}, 5e9)
		q.observe(Read{size: 1e6}, -1)
	}
	if got := q.perMB(); got != 0 {
		t.Errorf("an MB delays others by %v s, want 0", got)
	}
	for range 10_000 { // a tier that has become slower
		q.observe(Read{size: 1e6, ahead: 99e6}, 2e9)
	}
	if got := q.perMB(); got > 1e-4 {
		t.Errorf("reads that all take 2 s are taken for a queue: %v s per MB", got)
	}
}

// TestTakes: by what the tier gives while it is busy for longer, however many reads share it.
func TestTakes(t *testing.T) {
	var m Meter
	m.Know(model.Known{Coefficients: model.Coefficients{PerMB: 3}})
	if got := m.Takes(2e6); got != 6 {
		t.Errorf("before any read: %v s, want 6 as predicted", got)
	}
	steady(&m, 10, 1)
	if got := m.Takes(2e6); math.Abs(got-0.2) > 0.01 {
		t.Errorf("with 10 MB/s: %v s, want 0.2", got)
	}
	m.End(after(1e4), m.Begin(after(0), 1), errors.New("failed"))
	if got := m.Takes(2e6); math.Abs(got-0.2) > 0.01 {
		t.Errorf("after a read that failed: %v s, want 0.2", got)
	}
}
