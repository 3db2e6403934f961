// Package judge decides whether what the processes of a simulated job observed is what a loader
// owes them: the right bytes in the right order, or one error on all ranks at the same batch.
//
// It is independent of HDMLP: it draws orders with code of its own, and bytes follow from a
// sample's ID. What excuses an error is in the script.
package judge

import (
	"fmt"
	"sync"
	"time"
)

// Kind is a kind of Event.
type Kind string

// Kinds of events.
const (
	Opened  Kind = "opened"  // the job is open
	Refused Kind = "refused" // the job could not be opened
	Began   Kind = "began"   // a stream begins at a batch
	Got     Kind = "got"     // a batch was taken
	Wrong   Kind = "wrong"   // a batch differed from its description; Text states how
	Failed  Kind = "failed"  // the stream ended with an error instead of a batch
	Ended   Kind = "ended"   // the stream ended after its last batch
	Stuck   Kind = "stuck"   // after another rank's error, neither an error nor a batch came
	Left    Kind = "left"    // the process was ended
	Broken  Kind = "broken"  // something is wrong with a node; Text states what
	// Stated is what the job reports of an epoch when the rank has come to the end: so many Batches
	// and Samples.
	Stated Kind = "stated"
	// Explained is what the job reports of the samples of a rank's batch before any are left out.
	Explained Kind = "explained"
	// Audited is what the job reports of an epoch over all ranks: Samples, and in Text why it is not
	// complete; "": it is.
	Audited Kind = "audited"
	// Reviewed is what the job reports of an epoch in which all ranks got an error, when all but one
	// have left: in IDs the ranks that have not come to its end, and in Why why nothing is known of
	// some, or in Text why there is no audit.
	Reviewed Kind = "reviewed"
	// Accounted is what the rank's node reports of the job after an audit, in Account.
	Accounted Kind = "accounted"
)

// Event is something that a process observed.
type Event struct {
	Kind        Kind
	Launch      int
	Rank        int           // or of Broken the node
	At          time.Duration // since the launch
	Epoch, Step int
	IDs         []int         // the batch's samples
	Wait        time.Duration // for the batch
	Batches     int
	Samples     int
	Text        string
	Why         string // of Reviewed: why nothing is known of some ranks
	Account     *Account
}

// String returns the event as one line.
func (e Event) String() string {
	text := fmt.Sprintf("%d/%d %12v %-7s %d.%d", e.Launch, e.Rank, e.At, e.Kind, e.Epoch, e.Step)
	if e.IDs != nil {
		text += fmt.Sprint(" ", e.IDs)
	}
	if e.Wait > 0 {
		text += fmt.Sprint(" after ", e.Wait)
	}
	if e.Batches+e.Samples > 0 {
		text += fmt.Sprintf(" %d batches, %d samples", e.Batches, e.Samples)
	}
	if e.Account != nil {
		text += fmt.Sprintf(" %+v", *e.Account)
	}
	for _, said := range []string{e.Text, e.Why} {
		if said != "" {
			text += " " + said
		}
	}
	return text
}

// History collects events. It is safe for concurrent use.
type History struct {
	mu     sync.Mutex // guards the following
	events []Event
}

// Add adds an event.
func (h *History) Add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// Events returns what was added so far.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events...)
}
