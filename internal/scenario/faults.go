package scenario

import (
	"strings"
)

// Fault is one thing that is wrong with a scenario.
type Fault struct {
	Key     string // dotted, as Override takes it
	Value   string // as it was given; "" if it is missing
	Wrong   string // what is wrong with it
	Allowed string // what is allowed
}

// Error says it in one line.
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

// Faults is all that is wrong with a scenario, a line each.
type Faults []Fault

// Error says all of it.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}
