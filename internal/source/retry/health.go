package retry

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// A disk with a bad sector, or a storage server that lost one stripe, returns an input/output error
// for one file forever, and reads all others. A source that is down returns the same error for all
// files. One read cannot distinguish the two, so each failed attempt to read the sample is followed
// by a small read of another one, a probe. The sample is at fault if it keeps failing while the
// probes succeed, for at least a second, and more often in a row than the source's own
// unreliability explains. If no other sample can be read either, the source is at fault, and the
// count restarts when one can.
const (
	// suspectTime is the least time for which a sample has to fail while others can be read.
	suspectTime = time.Second
	// suspectPause is the longest pause between two attempts to read such a sample: others can be
	// read, so the source is not overloaded, and the batch is waiting.
	suspectPause = 250 * time.Millisecond
	// doubt bounds the probability that a source which fails now and then fails an intact sample
	// that often in a row. In an epoch of a million failed reads no file is blamed wrongly.
	doubt = 1e-9
	// lastDoubt is the same bound once the timeout has passed, when the alternative is to end the
	// job. Few attempts reach it, because a disk may take half a minute to report a bad sector.
	lastDoubt = 1e-4
	// remembered is how many recent attempts the source's unreliability is estimated from.
	remembered = 64
	// probes is the most samples that are probed after each failed attempt.
	probes = 3
)

// suspicion is the evidence of one Read against its sample. Its states: none (inRow is 0) -- an
// attempt failed, and another sample can be read --> suspected, and counting -- no other can be
// read, or the error is of another kind --> none.
type suspicion struct {
	failed int // attempts of this Read that failed in a way that may be the sample's fault
	// inRow is how many of the last attempts failed in a row with another sample readable after
	// each
	inRow int
	since time.Time // when the first of these failed
}

// health tracks how reliably samples can be read. Its methods are safe for concurrent use; it costs
// each read two atomic operations.
type health struct {
	prober source.Prober // nil: the source cannot probe, and every fault is the source's

	succeeded atomic.Uint64 // reads that succeeded at the first attempt
	// recent are samples that were read recently, each plus 1; 0 is an empty entry.
	recent [8]atomic.Int64

	mu           sync.Mutex // guards the following
	good, failed float64    // recent attempts to read intact samples
	counted      uint64     // the part of succeeded that good includes
}

// read records that sample id was read after this many failed attempts, which were the source's
// fault.
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

// count records attempts to read intact samples.
func (h *health) count(good, failed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fold()
	h.good += float64(good)
	h.failed += float64(failed)
}

// fold updates good and discounts old attempts. h.mu must be held.
func (h *health) fold() {
	now := h.succeeded.Load()
	h.good += float64(now - h.counted)
	h.counted = now
	if total := h.good + h.failed; total > remembered {
		h.good *= remembered / total
		h.failed *= remembered / total
	}
}

// enough returns how often in a row a sample must fail before the source no longer explains it.
func (h *health) enough(doubt float64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fold()
	// Half a failure more than were counted: a source that has never failed still may.
	share := (h.failed + 0.5) / (h.good + h.failed + 1)
	return int(math.Ceil(math.Log(doubt) / math.Log(share)))
}

// fails adds a failed attempt to the evidence against sample id, and reports whether other samples
// can be read.
func (h *health) fails(ctx context.Context, s *suspicion, id int, err error) (others bool) {
	if h.prober == nil || !source.OfOneFile(err) {
		s.inRow = 0
		return false
	}
	now := time.Now()
	s.failed++
	if !h.probeOthers(ctx, id, s.failed) {
		s.inRow = 0
		return false
	}
	if s.inRow == 0 {
		s.since = now
	}
	s.inRow++
	return true
}

// atFault reports whether the sample is at fault. last is true once the timeout has passed.
func (h *health) atFault(s *suspicion, last bool) bool {
	switch {
	case s.inRow < 2:
		return false
	case last:
		return s.inRow >= h.enough(lastDoubt)
	}
	return time.Since(s.since) >= suspectTime && s.inRow >= h.enough(doubt)
}

// probeOthers reports whether samples other than id can be read now. It probes some that were read
// recently or, if there are none, neighbours of id, different ones in each round. Probes do not
// count as samples or as bytes read.
func (h *health) probeOthers(ctx context.Context, id, round int) bool {
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
		// otherwise the file has changed, which is no evidence about the source
		if errors.Is(err, source.ErrUnavailable) {
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
