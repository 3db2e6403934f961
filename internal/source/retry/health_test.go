package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// shelf is a source of samples whose reads and probes return what fault returns.
type shelf struct {
	samples int
	fault   func(id int) error // nil: the sample can be read
	takes   time.Duration      // duration of every failed attempt

	mu            sync.Mutex
	reads, probes int
}

func (s *shelf) Read(_ context.Context, id int, _ []byte) (source.Stamp, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	return 0, s.try(id)
}

func (s *shelf) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }

func (s *shelf) Probe(_ context.Context, id int) error {
	s.mu.Lock()
	s.probes++
	s.mu.Unlock()
	return s.try(id)
}

func (s *shelf) try(id int) error {
	if id < 0 || id >= s.samples {
		return &source.SampleError{ID: id, Kind: source.ErrNoSample}
	}
	s.mu.Lock()
	err := s.fault(id)
	s.mu.Unlock()
	if err == nil {
		return nil
	}
	if s.takes > 0 {
		<-time.After(s.takes)
	}
	var sample *source.SampleError
	if errors.As(err, &sample) {
		return err
	}
	return &source.SampleError{
		ID:   id,
		Path: s.Path(id),
		Kind: source.ErrUnavailable,
		Err:  fmt.Errorf("read: %w", err),
	}
}

func (s *shelf) Path(id int) string { return fmt.Sprintf("/data/%d.jpg", id) }
func (s *shelf) Close() error       { return nil }

// bad returns a shelf on which the samples ids always return err.
func bad(samples int, err error, ids ...int) *shelf {
	all := make(map[int]bool)
	for _, id := range ids {
		all[id] = true
	}
	return &shelf{samples: samples, fault: func(id int) error {
		if all[id] {
			return err
		}
		return nil
	}}
}

// TestFaultIsTheSamplesIfOthersCanBeRead: such a sample is unreadable after a second or two. If no
// other sample can be read either, the source is unavailable after the timeout.
func TestFaultIsTheSamplesIfOthersCanBeRead(t *testing.T) {
	all := make([]int, 100)
	for i := range all {
		all[i] = i
	}
	const timeout = 60 * time.Second
	for _, c := range []struct {
		name    string
		source  source.Source
		before  []int // read before
		kind    error
		soonest time.Duration
		latest  time.Duration
	}{
		{
			"a bad file", bad(100, syscall.EIO, 7), all[20:60], source.ErrUnreadable, time.Second,
			2 * time.Second,
		},
		{
			"the first to be read", bad(100, syscall.EIO, 7), nil, source.ErrUnreadable,
			time.Second,
			2 * time.Second,
		},
		{
			"one of two", bad(8, syscall.EIO, 0, 1, 2, 3, 4, 5, 7), nil, source.ErrUnreadable,
			time.Second, 2 * time.Second,
		},
		{
			"the last of all", bad(8, syscall.EIO, 7), nil, source.ErrUnreadable, time.Second,
			2 * time.Second,
		},
		{
			"among bad ones", bad(100, syscall.EIO, 5, 6, 7, 8, 9), nil, source.ErrUnreadable,
			time.Second, 3 * time.Second,
		},
		{
			"others have become bad", bad(100, syscall.EIO, 7, 20, 22, 24),
			[]int{21, 23, 25, 26},
			source.ErrUnreadable, time.Second, 3 * time.Second,
		},
		{
			"a file system that is damaged", bad(100, syscall.EUCLEAN, 7), all[20:60],
			source.ErrUnreadable, time.Second, 2 * time.Second,
		},
		{
			"a wrong checksum", bad(100, syscall.EBADMSG, 7), all[20:60], source.ErrUnreadable,
			time.Second, 2 * time.Second,
		},
		{
			"no data", bad(100, syscall.ENODATA, 7), all[20:60], source.ErrUnreadable, time.Second,
			2 * time.Second,
		},
		{
			"a server's disk", bad(100, syscall.EREMOTEIO, 7), all[20:60], source.ErrUnreadable,
			time.Second, 2 * time.Second,
		},
		{
			"a damaged block", bad(100, syscall.EILSEQ, 7), all[20:60], source.ErrUnreadable,
			time.Second, 2 * time.Second,
		},

		{"all fail", bad(100, syscall.EIO, all...), nil, source.ErrUnavailable, timeout, timeout},
		{"the only one", bad(1, syscall.EIO, 0), nil, source.ErrUnavailable, timeout, timeout},
		{
			"not connected", bad(100, syscall.ENOTCONN, 7), all[20:60], source.ErrUnavailable,
			timeout, timeout,
		},
		{
			"stale", bad(100, syscall.ESTALE, 7), all[20:60], source.ErrUnreadable, time.Second,
			2 * time.Second,
		},
		{
			"no device", bad(100, syscall.ENODEV, 7), all[20:60], source.ErrUnavailable, timeout,
			timeout,
		},
		{
			"timed out", bad(100, syscall.ETIMEDOUT, 7), all[20:60], source.ErrUnavailable,
			timeout,
			timeout,
		},
		{
			"reset", bad(100, syscall.ECONNRESET, 7), all[20:60], source.ErrUnavailable, timeout,
			timeout,
		},
		{
			"too many files", bad(100, syscall.EMFILE, 7), all[20:60], source.ErrUnavailable,
			timeout,
			timeout,
		},
		{
			"a source without probes",
			noProbes{bad(100, syscall.EIO, 7)},
			all[20:60],
			source.ErrUnavailable, timeout, timeout,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(c.source, Options{Timeout: timeout})
				for _, id := range c.before {
					if _, err := s.Read(t.Context(), id, nil); err != nil {
						t.Fatal(err)
					}
				}
				id := 7
				if only, ok := c.source.(*shelf); ok && only.samples == 1 {
					id = 0
				}
				start := time.Now()
				_, err := s.Read(t.Context(), id, nil)
				took := time.Since(start)
				if !errors.Is(err, c.kind) || took < c.soonest || took > c.latest {
					t.Fatalf("%v after %v, want %v after %v to %v", err, took, c.kind, c.soonest,
						c.latest)
				}
				var sample *source.SampleError
				if !errors.As(err, &sample) || sample.ID != id ||
					sample.Path != fmt.Sprintf("/data/%d.jpg", id) || sample.Err == nil {
					t.Errorf("%#v", err)
				}
				if c.kind == source.ErrUnreadable &&
					(errors.Is(err, source.ErrUnavailable) ||
						!strings.Contains(err.Error(), "while other samples could be read")) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// noProbes is a source that is not a Prober.
type noProbes struct{ source source.Source }

func (n noProbes) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	return n.source.Read(ctx, id, dst)
}

func (n noProbes) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }
func (n noProbes) Path(id int) string {
	return n.source.(source.Locator).Path(id)
}
func (n noProbes) Close() error { return n.source.Close() }

// TestSeveralBadFilesAreFoundQuickly: reading two hundred files, ten of them bad, one by one does
// not take minutes, and few probes are needed.
func TestSeveralBadFilesAreFoundQuickly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := bad(200, syscall.EIO, 0, 20, 40, 60, 61, 62, 63, 120, 140, 199)
		s := New(src, Options{})
		start, left := time.Now(), 0
		for id := range src.samples {
			switch _, err := s.Read(t.Context(), id, nil); {
			case errors.Is(err, source.ErrUnreadable):
				left++
			case err != nil:
				t.Fatal(err)
			}
		}
		if took := time.Since(start); left != 10 || took > 20*time.Second {
			t.Errorf("%d were left out, in %v", left, took)
		}
		if src.reads > 300 || src.probes > 150 {
			t.Errorf("%d reads and %d probes", src.reads, src.probes)
		}
	})
}

