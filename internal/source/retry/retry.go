// Package retry wraps a source.Source in one that retries reads that fail with ErrUnavailable,
// with growing pauses, until they succeed or a timeout passes. Permanent failures are returned at
// once.
//
// It distinguishes faults of a sample from those of the source (health.go): a sample that fails
// with input/output errors while others can be read is ErrUnreadable after about a second, not only
// after the timeout.
//
// It also watches for reads that hang. A blocked system call cannot be cancelled, so nothing ends
// such a read; Options.Slow is called once for it.
//
// A Source is safe for concurrent use. New starts one goroutine, the watchdog, if Options.Slow is
// set; Close ends it.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Options are the options of a Source. The zero value is ready to use.
type Options struct {
	// Timeout is the time from the first attempt to the last; 0 means 60 seconds.
	Timeout time.Duration
	// SlowAfter is the time, including pauses, after which a read counts as slow; 0 means 10
	// seconds.
	SlowAfter time.Duration
	// Slow, if not nil, is called once for each slow read while the read is in progress, with the
	// sample, its path ("" if the source is not a Locator), and when the read began. Calls come
	// from one goroutine; Slow must not call Close.
	Slow func(id int, path string, since time.Time)
	// Retried, if not nil, is called before each pause, in the goroutine that reads.
	Retried func(id int, attempt int, pause time.Duration, err error)
	// Random returns numbers in [0, 1) for the jitter, and may be called from any goroutine; nil
	// means rand.Float64.
	Random func() float64
}

// Source is a source.Source that retries reads of another one.
type Source struct {
	source source.Source
	path   func(id int) string
	opts   Options
	health health

	stop    chan struct{} // closed by Close
	watcher sync.WaitGroup
	once    sync.Once

	mu   sync.Mutex // guards the following
	next uint64     // the key of the next read
	// in progress, by key; empty without Options.Slow
	reads map[uint64]*read
	idle  []*read // to be reused
}

// read is a read in progress.
type read struct {
	id    int
	since time.Time
	told  bool // Slow was called
}

var _ source.Source = (*Source)(nil)

// New returns a Source that retries the reads of source and owns it: Close closes it. New starts
// the watchdog's goroutine if opts.Slow is not nil.
func New(src source.Source, opts Options) *Source {
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
		source: src, path: func(int) string { return "" }, opts: opts,
		stop: make(chan struct{}), reads: make(map[uint64]*read),
	}
	if locator, ok := source.As[source.Locator](src); ok {
		s.path = locator.Path
	}
	s.health.prober, _ = source.As[source.Prober](src)
	if opts.Slow != nil {
		s.watcher.Go(s.watch)
	}
	return s
}

// Unwrap returns the source whose reads are retried.
func (s *Source) Unwrap() source.Source { return s.source }

// Read reads sample id into dst and retries as described above. It returns early, with ctx's error,
// when ctx is done. After the timeout the error is a *source.SampleError of the kind
// ErrUnavailable that states the time waited and wraps the last failure. If the sample is at fault
// the error is of the kind ErrUnreadable, and is returned as soon as that is certain.
func (s *Source) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
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
		if !errors.Is(err, source.ErrUnavailable) || ctx.Err() != nil {
			return 0, err
		}
		longest := lastPause
		if s.health.fails(ctx, &suspect, id, err) {
			longest = suspectPause
		}
		waited := time.Since(since)
		last := waited >= s.opts.Timeout
		switch {
		case s.health.atFault(&suspect, last):
			return 0, s.sampleError(id, source.ErrUnreadable, attempt, waited,
				"while other samples could be read, so the fault is the file's and not the "+
					"source's: restore the file", err)
		case last:
			return 0,
				s.sampleError(id, source.ErrUnavailable, attempt, waited, "then given up", err)
		}
		// The last pause ends at the timeout, so that the last attempt is made then and no sooner.
		pause := min(s.pause(attempt, longest), s.opts.Timeout-waited)
		if s.opts.Retried != nil {
			s.opts.Retried(id, attempt, pause, err)
		}
		if err := sleep(ctx, pause); err != nil {
			return 0, &source.SampleError{
				ID:   id,
				Path: s.path(id),
				Kind: source.ErrUnavailable,
				Err:  err,
			}
		}
	}
}

// Stat does not retry: if it fails the caller reads the sample, which does.
func (s *Source) Stat(ctx context.Context, id int) (source.Stamp, error) {
	return s.source.Stat(ctx, id)
}

// pause returns the time to wait after this many attempts: twice as long each time, up to longest,
// less a random part of up to a half, so that reads that failed together are not retried together.
func (s *Source) pause(attempts int, longest time.Duration) time.Duration {
	full := longest
	if doublings := attempts - 1; doublings < 10 {
		full = min(firstPause<<doublings, longest)
	}
	return full/2 + time.Duration(s.opts.Random()*float64(full/2))
}

// sampleError returns an error that states how often and for how long sample id was tried, the
// verdict, and how the last attempt failed.
func (s *Source) sampleError(id int, kind error, attempts int, waited time.Duration, verdict string,
	err error,
) error {
	times := "once"
	if attempts > 1 {
		times = fmt.Sprintf("%d times", attempts)
	}
	var sample *source.SampleError
	path := s.path(id)
	if errors.As(err, &sample) { // do not name the sample twice
		path = sample.Path
		if sample.Err != nil {
			err = sample.Err
		}
	}
	return &source.SampleError{
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

// Close ends the watchdog and closes the source. No Read may be in progress.
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

// watch checks the reads in progress, four times per SlowAfter.
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

// slow returns the reads that have become slow, each once.
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
