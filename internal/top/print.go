package top

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrGone is what Ask wraps where there is nobody, or nobody any more, who could answer.
var ErrGone = errors.New("nobody answers")

// Print writes screens one after the other, for what is no terminal: rates need two answers, so the
// first comes after Interval. once: that one alone. Otherwise it ends with ctx, with an error of
// Ask or Out, or, without one, when whoever answered is gone.
func Print(ctx context.Context, o Options, once bool) error {
	var heard history
	ticks := time.NewTicker(o.Interval)
	defer ticks.Stop()
	for {
		jobs, err := o.Ask(ctx)
		if len(heard) > 1 && errors.Is(err, ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		heard = heard.add(&Snapshot{time.Now(), jobs})
		if len(heard) > 1 {
			s := heard.screen()
			s.Ranks, s.Colour = true, o.Colour
			if _, err := fmt.Fprintf(o.Out, "%s\n\n", s.Text()); err != nil || once {
				return err
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