// TestUnreliableSourceIsNotBlamedOnSamples: if attempts fail at random no sample is blamed, and a
// bad one is still found.
func TestUnreliableSourceIsNotBlamedOnSamples(t *testing.T) {
	for _, share := range []float64{0.02, 0.1, 0.3} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				src := &shelf{samples: 3000}
				src.fault = func(id int) error {
					if id%1000 == 500 || rng.Float64() < share {
						return syscall.EIO
					}
					return nil
				}
				s := New(src, Options{Random: func() float64 { return 0.5 }})
				for id := range src.samples {
					start := time.Now()
					_, err := s.Read(t.Context(), id, nil)
					switch wrong := id%1000 == 500; {
					case wrong && (!errors.Is(err, source.ErrUnreadable) ||
						time.Since(start) > 60*time.Second):
						t.Errorf("sample %d: %v after %v", id, err, time.Since(start))
					case !wrong && err != nil:
						t.Errorf("sample %d: %v", id, err)
					}
				}
			})
		})
	}
}

// TestOutagesOfTheSourceAreNotBlamedOnSamples: the source is repeatedly down for a while, for all
// samples.
func TestOutagesOfTheSourceAreNotBlamedOnSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		source := &shelf{samples: 100}
		source.fault = func(int) error {
			if time.Since(start)%(20*time.Second) >= 10*time.Second {
				return syscall.EIO
			}
			return nil
		}
		s := New(source, Options{})
		var readers sync.WaitGroup
		for reader := range 4 {
			readers.Go(func() {
				for i := range 1000 {
					if _, err := s.Read(t.Context(), (i*4+reader)%100, nil); err != nil {
						t.Error(err)
						return
					}
					<-time.After(100 * time.Millisecond)
				}
			})
		}
		readers.Wait()
	})
}

// TestBadSampleOnSlowDiskIsFoundInFewAttempts: the disk takes 30 seconds to report a bad sector.
func TestBadSampleOnSlowDiskIsFoundInFewAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := bad(200, syscall.EIO, 120)
		src.takes = 30 * time.Second
		s := New(src, Options{})
		for id := range 110 {
			if _, err := s.Read(t.Context(), id, nil); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if _, err := s.Read(t.Context(), 120, nil); !errors.Is(err, source.ErrUnreadable) ||
			time.Since(start) > 66*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestMissingSamplesSayNothingAboutTheSource: samples that could be read before are missing when
// they are probed.
func TestMissingSamplesSayNothingAboutTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := false
		src := &shelf{samples: 100}
		src.fault = func(id int) error {
			switch {
			case id == 7:
				return syscall.EIO
			case id >= 20 && gone:
				return &source.SampleError{ID: id, Kind: source.ErrMissing}
			}
			return nil
		}
		s := New(src, Options{})
		for id := 20; id < 40; id++ {
			if _, err := s.Read(t.Context(), id, nil); err != nil {
				t.Fatal(err)
			}
		}
		gone = true
		start := time.Now()
		if _, err := s.Read(t.Context(), 7, nil); !errors.Is(err, source.ErrUnreadable) ||
			time.Since(start) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestCancelledReadReturnsNoVerdict: a cancelled read blames neither sample nor source.
func TestCancelledReadReturnsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		defer cancel()
		s := New(bad(100, syscall.EIO, 7), Options{})
		if _, err := s.Read(ctx, 7, nil); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != 600*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
