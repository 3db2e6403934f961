package human

import (
	"fmt"
	"strings"
)

// Nearest returns `; did you mean "x"?` for the known name nearest to an unknown one, or "" if none
// is near.
func Nearest(unknown string, known []string) string {
	best, bestDistance := "", len(unknown)/3+1
	for _, name := range known {
		if d := distance(strings.ToLower(unknown), strings.ToLower(name)); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is the Levenshtein distance of the first 64 bytes.
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
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// List joins alternatives: "a, b or c".
func List(values []string) string { return join(values, " or ") }

// And joins what belongs together: "a, b and c".
func And(values []string) string { return join(values, " and ") }

func join(values []string, word string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + word + values[last]
}
