package clustersim

import (
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// warned judges what nodes have warned of: where nothing goes wrong, only that others are gone, as
// they do not end at the same time, and what a loss of power brings.
func (w *world) warned(lines []string) {
	if !w.script.Calm() || w.script.Differs != "" {
		return
	}
	crash := slices.ContainsFunc(w.script.Launches, func(l script.Launch) bool { return l.Crash })
	for _, line := range lines {
		has := func(text string) bool { return strings.Contains(line, text) }
		if !(has(" is gone; ") || has(" rejoin ") || crash && (has(" is bypassed; ") ||
			has(" no more samples from this node") || has("connection reset by peer")) ||
			len(w.script.Launches) > 1 && has(" gone without giving its part ") ||
			len(w.script.Members) > 0 && has(" member detached: ")) {
			w.unwell(-1, "although nothing goes wrong, a node warns: %s", line)
		}
	}
}
