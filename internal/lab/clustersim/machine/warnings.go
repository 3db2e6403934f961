package machine

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Warnings keeps what nodes warn of. Its methods are safe for concurrent use.
type Warnings struct {
	mu    sync.Mutex // guards the following
	lines []string
}

// Lines returns the warnings.
func (k *Warnings) Lines() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lines
}

// Handler returns a handler that keeps warnings in k, besides passing all records on.
func (k *Warnings) Handler(to slog.Handler) slog.Handler { return handler{to, k} }

type handler struct {
	slog.Handler
	kept *Warnings
}

// Enabled implements slog.Handler.
func (w handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || w.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (w handler) Handle(ctx context.Context, r slog.Record) error {
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
func (w handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{w.Handler.WithAttrs(attrs), w.kept}
}

// WithGroup implements slog.Handler.
func (w handler) WithGroup(name string) slog.Handler {
	return handler{w.Handler.WithGroup(name), w.kept}
}
