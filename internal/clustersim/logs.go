package clustersim

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/clustersim/script"
)

// warnings is a slog.Handler that keeps what nodes warn of, besides passing it on.
type warnings struct {
	slog.Handler
	kept *kept
}

type kept struct {
	mu    sync.Mutex // guards the following
	lines []string
}

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || w.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		line := []string{r.Level.String(), r.Message}
		r.Attrs(func(a slog.Attr) bool {
			line = append(line, a.String())
			return true
		})
		w.kept.mu.Lock()
		w.kept.lines = append(w.kept.lines, strings.Join(line, " "))
		w.kept.mu.Unlock()
	}
	if !w.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return w.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs), w.kept}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler {
	return warnings{w.Handler.WithGroup(name), w.kept}
}

// warned judges what nodes have warned of: where nothing goes wrong, only that others are gone, as
// they do not end at the same time, and what a loss of power brings.
func (w *world) warned(lines []string) {
	if !w.script.Calm() || w.script.Differs != "" {
		return
	}
	crash := slices.ContainsFunc(w.script.Launches, func(l script.Launch) bool { return l.Crash })
	for _, line := range lines {
		if crash && (strings.Contains(line, " is bypassed; ") ||
			strings.Contains(line, " no more samples from this node")) {
			continue
		}
		if len(w.script.Launches) > 1 && strings.Contains(line, " gone without giving its part ") {
			continue
		}
		if strings.Contains(line, " member detached: ") && len(w.script.Members) > 0 {
			continue
		}
		if !strings.Contains(line, " is gone; ") && !strings.Contains(line, " rejoin ") {
			w.unwell(-1, "although nothing goes wrong, a node warns: %s", line)
		}
	}
}
