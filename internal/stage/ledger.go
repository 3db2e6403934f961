package stage

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Causes of stall besides the places of cache.Cache.
const (
	causeConsumer = "consumer" // the staging buffer was full of batches that the process kept
	causeHandover = "handover" // the batch was ready: what is left is the way to the process
	// The last sample of the batch took longer to preprocess than to fetch. The stall is divided
	// among the steps, by what each took for the batch; a step's cause is this and its name.
	causeTransform = "transform "
)

// Stall is how long next() was blocked for a batch.
type Stall struct {
	All    time.Duration
	Python time.Duration // the part of it in which Python's own code made the batch: stats.Python
}

// Ledger is one rank's stall ledger (DESIGN 7): every blocked nanosecond of
// next() is charged to one cause, every sample to the place that it came from, by
// epoch. Its methods are safe for concurrent use.
type Ledger struct {
	place  func(cache.Place) string
	places int
	steps  []string // of preprocessing

	mu     sync.Mutex
	epochs map[int]*epochAccount
	sent   []sentBatch // emitted and not yet yielded, in order
	last   struct {    // the one yielded last
		epoch, step int
		ok          bool // there is one
	}
	goesOn bool // the next restart is GoOn's
}

type epochAccount struct {
	batches, samples int64
	stall            map[string]time.Duration
	reads            []stats.Amount // by Place
	source           stats.Amount
	started          time.Time // first batch yielded
	ended            time.Time // last batch yielded so far

	// Of the rank's last way through the epoch alone, for the audit.
	delivered int64  // samples
	missing   uint64 // set hash of samples left out, less that of their stand-ins
}

// delivery is what the ledger has to know of a batch that goes to the process.
type delivery struct {
	epoch, step    int
	samples        int64
	missing        uint64         // set hash of samples left out, less that of their stand-ins
	reads          []stats.Amount // by Place
	planned, ready time.Time      // when the batch was laid out, and when it was complete
	roomWait       time.Duration  // it waited so long for room in the staging buffer
	fetched        bool           // something had to be fetched; if so:
	last           cache.Place    // where the last sample was found
	slow           bool           // for it, preprocessing took longer than fetching; if so:
	spent          []time.Duration
}

// sentBatch is a batch whose stall has not arrived yet.
type sentBatch struct {
	delivery
	cause string
}

// NewLedger returns an empty ledger for a rank that reads through the cache, and whose samples are
// preprocessed in these steps; nil: they are not.
func NewLedger(c *cache.Cache, steps []string) *Ledger {
	return &Ledger{
		place:  c.PlaceName,
		places: c.Places(),
		steps:  steps,
		epochs: make(map[int]*epochAccount),
	}
}

// GoOn reports whether the batch yielded last is the one before this, in the same epoch. If so, the
// rank's next Run, which must begin with this batch, goes on with the way through the epoch that it
// is on: what the epoch's audit has counted stays.
func (l *Ledger) GoOn(epoch, step int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goesOn = l.last.ok && step > 0 && l.last.epoch == epoch && l.last.step == step-1
	return l.goesOn
}

// restart forgets what was emitted and will not be yielded, and what the audit of
// the epoch and those after it counted, as the rank begins anew there; see GoOn.
func (l *Ledger) restart(epoch int) {
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

// account returns the epoch's account. l.mu is held.
func (l *Ledger) account(epoch int) *epochAccount {
	a := l.epochs[epoch]
	if a == nil {
		a = &epochAccount{
			stall: make(map[string]time.Duration),
			reads: make([]stats.Amount, l.places),
		}
		l.epochs[epoch] = a
	}
	return a
}

// Source charges a read from the source to an epoch.
func (l *Ledger) Source(epoch int, bytes int64) {
	l.sourceReads(epoch, stats.Amount{Samples: 1, Bytes: bytes})
}

func (l *Ledger) sourceReads(epoch int, read stats.Amount) {
	if read.Samples == 0 {
		return
	}
	l.mu.Lock()
	l.account(epoch).source.Add(read)
	l.mu.Unlock()
}

// noReads has an entry for each place.
func (l *Ledger) noReads() []stats.Amount { return make([]stats.Amount, l.places) }

// emitted notes a batch that goes to the process.
func (l *Ledger) emitted(d delivery) {
	s := sentBatch{delivery: d}
	switch fetching := d.ready.Sub(d.planned); {
	case d.roomWait > fetching:
		s.cause = causeConsumer
	case d.fetched && d.slow:
		s.cause = causeTransform
	case d.fetched:
		s.cause = l.place(d.last)
	default:
		s.cause = causeHandover
	}
	l.mu.Lock()
	l.sent = append(l.sent, s)
	l.mu.Unlock()
}

// Yielded charges a batch that the training loop was given:
// where its samples came from, and how long next() was blocked for it. The batches
// emitted before it were yielded too, without stall: one acknowledgement may speak for
// several. Only batches that were emitted since the last restart, each once, are
// counted; ok reports whether this one was.
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
		l.last.epoch, l.last.step, l.last.ok = epoch, step, true
	}
	l.sent = l.sent[last+1:]
	return last >= 0
}

// Last returns the batch that was yielded last; ok: there was one.
func (l *Ledger) Last() (epoch, step int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.epoch, l.last.step, l.last.ok
}

// charge adds a yielded batch to its epoch's account. l.mu is held.
func (l *Ledger) charge(s *sentBatch, stall Stall, now time.Time) {
	a := l.account(s.epoch)
	if a.batches == 0 {
		a.started = now.Add(-stall.All)
	}
	if s.ready.Before(now.Add(-stall.All)) {
		s.cause = causeHandover // it lay there when next() began to wait
	}
	a.batches++
	a.samples += s.samples
	if stall.Python > 0 {
		a.stall[stats.Python] += stall.Python
	}
	l.blame(a, s, stall.All-stall.Python)
	a.ended = now
	a.delivered += s.samples
	a.missing += s.missing
	for p := range s.reads {
		a.reads[p].Add(s.reads[p])
	}
}

// blame charges what the process waited for a batch to its cause, or to the steps of preprocessing.
// l.mu is held.
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
			a.stall[causeTransform+
				l.steps[i]] += time.Duration(float64(stall) * float64(t) / float64(all))
		}
	}
}

// Epochs reports every epoch that was begun, in order.
func (l *Ledger) Epochs() []stats.EpochTally {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]stats.EpochTally, 0, len(l.epochs))
	for e, a := range l.epochs {
		r := stats.EpochTally{Epoch: e, Tally: stats.Tally{
			Batches: a.batches, Samples: a.samples, Seconds: a.ended.Sub(a.started).Seconds(),
			Stall: make(map[string]float64), Reads: make(map[string]stats.Amount), Source: a.source,
		}}
		for cause, d := range a.stall {
			r.Stall[cause] = d.Seconds()
		}
		for p, amount := range a.reads {
			if amount.Samples > 0 {
				name := l.place(cache.Place(p))
				sum := r.Reads[name]
				sum.Add(amount)
				r.Reads[name] = sum
			}
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b stats.EpochTally) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return out
}

// Delivered returns how many samples the process was given on its last way through the epoch, and
// the set hash (a sum of access.Mix) of those that the policy for errors left out, less that of
// those that stood in.
func (l *Ledger) Delivered(epoch int) (samples int64, missing uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.epochs[epoch]; a != nil {
		return a.delivered, a.missing
	}
	return 0, 0
}
