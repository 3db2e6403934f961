package main

import (
	"io"
	"time"
)

// probeBar shows the progress of measurements on a terminal: the time that has passed, and what is
// measured. The zero value shows nothing.
type probeBar struct {
	out  io.Writer // nil: nothing is shown
	time time.Duration

	line *liveLine
	what string
}

// update shows what is measured now.
func (p *probeBar) update(what string) {
	switch {
	case p.out == nil:
	case p.line != nil:
		p.line.update(func() { p.what = what })
	default:
		p.what = what
		begun := time.Now()
		p.line = showLine(p.out, func(columns int) string {
			passed := time.Since(begun)
			before, after := "measuring  ", " "+clock(passed)+"  "+p.what
			done := min(passed, p.time-time.Millisecond).Milliseconds()
			return before + rule(done, p.time.Milliseconds(), 20, columns, before, after) + after
		})
	}
}

// close removes the bar.
func (p *probeBar) close() {
	if p.line != nil {
		p.line.close(false)
		p.line, p.out = nil, nil
	}
}
