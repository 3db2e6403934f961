// Package measure measures throughputs by the number of streams: of a source, a storage class,
// transforms, a network. It owns the measuring loops and their statistics, and is independent of
// what it measures (a Load; package survey has those of a node and between nodes).
//
// A throughput is the median of several rounds with its nonparametric confidence interval (thesis
// 5.1). Everything ends within the time that was given, even if an operation never returns: its
// goroutine then remains until it does. Times are those of package time, so that tests run in
// virtual time. Functions may be called concurrently for different loads.
package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Load is what is measured: operations that streams carry out at the same time, one after the other
// each.
type Load struct {
	// Prepare is called before each round with the number of operations, and returns for how many
	// it has prepared, at most so many. It is not timed. nil: nothing is to be prepared.
	Prepare func(ctx context.Context, operations int) (int, error)
	// Do carries out one operation of the round and returns the bytes that it moved. It is called
	// concurrently, for each stream and for each operation by one goroutine.
	Do func(ctx context.Context, stream, operation int) (bytes int64, err error)
	// Settle ends a round, and is timed: it waits for what operations have only begun, such as
	// writes to a disk. nil: nothing is to be waited for.
	Settle func(ctx context.Context) error
	// Bursts is set if what is measured may bound its mean throughput, so that it lets pass faster
	// what it would have delivered in the pause before a round. The intervals of rounds that are too
	// short for that not to matter then begin at the least that it can give for longer.
	Bursts bool
}

// grace is how long operations in progress may take after the time of a measurement is over.
const grace = time.Second

// ErrHangs reports that operations did not return.
var ErrHangs = errors.New("an operation has not returned")

// round is what one round measured.
type round struct {
	bytes   int64
	elapsed time.Duration
	pause   time.Duration // before it
	work    float64       // processor time of an operation, seconds
}

// rate returns MB/s.
func (r round) rate() float64 {
	if r.elapsed <= 0 {
		return 0
	}
	return float64(r.bytes) / 1e6 / r.elapsed.Seconds()
}

// lasting returns the least rate, in MB/s, that can be sustained after this round: that over the
// pause before it and the round.
func (r round) lasting() float64 {
	r.elapsed += r.pause
	return r.rate()
}

// run carries out a round of that many operations, on that many streams. It ends with the last
// operation, so that a bandwidth which streams share is not overestimated; in doubt, more streams
// are found to bring too little rather than too much.
func (l *Load) run(ctx context.Context, streams, operations int) (round, error) {
	if l.Prepare != nil {
		n, err := l.Prepare(ctx, operations)
		if err != nil {
			return round{}, err
		}
		if n < streams {
			return round{}, errTooFew
		}
		operations = n
	}
	var (
		next   atomic.Int64
		bytes  atomic.Int64
		group  sync.WaitGroup
		failed atomic.Pointer[error]
		begun  = time.Now()
		worked = processorTime()
	)
	for s := range streams {
		group.Go(func() {
			for ctx.Err() == nil && failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= operations {
					break
				}
				n, err := l.Do(ctx, s, i)
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					break
				}
				bytes.Add(n)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	if err := await(ctx, done); err != nil {
		return round{}, err
	}
	if err := failed.Load(); err != nil {
		return round{}, *err
	}
	if err := ctx.Err(); err != nil {
		return round{}, err
	}
	if l.Settle != nil {
		if err := l.Settle(ctx); err != nil {
			return round{}, err
		}
	}
	r := round{bytes: bytes.Load(), elapsed: time.Since(begun)}
	r.work = (processorTime() - worked).Seconds() / float64(operations)
	return r, nil
}

// processorTime returns what the process has taken of processors so far.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// errTooFew reports that there are fewer operations than streams.
var errTooFew = errors.New("there are fewer operations than streams")

// await waits for done, and gives up some time after ctx has ended.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return fmt.Errorf("%w: %w", ErrHangs, context.Cause(ctx))
	}
}
