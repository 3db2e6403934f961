package retry

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

// A disk with a bad sector, or a storage server that lost one stripe, gives an input/output error
// for one file for ever, and reads all others. A source that is down gives the same error for all.
// Both look alike from one read, so each failed attempt to read the sample is followed by a small
// read of another one, a probe. The fault is the sample's if it fails time and again while the
// probes succeed, for a second at least, and more often in a row than the source's own
// unreliability explains. If no other sample can be read either it is the source's, and the count
// begins again when one can.
const (
	// suspectTime is how long a sample has to fail, at least, while others can be read.
	suspectTime = time.Second
	// suspectPause is the longest pause between two attempts to read such a sample: others can
	// be read, so the source is not overloaded, and the batch waits for an answer.
	suspectPause = 250 * time.Millisecond
	// doubt is the probability, at most, that a source which fails now and then fails a sample that
	// is well as often in a row. In an epoch of a million faulty reads none is blamed on the file.
	doubt = 1e-9
	// lastDoubt is the same once the time is up, where the alternative is that the job ends. It
	// takes few attempts, because a disk may take half a minute to find a sector bad.
	lastDoubt = 1e-4
	// remembered is how many attempts the unreliability of the source is taken from.
	remembered = 64
	// probes is how many samples are tried, at most, after each failed attempt.
	probes = 3
)

// ownFaults are the errors that a single file can have while the source is well. A connection that
// is lost, a handle that is stale or a device that is gone (ENOTCONN, ESTALE, ENODEV, ETIMEDOUT) is
// always the source's.
var ownFaults = []error{
	syscall.EIO, syscall.EUCLEAN, syscall.EBADMSG, syscall.ENODATA, syscall.EREMOTEIO,
	syscall.EILSEQ,
}

// mayBeOwn reports whether an attempt failed in a way that may be the sample's fault.
func mayBeOwn(err error) bool {
	return slices.ContainsFunc(ownFaults, func(own error) bool { return errors.Is(err, own) })
}

// suspicion is what one Read has against its sample. Its states: none (inRow is 0) -- a failed
// attempt, and another sample can be read --> suspected, and counting -- no other can be read, or
// the error is of another kind --> none.
type suspicion struct {
	failed int // attempts of this Read that failed in a way that may be the sample's fault
	// the last so many attempts failed, and after each another sample could be read
	inRow int
	since time.Time // when the first of these failed
}

// health is what a Source knows of how well samples can be read. Its methods are safe for
// concurrent use; what every read pays for it are two atomic operations.
type health struct {
	prober dataset.Prober // nil: the source has none, and every fault is the source's

	succeeded atomic.Uint64 // reads that succeeded at the first attempt
	// recent are samples that could be read lately, each plus 1; 0: none.
	recent [8]atomic.Int64

	mu           sync.Mutex // guards the following
	good, failed float64    // attempts to read samples that are well, the last ones
	counted      uint64     // succeeded, as far as it is in good
}

// read notes that sample id was read, after so many attempts that failed: these were the source's.
func (h *health) read(id int, failed int) {
	if h.prober == nil {
		return
	}
	n := h.succeeded.Add(1)
	h.recent[n%uint64(len(h.recent))].Store(int64(id) + 1)
	if failed > 0 {
		h.count(0, failed)
	}
}

// count notes attempts to read samples that are well.
func (h *health) count(good, failed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fold()
	h.good += float64(good)
	h.failed += float64(failed)
}

// fold brings good up to date, and lets old attempts fade. h.mu is held.
func (h *health) fold() {
	now := h.succeeded.Load()
	h.good += float64(now - h.counted)
	h.counted = now
	if total := h.good + h.failed; total > remembered {
		h.good *= remembered / total
		h.failed *= remembered / total
	}
}

// enough is how often in a row a sample must fail before it is more than the source explains.
func (h *health) enough(doubt float64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fold()
	// Half a failure more than there were: what never failed so far may all the same.
	share := (h.failed + 0.5) / (h.good + h.failed + 1)
	return int(math.Ceil(math.Log(doubt) / math.Log(share)))
}

// fails adds a failed attempt to what there is against sample id, and reports whether other
// samples can be read.
func (h *health) fails(ctx context.Context, s *suspicion, id int, err error) (others bool) {
	if h.prober == nil || !mayBeOwn(err) {
		s.inRow = 0
		return false
	}
	now := time.Now()
	s.failed++
	if !h.others(ctx, id, s.failed) {
		s.inRow = 0
		return false
	}
	if s.inRow == 0 {
		s.since = now
	}
	s.inRow++
	return true
}

// guilty reports whether the fault is the sample's. last: the time is up.
func (h *health) guilty(s *suspicion, last bool) bool {
	switch {
	case s.inRow < 2:
		return false
	case last:
		return s.inRow >= h.enough(lastDoubt)
	}
	return time.Since(s.since) >= suspectTime && s.inRow >= h.enough(doubt)
}

// others reports whether samples other than id can be read now: some that could be lately, or, if
// there are none, some of those next to id, others each round. A probe is no sample: it is counted
// neither as one nor with the bytes read.
func (h *health) others(ctx context.Context, id, round int) bool {
	left := probes
	for i := 0; i < len(h.recent) && left > 0; i++ {
		slot := &h.recent[(round+i)%len(h.recent)]
		known := slot.Load()
		if known == 0 || int(known-1) == id {
			continue
		}
		err := h.prober.Probe(ctx, int(known-1))
		switch {
		case err == nil:
			h.count(1, 0)
			return true
		case ctx.Err() != nil:
			return false
		}
		slot.CompareAndSwap(known, 0)
		left--
		// else it is another file now, which says nothing of the source
		if errors.Is(err, dataset.ErrUnavailable) {
			h.count(0, 1)
		}
	}
	for ; left > 0; left-- {
		step := round*probes - left
		next := id + 1 + step/2
		if step%2 == 1 {
			next = id - 1 - step/2
		}
		if h.prober.Probe(ctx, next) == nil {
			h.recent[round%len(h.recent)].Store(int64(next) + 1)
			h.count(1, 0)
			return true
		}
	}
	return false
}
