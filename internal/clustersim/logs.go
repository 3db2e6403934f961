package clustersim

import (
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/clustersim/script"
)

// warned judges what nodes have warned of: where nothing goes wrong, only that others are gone, as
// they do not end at the same time, and what a loss of power brings.
func (w *world) warned(lines []string) {
	if !w.script.Calm() || w.script.Differs != "" {
		return
	}
	crash := slices.ContainsFunc(w.script.Launches, func(l script.Launch) bool { return l.Crash })
	for _, line := range lines {
		if crash && (strings.Contains(line, " is bypassed; ") ||
			strings.Contains(line, " no more samples from this node") ||
			strings.Contains(line, "connection reset by peer")) ||
			len(w.script.Launches) > 1 && strings.Contains(line, " gone without giving its part ") ||
			len(w.script.Members) > 0 && strings.Contains(line, " member detached: ") {
			continue
		}
		if !strings.Contains(line, " is gone; ") && !strings.Contains(line, " rejoin ") {
			w.unwell(-1, "although nothing goes wrong, a node warns: %s", line)
		}
	}
}
