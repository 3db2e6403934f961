package scenario

import (
	"strings"
)

// Fault is one error in a scenario.
type Fault struct {
	Key     string // dotted, as in Override
	Value   string // as it was given; "" if it is missing
	Wrong   string // what is wrong with it
	Allowed string // what is allowed
}

// Error returns the fault as one line.
func (f Fault) Error() string {
	text := f.Key
	if f.Value != "" {
		text += " is " + f.Value
	}
	text += ": " + f.Wrong
	if f.Allowed != "" {
		text += "; allowed: " + f.Allowed
	}
	return text
}

// Faults holds all errors in a scenario.
type Faults []Fault

// Error returns all faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}
