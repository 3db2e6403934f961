package report

import (
	"fmt"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Forms is what a class holds in another form than as read, which is decoded in less time, and what
// was done for that since it was opened for the dataset, by all jobs.
type Forms struct {
	Amount       // what is held so, and the bytes of the forms
	AsRead int64 `json:"as_read_bytes"` // that the same samples have as read
	// Converted is how often a form took the place of a sample, and Restored the other way; Seconds
	// is the time of processors for both.
	Converted int64   `json:"converted"`
	Restored  int64   `json:"restored,omitempty"`
	Seconds   float64 `json:"seconds"`
	// Reread are the samples that were read from the source again because a form did not give them,
	// and Damaged those whose form had other bytes than were put there, or came from another node and
	// was none of the sample.
	Reread  int64 `json:"read_again,omitempty"`
	Damaged int64 `json:"damaged,omitempty"`
	// Sent and Received are forms to and from other nodes, and Unpacked the samples that were made of
	// forms for nodes that do not take these.
	Sent     int64 `json:"sent,omitempty"`
	Received int64 `json:"received,omitempty"`
	Unpacked int64 `json:"unpacked,omitempty"`
	// Paused: no more samples are converted, because a job needs them as read, or memory was short.
	Paused bool `json:"paused,omitempty"`
}

// String describes the forms in a sentence without a name or full stop; it is empty if there is
// nothing to report.
func (f *Forms) String() string {
	if f == nil {
		return ""
	}
	parts := []string{fmt.Sprintf("keeps %d samples as coefficients, or with their pixels or "+
		"results of transforms, which take %s instead of %s",
		f.Samples, human.Format(f.Bytes), human.Format(f.AsRead))}
	if f.Reread > 0 {
		parts = append(parts, fmt.Sprintf("%d were read from the source again, because a job needs "+
			"their files", f.Reread))
	}
	if f.Damaged > 0 {
		parts = append(parts, fmt.Sprintf("%d were found altered, and read again", f.Damaged))
	}
	if f.Sent+f.Received > 0 {
		parts = append(parts, fmt.Sprintf("%d were sent to other nodes, and %d came from these",
			f.Sent, f.Received))
	}
	if f.Unpacked > 0 {
		parts = append(parts, fmt.Sprintf("%d became files for nodes that need these", f.Unpacked))
	}
	if f.Paused {
		parts = append(parts, "no more for now, because a job needs files as read, or memory was short")
	}
	return strings.Join(parts, "; ")
}

// add adds what another node's class holds.
func (f *Forms) add(o *Forms) {
	f.Add(o.Amount)
	f.AsRead += o.AsRead
	f.Converted += o.Converted
	f.Restored += o.Restored
	f.Seconds += o.Seconds
	f.Reread += o.Reread
	f.Damaged += o.Damaged
	f.Sent += o.Sent
	f.Received += o.Received
	f.Unpacked += o.Unpacked
	f.Paused = f.Paused || o.Paused
}
