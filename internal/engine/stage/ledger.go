package stage

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Causes of stalls besides the tiers of cache.Cache.
const (
	causeConsumer = "consumer" // the staging buffer was full of batches that the process kept
	causeGroup    = "group"    // the same of a group's window, and its members
	causeHandover = "handover" // the batch was ready: what remains is the transfer to the process
	// The last sample of the batch took longer to preprocess than to fetch. The stall is divided
	// among the steps by the time of each for the batch; the cause is this prefix and the step's
	// name.
	causeTransform = "transform "
)

// Stall is how long next() was blocked for a batch.
type Stall struct {
	All    time.Duration
	Python time.Duration // the part in which Python code made the batch: report.Python
}

// Ledger is the stall ledger of one rank. By epoch, it charges all time for which next()
// was blocked to causes, and counts every sample for the tier that it came from. Its methods are
// safe for concurrent use.
type Ledger struct {
	tier  func(cache.Tier) string
	tiers int
	steps []string // names of the preprocessing steps
	full  string   // the cause of waiting for memory in the staging buffer; "": causeConsumer
	note  Note     // nil: nobody

	mu     sync.Mutex // guards the following
	epochs map[int]*epochAccount
	sent   []sentBatch // emitted and not yet yielded, in order
	last   struct {    // the batch yielded last
		epoch, step int
		ok          bool // whether there is one
	}
	goesOn bool // the next Restart continues the epoch (GoOn)
}

type epochAccount struct {
	batches, samples int64
	stall            map[string]time.Duration
	reads            []report.Amount // by Tier
	source, direct   report.Amount
	started          time.Time // first batch yielded
	ended            time.Time // last batch yielded so far

	// Of the rank's latest pass through the epoch only, for the audit:
	delivered int64  // samples
	missing   uint64 // set hash of samples left out, minus that of their stand-ins
}

// delivery is what the ledger needs to know of a batch that is sent.
type delivery struct {
	epoch, step    int
	samples        int64
	missing        uint64          // set hash of samples left out, minus that of their stand-ins
	reads          []report.Amount // by Tier
	planned, ready time.Time       // when the batch was laid out, and when it was complete
	allocWait      time.Duration   // time spent waiting for memory in the staging buffer
	fetched        bool            // some sample had to be fetched; if so:
	last           cache.Tier      // the tier that the last sample was waited for
	slow           bool            // preprocessing it took longer than fetching it; if so:
	spent          []time.Duration
}

// sentBatch is a batch that was emitted and not yet yielded.
type sentBatch struct {
	delivery
	cause string
}

// NewLedger returns an empty ledger for a rank that reads through the cache. steps are the names of
// the preprocessing steps; nil: samples are not preprocessed.
func NewLedger(c *cache.Cache, steps []string) *Ledger {
	return &Ledger{
		tier: c.TierName, tiers: c.Tiers(), steps: steps, epochs: make(map[int]*epochAccount),
	}
}

// Note is given each batch that the training loop has received: for how long next() was blocked for
// it, and what was read for it, by cache.Tier. It is called with the ledger locked, must not block,
// and must not keep reads.
type Note func(epoch, step int, stall time.Duration, reads []report.Amount)

// Notes has batches given to note. It is called before the ledger is used.
func (l *Ledger) Notes(note Note) { l.note = note }

// ForGroup has waiting for memory charged to the group: the staging buffer is a group's window.
func (l *Ledger) ForGroup() { l.full = causeGroup }

// GoOn reports whether the batch yielded last is the one before this one, in the same epoch. If so,
// the rank's next Run, which must begin with this batch, continues the current pass through the
// epoch: what was counted for the epoch's audit is kept.
func (l *Ledger) GoOn(epoch, step int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goesOn = l.last.ok && step > 0 && l.last.epoch == epoch && l.last.step == step-1
	return l.goesOn
}

// Restart forgets batches that were emitted and will not be yielded, and what was counted for the
// audits of this epoch and later ones, unless GoOn reported that the pass continues.
func (l *Ledger) Restart(epoch int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = nil
	first := epoch
	if l.goesOn {
		first, l.goesOn = epoch+1, false
	}
	for e, a := range l.epochs {
		if e >= first {
			a.delivered, a.missing = 0, 0
		}
	}
}

// account returns the epoch's account. l.mu must be held.
func (l *Ledger) account(epoch int) *epochAccount {
	a := l.epochs[epoch]
	if a == nil {
		a = &epochAccount{
			stall: make(map[string]time.Duration),
			reads: make([]report.Amount, l.tiers),
		}
		l.epochs[epoch] = a
	}
	return a
}

// Source counts a read from the source for an epoch.
func (l *Ledger) Source(epoch int, bytes int64) {
	l.sourceReads(epoch, report.Amount{Samples: 1, Bytes: bytes}, report.Amount{})
}

// sourceReads counts reads from the source for an epoch. direct is the part of them for which the
// source was chosen although a class or another node has the sample.
func (l *Ledger) sourceReads(epoch int, read, direct report.Amount) {
	if read.Samples == 0 {
		return
	}
	l.mu.Lock()
	a := l.account(epoch)
	a.source.Add(read)
	a.direct.Add(direct)
	l.mu.Unlock()
}

