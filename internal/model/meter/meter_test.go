package meter

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// TestTierIsBusyWhileAnyReadIsInProgress checks that a tier is busy while any read of it is in
// progress, and that Seconds is the sum over all reads.
func TestTierIsBusyWhileAnyReadIsInProgress(t *testing.T) {
	var m Meter
	first := m.Begin(after(0), 10)
	second := m.Begin(after(2), 10)
	m.End(after(4), first, nil)
	if s := m.Speed(after(4)); s.Busy != 4 || s.Seconds != 4 {
		t.Errorf("with a read in progress: %+v", s)
	}
	m.End(after(5), second, nil)
	if s := m.Speed(after(99)); s.Busy != 5 || s.Seconds != 7 || s.Samples != 2 || s.Bytes != 20 {
		t.Errorf("after two reads: %+v, want 5 s busy and 7 s in all", s)
	}
	if idle := m.Idle(after(7)); idle != 2*time.Second {
		t.Errorf("idle for %v", idle)
	}
}

// TestFailedReadsTellNothing checks that they count as time in which the tier was busy, and for
// nothing else.
func TestFailedReadsTellNothing(t *testing.T) {
	var m Meter
	m.Know(model.Known{Coefficients: model.Coefficients{Latency: 3}})
	m.End(after(50), m.Begin(after(0), 1e6), errors.New("no"))
	if s := m.Speed(after(50)); s.Busy != 50 || s.Samples != 0 {
		t.Errorf("%+v", s)
	}
	if got := m.Arrival(after(50), 1e6); got != 3 {
		t.Errorf("arrival in %v s, want 3", got)
	}
}

// TestArrivalIncludesWhatIsInProgress checks that reads in progress delay another one as much as
// they did when that was measured, and that a tier which stops responding is late before any read
// of it has ended.
func TestArrivalIncludesWhatIsInProgress(t *testing.T) {
	var m Meter
	m.Know(model.Known{
		Coefficients: model.Coefficients{Latency: 1, PerMB: 2, Queued: 0.5},
	})
	if got := m.Arrival(after(0), 1e6); got != 3 {
		t.Errorf("an idle tier delivers in %v s, want 3", got)
	}
	m.Begin(after(0), 4e6)
	if got := m.Arrival(after(0), 1e6); got != 5 {
		t.Errorf("with 4 MB in front in %v s, want 5", got)
	}
	m.Occupy(2e6)
	if got := m.Arrival(after(0), 1e6); got != 6 {
		t.Errorf("while 2 MB are written as well in %v s, want 6", got)
	}
	m.Occupy(-2e6)
	m.Begin(after(20), 4e6)
	if got := m.Arrival(after(60), 1e6); got != 50 {
		t.Errorf("when reads have taken 60 and 40 s, in %v s, want 50", got)
	}
}

// TestWritesThatHaveEndedDelayNothing checks that an idle tier's slow reads are not taken for the
// effect of writes that have ended: sums of MB in floating point leave a rest.
func TestWritesThatHaveEndedDelayNothing(t *testing.T) {
	var m Meter
	m.Know(model.GuessedClass)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		first, second := 10_000+rng.IntN(20_000), 10_000+rng.IntN(20_000)
		m.Occupy(first)
		m.Occupy(second)
		m.Occupy(-first)
		m.Occupy(-second)
	}
	for i := range 20 {
		at := float64(i)
		m.End(after(at+0.01*float64(i%3)), m.Begin(after(at), 20_000), nil)
	}
	m.Occupy(10_000)
	if got := m.Arrival(after(30), 20_000); got > 1 {
		t.Errorf("while 10 kB are written, in %v s, want less than 1", got)
	}
}

