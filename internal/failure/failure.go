// Package failure says what went wrong in a job, in the form in which processes and other nodes are
// told: its kind, which the process's exception follows from, a sentence, and what it is about.
//
// The rooms between the daemon and the engine refuse with an Error; those below have errors of
// their own, and Of knows what kind each of them is. An Error does not change once it is made.
package failure

import (
	"encoding/json"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/printable"
)

// Kind is what kind of failure it is.
type Kind string

// Kinds of failures.
const (
	Config   Kind = "config"   // of what the user said
	Dataset  Kind = "dataset"  // of the dataset as a whole
	Sample   Kind = "sample"   // of one sample
	Mismatch Kind = "mismatch" // ranks or nodes differ
	Limit    Kind = "limit"    // a limit of the system was reached
	Busy     Kind = "busy"     // something else has what was asked for
	Audit    Kind = "audit"    // bytes that were delivered are not the source's
	Internal Kind = "internal" // anything else
)

// Error is a failure of a kind. Its JSON is how nodes tell each other.
type Error struct {
	Kind    Kind           `json:"kind"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON encodes the failure with its text printable: it may have names of files in it.
// Details are exact.
func (e Error) MarshalJSON() ([]byte, error) {
	type plain Error
	e.Message = printable.Text(e.Message)
	return json.Marshal(plain(e))
}

// Input refuses what a user said.
func Input(format string, args ...any) error {
	return &Error{Kind: Config, Message: fmt.Sprintf(format, args...)}
}

// Over refuses what would exceed a limit.
func Over(text string, need, limit int64) error {
	return &Error{Kind: Limit, Message: text, Details: map[string]any{"need": need, "limit": limit}}
}

// Differs refuses a rank or a node that says another thing of key than the others; more are further
// details.
func Differs(key string, mine, theirs any, more map[string]any, format string, args ...any) error {
	details := map[string]any{"key": key, "mine": mine, "theirs": theirs}
	for k, v := range more {
		details[k] = v
	}
	return &Error{Kind: Mismatch, Message: fmt.Sprintf(format, args...), Details: details}
}
