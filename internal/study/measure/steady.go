package measure

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// SteadyOptions configure Steady.
type SteadyOptions struct {
	Streams int
	// Windows is how many rates are measured, one after the other, each over Window.
	Windows int
	Window  time.Duration
	// Operations is how many are prepared; the measurement ends with them. 0: no limit.
	Operations int
	// Begin, if not nil, is called after the preparation: it waits for the other nodes.
	Begin func(ctx context.Context) error
}

// patience is how long Steady waits for a first operation after its windows: those of a place in
// memory are over in milliseconds, in which a busy machine may not run a single stream.
const patience = 2 * time.Second

// Steady returns the rates, in MB/s, at which operations end in each of several windows of time
// while all streams are busy throughout. It is for measurements on several nodes at once: rounds of
// a number of operations, as Run has them, would end at different times. Windows in which streams
// had no more operations are left out.
func Steady(ctx context.Context, l Load, o SteadyOptions) ([]float64, error) {
	most := math.MaxInt
	if o.Operations > 0 {
		most = o.Operations
	}
	if l.Prepare != nil {
		n, err := l.Prepare(ctx, most)
		if err != nil {
			return nil, err
		}
		most = n
	}
	if o.Begin != nil {
		if err := o.Begin(ctx); err != nil {
			return nil, err
		}
	}
	all := o.Window*time.Duration(o.Windows+1) + patience
	within, cancel := context.WithTimeoutCause(ctx, all, ErrTime)
	defer cancel()
	var (
		next, bytes atomic.Int64
		failed      atomic.Pointer[error]
		group       sync.WaitGroup
		over        = make(chan struct{}) // the first stream has no more operations
		once        sync.Once
		done        = make(chan struct{})
	)
	for s := range o.Streams {
		group.Go(func() {
			defer once.Do(func() { close(over) })
			for within.Err() == nil && failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= most {
					return
				}
				n, err := l.Do(within, s, i)
				if err != nil {
					if within.Err() == nil {
						failed.CompareAndSwap(nil, &err)
					}
					return
				}
				bytes.Add(n)
			}
		})
	}
	go func() {
		defer close(done)
		group.Wait()
	}()
	begun := time.Now()
	rates := windows(within, o, &bytes, over)
	if moved, took := bytes.Load(), time.Since(begun); moved > 0 && took > 0 && len(rates) == 0 {
		// The windows were too short, or the operations too few: there is one rate, of all.
		rates = []float64{float64(moved) / 1e6 / took.Seconds()}
	}
	cancel()
	if err := await(within, done); err != nil {
		return nil, err
	}
	switch err := failed.Load(); {
	case err != nil:
		return nil, *err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(rates) == 0: // nothing was moved
		return nil, errors.New("no operation has ended in the time of a window")
	}
	return rates, nil
}

// windows returns the rate of each window, without the first, in which the streams begin. One in
// which no operation ends goes on with the next: no rate is 0. If none ended in all of them, it
// returns after the first one that does, or with ctx.
func windows(ctx context.Context, o SteadyOptions, bytes *atomic.Int64,
	over <-chan struct{},
) (rates []float64) {
	tick := time.NewTicker(o.Window)
	defer tick.Stop()
	var before int64
	var since time.Time
	for ended := 0; ended <= o.Windows || bytes.Load() == 0; ended++ {
		select {
		case <-tick.C:
		case <-over:
			return rates
		case <-ctx.Done():
			return rates
		}
		now, n := time.Now(), bytes.Load()
		if !since.IsZero() {
			if n == before {
				continue
			}
			rates = append(rates, float64(n-before)/1e6/now.Sub(since).Seconds())
		}
		before, since = n, now
	}
	return rates
}
