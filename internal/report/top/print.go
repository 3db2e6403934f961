package top

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrGone is wrapped by errors of Options.Ask if no daemon is running.
var ErrGone = errors.New("no answer")

// Print writes screens one after the other, for an output that is not a terminal. Rates need two
// reports, so the first screen comes after Interval. If once is set, Print returns after that
// one. Otherwise it returns when ctx ends, with an error of Ask or Out, or without one when a
// daemon that answered before is gone.
func Print(ctx context.Context, o Options, once bool) error {
	var shown history
	ticks := time.NewTicker(o.Interval)
	defer ticks.Stop()
	for {
		jobs, err := o.Ask(ctx)
		if len(shown) > 1 && errors.Is(err, ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		shown = shown.add(&Snapshot{time.Now(), jobs})
		if len(shown) > 1 {
			s := shown.screen()
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