// TestGivenCoefficientsStay checks that reads do not change what was given.
func TestGivenCoefficientsStay(t *testing.T) {
	var m Meter
	m.Know(model.Known{
		Coefficients: model.Coefficients{Latency: 1}, Origin: model.Given,
	})
	for i := range 100 {
		m.End(after(float64(i)+0.5), m.Begin(after(float64(i)), 1e6), nil)
	}
	m.Begin(after(100), 1)
	if got := m.Arrival(after(900), 1e6); got != 1 {
		t.Errorf("arrival in %v s, want 1", got)
	}
}

// TestSettledIsNotFasterThanSeen: reads that do not delay each other, as in the page cache, do not
// promise another job a throughput that none of them came near, and few reads promise nothing.
func TestSettledIsNotFasterThanSeen(t *testing.T) {
	const size, streams = 50_000, 4
	for _, took := range []float64{20e-6, 1e-3, 0.05} {
		var m Meter
		now := 0.0
		step := func() { // as many reads at the same time
			var reads [streams]Read
			for i := range reads {
				reads[i] = m.Begin(after(now), size)
			}
			now += took
			for _, r := range reads {
				m.End(after(now), r, nil)
			}
		}
		for range windowReads/streams - 1 {
			step()
		}
		if k, ok := m.Settled(); ok {
			t.Errorf("%v s a read: settled as %+v after less than a window", took, k)
		}
		for range 400 {
			step()
		}
		k, ok := m.Settled()
		seen := streams * size / 1e6 / took
		if most := 1 / k.Queued; !ok || most > 1.01*seen || most < 0.9*seen {
			t.Errorf("%v s a read: %+v, %v: at most %v MB/s, and %v were seen", took, k, ok, most,
				seen)
		}
		if alone := k.Latency + size/1e6*k.PerMB; alone > 1.1*took {
			t.Errorf("%v s a read: alone it takes %v s", took, alone)
		}
	}
}

// TestReadsThatEndTogetherAreNotFast: what was being read when a window began was not read in its
// time.
func TestReadsThatEndTogetherAreNotFast(t *testing.T) {
	var m Meter
	now := 0.0
	for range 40 {
		var reads [100]Read
		for i := range reads {
			reads[i] = m.Begin(after(now), 1e6)
		}
		now++
		for i, r := range reads {
			m.End(after(now+float64(i)*1e-9), r, nil)
		}
	}
	if k, ok := m.Settled(); !ok || 1/k.Queued > 130 {
		t.Errorf("100 MB/s were read; settled at %v MB/s, %v", 1/k.Queued, ok)
	}
}

// TestGivenIsNotSettled: it holds as long as the user gives it.
func TestGivenIsNotSettled(t *testing.T) {
	var m Meter
	m.Know(model.GivenRate(5, 0))
	for i := range 10 * windowReads {
		r := m.Begin(after(float64(i)), 1e6)
		m.End(after(float64(i)+0.5), r, nil)
	}
	if k, ok := m.Settled(); ok {
		t.Errorf("settled as %+v", k)
	}
}

// TestAnswersOfATierThatWaitsForAnother checks that reads which take long are no sign of a slow
// tier as long as others end: they wait for what the tier has to wait for. Without such a limit, a
// node that reads from a slow source for others looks slow itself, and they read that as well.
func TestAnswersOfATierThatWaitsForAnother(t *testing.T) {
	var m Meter
	m.Know(model.Known{Coefficients: model.Coefficients{Latency: 0.5}})
	expect := func(at, want float64) {
		t.Helper()
		if got := m.Answer(after(at), 1, 2); math.Abs(got-want) > 0.01 {
			t.Errorf("after %v s: in %v s, want %v", at, got, want)
		}
	}
	for range 9 {
		m.Begin(after(0), 1)
	}
	expect(8, 6) // none has ended, 2 s less than that
	m.End(after(9.5), m.Begin(after(9), 1), nil)
	expect(10, 0.5)
	m.End(after(11), m.Begin(after(10), 1), errors.New("no"))
	expect(20, 8.5) // silent since 9.5
}
