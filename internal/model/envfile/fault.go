package envfile

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one wrong value in a file.
type Fault struct {
	Key     string // dotted
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

// Faults holds all wrong values in a file.
type Faults []Fault

// Error returns all faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Text formats a value of a TOML file for messages; "" is no value.
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return Shorten(strconv.Quote(v))
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case map[string]any:
		return "a table"
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	}
	return Shorten(fmt.Sprint(value))
}

// Shorten limits the length of values in messages.
func Shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
