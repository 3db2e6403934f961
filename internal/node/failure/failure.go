// Package failure defines the errors that a job reports to processes and other nodes: a kind, which
// determines the process's exception, a sentence, and details.
//
// The packages between the daemon and the engine return an Error; those below have error types of
// their own, and Of converts them. An Error does not change once it is made.
package failure

import (
	"encoding/json"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Kind is the kind of a failure.
type Kind string

// Kinds of failures.
const (
	Config   Kind = "config"   // the user's input is wrong
	Dataset  Kind = "dataset"  // the dataset as a whole cannot be used
	Sample   Kind = "sample"   // one sample cannot be used
	Mismatch Kind = "mismatch" // ranks or nodes disagree
	Limit    Kind = "limit"    // a limit of the system was reached
	Busy     Kind = "busy"     // what was requested is in use
	Audit    Kind = "audit"    // delivered bytes differ from the source's
	Internal Kind = "internal" // anything else
)

// Error is a failure. Nodes send it to each other as JSON.
type Error struct {
	Kind    Kind           `json:"kind"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON escapes unprintable characters in the text, which may contain file names. Details are
// exact.
func (e Error) MarshalJSON() ([]byte, error) {
	type plain Error
	e.Message = human.Text(e.Message)
	return json.Marshal(plain(e))
}

// Input returns a Config failure: the user's input is wrong.
func Input(format string, args ...any) error {
	return &Error{Kind: Config, Message: fmt.Sprintf(format, args...)}
}

// Over returns a Limit failure: need exceeds limit.
func Over(text string, need, limit int64) error {
	return &Error{Kind: Limit, Message: text, Details: map[string]any{"need": need, "limit": limit}}
}

// Differs returns a Mismatch failure: a rank or node has another value for key than the others.
// more holds further details.
func Differs(key string, mine, theirs any, more map[string]any, format string, args ...any) error {
	details := map[string]any{"key": key, "mine": mine, "theirs": theirs}
	for k, v := range more {
		details[k] = v
	}
	return &Error{Kind: Mismatch, Message: fmt.Sprintf(format, args...), Details: details}
}
