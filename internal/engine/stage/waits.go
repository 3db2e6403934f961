package stage

import (
	"cmp"
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
)

// wait is a wait of the process that has not ended.
type wait struct {
	epoch int
	cause string
	since time.Time // zero: the process does not wait
}

// Epochs returns the tallies of the rank's epochs (Ledger.Epochs), in which the wait in progress,
// if there is one, counts as well: until it ends it is charged to what is read for the batch at
// that time, as far as that is known.
func (s *Stager) Epochs() []report.EpochTally {
	now := time.Now()
	s.mu.Lock()
	var w wait
	if s.waiting && (s.outstanding > 0 || s.reserving) { // not at the end
		w = wait{(s.begin + s.emitted) / s.o.Stream.Steps(), causeHandover, s.since}
	}
	reserving := s.reserving
	s.mu.Unlock()
	if w.since.IsZero() {
		return s.o.Ledger.Epochs()
	}
	if reading, ok := s.o.Cache.Waiting(); ok {
		w.cause = s.o.Ledger.tier(reading.From)
	} else if reserving {
		w.cause = cmp.Or(s.o.Ledger.full, causeConsumer)
	}
	return s.o.Ledger.epochsWith(w, now)
}

// epochsWith returns Epochs with a wait that goes on now.
func (l *Ledger) epochsWith(w wait, now time.Time) []report.EpochTally {
	l.mu.Lock()
	a := l.account(w.epoch)
	seconds := now.Sub(w.since).Seconds()
	if a.batches > 0 {
		seconds = now.Sub(a.started).Seconds()
	}
	l.mu.Unlock()
	all := l.Epochs()
	for i := range all {
		if e := &all[i]; e.Epoch == w.epoch {
			e.Stall[w.cause] += now.Sub(w.since).Seconds()
			e.Seconds = seconds
		}
	}
	return all
}
