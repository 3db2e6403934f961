package retry

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a source whose reads call a function.
type scripted struct {
	read   func(ctx context.Context, id int, dst []byte) error
	closed bool
}

func (s *scripted) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	return 0, s.read(ctx, id, dst)
}

func (s *scripted) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }
func (s *scripted) Close() error                                    { s.closed = true; return nil }
func (s *scripted) Path(int) string                                 { return "/data/cat/1.jpg" }

func failure(kind error) error {
	return &source.SampleError{ID: 7, Path: "/data/cat/1.jpg", Kind: kind, Err: io.ErrNoProgress}
}

func TestReadsAgainUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var attempts []time.Duration
		inner := &scripted{read: func(_ context.Context, _ int, dst []byte) error {
			attempts = append(attempts, time.Since(start))
			if len(attempts) < 10 {
				return failure(source.ErrUnavailable)
			}
			copy(dst, "ok")
			return nil
		}}
		retried := 0
		s := New(inner, Options{
			Random:  func() float64 { return 0.5 }, // pauses of three quarters
			Retried: func(int, int, time.Duration, error) { retried++ },
		})
		dst := make([]byte, 2)
		if _, err := s.Read(t.Context(), 7, dst); err != nil || string(dst) != "ok" {
			t.Fatal(err, dst)
		}
		var want []time.Duration
		at := time.Duration(0)
		for _, pause := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 0} {
			want = append(want, at)
			at += pause * time.Millisecond * 3 / 4
		}
		if diff := cmp.Diff(want, attempts); diff != "" || retried != 9 {
			t.Errorf("%d retried; attempts (-want +got):\n%s", retried, diff)
		}
		if err := s.Close(); err != nil || !inner.closed {
			t.Error("the source was not closed", err)
		}
	})
}

func TestJitterStaysWithinBounds(t *testing.T) {
	for attempts := 1; attempts < 200; attempts++ {
		for _, random := range []float64{0, 0.3, 0.999999} {
			s := New(&scripted{}, Options{Random: func() float64 { return random }})
			full := min(firstPause<<min(attempts-1, 20), lastPause)
			if p := s.pause(attempts, lastPause); p < full/2 || p > full {
				t.Fatalf("after %d attempts: %v of %v", attempts, p, full)
			}
		}
	}
}

func TestPermanentFailuresAreReturnedAtOnce(t *testing.T) {
	for _, kind := range []error{
		source.ErrMissing, source.ErrUnreadable, source.ErrShort, source.ErrLong,
		source.ErrEmpty, source.ErrNoSample, source.ErrLength,
	} {
		synctest.Test(t, func(t *testing.T) {
			start, reads := time.Now(), 0
			s := New(&scripted{
				read: func(context.Context, int, []byte) error { reads++; return failure(kind) },
			}, Options{})
			if _, err := s.Read(t.Context(), 7, nil); !errors.Is(err, kind) {
				t.Errorf("%v became %v", kind, err)
			}
			if reads != 1 || time.Since(start) != 0 {
				t.Errorf("%v: %d reads in %v", kind, reads, time.Since(start))
			}
		})
	}
}

func TestGivesUpAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, last := time.Now(), time.Duration(0)
		s := New(&scripted{read: func(context.Context, int, []byte) error {
			last = time.Since(start)
			return failure(source.ErrUnavailable)
		}}, Options{})
		_, err := s.Read(t.Context(), 7, nil)
		if last != 60*time.Second || time.Since(start) != last {
			t.Errorf("the last attempt was after %v, the end after %v", last, time.Since(start))
		}
		var sample *source.SampleError
		if !errors.As(err, &sample) || sample.ID != 7 || sample.Path != "/data/cat/1.jpg" ||
			!errors.Is(err, source.ErrUnavailable) || !errors.Is(err, io.ErrNoProgress) {
			t.Fatalf("%#v", err)
		}
		for _, word := range []string{
			"sample 7", "/data/cat/1.jpg",
			" times in 1m0s, then given up",
		} {
			if strings.Count(err.Error(), word) != 1 {
				t.Errorf("%q does not say %q once", err, word)
			}
		}
	})
}

func TestReadThatOutlastsTheTimeoutIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := New(&scripted{read: func(context.Context, int, []byte) error {
			reads++
			<-time.After(90 * time.Second)
			return failure(source.ErrUnavailable)
		}}, Options{})
		if _, err := s.Read(t.Context(), 7, nil); err == nil || reads != 1 ||
			!strings.Contains(err.Error(), "tried once in 1m30s") {
			t.Errorf("%d reads: %v", reads, err)
		}
	})
}

func TestCancelEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		s := New(&scripted{
			read: func(context.Context, int, []byte) error {
				return failure(source.ErrUnavailable)
			},
		}, Options{})
		_, err := s.Read(ctx, 7, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestSlowIsCalledOncePerSlowRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type told struct {
			id          int
			path        string
			since, when time.Duration
		}
		start := time.Now()
		var mu sync.Mutex
		var all []told
		s := New(&scripted{read: func(_ context.Context, id int, _ []byte) error {
			<-time.After(time.Duration(id) * time.Second)
			return nil
		}}, Options{Slow: func(id int, path string, since time.Time) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, told{id, path, since.Sub(start), time.Since(start)})
		}})
		<-time.After(500 * time.Millisecond)
		var reads sync.WaitGroup
		for _, seconds := range []int{1, 9, 60} {
			reads.Go(func() {
				if _, err := s.Read(t.Context(), seconds, nil); err != nil {
					t.Error(err)
				}
			})
		}
		reads.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// The watchdog checks every 2.5 seconds.
		want := []told{{60, "/data/cat/1.jpg", 500 * time.Millisecond, 12500 * time.Millisecond}}
		if diff := cmp.Diff(want, all, cmp.AllowUnexported(told{})); diff != "" {
			t.Errorf("slow reads (-want +got):\n%s", diff)
		}
		if len(s.reads) != 0 || len(s.idle) != 3 {
			t.Errorf("%d reads in progress, %d idle", len(s.reads), len(s.idle))
		}
	})
}

func TestReadDoesNotAllocate(t *testing.T) {
	s := New(&scripted{read: func(context.Context, int, []byte) error { return nil }},
		Options{Slow: func(int, string, time.Time) {}})
	defer s.Close() //nolint:errcheck // it cannot fail
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, _ = s.Read(ctx, 1, nil) }); n != 0 {
		t.Errorf("%v allocations per read", n)
	}
}

func TestAsUnwrapsTheSource(t *testing.T) {
	s := New(New(&scripted{}, Options{}), Options{})
	locator, ok := source.As[source.Locator](s)
	if !ok || locator.Path(7) != "/data/cat/1.jpg" {
		t.Error("the path was not found")
	}
	if _, ok := source.As[interface{ Nothing() }](s); ok {
		t.Error("As found a type that is not in the chain")
	}
}

func BenchmarkRead(b *testing.B) {
	s := New(&scripted{read: func(context.Context, int, []byte) error { return nil }},
		Options{Slow: func(int, string, time.Time) {}})
	defer s.Close() //nolint:errcheck // it cannot fail
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Read(b.Context(), 1, nil); err != nil {
			b.Fatal(err)
		}
	}
}
