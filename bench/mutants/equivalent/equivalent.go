// Package equivalent reads the list of mutants that are not counted.
package equivalent

import (
	"fmt"
	"os"
	"strings"
)

// Read returns the mutants of a list that change nothing that a test could see, with the reasons.
// The file has lines with the name of a file, lines with the rest of a mutant's key, and indented
// lines with the reason. A line that ends with a backslash continues in the next one.
func Read(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	joined := strings.ReplaceAll(string(text), " \\\n", " ")
	file, key := "", ""
	for nr, line := range strings.Split(joined, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "", strings.HasPrefix(line, "#"):
		case trimmed == line && !strings.Contains(line, ": "):
			file, key = line, ""
		case trimmed == line:
			key = file + ": " + line
			if _, known := all[key]; known {
				return nil, fmt.Errorf("%s:%d: listed twice", name, nr+1)
			}
			all[key] = ""
		case key == "":
			return nil, fmt.Errorf("%s:%d: a reason before any mutant", name, nr+1)
		default:
			all[key] = strings.TrimSpace(all[key] + " " + trimmed)
		}
	}
	for key, reason := range all {
		if reason == "" {
			return nil, fmt.Errorf("%s: %s: no reason", name, key)
		}
	}
	return all, nil
}
