package cache

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// OnError says what happens to a sample that cannot be read (DESIGN 12).
type OnError string

const (
	Raise OnError = "raise" // the stream ends with the error, in order
	Skip  OnError = "skip"  // the batch is delivered without the sample
	// the next sample by ID that can be read stands in, of those that the epoch is made of
	Substitute OnError = "substitute"
)

// Faults remembers a job's unreadable samples, so that a decision that was taken
// once holds for all of the job's ranks and epochs. A source that does not answer
// is no reason to leave samples out: that is raised under every policy. Its
// methods are safe for concurrent use.
type Faults struct {
	policy OnError
	some   atomic.Bool // fast path: true once any fault is recorded

	mu  sync.Mutex
	bad map[int]*fault
}

type fault struct {
	stats.Fault
	err error
	// by a process, which would find the same again: it is not tried again under any policy
	reported bool
}

// NewFaults returns an empty list under the policy.
func NewFaults(policy OnError) *Faults {
	return &Faults{policy: policy, bad: make(map[int]*fault)}
}

// Policy is what happens to a sample that cannot be read.
func (f *Faults) Policy() OnError { return f.policy }

// List returns the faults so far, by sample.
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

// Known returns the error that a sample failed with before, if it is not to be tried again: the
// policy leaves such samples out, or a process has reported it.
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

// Report notes that a process cannot decode a sample, for a reason that it says: from now on it is
// one that cannot be read. It returns the policy.
func (f *Faults) Report(c *Cache, id int, reason string) OnError {
	err := &dataset.SampleError{
		ID:   id,
		Path: c.path(id),
		Kind: dataset.ErrPython,
		Err:  errors.New(reason),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remember(id, err, err).reported = true
	return f.policy
}

// remember returns what is known of a sample that failed with err. f.mu is held.
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

// Forgive decides about a sample that failed with err. An error that is not the sample's own comes
// back; nil means that the policy leaves it out, and it is remembered.
func (f *Faults) Forgive(id int, err error) error {
	var sample *dataset.SampleError
	if !errors.As(err, &sample) || errors.Is(err, dataset.ErrUnavailable) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remember(id, sample, err).Count++
	if f.policy == Raise {
		return err
	}
	return nil
}
