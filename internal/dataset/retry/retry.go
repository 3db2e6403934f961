// Package retry makes a source patient: a dataset.Source around another that
// reads again what was ErrUnavailable, with growing pauses, until it succeeds
// or the time is up. Permanent failures are returned at once.
//
// It tells a sample's fault from the source's (health.go): a sample that gives
// input/output errors while others can be read is ErrUnreadable after a second or
// so, and not when the time is up.
//
// It also watches over reads that hang. A system call that is blocked cannot be
// cancelled, so nothing ends such a read; Options.Slow is told about it, once.
//
// A Source may be used from many goroutines. New starts one goroutine, the
// watchdog, if there is a function to tell; Close ends it.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Options say how patient a Source is. The zero value is of use.
type Options struct {
	// Timeout is the time from the first attempt to the last; 0 stands for 60
	// seconds.
	Timeout time.Duration
	// SlowAfter is the time after which a read counts as slow, pauses
	// included; 0 stands for 10 seconds.
	SlowAfter time.Duration
	// Slow, if not nil, is called once for each read that is slow, while it
	// goes on: which sample, where it lies ("" if the source cannot tell), and
	// since when. Calls come from one goroutine, and must not call Close.
	Slow func(id int, path string, since time.Time)
	// Retried, if not nil, is called before each pause, from the goroutine
	// that reads.
	Retried func(id int, attempt int, pause time.Duration, err error)
	// Random gives numbers in [0, 1) for the jitter, from any goroutine; nil
	// stands for rand.Float64.
	Random func() float64
}

// Source is a patient dataset.Source.
type Source struct {
	source dataset.Source
	path   func(id int) string
	opts   Options
	health health

	stop    chan struct{} // closed by Close
	watcher sync.WaitGroup
	once    sync.Once

	mu   sync.Mutex // guards the following
	next uint64     // the key of the next read
	// under way, by key; empty if nobody wants to know
	reads map[uint64]*read
	idle  []*read // to be used again
}

// read is one that is under way.
type read struct {
	id    int
	since time.Time
	told  bool // Slow was called
}

var _ dataset.Source = (*Source)(nil)

// New makes source patient, and takes it over: Close closes it. It starts the
// watchdog's goroutine if opts.Slow is there.
func New(source dataset.Source, opts Options) *Source {
	if opts.Timeout <= 0 {
		opts.Timeout = 60 * time.Second
	}
	if opts.SlowAfter <= 0 {
		opts.SlowAfter = 10 * time.Second
	}
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	s := &Source{
		source: source, path: func(int) string { return "" }, opts: opts,
		stop: make(chan struct{}), reads: make(map[uint64]*read),
	}
	if locator, ok := dataset.As[dataset.Locator](source); ok {
		s.path = locator.Path
	}
	s.health.prober, _ = dataset.As[dataset.Prober](source)
	if opts.Slow != nil {
		s.watcher.Go(s.watch)
	}
	return s
}

// Unwrap is the source that is made patient.
func (s *Source) Unwrap() dataset.Source { return s.source }

// Read reads sample id into dst, as often as it takes. It ends early, with an
// error that is ctx's, when ctx is done. When the time is up the error is a
// *dataset.SampleError of the kind ErrUnavailable that tells the time waited and
// holds the last failure; if the fault is the sample's it is of the kind
// ErrUnreadable, and comes as soon as that is certain.
func (s *Source) Read(ctx context.Context, id int, dst []byte) (dataset.Stamp, error) {
	since := time.Now()
	if s.opts.Slow != nil {
		key := s.enter(id, since)
		defer s.leave(key)
	}
	var suspect suspicion
	for attempt := 1; ; attempt++ {
		stamp, err := s.source.Read(ctx, id, dst)
		if err == nil {
			s.health.read(id, suspect.failed)
			return stamp, nil
		}
		if !errors.Is(err, dataset.ErrUnavailable) || ctx.Err() != nil {
			return 0, err
		}
		longest := lastPause
		if s.health.fails(ctx, &suspect, id, err) {
			longest = suspectPause
		}
		waited := time.Since(since)
		last := waited >= s.opts.Timeout
		switch {
		case s.health.guilty(&suspect, last):
			return 0, s.sampleError(id, dataset.ErrUnreadable, attempt, waited,
				"while other samples could be read, so the fault is the file's and not the "+
					"source's: restore the file", err)
		case last:
			return 0,
				s.sampleError(id, dataset.ErrUnavailable, attempt, waited, "then given up", err)
		}
		// The last pause ends with the time, so that the last attempt is made
		// when it is up and no sooner.
		pause := min(s.pause(attempt, longest), s.opts.Timeout-waited)
		if s.opts.Retried != nil {
			s.opts.Retried(id, attempt, pause, err)
		}
		if err := sleep(ctx, pause); err != nil {
			return 0, &dataset.SampleError{
				ID:   id,
				Path: s.path(id),
				Kind: dataset.ErrUnavailable,
				Err:  err,
			}
		}
	}
}

// Stat asks once: a caller that gets no answer reads the sample, which is as patient as it gets.
func (s *Source) Stat(ctx context.Context, id int) (dataset.Stamp, error) {
	return s.source.Stat(ctx, id)
}

// pause is the time to wait after this many attempts: twice as long each time, up to
// longest, less up to a half, so that readers who failed together do not return
// together.
func (s *Source) pause(attempts int, longest time.Duration) time.Duration {
	full := longest
	if doublings := attempts - 1; doublings < 10 {
		full = min(firstPause<<doublings, longest)
	}
	return full/2 + time.Duration(s.opts.Random()*float64(full/2))
}

// sampleError says how often and how long sample id was tried, what follows from it, and how the
// last attempt failed.
func (s *Source) sampleError(id int, kind error, attempts int, waited time.Duration, verdict string,
	err error,
) error {
	times := "once"
	if attempts > 1 {
		times = fmt.Sprintf("%d times", attempts)
	}
	var sample *dataset.SampleError
	path := s.path(id)
	if errors.As(err, &sample) { // don't say twice which sample it is
		path = sample.Path
		if sample.Err != nil {
			err = sample.Err
		}
	}
	return &dataset.SampleError{
		ID: id, Path: path, Kind: kind,
		Err: fmt.Errorf("tried %s in %v, %s: %w", times, waited.Round(time.Millisecond), verdict,
			err),
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the watchdog and closes the source. No Read may be under way.
func (s *Source) Close() error {
	s.once.Do(func() { close(s.stop) })
	s.watcher.Wait()
	return s.source.Close()
}

func (s *Source) enter(id int, since time.Time) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r *read
	if last := len(s.idle) - 1; last >= 0 {
		r, s.idle = s.idle[last], s.idle[:last]
	} else {
		r = new(read)
	}
	*r = read{id: id, since: since}
	s.next++
	s.reads[s.next] = r
	return s.next
}

func (s *Source) leave(key uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, s.reads[key])
	delete(s.reads, key)
}

// watch looks at the reads under way four times as often as they become slow.
func (s *Source) watch() {
	ticker := time.NewTicker(max(s.opts.SlowAfter/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-ticker.C:
			for _, r := range s.slow(now) {
				s.opts.Slow(r.id, s.path(r.id), r.since)
			}
		}
	}
}

// slow gives the reads that have become slow, each once.
func (s *Source) slow(now time.Time) []read {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []read
	for _, r := range s.reads {
		if !r.told && now.Sub(r.since) >= s.opts.SlowAfter {
			r.told = true
			list = append(list, *r)
		}
	}
	return list
}