// noReads returns zero amounts for all tiers.
func (l *Ledger) noReads() []report.Amount { return make([]report.Amount, l.tiers) }

// emitted records a batch that is sent to the process. If the last one has the same place in the
// stream, it was not sent, and is replaced: a job in a group may stage a batch that it then has
// from the group, or stages once more.
func (l *Ledger) emitted(d delivery) { l.send(d, l.full) }

// send is emitted. full is the cause if most of the time was waiting for memory.
func (l *Ledger) send(d delivery, full string) {
	s := sentBatch{delivery: d}
	switch fetching := d.ready.Sub(d.planned); {
	case d.allocWait > fetching:
		s.cause = cmp.Or(full, causeConsumer)
	case d.fetched && d.slow:
		s.cause = causeTransform
	case d.fetched:
		s.cause = l.tier(d.last)
	default:
		s.cause = causeHandover
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.sent); n > 0 && l.sent[n-1].epoch == d.epoch && l.sent[n-1].step == d.step {
		l.sent = l.sent[:n-1]
	}
	l.sent = append(l.sent, s)
}

// Emitted records a batch that is sent to the process, and was staged for this job and others.
func (l *Ledger) Emitted(b *Batch) { l.send(b.made, causeGroup) }

// Yielded records that the training loop has received a batch, charges the time for which next()
// was blocked for it, and counts its samples. Batches emitted before it count as yielded too,
// without a stall: one acknowledgement may stand for several. Batches are counted once, and only if
// emitted since the last Restart; ok reports whether this one was counted.
func (l *Ledger) Yielded(epoch, step int, stall Stall) (ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	last := slices.IndexFunc(l.sent, func(s sentBatch) bool {
		return s.epoch == epoch && s.step == step
	})
	for i := range last + 1 {
		var blocked Stall
		if i == last {
			blocked = stall
		}
		l.charge(&l.sent[i], blocked, now)
	}
	if last >= 0 {
		l.last.epoch = epoch
		l.last.step = step
		l.last.ok = true
	}
	l.sent = l.sent[last+1:]
	return last >= 0
}

// Last returns the batch that was yielded last; ok is false if there is none.
func (l *Ledger) Last() (epoch, step int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.epoch, l.last.step, l.last.ok
}

// charge adds a yielded batch to its epoch's account. l.mu must be held.
func (l *Ledger) charge(s *sentBatch, stall Stall, now time.Time) {
	a := l.account(s.epoch)
	if a.batches == 0 {
		a.started = now.Add(-stall.All)
	}
	if s.ready.Before(now.Add(-stall.All)) {
		s.cause = causeHandover // it was ready when next() began to wait
	}
	a.batches++
	a.samples += s.samples
	if stall.Python > 0 {
		a.stall[report.Python] += stall.Python
	}
	l.blame(a, s, stall.All-stall.Python)
	a.ended = now
	a.delivered += s.samples
	a.missing += s.missing
	for p := range s.reads {
		a.reads[p].Add(s.reads[p])
	}
	if l.note != nil {
		l.note(s.epoch, s.step, stall.All, s.reads)
	}
}

// blame charges the time for which the process waited for a batch to its cause, or to the steps of
// preprocessing. l.mu must be held.
func (l *Ledger) blame(a *epochAccount, s *sentBatch, stall time.Duration) {
	if s.cause != causeTransform {
		a.stall[s.cause] += stall
		return
	}
	var all time.Duration
	for _, t := range s.spent {
		all += t
	}
	for i, t := range s.spent {
		if t > 0 {
			cause := causeTransform + l.steps[i]
			a.stall[cause] += time.Duration(float64(stall) * float64(t) / float64(all))
		}
	}
}

// Epochs returns the tallies of all epochs that were begun, in order.
func (l *Ledger) Epochs() []report.EpochTally {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]report.EpochTally, 0, len(l.epochs))
	for e, a := range l.epochs {
		r := report.EpochTally{Epoch: e, Tally: report.Tally{
			Batches: a.batches, Samples: a.samples, Seconds: a.ended.Sub(a.started).Seconds(),
			Stall: make(map[string]float64), Reads: make(map[string]report.Amount), Source: a.source,
			Direct: a.direct,
		}}
		for cause, d := range a.stall {
			r.Stall[cause] = d.Seconds()
		}
		for p, amount := range a.reads {
			if amount.Samples > 0 {
				name := l.tier(cache.Tier(p))
				sum := r.Reads[name]
				sum.Add(amount)
				r.Reads[name] = sum
			}
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b report.EpochTally) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return out
}

// Times returns when the first batch of an epoch was requested, and when the last one so far was
// yielded; ok is false if there is none.
func (l *Ledger) Times(epoch int) (began, ended time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.epochs[epoch]
	if a == nil || a.batches == 0 {
		return began, ended, false
	}
	return a.started, a.ended, true
}

// Delivered returns how many samples the process received in its latest pass through the epoch, and
// the set hash (a sum of access.Mix) of those that the policy for errors left out, minus that of
// their stand-ins.
func (l *Ledger) Delivered(epoch int) (samples int64, missing uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.epochs[epoch]; a != nil {
		return a.delivered, a.missing
	}
	return 0, 0
}
