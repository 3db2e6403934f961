package main

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// probeBar shows the progress of measurements on a terminal: the time that has passed, and what is
// measured. The zero value shows nothing.
type probeBar struct {
	out  io.Writer // nil: nothing is shown
	time time.Duration

	bars   *mpb.Progress
	bar    *mpb.Bar
	begun  time.Time
	what   atomic.Pointer[string]
	ended  chan struct{}
	moving sync.WaitGroup
}

// update shows what is measured now.
func (p *probeBar) update(what string) {
	if p.out == nil {
		return
	}
	p.what.Store(&what)
	if p.bars != nil {
		return
	}
	p.begun, p.ended = time.Now(), make(chan struct{})
	p.bars = mpb.New(mpb.WithOutput(p.out), mpb.WithWidth(20))
	p.bar = p.bars.New(p.time.Milliseconds(),
		mpb.BarStyle().Lbound("").Filler("━").Tip("━").Padding("─").Rbound(""),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name("measuring ")),
		mpb.AppendDecorators(
			decor.Elapsed(decor.ET_STYLE_MMSS),
			decor.Any(func(decor.Statistics) string { return "  " + *p.what.Load() }),
		))
	p.moving.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.bar.SetCurrent(min(time.Since(p.begun), p.time-time.Millisecond).Milliseconds())
			case <-p.ended:
				return
			}
		}
	})
}

// close removes the bar.
func (p *probeBar) close() {
	if p.bars == nil {
		return
	}
	close(p.ended)
	p.moving.Wait()
	p.bar.Abort(true)
	p.bars.Wait()
	p.bars, p.out = nil, nil
}
