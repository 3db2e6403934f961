package stage

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// OnError is the policy for a sample that cannot be read (DESIGN 12).
type OnError string

const (
	Raise OnError = "raise" // the stream ends with the error, at the sample's batch
	Skip  OnError = "skip"  // the batch is delivered without the sample
	// Substitute delivers the next readable sample by ID, of those in the epoch, instead.
	Substitute OnError = "substitute"
)

// Faults records a job's unreadable samples, so that a decision holds for all of the job's ranks
// and epochs. A source that does not answer is no reason to leave out samples: that error is
// returned under every policy. Its methods are safe for concurrent use.
type Faults struct {
	policy OnError
	some   atomic.Bool // fast path: true once any fault is recorded

	mu  sync.Mutex // guards bad
	bad map[int]*fault
}

type fault struct {
	stats.Fault
	err error
	// reported is set if a process reported the fault. It would find the same again, so the sample
	// is not tried again under any policy.
	reported bool
}

// NewFaults returns an empty record.
func NewFaults(policy OnError) *Faults {
	return &Faults{policy: policy, bad: make(map[int]*fault)}
}

// Policy returns the policy for samples that cannot be read.
func (f *Faults) Policy() OnError { return f.policy }

// List returns the faults recorded so far, by sample.
func (f *Faults) List() []stats.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]stats.Fault, 0, len(f.bad))
	for _, x := range f.bad {
		out = append(out, x.Fault)
	}
	slices.SortFunc(out, func(a, b stats.Fault) int { return a.Sample - b.Sample })
	return out
}

// Known returns the error of a sample that is not to be tried again, because the policy leaves such
// samples out, or a process has reported it.
func (f *Faults) Known(id int) error {
	if !f.some.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.bad[id]; x != nil && (f.policy != Raise || x.reported) {
		return x.err
	}
	return nil
}

// Report records that a process cannot decode a sample, which from now on counts as unreadable. It
// returns the policy.
func (f *Faults) Report(c *cache.Cache, id int, reason string) OnError {
	err := &dataset.SampleError{
		ID: id, Path: c.Path(id), Kind: dataset.ErrPython, Err: errors.New(reason),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remember(id, err, err).reported = true
	return f.policy
}

// remember returns the fault of a sample, recorded with err if there is none yet. f.mu must be
// held.
func (f *Faults) remember(id int, sample *dataset.SampleError, err error) *fault {
	x := f.bad[id]
	if x == nil {
		x = &fault{
			Fault: stats.Fault{
				Sample: id,
				Path:   sample.Path,
				Reason: sample.Reason(),
				Policy: string(f.policy),
			},
			err: err,
		}
		f.bad[id] = x
		f.some.Store(true)
	}
	return x
}

// Forgive records a sample that failed with err, and returns nil if the policy leaves it out. It
// returns err under policy Raise, and if the error is not the sample's own. requested counts it as
// a request of the stream for the sample.
func (f *Faults) Forgive(id int, err error, requested bool) error {
	var sample *dataset.SampleError
	if !errors.As(err, &sample) || errors.Is(err, dataset.ErrUnavailable) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.remember(id, sample, err); requested {
		x.Count++
	}
	if f.policy == Raise {
		return err
	}
	return nil
}
