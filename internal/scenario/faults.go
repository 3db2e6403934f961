package scenario

import (
	"fmt"
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

// list writes alternatives: "a, b or c".
func list(values []string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// suggestion is `; did you mean "x"?` for the known name that is nearest to an unknown one, or nothing if none is near.
func suggestion(unknown string, known []string) string {
	best, bestDistance := "", len(unknown)/2+1
	for _, name := range known {
		if d := distance(strings.ToLower(unknown), name); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is Levenshtein's, of the first 64 bytes.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
