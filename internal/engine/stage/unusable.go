package stage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Policy is what a job does about a sample that cannot be used: on_error.
type Policy string

const (
	Raise Policy = "raise" // the stream ends with the error, at the sample's batch
	Skip  Policy = "skip"  // the batch is delivered without the sample
	// Substitute delivers the next readable sample by ID, of those in the epoch, instead.
	Substitute Policy = "substitute"
	// Leave delivers the sample without any of its fields: the process makes of it what it can. It
	// is no value of on_error, but what a process asks for (request.Open).
	Leave Policy = "leave"
)

// Samples records a job's unusable samples, so that a decision holds for all of the job's ranks
// and epochs, on all nodes (Own, Hear): a node that has not heard of it yet, or reads the sample at
// the same time, may still deliver the sample. A source that does not answer is no reason to leave
// out samples: that error is returned under every policy. Its methods are safe for concurrent use.
type Samples struct {
	policy Policy
	some   atomic.Bool // fast path: true once any fault is recorded

	mu         sync.Mutex // guards the following
	bad        map[int]*fault
	unreported int            // how many of these no process has reported
	own        []report.Fault // what other nodes are to know of those that this one has found
	more       chan struct{}  // closed and replaced when own grows
}

// A list of what a node has found is sent to others as one message (cluster.MaxPayload, 4 MiB): a
// path has at most 4096 bytes, and JSON makes up to 6 bytes of each.
const (
	mostFound  = 100  // samples
	mostReason = 1000 // bytes of one reason
)

type fault struct {
	report.Fault
	err error
	// reported is set if a process reported the fault. It would find the same again, so the sample
	// is not tried again under any policy.
	reported bool
}

// New returns an empty record.
func newUnusable(policy Policy) *Samples {
	return &Samples{policy: policy, bad: make(map[int]*fault), more: make(chan struct{})}
}

// Policy returns the policy for them.
func (u *Samples) Policy() Policy { return u.policy }

// List returns the faults recorded so far, by sample.
func (u *Samples) List() []report.Fault {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]report.Fault, 0, len(u.bad))
	for _, x := range u.bad {
		out = append(out, x.Fault)
	}
	slices.SortFunc(out, func(a, b report.Fault) int { return a.Sample - b.Sample })
	return out
}

// Warning returns a sentence on samples that the policy leaves out or replaces, if they are at
// least due, and the number at which the next warning is due: ten times as many. Otherwise, and if
// such samples end streams, it returns "". What a process has reported does not count, as it has
// logged that.
func (u *Samples) Warning(due int) (text string, next int) {
	if u.policy == Raise || !u.some.Load() {
		return "", due
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	count := u.unreported
	if count < max(due, 1) {
		return "", due
	}
	first := u.firstUnreported()
	of, does := "1 sample", "it is left out of its batch"
	switch {
	case count > 1 && u.policy == Substitute:
		of, does = fmt.Sprintf("%d samples", count), "each is replaced by another one"
	case count > 1:
		of, does = fmt.Sprintf("%d samples", count), "each is left out of its batch"
	case u.policy == Substitute:
		does = "it is replaced by another one"
	}
	why := fmt.Sprintf("(on_error=%q); sample", u.policy)
	if u.policy == Leave {
		does, why = "the process opens the files itself", "from now on; item"
	}
	return fmt.Sprintf("%s cannot be used so far, and %s %s %d, %s: %s; "+
		"report()[\"faults\"] lists all", of, does, why, first.Sample,
		human.Name(first.Path), first.Reason), 10 * count
}

// firstUnreported returns the first of the faults that no process has reported. u.mu must be held,
// and there must be one.
func (u *Samples) firstUnreported() (first report.Fault) {
	found := false
	for id, x := range u.bad {
		if !x.reported && (!found || id < first.Sample) {
			first, found = x.Fault, true
		}
	}
	return first
}

// Known returns the error of a sample that is not to be tried again, because the policy leaves such
// samples out, or a process has reported it.
func (u *Samples) Known(id int) error {
	if !u.some.Load() {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if x := u.bad[id]; x != nil && (u.policy != Raise || x.reported) {
		return x.err
	}
	return nil
}

// Report records that a process cannot decode a sample, which from now on counts as unreadable. It
// returns the policy. path is where the sample is stored.
func (u *Samples) Report(id int, path, reason string) Policy {
	err := &source.SampleError{
		ID: id, Path: path, Kind: source.ErrPython, Err: errors.New(reason),
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if x := u.remember(id, err, err); !x.reported {
		x.reported = true
		u.unreported--
	}
	return u.policy
}

// Own implements coordinator.Faults.
func (u *Samples) Own(after int) (found []report.Fault, upTo int, more <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	after = min(after, len(u.own))
	upTo = min(after+mostFound, len(u.own))
	found = u.own[after:upTo:upTo]
	if upTo == len(u.own) {
		return found, upTo, u.more
	}
	now := make(chan struct{})
	close(now)
	return found, upTo, now
}

// Hear implements coordinator.Faults.
func (u *Samples) Hear(found []report.Fault) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, x := range found {
		err := &source.SampleError{
			ID: x.Sample, Path: x.Path, Kind: source.ErrElsewhere, Err: errors.New(x.Reason),
		}
		u.note(x.Sample, err, err)
	}
}

// remember returns the fault of a sample, recorded with err if there is none yet; a new one is sent
// to the other nodes. u.mu must be held.
func (u *Samples) remember(id int, sample *source.SampleError, err error) *fault {
	x, isNew := u.note(id, sample, err)
	if isNew {
		reason := strings.ToValidUTF8(x.Reason[:min(len(x.Reason), mostReason)], "")
		u.own = append(u.own, report.Fault{Sample: id, Path: x.Path, Reason: reason})
		close(u.more)
		u.more = make(chan struct{})
	}
	return x
}

// note returns the fault of a sample, recorded with err if there is none yet. u.mu must be held.
func (u *Samples) note(id int, sample *source.SampleError, err error) (x *fault, isNew bool) {
	x = u.bad[id]
	if isNew = x == nil; isNew {
		x = &fault{
			Fault: report.Fault{
				Sample: id,
				Path:   sample.Path,
				Reason: sample.Reason(),
				Policy: string(u.policy),
			},
			err: err,
		}
		u.bad[id] = x
		u.unreported++
		u.some.Store(true)
	}
	return x, isNew
}

// Forgive records a sample that failed with err, and returns nil if the policy leaves it out. It
// returns err under policy Raise, and if the error is not the sample's own. requested counts it as
// a request of the stream for the sample.
func (u *Samples) Forgive(id int, err error, requested bool) error {
	var sample *source.SampleError
	if !errors.As(err, &sample) || errors.Is(err, source.ErrUnavailable) {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if x := u.remember(id, sample, err); requested {
		x.Count++
	}
	if u.policy == Raise {
		return err
	}
	return nil
}
